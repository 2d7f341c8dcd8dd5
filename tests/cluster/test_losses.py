"""A topology over three hosts that writes files loses and doubles nothing, whatever becomes of hosts and links."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from kit.network.boxed import Job
from kit.runs import assert_same_rows, read_jsonl
from tailrace.testing.cluster import Box

ROWS, PER_S = 4_000, 400
WORKERS = 3
CUT_S = 6.0
"""Longer than a worker may be silent."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(700)]


def assert_exact(folder: Path) -> None:
    """Every tuple exactly once: a row of a process that was replaced would be there twice."""
    assert_same_rows((entry["n"] for entry in read_jsonl(folder)), range(ROWS))


def test_a_host_is_cut_off_and_healed(box: Box, tmp_path: Path) -> None:
    with Job(box, tmp_path, ROWS, PER_S, workers=WORKERS) as job:
        job.until_durable(ROWS // 5)
        host = box.host_of(job.pids[1])
        host.plug(False)
        try:
            time.sleep(CUT_S)
        finally:
            host.plug(True)
        said = job.end()
    assert_exact(tmp_path)
    assert said["recoveries"] >= 1, "it was silent for too long"


@pytest.mark.cluster
def test_two_workers_are_cut_off_from_each_other_only(box: Box, tmp_path: Path) -> None:
    with Job(box, tmp_path, ROWS, PER_S, workers=WORKERS) as job:
        job.until_durable(ROWS // 5)
        one, other = list({host.name: host for host in map(box.host_of, job.pids.values())}.values())[:2]
        box.cut_between(one, other, True)
        try:
            time.sleep(CUT_S)
        finally:
            box.cut_between(one, other, False)
        said = job.end()
    assert_exact(tmp_path)
    assert said["recoveries"] >= 1, "their links were lost"


@pytest.mark.cluster
def test_an_executor_is_killed(box: Box, tmp_path: Path) -> None:
    with Job(box, tmp_path, ROWS, PER_S, workers=WORKERS) as job:
        job.until_durable(ROWS // 5)
        for pid in box.host_of(job.pids[1]).executors():
            os.kill(pid, signal.SIGKILL)
        said = job.end()
    assert_exact(tmp_path)
    assert said["restarts"][1] >= 1


@pytest.mark.cluster
def test_the_host_of_the_driver_is_slow(box: Box, tmp_path: Path) -> None:
    with Job(box, tmp_path, ROWS, PER_S, workers=WORKERS) as job:
        job.until_durable(ROWS // 5)
        box.driver.slow(0.1)
        try:
            time.sleep(CUT_S)
        finally:
            box.driver.slow(None)
        job.end()
    assert_exact(tmp_path)
