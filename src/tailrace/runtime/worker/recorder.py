"""Records what the tasks of one worker do, so that the simulator can replay it.

Tasks only append to lists of their own. A thread of the recorder writes these as blocks several times a second. A task
with ``BEHIND`` unwritten tuples writes them itself, which bounds memory. If writing fails, for instance because the
disk is full, the recording ends and the run continues.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from tailrace.clock import Clock
from tailrace.core.bundles import Bundle
from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.ledger import Root
from tailrace.core.queues.shared import Tap
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.open_bundle import Call, OpenBundle
from tailrace.core.tasks.stages import Lineages, OperatorStage, Wiring
from tailrace.errors import OptionError
from tailrace.metrics.recording import END, ROOTS, SUFFIX, TUPLES, block, file_name, preamble
from tailrace.policy.hashing import stable_hash
from tailrace.policy.keys import Key, Remembered, key_function

WRITE_S = 0.25
"""Interval of writes, and so the most that is missing from the recording of a killed worker."""

BEHIND = 16_384
"""Unwritten tuples of one task, at most: a few megabytes."""

AT_ONCE = 256
"""Tuples per block. Between two blocks the writer yields to other threads."""

SMALL = 256
"""A tuple without a key is hashed by content up to this many characters or bytes, which takes a microsecond at most."""

Ran = tuple[int, int, int, int, int, int]
"""One executed tuple: all columns but the first. A tuple of ints, which the garbage collector need not track."""


class Recorder:
    """The recording of one worker process. It is the ``TaskObserver`` of its tasks."""

    def __init__(
        self, folder: str, header: dict[str, Any], plan: Plan, clock: Clock, complain: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._complain = complain
        self._logs: list[_TupleLog | _RootLog] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._file: int | None = _create(Path(folder) / file_name(header["worker"], header["epoch"]), preamble(header))
        self._thread = threading.Thread(target=self._write_on, name="record", daemon=True)
        self._thread.start()

    # -- the interface of a TaskObserver

    def stage(self, task: Task, number: int, stage: OperatorStage, wiring: Wiring) -> OperatorStage:
        if number != task.number:
            return _RecordedStage(stage, wiring.durations, self._clock, None, no_hash, self._log(number))
        self._stamp(task)
        return _RecordedStage(stage, wiring.durations, self._clock, task, self._key_of(number), self._log(number))

    def calls(self, task: Task, number: int) -> _RecordedCalls:
        self._stamp(task)
        return _RecordedCalls(task, self._clock, self._key_of(number), self._log(number))

    def roots(self, number: int) -> Callable[[Root, int], None]:
        log = _RootLog(number)
        self._logs.append(log)
        return log.completed

    def _log(self, number: int) -> _TupleLog:
        log = _TupleLog(number, self.write)
        self._logs.append(log)
        return log

    def _stamp(self, task: Task) -> None:
        """Replace the task's own queue by one that records arrival times. A shared queue records them anyway."""
        task.new_queue = partial(StampedQueue, self._clock)
        if task.tap is None:
            task.queue = task.new_queue()

    def _key_of(self, number: int) -> Callable[[Any], int]:
        operator = self._plan.operator_of[number]
        inputs = [edge.grouping for edge in self._plan.edges if edge.downstream == operator]
        keys = [key for key in map(_key, inputs) if key is not None]
        return key_hash(key_function(keys[0])) if keys else content_hash

    # -- writing

    def _write_on(self) -> None:
        while not self._closing.wait(WRITE_S):
            self.write()

    def write(self) -> None:
        """Write everything that has been recorded. Any thread may call this."""
        with self._lock:
            for log in self._logs:
                while log.rows:
                    self._append(log.take())

    def _append(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            _write_whole(self._file, data)
        except OSError as error:
            os.close(self._file)
            self._file = None
            self._complain(f"the recording ends here: {error}; the run goes on")

    def close(self) -> None:
        """Finish the recording. The tasks must have ended."""
        self._closing.set()
        self._thread.join()
        self.write()
        with self._lock:
            self._append(block(END, ()))
            if self._file is not None:
                os.close(self._file)
                self._file = None


def _write_whole(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _create(path: Path, start: bytes) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        _write_whole(file, start)
    except OSError as error:
        raise OptionError(
            f"nothing can be recorded here: {error}; is it left over, or may it not be written?"
        ) from None
    return file


class StampedQueue(deque[Any]):
    """A task's queue that remembers when the bundle that was taken last had arrived. Any thread may append."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.received_ns = 0

    def append(self, bundle: Bundle) -> None:
        deque.append(self, (self._clock(), bundle))

    def extend(self, bundles: Iterable[Bundle]) -> None:
        deque.extend(self, zip(repeat(self._clock()), bundles))

    def popleft(self) -> Bundle:
        bundle: Bundle
        self.received_ns, bundle = deque.popleft(self)
        return bundle


class _TupleLog:
    """Executed tuples of one task that are not written yet. The task's thread adds, the writing thread takes."""

    def __init__(self, number: int, write: Callable[[], None]) -> None:
        self._number = number
        self._write = write
        self.rows: deque[Ran] = deque()

    def add(self, ran: Ran) -> None:
        self.rows.append(ran)
        if len(self.rows) >= BEHIND:
            self._write()

    def take(self) -> bytes:
        """The oldest rows as a block. Only one thread at a time may call this."""
        taken = self.rows.popleft
        rows = [taken() for _ in range(min(AT_ONCE, len(self.rows)))]
        return block(TUPLES, ([self._number] * len(rows), *zip(*rows, strict=True)))


class _RootLog:
    """Completed roots of one source task that are not written yet."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.rows: deque[tuple[int, int, int, int, int, int]] = deque()

    def completed(self, root: Root, emission: int) -> None:
        self.rows.append((root.split, root.offset, emission, root.due_ns, root.emitted_ns, root.complete_ns))

    def take(self) -> bytes:
        rows = [self.rows.popleft() for _ in range(min(AT_ONCE, len(self.rows)))]
        return block(ROOTS, (repeat(self._number, len(rows)), *zip(*rows, strict=True)))


class _RecordedStage:
    """Wraps a stage and logs the tuples that it runs. ``leads`` is its task, if the stage is the first of its unit.

    A committing sink only buffers its tuples: they are logged with a duration of 0.
    """

    def __init__(
        self,
        stage: OperatorStage,
        durations: list[int],
        clock: Clock,
        leads: Task | None,
        key_of: Callable[[Any], int],
        log: _TupleLog,
    ) -> None:
        self._run = stage.run
        self._durations = durations
        self._clock = clock
        self._leads = leads
        self._key_of = key_of
        self._add = log.add

    def run(self, emission: int, split: int, offset: int, values: list[Any], lineages: Lineages) -> int:
        assert lineages is not None
        durations = self._durations
        received_ns = 0 if self._leads is None else _received_ns(self._leads)
        if len(values) == 1:
            key = self._key_of(values[0])
            before, begun_ns = len(durations), self._clock()
            ids = self._run(emission, split, offset, values, lineages)
            duration_ns = durations[-1] if len(durations) > before else 0
            self._add((emission, lineages[0], key, received_ns, begun_ns, duration_ns))
            return ids
        keys = list(map(self._key_of, values))
        before, begun_ns = len(durations), self._clock()
        ids = self._run(emission, split, offset, values, lineages)
        lasted = durations[before:] or [0] * len(values)
        between_ns = max(0, self._clock() - begun_ns - sum(lasted)) // len(values)
        for lineage, key, duration_ns in zip(lineages, keys, lasted, strict=True):
            self._add((emission, lineage, key, received_ns, begun_ns, duration_ns))
            begun_ns += duration_ns + between_ns
        return ids


class _RecordedCalls:
    """Logs the calls of a task that runs several at once."""

    def __init__(self, task: Task, clock: Clock, key_of: Callable[[Any], int], log: _TupleLog) -> None:
        self._task = task
        self._clock = clock
        self._key_of = key_of
        self._add = log.add
        self._received_ns: dict[OpenBundle, int] = {}  # of each open bundle

    def opened(self, bundle: OpenBundle) -> None:
        self._received_ns[bundle] = _received_ns(self._task)

    def closed(self, call: Call, duration_ns: int) -> None:
        bundle = call.bundle
        begun_ns = call.started_ns or self._clock() - duration_ns
        received_ns = self._received_ns[bundle] if bundle.left > 1 else self._received_ns.pop(bundle)
        assert call.lineage is not None
        self._add((bundle.emission, call.lineage, self._key_of(call.value), received_ns, begun_ns, duration_ns))


def _received_ns(task: Task) -> int:
    """When the bundle that the task took last had arrived. A switch of techniques requeues bundles with a new time."""
    queue = task.queue
    assert isinstance(queue, StampedQueue | Tap)
    return queue.received_ns


# -- keys


def key_hash(key_of: Callable[[Any], Any]) -> Callable[[Any], int]:
    """A function for the stable hash of a tuple's key. The grouping has already refused tuples without a key."""
    hashes = Remembered(stable_hash)

    def key(value: Any) -> int:
        try:
            return hashes[key_of(value)]
        except Exception:
            return 0

    return key


def content_hash(value: Any) -> int:
    """The stable hash of a small tuple; 0 if hashing would take long, or would differ between processes."""
    if _is_small(value):
        return stable_hash(value)
    if type(value) is tuple and len(value) <= MAX_ITEMS and all(map(_is_small, value)):
        return stable_hash(value)
    return 0


def no_hash(value: Any) -> int:
    """For fused edges, whose tuples need no choice of a task."""
    return 0


MAX_ITEMS = 8
_NUMBERS = {int, float, bool, type(None)}
_TEXTS = {str, bytes}


def _is_small(value: Any) -> bool:
    return type(value) in _NUMBERS or (type(value) in _TEXTS and len(value) <= SMALL)


def _key(grouping: Any) -> Key | None:
    """The key function of a grouping, if it has one: to route by, or only to estimate costs by."""
    return getattr(grouping, "key", None)


# -- the header


def describe(plan: Plan, job_id: str, worker: int, epoch: int, clock: Clock) -> dict[str, Any]:
    """The header of a worker's recording: what a reader needs to interpret it."""
    return {
        "topology": plan.name,
        "job": job_id,
        "worker": worker,
        "epoch": epoch,
        "machine": _machine(),
        "host": socket.gethostname(),
        "clock": {"monotonic_ns": clock(), "wall_ns": time.time_ns()},
        "workers": plan.workers,
        "operators": [
            {
                "name": operator.name,
                "role": operator.operator.role.value,
                "tasks": operator.tasks,
                "first_task": operator.first_task,
                "concurrency": operator.operator.options.get("concurrency", 1) if operator.is_async else 1,
            }
            for operator in plan.operators
        ],
        "edges": [
            {
                "upstream": edge.upstream,
                "downstream": edge.downstream,
                "grouping": edge.grouping.name,
                "keyed": edge.grouping.keyed,
                "has_key": _key(edge.grouping) is not None,
                "port": edge.port.value,
                "salt": edge.salt,
                "fused": edge.fused,
                "by_lineage": edge.by_lineage,
            }
            for edge in plan.edges
        ],
        "splits": [{"source": split.source, "salt": split.salt, "owner": split.owner} for split in plan.splits],
        "home": list(plan.home),
    }


def _machine() -> str:
    """Identifies this machine. Processes with the same value have the same monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return socket.gethostname()


# -- on the driver


def check_folder(folder: Path) -> None:
    """Raise OptionError if the folder holds a recording already: two runs in one folder could not be told apart."""
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"not a folder: record={folder}")
    if any(folder.glob(f"*{SUFFIX}")):
        raise OptionError(f"there is a recording already: record={folder}; could this run have a folder of its own?")
