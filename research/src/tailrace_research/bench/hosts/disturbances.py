"""Disturbances of a run: a host cut off, an executor or a process killed, a busy machine with workers that stop."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.runtime.options import RunSettings
from tailrace.testing.cluster import Box
from tailrace_research.bench.hosts.gaps import counting, first_times, longest_gap_s
from tailrace_research.bench.hosts.subject import Subject

CUT_S = 15.0
AFTER_S = 10.0
"""How long a run goes on after that, so that what it does then is seen as well."""

STOPPED_SHARE = 0.6
"""For how long a worker is stopped at most, as a share of the silence after which it counts as dead."""

BETWEEN_S = 1.0

COMPRESSOR = "import os, zlib\ndata = os.urandom(1 << 20)\nwhile True: zlib.compress(data, 9)\n"


def cut_gap_s(box: Box, per_s: float, worker: int) -> float:
    """The longest time in which nothing was completed, when the host of this worker was cut off and healed."""
    with Subject(box.start, box.conf, per_s) as subject:
        host = box.host_of(subject.pids[worker])
        begun_ns = time.monotonic_ns()
        host.plug(False)
        try:
            time.sleep(CUT_S)
        finally:
            host.plug(True)
            healed_ns = time.monotonic_ns()
        time.sleep(AFTER_S)
        subject.check()
        ended_ns = time.monotonic_ns()
        stamps = subject.finish()
    times = first_times(counting(stamps, host.name, begun_ns, healed_ns))
    return longest_gap_s(times, begun_ns, ended_ns)


def executor_kill_gap_s(box: Box, per_s: float, worker: int) -> float:
    """The longest time in which nothing was completed, when the executor of this worker was killed."""
    with Subject(box.start, box.conf, per_s) as subject:
        victims = box.host_of(subject.pids[worker]).executors()
        return _kill_gap_s(subject, victims)


def process_kill_gap_s(per_s: float, worker: int) -> float:
    """The longest time in which nothing was completed, on plain processes, when this worker's process was killed."""
    with Subject(subprocess.Popen, None, per_s) as subject:
        return _kill_gap_s(subject, [subject.pids[worker]])


def _kill_gap_s(subject: Subject, pids: list[int]) -> float:
    begun_ns = time.monotonic_ns()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    time.sleep(AFTER_S)
    subject.check()
    ended_ns = time.monotonic_ns()
    return longest_gap_s(first_times(subject.finish()), begun_ns, ended_ns)


def false_deaths(box: Box, per_s: float, minutes: float, rng: random.Random) -> int:
    """How many workers were declared dead that were not, on a busy machine, where single workers stop for a while."""
    most_s = STOPPED_SHARE * RunSettings().heartbeat_timeout_s
    with Subject(box.start, box.conf, per_s) as subject, compressors(os.cpu_count() or 1):
        deadline_s = time.monotonic() + 60 * minutes
        while time.monotonic() < deadline_s:
            subject.check()
            _stop_for(rng.choice(sorted(subject.pids.values())), rng.uniform(0.1, most_s))
            time.sleep(rng.uniform(0, 2 * BETWEEN_S))
        subject.finish()
        return subject.restarts


def _stop_for(pid: int, seconds: float) -> None:
    try:
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass  # it was declared dead, which is counted


@contextmanager
def compressors(count: int) -> Iterator[None]:
    """Processes that compress all the time."""
    processes = [subprocess.Popen([sys.executable, "-c", COMPRESSOR]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
