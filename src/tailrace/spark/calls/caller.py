"""Opens in a task what calls need: the function, its limit and its journal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pyspark import TaskContext
from pyspark.sql.types import DataType

from tailrace.calls import Calls
from tailrace.calls.journal_keys import journal_key
from tailrace.runtime.calls.caller import Caller
from tailrace.runtime.calls.figures import Figures
from tailrace.runtime.calls.journal_files import open_journal
from tailrace.runtime.calls.limit_client import open_limit
from tailrace.runtime.calls.limit_server import LimitAddress
from tailrace.runtime.calls.outcome import Outcome
from tailrace.runtime.calls.ports import Journal, LimitClient
from tailrace.spark.calls.bodies import Body, qualified_name_of
from tailrace.spark.calls.observed import summary

logger = logging.getLogger("tailrace")


class _Opened:
    """A caller with the function that it calls, closed together."""

    def __init__(self, body: Body, caller: Caller) -> None:
        self._body = body
        self._caller = caller

    async def call(self, args: tuple[Any, ...], key: bytes | None = None) -> Outcome:
        return await self._caller.call(args, key)

    async def close(self) -> None:
        try:
            await self._caller.close()
        finally:
            await self._body.close()


@dataclass
class TaskCalls:
    """How the calls of one step are made in each of its tasks. It is pickled with the step."""

    body: Any
    name: str
    options: Calls
    limit_server: LimitAddress | None = None
    tasks: int = 1  # that run at once, among which the limit is divided where there is no server
    journal: Path | None = None
    step: bytes = b""  # what ``step_key`` gave, if there is a journal
    finish: Callable[[Any], Any] | None = None  # makes a value of what the function returned, where it runs
    figures: Figures = field(default_factory=Figures)  # of the task that uses this copy

    async def open(self) -> _Opened:
        body = Body(self.body, self.name)
        await body.open()
        caller = Caller(
            body.function if self.finish is None else _finishing(body, self.finish),
            self.options,
            asynchronous=body.asynchronous,
            name=self.name,
            rng=Random(),
            limit=self._limit(),
            journal=self._journal(),
        )
        self.figures = caller.figures
        return _Opened(body, caller)

    def key_of(
        self, getter: Callable[[str], Callable[[tuple[Any, ...]], Any]]
    ) -> Callable[[tuple[Any, ...]], bytes | None] | None:
        """A function that gives a call's key in the journal. ``getter`` says how the column that was named is read.

        Null identifies nothing: rows without a key would share one answer.
        """
        if self.journal is None:
            return None
        assert self.options.journal_key is not None, "it was checked when the step was declared"
        get = getter(self.options.journal_key)

        def key_of(args: tuple[Any, ...]) -> bytes | None:
            value = get(args)
            return None if value is None else journal_key(self.step, value)

        return key_of

    def found_in(self, outcome: Outcome) -> Path | None:
        """The journal in which this answer was found. None: the call was made."""
        return self.journal if outcome.found else None

    def ended(self) -> Figures:
        """The figures of a task that has made all its calls. One line says them."""
        if self.figures.calls:
            task = TaskContext.get()
            place = "" if task is None else f" task={task.partitionId()} attempt={task.attemptNumber()}"
            say(f"calls of {self.name}:{place} {summary(self.figures)}")
        return self.figures

    def _limit(self) -> LimitClient | None:
        if self.options.limit is None:
            return None
        return open_limit(self.options.limit, self.limit_server, tasks=self.tasks)

    def _journal(self) -> Journal | None:
        if self.journal is None:
            return None
        task = TaskContext.get()
        place = "" if task is None else f"-{task.partitionId()}-{task.taskAttemptId()}"
        return open_journal(self.journal, f"{self.name}{place}", owner=owner_of(self.name))


def say(line: str) -> None:
    """Log a line. Spark sets up no logging in tasks: there it goes to stderr, which is in the executor's log."""
    if logger.hasHandlers():
        logger.info(line)
    else:
        print(f"tailrace: {line}", file=sys.stderr, flush=True)


def step_key(form: str, body: Any, schema: DataType, options: Calls) -> bytes:
    """The part of a key that tells the results of a step from those of another, which may have the same folder.

    Whatever a result could be mistaken in counts: the function's name, the declared schema, the column that identifies
    a call. The function's code does not: a journal is there to be found again after the program was edited.

    Args:
        form: ``"udf"`` or ``"map_rows"``, which are answered with values and with rows.
        body: the function.
        schema: as it was declared.
        options: those of the calls.
    """
    return journal_key(form, qualified_name_of(body), schema.json(), options.journal_key)


def owner_of(name: str) -> str:
    """The owner that a journal's folder names."""
    return f"function {name}"


def _finishing(body: Body, finish: Callable[[Any], Any]) -> Callable[..., Any]:
    """The function, with its result finished: a generator runs inside the call, with its timeout and retries."""
    function = body.function
    if not body.asynchronous:
        return lambda *args: finish(function(*args))

    async def finished(*args: Any) -> Any:
        return finish(await function(*args))

    return finished
