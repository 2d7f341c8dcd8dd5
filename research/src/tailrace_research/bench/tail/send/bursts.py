"""Tasks that share a link which is nearly used up, and one of them bursts: what send schedulers are for.

Time is counted in slots, in each of which the link takes one tuple. All tasks but the first send at random and evenly.
The first sends next to nothing, and now and then for a while so much that more is to be sent than the link takes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tailrace.clock import SECOND_NS
from tailrace.connector import SplitStart
from tailrace.errors import TailraceError
from tailrace.policy.techniques import Tail
from tailrace.runtime.connectors import to_call
from tailrace.runtime.connectors.iterable import split_names, split_numbers
from tailrace.runtime.links.frames import encode
from tailrace.topology import Run, Topology
from tailrace_research.bench.workloads.hosting import host
from tailrace_research.bench.workloads.timetable import TimetableReader
from tailrace_research.bench.workloads.working import Ending, arrivals
from tailrace_research.bench.workloads.workload import whole

TASKS = 12
STEADY = 0.7
"""The share of the uplink's slots that all tasks but the first fill together."""
CALM, BURST = 0.02, 0.7
"""The share that the first task fills between bursts, and during a burst."""
CYCLE, LENGTH = 2_000, 500  # slots
MOST_TUPLES = 80
"""Bound of an outgoing queue. A burst is more than that, if all tasks are served alike."""

BODY_BYTES = 2_500
"""Too many for two tuples to leave together."""

SPARE_S = 60.0


@dataclass(frozen=True)
class Bursts:
    """Due times by task, in nanoseconds since the start."""

    slot_ns: int
    due_ns: tuple[tuple[int, ...], ...] = field(repr=False)

    @property
    def tuple_bytes(self) -> int:
        """The bytes that a tuple takes on the link, in a parcel of its own."""
        item = (1 << 16, 1 << 50, bytes(BODY_BYTES))
        return len(encode([(1 << 20, 1, 1 << 16, 1 << 63, None, [item])]))

    @property
    def bytes_per_s(self) -> int:
        return self.tuple_bytes * SECOND_NS // self.slot_ns


def draw_bursts(seed: int, tuples: int, slot_ns: int) -> Bursts:
    """Draw a stream of about ``tuples`` tuples."""
    load = STEADY + CALM + (BURST - CALM) * LENGTH / CYCLE
    slots = tuples / load
    rng = Random(f"{seed} bursts")
    others = (_random_slots(rng, slots, STEADY / (TASKS - 1)) for _ in range(TASKS - 1))
    times = [_bursting_slots(rng, slots), *others]
    return Bursts(slot_ns, tuple(tuple(round(slot * slot_ns) for slot in task) for task in times))


def _random_slots(rng: Random, slots: float, rate: float) -> list[float]:
    found: list[float] = []
    at = rng.expovariate(rate)
    while at < slots:
        found.append(at)
        at += rng.expovariate(rate)
    return found


def _bursting_slots(rng: Random, slots: float) -> list[float]:
    """Drawn at the rate of a burst, and thinned out between them."""
    return [
        at
        for at in _random_slots(rng, slots, BURST)
        if LENGTH <= at % CYCLE < 2 * LENGTH or rng.random() < CALM / BURST
    ]


class _Blank(Sequence[bytes]):
    """Bodies that are alike and not the same: encoding names one thing once."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __getitem__(self, index: Any) -> Any:
        return bytes(BODY_BYTES)

    def __len__(self) -> int:
        return self._number


def home(senders: int) -> list[int]:
    """The worker of each task, if the tasks are spread over ``senders`` workers."""
    return [task % senders for task in range(TASKS)]


@dataclass(frozen=True)
class BurstSource:
    """Its tasks in all workers but the last send. The others are there for the places they take."""

    bursts: Bursts
    senders: int
    replayable: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        return split_names(tasks)

    def open(self, start: SplitStart) -> TimetableReader:
        index, splits = split_numbers(start.split)
        row, worker = divmod(index, self.senders + 1)
        due_ns = () if worker == self.senders else self.bursts.due_ns[row * self.senders + worker]
        return TimetableReader(_Blank(len(due_ns)), due_ns, start, index, splits)


@dataclass(frozen=True)
class BurstOutcome:
    """By task: latencies from due to received; the largest backlog; the time held back."""

    latencies_ns: list[list[int]] = field(repr=False)
    largest: list[int]
    blocked_ms: list[float]


def _here(topology: Topology, **options: Any) -> Run:
    run: Run = topology.run(host(), **options)
    return run


def run_bursts(
    bursts: Bursts, tail: Tail, *, senders: int = 1, start: Callable[..., Run] = _here, **options: Any
) -> BurstOutcome:
    """Tasks that send are in so many workers, and the one that receives is in another, beyond the limited link.

    Over TCP, so that limits of a machine can be put in its place: ``link_mbps=None``. ``options`` are those of a run.
    """
    workers = senders + 1
    sources = workers * TASKS // senders - 1
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        topology = Topology("bursts")
        stream = topology.source("tasks", BurstSource(bursts, senders), tasks=sources)
        stream.sink("end", to_call(partial(Ending, folder, whole)), tasks=1)
        link = {"link_mbps": bursts.bytes_per_s * 8 / 1e6, "outgoing_tuples": MOST_TUPLES, "ring": False}
        run = start(topology, workers=workers, tail=tail, **{**link, **options})
        timeout_s = 2 * max(due_ns[-1] for due_ns in bursts.due_ns) / SECOND_NS + SPARE_S
        if not run.awaitTermination(timeout_s):
            run.stop(0.0)
            raise TailraceError(f"a workload did not finish: workload=bursts timeout_s={timeout_s:.0f}")
        assert run.lastProgress is not None
        return _outcome_of(bursts, Path(folder), run.lastProgress, senders)


def _outcome_of(bursts: Bursts, folder: Path, progress: dict[str, Any], senders: int) -> BurstOutcome:
    told = next(operator for operator in progress["operators"] if operator["name"] == "tasks")["tasks"]
    places = [index for index in range(len(told)) if index % (senders + 1) != senders]  # of those that send
    latencies_ns: list[list[int]] = [[] for _ in places]
    for arrival in arrivals(folder):
        latencies_ns[places.index(arrival.root % len(told))].append(arrival.done_ns - arrival.due_ns)
    wanted = [len(due_ns) for due_ns in bursts.due_ns]
    if list(map(len, latencies_ns)) != wanted:
        raise TailraceError(f"a workload lost tuples, or doubled some: got={list(map(len, latencies_ns))} of={wanted}")
    tasks = [told[place] for place in places]
    return BurstOutcome(latencies_ns, [one["largestBacklog"] for one in tasks], [one["blockedMs"] for one in tasks])
