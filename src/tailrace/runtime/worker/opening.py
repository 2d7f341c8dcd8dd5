"""Opens a unit of tasks: instantiates user classes, opens the writers of sinks and the readers of sources."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tailrace.clock import system_clock
from tailrace.connector import Reader, SinkContext, SplitStart, Writer
from tailrace.core.assembly import Bodies, first_offset
from tailrace.core.failures import told_by
from tailrace.core.plan.plan import OperatorPlan, Plan
from tailrace.core.protocol.messages import Position
from tailrace.core.source_checks import check_reader
from tailrace.errors import Fenced, NotRepeatable, TailraceError, TaskError, message_of
from tailrace.runtime.current_task import running
from tailrace.runtime.execution.task_loop import TaskLoop
from tailrace.runtime.worker.task_calls import OpenJournal, OpenLimit, TaskCalls
from tailrace.topology import Role, is_async_method, is_factory


@dataclass(frozen=True)
class Context:
    """The place of a task, given to ``open(context)`` of a user's class.

    Args:
        operator: the operator's name.
        task: the number of the task, from 0 on.
        tasks: how many tasks the operator has.
        worker: the number of the worker that hosts the task.
        epoch: which start of the worker this is. Each has a higher one than all before.
        name: the topology's name.
        job_id: the same for all runs that resume one checkpoint.

    Example:
        >>> class LookUp:
        ...     def open(self, context: tr.Context) -> None:
        ...         self.label = f"{context.operator}/{context.task}"
        ...     def process(self, value: str) -> str:
        ...         return f"{self.label}: {value}"
    """

    operator: str
    task: int
    tasks: int
    worker: int
    epoch: int
    name: str
    job_id: str


@dataclass
class Opener:
    """Opens the functions, readers and writers of one worker's tasks, and closes them at the end."""

    plan: Plan
    worker: int
    epoch: int
    job_id: str
    elapsed_ns: int
    first_epoch: int
    call_driver: Callable[[str, int, Any], Any]
    open_limit: OpenLimit | None = None
    open_journal: OpenJournal | None = None
    opening: tuple[str, int] | None = None  # label of the task that is being opened, and when that began
    loops: dict[int, TaskLoop] = field(default_factory=dict)  # by task, of those that are opened in their event loop
    calls: dict[int, TaskCalls] = field(default_factory=dict)  # by task, of operators that have ``calls``
    _closers: list[tuple[str, Callable[[], None]]] = field(default_factory=list)

    def open(self, leader: int, members: tuple[int, ...], positions: dict[int, Position]) -> Bodies:
        functions: dict[int, Callable[[Any], Any]] = {}
        writers: dict[int, Writer] = {}
        readers: dict[int, Reader] = {}
        for number in members:
            operator = self.plan.operators[self.plan.operator_of[number]]
            role = operator.operator.role
            if role is Role.SINK:
                writers[number] = self._guarded(number, partial(self._writer, operator, number))
            elif role is Role.SOURCE:
                for split in self.plan.splits_of(number):
                    position = positions[split.index]
                    offset = first_offset(self.plan, split.index, position, self.epoch)
                    last = position.last if offset == position.offset else None
                    start = SplitStart(split.name, offset, last, self.elapsed_ns)
                    readers[split.index] = self._guarded(number, partial(self._reader, operator, start))
                    self._closers.append((self.plan.label(number), readers[split.index].close))
            else:
                functions[number] = self._guarded(number, partial(self._function, operator, number))
        return Bodies(functions, writers, readers, positions)

    def _guarded(self, number: int, opening: Callable[[], Any]) -> Any:
        """Call ``opening`` under the task's label; its errors become a TaskError that names the task."""
        running.label = self.plan.label(number)
        self.opening = (running.label, system_clock())
        try:
            return opening()
        except (Fenced, NotRepeatable):
            raise
        except Exception as error:
            operator = self.plan.operators[self.plan.operator_of[number]].name
            raise TaskError(operator, self.plan.task_index(number), "(while opening)", told_by(error)) from None
        finally:
            running.label = ""
            self.opening = None

    def _function(self, operator: OperatorPlan, number: int) -> Callable[[Any], Any]:
        body = operator.operator.body
        function: Callable[[Any], Any] = self._process(operator, number) if is_factory(body) else body
        if operator.operator.calls is not None:
            self._in_loop(number, self._open_calls(operator, number, function))
            self._close_in_loop(number, self.calls[number].close)
        return function

    def _process(self, operator: OperatorPlan, number: int) -> Callable[[Any], Any]:
        instance = operator.operator.body()
        context = self._context(operator, number)
        if is_async_method(instance, "open"):
            self._in_loop(number, instance.open(context))
        elif hasattr(instance, "open"):
            instance.open(context)
        if is_async_method(instance, "close"):
            self._close_in_loop(number, instance.close)
        elif hasattr(instance, "close"):
            self._closers.append((self.plan.label(number), instance.close))
        process: Callable[[Any], Any] = instance.process
        return process

    async def _open_calls(self, operator: OperatorPlan, number: int, function: Callable[[Any], Any]) -> None:
        calls = operator.operator.calls
        assert calls is not None
        limit = journal = None
        if calls.limit is not None:
            assert self.open_limit is not None, "a worker whose plan has limits can open them"
            limit = self.open_limit(calls.limit)
        if calls.journal is not None:
            assert self.open_journal is not None, "a worker whose plan has journals can open them"
            journal = self.open_journal(operator, number)
        self.calls[number] = TaskCalls(operator, self.plan.label(number), function, limit, journal)

    def _in_loop(self, number: int, steps: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine in the event loop in which the calls of this task will run."""
        if number not in self.loops:
            self.loops[number] = TaskLoop(self.plan.label(number))
            self._closers.append((self.plan.label(number), self.loops[number].close))
        self.loops[number].run(steps)

    def _close_in_loop(self, number: int, close: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._in_loop(number, _nothing())  # so that the loop is there, and closed after this
        self._closers.append((self.plan.label(number), lambda: self._in_loop(number, close())))

    def _reader(self, operator: OperatorPlan, start: SplitStart) -> Reader:
        reader: Reader = operator.operator.body.open(start)
        check_reader(operator.name, start.split, reader)
        return reader

    def _writer(self, operator: OperatorPlan, number: int) -> Writer:
        index = self.plan.task_index(number)
        context = SinkContext(
            operator.name,
            index,
            operator.tasks,
            self.epoch,
            self.job_id,
            lambda name, message: self.call_driver(name, index, message),
            self.first_epoch,
        )
        writer: Writer = operator.operator.body.open(context)
        self._closers.append((self.plan.label(number), writer.close))
        return writer

    def _context(self, operator: OperatorPlan, number: int) -> Context:
        index = self.plan.task_index(number)
        return Context(operator.name, index, operator.tasks, self.worker, self.epoch, self.plan.name, self.job_id)

    def close(self) -> list[str]:
        """Close everything that was opened, in reverse order. Returns a message for each failure."""
        problems: list[str] = []
        for label, close in reversed(self._closers):
            running.label = label
            try:
                close()
            except TailraceError as error:
                problems.append(f"{label}: {error}")
            except Exception as error:
                problems.append(f"{label}: close() raised {type(error).__name__}: {message_of(error)}")
        running.label = ""
        self._closers.clear()
        return problems


async def _nothing() -> None:
    pass
