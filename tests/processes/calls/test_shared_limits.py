"""Several processes keep one limit, as the service itself counts: with kills, and with refusals when it says so."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kit.counting_server
import kit.http_calls
import tailrace as tr
from kit.counting_server import Counts, counts_of, refuse
from tailrace.runtime.calls.limit_server import limit_address
from tailrace.testing.processes import wait_until

EXCESS = 1.05
USE = 0.9
RAMP_S = 2.0


@contextmanager
def service() -> Iterator[int]:
    """A counting server in a process of its own. Its port."""
    command = [sys.executable, kit.counting_server.__file__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(30)


@contextmanager
def tasks(count: int, limit: tr.Limit, port: int, concurrency: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that call the service as often as they may. They end with the block."""
    address = limit_address(limit)
    command = [sys.executable, kit.http_calls.__file__]
    environment = {"PYTHONPATH": f"{Path(kit.__path__[0]).parent}:{':'.join(filter(None, sys.path))}"}
    started = []
    try:
        for _ in range(count):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
            started.append(process)
            assert process.stdin is not None
            process.stdin.write(pickle.dumps((limit, address, port, concurrency)))
            process.stdin.close()
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait(30)


def await_calls(port: int, seconds: float) -> Counts:
    """Wait for so many seconds of the service's clock, beginning with its first call."""
    wait_until(lambda: counts_of(port).calls, 60, "the first call")
    first = counts_of(port).calls[0]
    while (counts := counts_of(port)).now < first + seconds:
        time.sleep(max(0.0, min(1.0, first + seconds - counts.now)))
    return counts


def assert_kept(counts: Counts, limit: tr.Limit) -> None:
    assert limit.per_s is not None
    assert counts.most_in_a_second() <= EXCESS * limit.per_s + 1


def assert_used(counts: Counts, limit: tr.Limit, from_s: float, until_s: float) -> None:
    """``from_s``, ``until_s``: since the first call."""
    assert limit.per_s is not None
    first = counts.calls[0]
    assert counts.rate(first + from_s, first + until_s) >= USE * limit.per_s


@pytest.mark.parametrize(("per_s", "concurrency"), [(20, 8), (200, 16), (2000, 64)])
def test_three_tasks_keep_and_use_a_limit_though_one_is_killed(per_s: int, concurrency: int) -> None:
    limit = tr.limit(f"killed-{per_s}", per_s=per_s)
    with service() as port, tasks(3, limit, port, concurrency) as processes:
        await_calls(port, RAMP_S + 2)
        processes[0].kill()
        counts = await_calls(port, RAMP_S + 6)
    assert_kept(counts, limit)
    assert_used(counts, limit, RAMP_S, RAMP_S + 6)


def test_a_service_that_refuses_calls_is_left_alone_and_then_used_again() -> None:
    limit = tr.limit("refused", per_s=200)
    with service() as port, tasks(3, limit, port, 16):
        before = await_calls(port, RAMP_S + 1)
        refuse(port, seconds=1.0, retry_after=1.0)
        counts = await_calls(port, RAMP_S + 1 + 16)
    assert_kept(counts, limit)
    assert_used(counts, limit, RAMP_S, RAMP_S + 1)
    refused = [call for call in counts.refused if call > before.now]
    assert refused
    assert len(refused) <= 200  # those that most of the recent ones must be before all pause, and those on their way
    assert_used(counts, limit, RAMP_S + 1 + 13, RAMP_S + 1 + 16)
