"""Workers are spread over the hosts of the cluster, and it is told where they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kit.network.boxed import Job
from tailrace.testing.cluster import Box

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(700)]


def homes(job: Job) -> list[int]:
    """How many workers hosts have, of those that have any. On a busy machine one may just be lost, for no reason."""
    there = [host.name for host in job.box.hosts for pid in job.pids.values() if pid in host.pids()]
    return sorted(Counter(there).values())


@pytest.mark.parametrize(("workers", "expected"), [(3, [1, 1, 1]), (5, [1, 2, 2])])
def test_workers_are_spread_evenly_and_one_that_is_killed_comes_back(
    workers: int, expected: list[int], box: Box, tmp_path: Path
) -> None:
    with Job(box, tmp_path, 2_000, 200, workers=workers) as job:
        job.until_durable(100)
        job.until(lambda said: homes(job) == expected, f"workers on hosts: {expected}")
        victim = job.pids[1]
        os.kill(victim, signal.SIGKILL)
        job.until(lambda said: said["restarts"][1] and job.pids.get(1, victim) != victim, "its successor")
        job.until(lambda said: homes(job) == expected, f"workers on hosts again: {expected}")
        job.end()


def test_the_doctor_says_what_hosts_there_are(box: Box) -> None:
    conf = [word for name, value in box.conf.items() for word in ("--conf", f"{name}={value}")]
    command = [str(Path(sys.executable).with_name("tailrace")), "doctor", "--master", box.url, *conf]
    process = box.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, _ = process.communicate(timeout=400)
    there = ", ".join(f"2 on {host.address}" for host in box.hosts)
    assert f"slots: {there}; workers are spread evenly over them" in " ".join(said.split()), said
