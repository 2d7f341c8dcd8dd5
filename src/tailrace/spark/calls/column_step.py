"""A column of ``tr.udf`` in a task: arguments in, one value a row out, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType

from tailrace.runtime.calls.figures import Figures
from tailrace.runtime.calls.window import Called, Window
from tailrace.spark.calls.bodies import Body
from tailrace.spark.calls.caller import TaskCalls
from tailrace.spark.calls.failures import CallFailed, failed, in_words, misfit
from tailrace.spark.calls.pipe import find_flush
from tailrace.spark.calls.values import Misfit, Reader, Writer

Columns = Iterator[Any]  # of one array, or of a tuple of arrays, a batch


def column_type(kind: DataType, on_error: str) -> DataType:
    """The type of the column: that of the values, or a struct that has room for an error."""
    if on_error != "column":
        return kind
    return StructType(
        [StructField("value", kind), StructField("error", StringType()), StructField("attempts", IntegerType())]
    )


def _arguments(reader: Reader, batch: Any) -> Iterator[tuple[Any, ...]]:
    return zip(*reader.lists(batch if isinstance(batch, tuple) else (batch,)), strict=True)


class PlainColumn:
    """The function is called row by row, where the task reads its input."""

    def __init__(self, body: Any, name: str, kind: DataType, parameters: Sequence[str]) -> None:
        self._body, self._kind, self._parameters = body, kind, parameters
        self.__name__ = name

    def __call__(self, batches: Columns) -> Iterator[pa.Array]:
        body, reader, writer = Body(self._body, self.__name__), Reader(), Writer("value", self._kind)
        body.open_now()
        try:
            done = 0
            for batch in batches:
                results = self._results(body.function, _arguments(reader, batch), done)
                yield self._written(writer, results, done)
                done += len(results)
        finally:
            body.close_now()

    def _results(self, function: Callable[..., Any], rows: Iterator[tuple[Any, ...]], done: int) -> list[Any]:
        results: list[Any] = []
        append = results.append
        args: tuple[Any, ...] = ()
        try:
            for args in rows:
                append(function(*args))
        except Exception as error:
            raise failed(self.__name__, done + len(results), self._parameters, args, error, 0) from error
        return results

    def _written(self, writer: Writer, results: list[Any], done: int) -> pa.Array:
        try:
            return writer.array(results)
        except Exception:
            for place, result in enumerate(results):
                found = writer.why_not(result)
                if found is not None:
                    raise misfit(self.__name__, done + place, found) from None
            raise


class CalledColumn:
    """The function is called many times at once, in a window that slides over all batches of the task."""

    def __init__(
        self, calls: TaskCalls, kind: DataType, parameters: Sequence[str], report: Callable[[Figures], None] | None
    ) -> None:
        self._calls, self._kind, self._parameters, self._report = calls, kind, parameters, report
        self.__name__ = calls.name

    def __call__(self, batches: Columns) -> Iterator[pa.Array]:
        flush = find_flush()
        reader = Reader()
        value = Writer("value", self._kind)
        whole = Writer("value", column_type(self._kind, self._calls.options.on_error))
        window = Window(
            (list(_arguments(reader, batch)) for batch in batches),
            self._calls.open,
            concurrency=self._calls.options.concurrency,
            ordered=True,
            key_of=self._calls.key_of(self._argument),
        )
        results = window.results()
        try:
            for several in results:
                yield self._written(several, value, whole)
                flush()
        finally:
            results.close()
        figures = self._calls.ended()
        if self._report is not None:
            self._report(figures)

    def _argument(self, name: str) -> Callable[[tuple[Any, ...]], Any]:
        place = self._parameters.index(name)
        return lambda args: args[place]

    def _written(self, several: Sequence[Called], value: Writer, whole: Writer) -> pa.Array:
        try:
            return whole.array([self._entry(called) for called in several])
        except (CallFailed, Misfit):
            raise
        except Exception:
            misfits = [(called, value.why_not(called.outcome.value)) for called in several]
            if not any(found for _, found in misfits):
                raise
        for called, found in misfits:
            if found is not None:
                called.outcome.error = misfit(self.__name__, called.row, found, self._calls.found_in(called.outcome))
                called.outcome.value = None
        return whole.array([self._entry(called) for called in several])

    def _entry(self, called: Called) -> Any:
        outcome, on_error = called.outcome, self._calls.options.on_error
        if on_error == "column":
            return outcome.value, None if outcome.error is None else in_words(outcome.error), outcome.attempts
        if outcome.error is None or on_error == "skip":
            return outcome.value
        if isinstance(outcome.error, Misfit):
            raise outcome.error
        raise failed(
            self.__name__, called.row, self._parameters, called.args, outcome.error, outcome.attempts
        ) from outcome.error
