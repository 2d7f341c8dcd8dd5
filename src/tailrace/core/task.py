"""A task receives bundles, runs them through its stages, and leaves what follows in its lanes and ack folds.

It is pure: the runtime brings it bundles and empties its lanes and folds, and decides when it runs. A task object
stands for a whole unit, that is a leading operator's task together with the tasks fused to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tailrace.clock import Clock
from tailrace.connector import Reader
from tailrace.core.acks import AckFold, Fold
from tailrace.core.failure import CAUGHT
from tailrace.core.ledger import Ledger, Root
from tailrace.core.lineage import root_lineage
from tailrace.core.messages import Committed, Drain, Flush, Recover, ToWorker
from tailrace.core.plan import Plan
from tailrace.core.router import Bundle, Lane
from tailrace.core.stage import CommitSinkStage, Stage, Wiring
from tailrace.metrics.counters import TaskCounters
from tailrace.topology import OnError, Role


class Task:
    """What all tasks have in common: an input queue, lanes, ack folds, and the sinks that are fused in."""

    def __init__(self, plan: Plan, number: int, clock: Clock) -> None:
        self.plan = plan
        self.number = number
        self.queue: deque[Bundle] = deque()
        self.lanes: list[Lane] = []
        self.acks: dict[int, AckFold] = {owner: AckFold() for owner in plan.owners}
        self.counters: list[TaskCounters] = []
        self.sinks: list[CommitSinkStage] = []
        self.clock = clock
        self._owners = plan.owners

    @property
    def label(self) -> str:
        return self.plan.label(self.number)

    def receive(self, bundles: Sequence[Bundle]) -> None:
        self.queue.extend(bundles)

    @property
    def runnable(self) -> bool:
        return bool(self.queue)

    def run(self, budget_ns: int) -> None:
        """Work for about this long, or until there is nothing to do."""
        raise NotImplementedError

    def handle(self, message: ToWorker) -> None:
        """The coordinator said something."""
        match message:
            case Committed():
                for sink in self.sinks:
                    for split, offset in message.offsets.items():
                        sink.log.advance(split, offset)
            case Flush():
                for sink in self.sinks:
                    sink.commit()

    def acknowledge(self, emission: int, split: int, ids: int) -> None:
        both = self.acks[self._owners[split]].both
        both[emission] = both.get(emission, 0) ^ ids


class PlainTask(Task):
    """A task whose leader takes tuples one by one."""

    stage: Stage

    def run(self, budget_ns: int) -> None:
        queue, run, acks, owners, clock = self.queue, self.stage.run, self.acks, self._owners, self.clock
        end_ns = clock() + budget_ns
        while queue:
            emission, split, offset, ack, lineages, values = queue.popleft()
            ids = ack ^ run(emission, split, offset, values, lineages)
            both = acks[owners[split]].both
            both[emission] = both.get(emission, 0) ^ ids
            if clock() >= end_ns:
                return


class OpenBundle:
    """A bundle whose tuples are finished one by one. Its own ack id goes back with the last of them."""

    __slots__ = ("ack", "emission", "left", "offset", "split")

    def __init__(self, emission: int, split: int, offset: int, ack: int, left: int) -> None:
        self.emission = emission
        self.split = split
        self.offset = offset
        self.ack = ack
        self.left = left


class Call:
    """One tuple of an open bundle."""

    __slots__ = ("bundle", "lineage", "started_ns", "value")

    def __init__(self, bundle: OpenBundle, value: Any, lineage: int | None) -> None:
        self.bundle = bundle
        self.value = value
        self.lineage = lineage
        self.started_ns = 0


class OpenTask(Task):
    """A task whose leader finishes tuples later than it takes them."""

    wiring: Wiring

    def __init__(self, plan: Plan, number: int, clock: Clock) -> None:
        super().__init__(plan, number, clock)
        self._opened: deque[Call] = deque()

    def _open_next(self) -> bool:
        if not self._opened and self.queue:
            emission, split, offset, ack, lineages, values = self.queue.popleft()
            bundle = OpenBundle(emission, split, offset, ack, len(values))
            named: Sequence[int | None] = [None] * len(values) if lineages is None else lineages
            self._opened.extend(Call(bundle, value, lineage) for value, lineage in zip(values, named, strict=True))
        return bool(self._opened)

    def next_call(self) -> Call | None:
        """The next tuple that wants to be started."""
        return self._opened.popleft() if self._open_next() else None

    @property
    def runnable(self) -> bool:
        return bool(self._opened or self.queue)

    def _finish(self, call: Call, results: list[Any]) -> None:
        bundle = call.bundle
        parents = None if call.lineage is None else [call.lineage] * len(results)
        indices = None if len(results) == 1 else list(range(len(results)))
        ids = self.wiring.send(bundle.emission, bundle.split, bundle.offset, results, parents, indices)
        self._close_one(bundle, ids)

    def _fail(self, call: Call, error: BaseException) -> None:
        bundle = call.bundle
        ids = self.wiring.failed(bundle.emission, bundle.split, bundle.offset, call.value, call.lineage, error)
        self._close_one(bundle, ids)

    def _close_one(self, bundle: OpenBundle, ids: int) -> None:
        bundle.left -= 1
        if not bundle.left:
            ids ^= bundle.ack
        self.acknowledge(bundle.emission, bundle.split, ids)


class AsyncTask(OpenTask):
    """A task whose leader is a coroutine function. The runtime starts the calls and says when they end."""

    def __init__(self, plan: Plan, number: int, clock: Clock, role: Role, function: Callable[[Any], Any]) -> None:
        super().__init__(plan, number, clock)
        self._role = role
        self.function = function

    @property
    def runnable(self) -> bool:
        return False  # its calls are started from outside, by next_call

    def finished(self, call: Call, result: Any) -> None:
        self.wiring.measured([self.clock() - call.started_ns])
        if self._role is Role.MAP:
            self._finish(call, [result])
        elif self._role is Role.FILTER:
            self._finish(call, [call.value] if result else [])
        else:
            self._finish(call, list(result))

    def failed(self, call: Call, error: BaseException) -> None:
        self.wiring.measured([self.clock() - call.started_ns])
        self._fail(call, error)


class BatchTask(OpenTask):
    """A task whose leader takes a list of tuples at once, and returns a list of as many."""

    def __init__(
        self,
        plan: Plan,
        number: int,
        clock: Clock,
        function: Callable[[list[Any]], Sequence[Any]],
        max_size: int,
        max_wait_ns: int,
        retry: bool,
    ) -> None:
        super().__init__(plan, number, clock)
        self._function = function
        self._max_size = max_size
        self._max_wait_ns = max_wait_ns
        self._retry = retry  # may a failed batch be tried again tuple by tuple?
        self._batch: list[Call] = []
        self.deadline_ns = 0  # when a batch that is not full runs all the same; 0: there is none

    def run(self, budget_ns: int) -> None:
        end_ns = self.clock() + budget_ns
        while True:
            self._collect()
            now_ns = self.clock()
            full = len(self._batch) >= self._max_size
            if not self._batch or not (full or now_ns >= self.deadline_ns):
                return
            self._run_batch(self._batch)
            self._batch, self.deadline_ns = [], 0
            if self.clock() >= end_ns:
                return

    @property
    def runnable(self) -> bool:
        return super().runnable or (bool(self._batch) and self.clock() >= self.deadline_ns)

    def _collect(self) -> None:
        while len(self._batch) < self._max_size and (call := self.next_call()):
            if not self._batch:
                self.deadline_ns = self.clock() + self._max_wait_ns
            self._batch.append(call)

    def _run_batch(self, batch: list[Call]) -> None:
        started_ns = self.clock()
        try:
            results = self._call([call.value for call in batch])
        except CAUGHT as error:
            self._batch_failed(batch, error)
            return
        share_ns = (self.clock() - started_ns) // len(batch)
        self.wiring.measured([share_ns] * len(batch))
        for call, result in zip(batch, results, strict=True):
            self._finish(call, [result])

    def _call(self, values: list[Any]) -> Sequence[Any]:
        results = self._function(values)
        if not hasattr(results, "__len__"):
            results = list(results)
        if len(results) != len(values):
            raise ValueError(
                f"map_batch must return as many results as it is given: given={len(values)} returned={len(results)}; "
                "does the function drop some?"
            )
        return results

    def _batch_failed(self, batch: list[Call], error: BaseException) -> None:
        """One bad tuple spoils a batch. Where tuples may be dropped, find out which one it is."""
        if self.wiring.on_error is OnError.FAIL or len(batch) == 1 or not self._retry:
            self.wiring.measured([0] * len(batch))
            for call in batch:
                self._fail(call, error)
        else:
            for call in batch:
                self._run_batch([call])


class SourceTask(Task):
    """A task whose leader is a source: it keeps the ledger of its roots and emits them again when it must."""

    wiring: Wiring

    def __init__(self, plan: Plan, number: int, clock: Clock, ledger: Ledger, readers: dict[int, Reader]) -> None:
        super().__init__(plan, number, clock)
        self.ledger = ledger
        self.draining = False
        self._readers = deque(readers.items())
        self._again: deque[Root] = deque()
        self._salts = {split.index: split.salt for split in plan.splits_of(number)}
        source = plan.operator_of[number]
        self._lineages = any(edge.lineages for edge in plan.edges if edge.upstream == source)
        self._started = False

    # -- emitting

    @property
    def exhausted(self) -> bool:
        """No root will be read any more."""
        return self.draining or not self._readers

    @property
    def ready_ns(self) -> int | None:
        """When it is worth reading; None while there is nothing to read or no room for it."""
        if not self._started or self.exhausted or self._again or self.ledger.room <= 0:
            return None
        return min(reader.ready_ns for _, reader in self._readers)

    def read(self, limit: int) -> int:
        """Read up to ``limit`` roots, over all splits in turn, and emit them. Returns how many."""
        taken = 0
        for _ in range(len(self._readers)):
            now_ns = self.clock()
            split, reader = self._readers[0]
            records = reader.poll(min(limit - taken, self.ledger.room), now_ns)
            for offset, due_ns, value in records:
                self._emit(self.ledger.admit(split, offset, value, due_ns or now_ns), now_ns)
            taken += len(records)
            if reader.done:
                self._readers.popleft()
                reader.close()
            else:
                self._readers.rotate(-1)
            if taken >= limit or self.ledger.room <= 0:
                break
        self.wiring.counters.received += taken
        return taken

    def _emit(self, root: Root, now_ns: int) -> None:
        emission = self.ledger.emit(root, now_ns)
        parents = [root_lineage(self._salts[root.split], root.offset)] if self._lineages else None
        ids = self.wiring.send(emission, root.split, root.offset, [root.value], parents, None)
        self.ledger.arm(emission, ids, now_ns)

    def apply(self, both: Fold, complete: Fold, durable: Fold) -> None:
        """Acks have arrived."""
        now_ns = self.clock()
        if both:
            self.ledger.apply_both(both, now_ns)
        if complete:
            self.ledger.apply_complete(complete, now_ns)
        if durable:
            self.ledger.apply_durable(durable, now_ns)

    # -- emitting again

    def handle(self, message: ToWorker) -> None:
        super().handle(message)
        match message:
            case Recover():
                self._started = True
                self._again = deque(self.ledger.unfinished())
            case Committed():
                for split, offset in message.offsets.items():
                    self.ledger.committed(split, offset)
            case Drain():
                self.draining = True

    def check_overdue(self, now_ns: int) -> int:
        """The backstop, for losses that nobody reported. Returns how many roots will be emitted again."""
        if not self._again and self._started:
            self._again = deque(self.ledger.overdue(now_ns))
        return len(self._again)

    @property
    def runnable(self) -> bool:
        return bool(self._again)

    def run(self, budget_ns: int) -> None:
        """Emit again what recovery wants."""
        end_ns = self.clock() + budget_ns
        while self._again:
            root = self._again.popleft()
            if not root.durable:
                self._emit(root, self.clock())
            if self.clock() >= end_ns:
                return

    # -- telling the coordinator

    @property
    def settled(self) -> bool:
        """It will read no more, and all it has read is durable and committed."""
        return self._started and self.exhausted and self.ledger.settled

    @property
    def wants_commit(self) -> bool:
        """It can go no further, and what it waits for are commits."""
        return (self.exhausted or self.ledger.room <= 0) and self.ledger.waits_for_commit
