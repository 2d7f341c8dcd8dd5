"""Puts a recorded run together again: its roots, the trees of their tuples, and which task ran each tuple when.

The lineage of a child follows from that of its parent, the edge, and its index among its siblings. Trees therefore need
no pointers: the children of a tuple are found by the lineages that they must have. If a root was emitted several times,
the emission that completed counts. Roots whose trees have gaps are left out and counted.

Files of one machine share a clock. The wall clocks of different machines are assumed to agree; if they do not, the
difference appears as time that tuples take from one machine to the other, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from tailrace.core.protocol.lineage import BROADCAST, INDEX, MASK, STEP, root_lineage
from tailrace.core.tasks.stages import DEAD_LETTER_INDEX
from tailrace.errors import OptionError
from tailrace.metrics.recording import SUFFIX, NotARecording, RecordedFile, read_recorded
from tailrace.topology import Port, Role

GAP = 64
"""Most outputs of a call that may be missing in a row, for example because they could not be sent."""

RUN_WIDE = ("topology", "job", "workers", "operators", "edges", "splits", "home")


@dataclass(frozen=True)
class OperatorShape:
    """An operator as it ran."""

    name: str
    role: Role
    tasks: int
    first_task: int
    concurrency: int


@dataclass(frozen=True)
class EdgeShape:
    """An edge as it was used."""

    upstream: int
    downstream: int
    grouping: str
    keyed: bool  # equal keys must meet in one task
    has_key: bool
    port: Port
    salt: int
    fused: bool
    by_lineage: bool


@dataclass(frozen=True)
class Shape:
    """The topology that ran: operators in topological order, edges, and the worker of every task."""

    topology: str
    operators: tuple[OperatorShape, ...]
    edges: tuple[EdgeShape, ...]
    home: tuple[int, ...]

    def operator_of(self, task: int) -> int:
        return next(
            index for index, one in enumerate(self.operators) if one.first_task <= task < one.first_task + one.tasks
        )


@dataclass
class RunTrace:
    """Roots in the order in which they were due, and the tuples of their trees. Times count from the first due time."""

    shape: Shape
    due_ns: list[int] = field(default_factory=list, repr=False)
    complete_ns: list[int] = field(default_factory=list, repr=False)
    sources: list[int] = field(default_factory=list, repr=False)  # of each root, the number of its source's task
    roots: list[list[int]] = field(default_factory=list, repr=False)  # of each root, the tuples that its source sent
    operators: list[int] = field(default_factory=list, repr=False)  # of each tuple
    tasks: list[int] = field(default_factory=list, repr=False)  # of each tuple, the number of the task that ran it
    keys: list[int] = field(default_factory=list, repr=False)
    received_ns: list[int] = field(default_factory=list, repr=False)  # equal for tuples of one bundle; 0: was fused
    begun_ns: list[int] = field(default_factory=list, repr=False)
    durations_ns: list[int] = field(default_factory=list, repr=False)
    children: list[list[int]] = field(default_factory=list, repr=False)
    notes: list[str] = field(default_factory=list)  # what of the recording could not be used


def read_trace(place: str | PathLike[str]) -> RunTrace:
    """Read the recording of one run, as ``topology.run(record=…)`` wrote it.

    Args:
        place: the folder. It must hold one recording.

    Example:
        >>> from tailrace.sim import read_trace
        >>> read_trace("missing/")
        Traceback (most recent call last):
        tailrace.errors.OptionError: no such folder: trace=missing; is it where tailrace run --record wrote?
    """
    folder = Path(place)
    if not folder.is_dir():
        raise OptionError(f"no such folder: trace={folder}; is it where tailrace run --record wrote?")
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise OptionError(f"no recording in this folder: trace={folder}; is it where tailrace run --record wrote?")
    try:
        files = [read_recorded(path) for path in paths]
    except NotARecording as error:
        raise OptionError(str(error)) from None
    for path, file in zip(paths, files, strict=True):
        if any(file.header[name] != files[0].header[name] for name in RUN_WIDE):
            raise OptionError(f"recordings of two runs in one folder: trace={folder} file={path.name}; which is it?")
    return _Assembly(files).trace()


def _shape(header: dict[str, Any]) -> Shape:
    return Shape(
        header["topology"],
        tuple(OperatorShape(**{**one, "role": Role(one["role"])}) for one in header["operators"]),
        tuple(EdgeShape(**{**one, "port": Port(one["port"])}) for one in header["edges"]),
        tuple(header["home"]),
    )


class _Assembly:
    """Puts a trace together from the files of a recording."""

    def __init__(self, files: list[RecordedFile]) -> None:
        self._files = files
        self._splits = files[0].header["splits"]
        self.shape = _shape(files[0].header)
        self._operator_of = [self.shape.operator_of(task) for task in range(len(self.shape.home))]
        self._outs = [
            [edge for edge in self.shape.edges if edge.upstream == index] for index in range(len(self.shape.operators))
        ]
        clocks: dict[str, int] = {}
        for file in files:
            clock = file.header["clock"]
            clocks.setdefault(file.header["machine"], clock["wall_ns"] - clock["monotonic_ns"])
        self._shifts_ns = [clocks[file.header["machine"]] for file in files]

    def trace(self) -> RunTrace:
        roots = sorted(self._roots())
        if not roots:
            raise OptionError("no root of this recording has completed: did the run end before anything arrived?")
        named = self._named({emission for *_, emission in roots})
        gaps = self._silences()
        zero_ns = roots[0][0]
        trace = RunTrace(self.shape)
        lost = 0
        for due_ns, complete_ns, emitted_ns, task, split, offset, emission in roots:
            lineage = root_lineage(self._splits[split]["salt"], offset)
            tuples = named.get(emission, {})
            silent = any(begin <= complete_ns and emitted_ns < end for begin, end in gaps)
            if silent or not self._plant(trace, self._operator_of[task], lineage, tuples, zero_ns):
                lost += 1
                continue
            trace.due_ns.append(due_ns - zero_ns)
            trace.complete_ns.append(complete_ns - zero_ns)
            trace.sources.append(task)
        if not trace.roots:
            raise OptionError(f"no root of this recording is whole: roots={lost}; are files of some workers missing?")
        trace.notes += self._notes(lost, len(roots))
        return trace

    def _roots(self) -> Iterator[tuple[int, int, int, int, int, int, int]]:
        for file, shift_ns in zip(self._files, self._shifts_ns, strict=True):
            for task, split, offset, emission, due, emitted, complete in zip(*file.roots.values(), strict=True):
                yield due + shift_ns, complete + shift_ns, emitted + shift_ns, task, split, offset, emission

    def _named(self, emissions: set[int]) -> dict[int, dict[int, tuple[int, ...]]]:
        """Emission -> lineage -> (task, key, received, begun, duration)."""
        named: dict[int, dict[int, tuple[int, ...]]] = {}
        for file, shift_ns in zip(self._files, self._shifts_ns, strict=True):
            for task, emission, lineage, key, received, begun, duration in zip(*file.tuples.values(), strict=True):
                if emission in emissions:
                    named.setdefault(emission, {})[lineage] = (task, key, received, begun + shift_ns, duration)
        return named

    def _plant(
        self, trace: RunTrace, source: int, lineage: int, named: dict[int, tuple[int, ...]], zero_ns: int
    ) -> bool:
        """Add the tree of a root if it is complete. Returns whether it is."""
        first = len(trace.operators)
        roots: list[int] = []
        growing = [(roots, source, lineage)]
        while growing:
            family, operator, parent = growing.pop()
            for edge in self._outs[operator]:
                for child in self._sent(edge, parent, named):
                    task, key, received_ns, begun_ns, duration_ns = named.pop(child)
                    if self._operator_of[task] != edge.downstream:
                        continue
                    family.append(len(trace.operators))
                    children: list[int] = []
                    growing.append((children, edge.downstream, child))
                    trace.operators.append(edge.downstream)
                    trace.tasks.append(task)
                    trace.keys.append(key)
                    trace.received_ns.append(received_ns)
                    trace.begun_ns.append(begun_ns - zero_ns)
                    trace.durations_ns.append(duration_ns)
                    trace.children.append(children)
        if roots and not named:
            trace.roots.append(roots)
            return True
        for column in (trace.operators, trace.tasks, trace.keys, trace.received_ns, trace.begun_ns, trace.durations_ns):
            del column[first:]
        del trace.children[first:]
        return False

    def _sent(self, edge: EdgeShape, parent: int, named: dict[int, tuple[int, ...]]) -> Iterator[int]:
        """The lineages of the tuples that a parent sent along an edge."""
        start = parent * STEP + edge.salt
        if edge.port is Port.DEAD_LETTERS:
            yield from self._copies(edge, (start + DEAD_LETTER_INDEX * INDEX) & MASK, named)
            return
        many = self.shape.operators[edge.upstream].role is Role.FLAT_MAP
        missing = index = 0
        while named and missing < (GAP if many else 1):
            found = list(self._copies(edge, (start + index * INDEX) & MASK, named))
            yield from found
            missing = 0 if found and many else missing + 1
            index += 1

    def _copies(self, edge: EdgeShape, name: int, named: dict[int, tuple[int, ...]]) -> Iterator[int]:
        names: Sequence[int] = (name,)
        if edge.grouping == "broadcast":
            tasks = range(self.shape.operators[edge.downstream].tasks)
            names = [(name * STEP + (task + 1) * BROADCAST) & MASK for task in tasks]
        return (one for one in names if one in named)

    def _silences(self) -> list[tuple[int, int]]:
        """Gaps in the recording: from the last record of a worker that died until its successor began."""
        found: list[tuple[int, int]] = []
        for file, shift_ns in zip(self._files, self._shifts_ns, strict=True):
            if not file.ended:
                header = file.header
                tuples, roots = file.tuples, file.roots
                ends = [begun + lasted for begun, lasted in zip(tuples["begun_ns"], tuples["duration_ns"], strict=True)]
                last_ns = max([header["clock"]["monotonic_ns"], *ends, *roots["complete_ns"]]) + shift_ns
                found.append((last_ns, self._successor_ns(header)))
        return found

    def _successor_ns(self, header: dict[str, Any]) -> int:
        begins = [
            file.header["clock"]["monotonic_ns"] + shift_ns
            for file, shift_ns in zip(self._files, self._shifts_ns, strict=True)
            if file.header["worker"] == header["worker"] and file.header["epoch"] > header["epoch"]
        ]
        return min(begins, default=1 << 62)

    def _notes(self, lost: int, roots: int) -> list[str]:
        notes = []
        for file in self._files:
            if not file.ended:
                name = f"worker {file.header['worker']}, epoch {file.header['epoch']}"
                torn = f", and {file.torn_bytes} torn bytes at the end were skipped" if file.torn_bytes else ""
                notes.append(f"the recording of {name} ends without a word{torn}")
        if lost:
            notes.append(f"{lost:,} of {roots:,} roots are not whole and were left out")
        return notes
