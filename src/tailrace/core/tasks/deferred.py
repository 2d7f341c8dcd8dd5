"""Deferred tasks finish tuples later than they take them: coroutines, and functions of a whole batch.

A bundle stays open until the last of its tuples is finished. Only then are its own ack id and those of its children
acknowledged, all at once. If a child's id were acknowledged earlier, and that ack and the child were both lost, the
ledger would not notice that the child is missing.
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
from tailrace.metrics.counters import TaskCounters
from tailrace.topology import OnError, Role

_NO_LISTS = (NoneType, str, bytes, bytearray, dict, set, frozenset)
"""Types that a ``map_batch`` function returns only by mistake, though most can be iterated. Tables, such as those of
pandas, are recognised by their ``columns``: to iterate one gives column names."""


class DeferredTask(Task):
    """A task whose leader finishes tuples later than it takes them."""

    wiring: Wiring

    def __init__(self, plan: Plan, number: int, clock: Clock) -> None:
        super().__init__(plan, number, clock)
        self._opened: deque[Call] = deque()
        self.observer: CallObserver | None = None

    def _open_next(self) -> bool:
        """Open the next bundle unless calls of the last one are left. Returns whether there are calls to start."""
        while not self._opened and self.queue:
            try:
                taken = self.queue.popleft()
            except IndexError:
                return False  # another task drew it first
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
        """Count a call that has ended, with a result or an error, and report it to the sender of the tuple."""
        self.wiring.durations.append(duration_ns)
        receiver, chosen = self.feedback_receiver, call.bundle.chosen
        if receiver is None:
            return
        if chosen is not None:
            receiver = chosen.feedback_receiver
            self.notified.add(chosen)
        assert receiver is not None, "of the tasks of one operator all have a feedback receiver, or none has"
        receiver.executed(call.bundle.origin, call.value, call.attached, duration_ns)

    def next_call(self) -> Call | None:
        """The next call to start, or None."""
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
    """A task whose leader is a coroutine function.

    The runtime takes calls from ``next_call``, starts them, and reports each with ``finished`` or ``failed``.
    """

    def __init__(self, plan: Plan, number: int, clock: Clock, role: Role, function: Callable[[Any], Any]) -> None:
        super().__init__(plan, number, clock)
        self._role = role
        self.function = function
        self.count_calls: Callable[[TaskCounters], None] | None = None  # for a task whose operator has ``calls``

    @property
    def runnable(self) -> bool:
        return False  # the runtime starts its calls

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

    def left_over(self, call: Call) -> None:
        """The root of this call is durable, so that nothing that would follow from it is needed: it is not made."""
        self._ran(call, self.clock() - call.started_ns)
        self._finish(call, [])

    def show(self) -> None:
        super().show()
        if self.count_calls is not None:
            self.count_calls(self.wiring.counters)


class BatchTask(DeferredTask):
    """A task whose leader takes a list of tuples, and returns a list with a result for each.

    A batch runs when it has ``max_size`` tuples, or when the first of them has waited for ``max_wait_ns``.
    """

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
        self._retry = retry  # whether a failed batch may be run again, tuple by tuple
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
        """Find the tuple that made the batch fail, by running each alone, if the function may be called again."""
        if len(batch) > 1 and self._retry:
            for call in batch:
                self._run_batch([call])
        if self.wiring.on_error is OnError.FAIL and len(batch) > 1:
            raise task_error(self.wiring.operator, self.wiring.task, [call.value for call in batch], error) from None
        if len(batch) == 1 or not self._retry:
            for call in batch:
                self._ran(call, 0)
                self._fail(call, error)
