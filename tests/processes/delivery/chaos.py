"""A run to which everything happens at once; at its end every row must be there, and in committing sinks once.

It is a program: ``python tests/processes/delivery/chaos.py --seconds 600 --seed 1``. The seed decides what happens
when; how the processes take it differs from run to run. ``test_chaos.py`` starts it, and besides stops the driver
itself and leaves its output unread for a while.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # for tests/kit: this file is a program

import tailrace as tr
from kit.runs import assert_same_rows, homes, read_jsonl, read_parquet
from tailrace.runtime.driver.host import SubprocessHost
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.listening import LOOPBACK, Place
from tailrace.runtime.options import RunSettings
from tailrace.testing.namespaces import Namespaces, why_no_namespaces

WORKERS = 4
SPLITS = 2
PER_SECOND = 250
ENDLESS = range(10_000_000)

SLOW_DISK = "TAILRACE_CHAOS_DISK"
"""Names the file that says for how many milliseconds a sync of a file takes, everywhere."""

sync = os.fsync


def slow_sync(descriptor: int) -> None:
    try:
        delay_ms = float(Path(os.environ[SLOW_DISK]).read_text() or 0)
    except (OSError, ValueError):
        delay_ms = 0.0
    time.sleep(delay_ms / 1000)
    sync(descriptor)


class Loud:
    """Prints now and again, and gives the disk of its worker the speed that the driver asks for."""

    def open(self, context: tr.Context) -> None:
        os.fsync = slow_sync

    def process(self, number: int) -> int:
        if number % 50 == 0:
            print("tuple", number, "x" * 2000)
        return number


async def wait_a_while(number: int) -> int:
    await asyncio.sleep(0.2 if number % 500 == 0 else 0.002)
    return number


def work(number: int) -> int:
    time.sleep(0.01 if number % 100 == 0 else 0.0005)
    return number


def rows(numbers: list[int]) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


def twice(number: int) -> list[dict[str, int]]:
    return [{"n": 2 * number}, {"n": 2 * number + 1}]


def not_sevens(number: int) -> int:
    if number % 7 == 0:
        raise ValueError("a seven")
    return number


def itself(number: int) -> int:
    return number


def in_bursts(split: int, splits: int) -> Iterator[int]:
    """A generator that waits: a few records, then nothing for a while."""
    for number in range(split, 10_000_000, splits):
        if number % 40 == split:
            time.sleep(0.1)
        yield number


@dataclass(frozen=True)
class Append:
    """Writes to a file that all workers share: a line is written at once, and may be written again."""

    path: Path

    def __call__(self, number: int) -> None:
        with self.path.open("a") as file:
            file.write(f"{number}\n")


@dataclass
class Chaos:
    """The topology with all its sinks, and what must be in them at the end."""

    folder: Path
    out: Any = field(default_factory=tr.to_list)

    def topology(self) -> tr.Topology:
        topology = tr.Topology("chaos")
        numbers = topology.source("numbers", tr.at_rate(ENDLESS, PER_SECOND), tasks=SPLITS)
        loud = numbers.map("loud", Loud, tasks=2 * WORKERS)
        waited = loud.map("wait", wait_a_while, tasks=2, concurrency=50)
        worked = waited.map("work", work, tasks=WORKERS, grouping=tr.pull())
        batches = worked.map_batch("rows", rows, tasks=2, max_size=16, max_wait_ms=5)
        batches.sink("lines", tr.to_jsonl(self.folder / "lines", roll_seconds=0.5), tasks=2)
        worked.flat_map("twice", twice, tasks=2, grouping=tr.fields(itself)).sink(
            "table", tr.to_parquet(self.folder / "table", schema="n long", roll_seconds=0.5), tasks=2
        )
        good = worked.map("not_sevens", not_sevens, tasks=2, on_error="dead_letter")
        good.sink("list", self.out)
        good.dead_letters.map("value", lambda letter: {"n": letter["value"]}).sink(
            "letters", tr.to_jsonl(self.folder / "letters", roll_seconds=0.5)
        )
        bursts = topology.source("bursts", tr.from_iterable(in_bursts))
        bursts.map("same", itself, tasks=2).sink("calls", tr.to_call(Append(self.folder / "calls")))
        return topology

    def check(self) -> str:
        """Raises AssertionError unless all sinks have the same roots, from the first on, each row once."""
        found = [row["n"] for row in read_jsonl(self.folder / "lines")]
        ends = [sum(number % SPLITS == split for number in found) for split in range(SPLITS)]
        roots = [split + SPLITS * index for split, end in enumerate(ends) for index in range(end)]
        sevens = [number for number in roots if number % 7 == 0]
        self._same("lines", found, roots)
        pairs = (number for root in roots for number in (2 * root, 2 * root + 1))
        self._same("table", read_parquet(self.folder / "table"), pairs)
        self._same("list", self.out.values, set(roots) - set(sevens))
        self._same("letters", (row["n"] for row in read_jsonl(self.folder / "letters")), sevens)
        calls = Counter(int(line) for line in (self.folder / "calls").read_text().splitlines())
        assert set(calls) == set(range(len(calls))), f"calls has gaps: calls={len(calls)} highest={max(calls)}"
        return f"exact: roots={len(roots)} calls={len(calls)} repeated={calls.total() - len(calls)}"

    def _same(self, sink: str, found: Iterable[int], expected: Iterable[int]) -> None:
        try:
            assert_same_rows(found, expected)
        except AssertionError as error:
            raise AssertionError(f"{sink}: {error}") from None


TECHNIQUES: list[dict[str, Any]] = [
    {"hedge": tr.fixed_timeout(50)},
    {"hedge": tr.adaptive_timeout()},
    {"hedge": None},
    {"shared_queues": "worker"},
    {"shared_queues": "node"},
    {"shared_queues": None},
    {"send": tr.lbf()},
    {"send": None},
]


class Strikes:
    """What can happen to a run. Whatever lasts is over when ``heal`` has been called."""

    def __init__(self, run: tr.Run, rng: random.Random, network: Namespaces | None, disk: Path) -> None:
        self._run, self._rng, self._network, self._disk = run, rng, network, disk
        self._stopped: dict[int, float] = {}  # pid -> when it goes on
        self._cut_until = self._slow_until = 0.0
        self.tally: Counter[str] = Counter()

    def strike(self) -> str:
        deeds: list[Callable[[], str]] = [self.kill, self.stop, self.slow, self.switch, self.switch]
        if self._network is not None:
            deeds.append(self.cut)
        deed = self._rng.choice(deeds)
        self.tally[deed.__name__] += 1
        return deed()

    def tick(self, now: float) -> None:
        """Ends what has lasted long enough."""
        for pid, until in list(self._stopped.items()):
            if now >= until:
                del self._stopped[pid]
                _signal(pid, signal.SIGCONT)
        if self._cut_until and now >= self._cut_until:
            self._cut_until = 0.0
            self._separate(False)
        if self._slow_until and now >= self._slow_until:
            self._slow_until = 0.0
            self._disk.write_text("0")

    def heal(self) -> None:
        self.tick(float("inf"))

    def kill(self) -> str:
        worker, pid = self._victim()
        _signal(pid, signal.SIGKILL)
        return f"kill worker {worker}"

    def stop(self) -> str:
        worker, pid = self._victim()
        for_s = self._rng.choice([0.5, 2.0, 5.0])
        self._stopped[pid] = time.monotonic() + for_s
        _signal(pid, signal.SIGSTOP)
        return f"stop worker {worker} for {for_s:g} s"

    def slow(self) -> str:
        ms, for_s = self._rng.choice([15, 100, 1000]), self._rng.choice([2.0, 10.0])
        self._disk.write_text(str(ms))
        self._slow_until = time.monotonic() + for_s
        return f"syncs take {ms} ms for {for_s:g} s"

    def switch(self) -> str:
        techniques = self._rng.choice(TECHNIQUES)
        self._run.tail(**techniques)
        return f"switch {techniques}"

    def cut(self) -> str:
        for_s = self._rng.choice([0.5, 3.0, 8.0])
        self._separate(True)
        self._cut_until = time.monotonic() + for_s
        return f"cut the machines from each other for {for_s:g} s"

    def _separate(self, apart: bool) -> None:
        assert self._network is not None
        for machine in self._network.machines:
            machine.isolate(apart)

    def _victim(self) -> tuple[int, int]:
        pids = self._run.workerPids()
        return self._rng.choice(sorted(pids.items())) if pids else (-1, 0)


def _signal(pid: int, number: int) -> None:
    """A worker that is not there has been replaced already."""
    if pid:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    folder = Path(tempfile.mkdtemp(prefix="tailrace-chaos-"))
    disk = folder / "disk"
    disk.write_text("0")
    os.environ[SLOW_DISK] = str(disk)
    os.fsync = slow_sync
    chaos = Chaos(folder)
    (folder / "calls").touch()
    with ExitStack() as stack:
        why_not = why_no_namespaces()
        network = None if why_not else stack.enter_context(Namespaces(2))
        say(f"left out, cuts between machines: {why_not}" if why_not else "workers are on two machines")
        try:
            verdict = torment(chaos, arguments.seconds, random.Random(arguments.seed), network, disk)
        except BaseException as error:
            say(f"NOT exact, seed {arguments.seed}, all output is in {folder}: {type(error).__name__}: {error}")
            raise
    say(verdict)
    shutil.rmtree(folder)


def torment(chaos: Chaos, seconds: float, rng: random.Random, network: Namespaces | None, disk: Path) -> str:
    topology = chaos.topology()
    assert set(homes(topology, WORKERS, "loud")) == set(range(WORKERS)), "every disk can be slow"
    prefixes = {} if network is None else {worker: network.machines[worker % 2].prefix for worker in range(WORKERS)}
    place = LOOPBACK if network is None else Place(network.address, network.address)
    options = RunSettings(workers=WORKERS, checkpoint=chaos.folder / "checkpoint", max_pending=2000)
    run = HostedRun(topology, options, SubprocessHost(prefixes), place)
    assert run.awaitRunning(60)
    strikes = Strikes(run, rng, network, disk)
    end = time.monotonic() + seconds
    next_at = time.monotonic() + 1
    while (now := time.monotonic()) < end and run.isActive:
        strikes.tick(now)
        if now >= next_at:
            next_at = now + rng.uniform(0.2, 6.0)
            say(f"{seconds - (end - now):.0f} s: {strikes.strike()}; {state(run)}")
        time.sleep(0.05)
    strikes.heal()
    say(f"stopping; {state(run)}")
    run.stop(timeout=120)
    error = run.exception()
    if error is not None:
        raise error
    return f"{chaos.check()} recoveries={run.coordinator.recoveries} {json.dumps(strikes.tally, sort_keys=True)}"


def state(run: tr.Run) -> str:
    last = run.lastProgress
    if last is None:
        return "no progress yet"
    restarts = sum(worker["restarts"] for worker in last["workers"])
    return f"durable={last['durable']} pending={last['pending']} restarts={restarts} recoveries={last['recoveries']}"


def say(text: str) -> None:
    """On stderr: stdout is what the test leaves unread."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    threading.current_thread().name = "chaos"
    main()
