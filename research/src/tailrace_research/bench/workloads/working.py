"""Tasks of a workload: they spend the work of each tuple, and write down when.

Notes stay in memory and go to a file a task when it is closed, so that measuring costs a microsecond a tuple.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.clock import system_clock
from tailrace.connector import SinkContext
from tailrace.runtime.worker.opening import Context
from tailrace_research.bench.workloads.spending import Means, Sleeping, Stalls
from tailrace_research.bench.workloads.timetable import Item


class Execution(NamedTuple):
    """A tuple that a task has executed. What it was asked to spend, and from when to when it did."""

    operator: str
    task: int
    root: int  # its index in the stream
    work_ns: int
    began_ns: int
    ended_ns: int


class Arrival(NamedTuple):
    """A tuple that has come to an end. ``part`` tells what comes of one root apart."""

    operator: str
    task: int
    root: int  # its index in the stream
    part: int
    due_ns: int
    done_ns: int


@dataclass(frozen=True)
class Speeds:
    """The slowness of each task, a factor on all it does, and the tuple from which on another one holds. Empty: 1."""

    slowness: tuple[float, ...] = ()
    later: tuple[float, ...] = ()
    middle: int = 0

    def of(self, task: int) -> tuple[float, float]:
        before = self.slowness[task] if self.slowness else 1.0
        return before, self.later[task] if self.later else before


@dataclass(frozen=True)
class Work:
    """The work of an operator on the body of a tuple. Whatever a task is slow by, it is slow at everything."""

    cost_ns: Callable[[Any], int]
    result: Callable[[Any], Any]
    folder: str  # for notes
    means: Means = field(default_factory=Sleeping)
    speeds: Speeds = field(default_factory=Speeds)
    stalls: Stalls | None = None


class Working:
    """A task of an operator that costs something."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._spend = work.means.open()
        self._times: Counter[int] = Counter()  # executions of a tuple by this task, where stalls are drawn
        self._notes = array("q")

    def open(self, context: Context) -> None:
        self._operator, self._task, self._epoch = context.operator, context.task, context.epoch
        self._slowness = self._work.speeds.of(context.task)

    def process(self, item: Item) -> Item:
        index, due_ns, body = item
        began_ns = system_clock()
        slowness = self._slowness[index >= self._work.speeds.middle]
        asked_ns, done_ns = self._ask(body)
        work_ns = int(asked_ns * slowness * self._stall(index))
        self._spend(max(0, work_ns - done_ns))
        self._notes.extend((index, work_ns, began_ns, system_clock()))
        return index, due_ns, self._work.result(body)

    def close(self) -> None:
        _write(self._work.folder, "executed", self._operator, self._task, self._epoch, self._notes)

    def _ask(self, body: Any) -> tuple[int, int]:
        """The cost of a tuple, and how much of it has been spent to find it out."""
        return self._work.cost_ns(body), 0

    def _stall(self, index: int) -> float:
        stalls = self._work.stalls
        if stalls is None:
            return 1.0
        self._times[index] += 1
        return stalls.factor_of(self._operator, self._task, index, self._times[index])


class Splitting(Working):
    """A task that makes several tuples of one: a result's body is ``(part, body)``."""

    def process(self, item: Item) -> Iterator[Item]:  # type: ignore[override]
        index, due_ns, bodies = super().process(item)
        return ((index, due_ns, (part, body)) for part, body in enumerate(bodies))


class Ending:
    """The task of a sink: notes when each tuple got there."""

    def __init__(self, folder: str, part_of: Callable[[Any], int]) -> None:
        self._folder = folder
        self._part_of = part_of
        self._notes = array("q")

    def open(self, context: SinkContext) -> None:
        self._operator, self._task, self._epoch = context.operator, context.task, context.epoch

    def process(self, item: Item) -> None:
        index, due_ns, body = item
        self._notes.extend((index, self._part_of(body), due_ns, system_clock()))

    def close(self) -> None:
        _write(self._folder, "arrived", self._operator, self._task, self._epoch, self._notes)


def _write(folder: str, what: str, operator: str, task: int, epoch: int, notes: array[int]) -> None:
    with Path(folder, f"{what}-{operator}-{task}-{epoch}").open("wb") as file:
        notes.tofile(file)


def executions(folder: Path) -> list[Execution]:
    """In the order in which they began."""
    found = [Execution(operator, task, *note) for operator, task, note in _read(folder, "executed")]
    return sorted(found, key=lambda execution: execution.began_ns)


def arrivals(folder: Path) -> list[Arrival]:
    return [Arrival(operator, task, *note) for operator, task, note in _read(folder, "arrived")]


def _read(folder: Path, what: str) -> Iterator[tuple[str, int, Iterable[int]]]:
    for path in sorted(folder.glob(f"{what}-*")):
        operator, task, _ = path.name.removeprefix(f"{what}-").rsplit("-", 2)
        notes = array("q", path.read_bytes())
        for start in range(0, len(notes), 4):
            yield operator, int(task), notes[start : start + 4]


def latencies_ns(arrived: Iterable[Arrival]) -> dict[int, int]:
    """Root -> from when it was due until all that comes of it had arrived; of copies the first counts."""
    first: dict[tuple[int, str, int], int] = {}
    for arrival in arrived:
        key = (arrival.root, arrival.operator, arrival.part)
        latency_ns = arrival.done_ns - arrival.due_ns
        first[key] = min(latency_ns, first.get(key, latency_ns))
    latest: dict[int, int] = {}
    for (root, _, _), latency_ns in first.items():
        latest[root] = max(latency_ns, latest.get(root, 0))
    return latest
