"""Tasks that finish tuples later than they take them: coroutines, and functions of a whole batch.

A bundle stays open until the last of its tuples is finished; only then do its own ack id and those of its children go
back, all in one. If a child's went back before, and were lost together with the child, nobody would miss the child.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

from tailrace.clock import Clock
from tailrace.core.failures import CAUGHT, task_error
from tailrace.core.plan.plan import Plan
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.observer import CallObserver
from tailrace.core.tasks.open_bundle import Call, OpenBundle
from tailrace.core.tasks.stages import Wiring, as_results
from tailrace.errors import shorten
from tailrace.topology import OnError, Role

_NO_LISTS = (NoneType, str, bytes, bytearray, dict, set, frozenset)
"""What has no results in the order of the tuples, though most of it can be iterated. A table (of pandas, say), which
gives the names of its columns, is known by those."""


class DeferredTask(Task):
    """A task whose leader finishes tuples later than it takes them."""

    wiring: Wiring

    def __init__(self, plan: Plan, number: int, clock: Clock) -> None:
        super().__init__(plan, number, clock)
        self._opened: deque[Call] = deque()
        self.observer: CallObserver | None = None

    def _open_next(self) -> bool:
        while not self._opened and self.queue:
            try:
                taken = self.queue.popleft()
            except IndexError:
                return False  # another task has drawn it
            emission, split, offset, ack, lineages, values, origin, attached = taken
            if self.cancelled and emission in self.cancelled:
                self.throw_away(taken)
                continue
            bundle = OpenBundle(emission, split, offset, ack, len(values), origin)
            if self.tap is not None:
                bundle.chosen = self.tap.chosen
            if self.observer is not None:
                self.observer.opened(bundle)
            named: Sequence[int | None] = [None] * len(values) if lineages is None else lineages
            self._opened.extend(Call(bundle, value, lineage) for value, lineage in zip(values, named, strict=True))
            if attached is not None:
                for call, message in zip(self._opened, attached, strict=True):
                    call.attached = message
        return bool(self._opened)

    def _ran(self, call: Call, duration_ns: int) -> None:
        """A tuple has been run, well or not."""
        self.wiring.durations.append(duration_ns)
        receiver, chosen = self.feedback_receiver, call.bundle.chosen
        if receiver is None:
            return
        if chosen is not None:
            receiver = chosen.feedback_receiver
            self.notified.add(chosen)
        assert receiver is not None, "tasks of one operator have halves, or none has"
        receiver.executed(call.bundle.origin, call.value, call.attached, duration_ns)

    def next_call(self) -> Call | None:
        """The next tuple that wants to be started."""
        return self._opened.popleft() if self._open_next() else None

    @property
    def runnable(self) -> bool:
        return bool(self._opened or self.queue)

    def _finish(self, call: Call, results: list[Any]) -> None:
        if self.observer is not None:
            self.observer.closed(call, self.wiring.durations[-1])
        bundle = call.bundle
        parents = None if call.lineage is None else [call.lineage] * len(results)
        indices = None if len(results) == 1 else list(range(len(results)))
        ids = self.wiring.send(bundle.emission, bundle.split, bundle.offset, results, parents, indices)
        self._close_one(bundle, ids)

    def _fail(self, call: Call, error: BaseException) -> None:
        if self.observer is not None:
            self.observer.closed(call, self.wiring.durations[-1])
        bundle = call.bundle
        ids = self.wiring.failed(bundle.emission, bundle.split, bundle.offset, call.value, call.lineage, error)
        self._close_one(bundle, ids)

    def _close_one(self, bundle: OpenBundle, ids: int) -> None:
        bundle.left -= 1
        bundle.ids ^= ids
        if not bundle.left:
            self.acknowledge(bundle.emission, bundle.split, bundle.ids)


class AsyncTask(DeferredTask):
    """A task whose leader is a coroutine function. The runtime starts the calls and says when they end."""

    def __init__(self, plan: Plan, number: int, clock: Clock, role: Role, function: Callable[[Any], Any]) -> None:
        super().__init__(plan, number, clock)
        self._role = role
        self.function = function

    @property
    def runnable(self) -> bool:
        return False  # its calls are started from outside, by next_call

    def finished(self, call: Call, result: Any) -> None:
        self._ran(call, self.clock() - call.started_ns)
        if self._role is Role.MAP:
            self._finish(call, [result])
        else:
            try:
                if self._role is Role.FILTER:
                    results = [call.value] if result else []
                else:
                    results = as_results(result)
            except CAUGHT as error:
                self._fail(call, error)
            else:
                self._finish(call, results)

    def failed(self, call: Call, error: BaseException) -> None:
        self._ran(call, self.clock() - call.started_ns)
        self._fail(call, error)


class BatchTask(DeferredTask):
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
        self.deadline_ns = 0

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
        if self.observer is not None:
            for position, call in enumerate(batch):
                call.started_ns = started_ns + position * share_ns
        for call, result in zip(batch, results, strict=True):
            self._ran(call, share_ns)
            self._finish(call, [result])

    def _call(self, values: list[Any]) -> list[Any]:
        returned = self._function(values)
        if isinstance(returned, _NO_LISTS) or hasattr(returned, "columns"):
            raise TypeError(
                f"map_batch must return a list with a result for each tuple: returned={type(returned).__name__} "
                f"value={shorten(returned)}, did you mean to return a list of its rows or values?"
            )
        results = list(returned)
        if len(results) != len(values):
            raise ValueError(
                f"map_batch must return as many results as it is given: given={len(values)} returned={len(results)}; "
                "does the function drop some?"
            )
        return results

    def _batch_failed(self, batch: list[Call], error: BaseException) -> None:
        """One bad tuple spoils a batch. Find out which one it is, where the function may be called again."""
        if len(batch) > 1 and self._retry:
            for call in batch:
                self._run_batch([call])
        if self.wiring.on_error is OnError.FAIL and len(batch) > 1:
            raise task_error(self.wiring.operator, self.wiring.task, [call.value for call in batch], error) from None
        if len(batch) == 1 or not self._retry:
            for call in batch:
                self._ran(call, 0)
                self._fail(call, error)
