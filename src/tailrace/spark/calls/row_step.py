"""``map_rows`` in a task: rows in, calls or plain function calls, rows out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from tailrace.runtime.calls.window import Called, Window
from tailrace.spark.calls.bodies import Body
from tailrace.spark.calls.caller import TaskCalls
from tailrace.spark.calls.failures import failed, in_words, misfit
from tailrace.spark.calls.observed import MARK, marks, no_marks
from tailrace.spark.calls.options import check_journal_key
from tailrace.spark.calls.pipe import find_flush
from tailrace.spark.calls.rows import RowWriter, in_rows, row_maker
from tailrace.spark.calls.values import Misfit, Reader

ERROR, ATTEMPTS = "error", "attempts"
"""The columns that ``on_error="column"`` adds."""

PLAIN = ({tuple}, {dict})  # results that are one row each and can be written as they are
FINISHED = frozenset({tuple, dict, list, type(None)})  # results that need not be asked whether they are iterators


class Batches:
    """Arrow batches as lists of rows. Knows the columns once the first batch is there."""

    def __init__(self, types: Sequence[DataType | None]) -> None:
        self.names: tuple[str, ...] = ()
        self._reader = Reader(types)
        self._make: Callable[[Iterable[Any]], Any] | None = None

    def rows(self, batch: pa.RecordBatch) -> Iterator[Any]:
        """Rows are made one by one: ten thousand that live at once keep the garbage collector busy."""
        if self._make is None:
            self.names = tuple(batch.schema.names)
            self._make = row_maker(self.names)
        if not self.names:
            return iter([self._make(())] * batch.num_rows)
        return map(self._make, zip(*self._reader.lists(batch.columns), strict=True))


@dataclass(frozen=True)
class PlainRows:
    """The function is called where the task reads its input, row by row. This is what cheap functions need."""

    body: Any
    name: str
    schema: StructType
    types: Sequence[DataType | None]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        body, source, writer = Body(self.body, self.name), Batches(self.types), RowWriter(self.schema)
        body.open_now()
        try:
            function, done = body.function, 0
            for batch in batches:
                yield self._written(writer, self._results(function, source.rows(batch), done), done)
                done += batch.num_rows
        finally:
            body.close_now()

    def _results(self, function: Callable[[Any], Any], rows: Iterator[Any], done: int) -> list[Any]:
        results: list[Any] = []
        append = results.append
        row = None
        try:
            for row in rows:
                result = function(row)
                if type(result) not in FINISHED and isinstance(result, Iterator):
                    result = list(result)  # a generator runs here, where the row is known
                append(result)
        except Exception as error:
            raise failed(self.name, done + len(results), ["row"], [row], error, 0) from error
        return results

    def _written(self, writer: RowWriter, results: list[Any], done: int) -> pa.RecordBatch:
        plain = set(map(type, results)) in PLAIN
        try:
            return writer.batch(results if plain else [row for result in results for row in in_rows(result)])
        except Exception:
            for place, result in enumerate(results):
                for row in in_rows(result):
                    found = writer.why_not(row)
                    if found is not None:
                        raise misfit(self.name, done + place, found) from None
            raise


@dataclass(frozen=True)
class CalledRows:
    """The function is called many times at once, in a window that slides over all batches of the task."""

    calls: TaskCalls
    schema: StructType  # of the function's rows
    types: Sequence[DataType | None]
    ordered: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        flush = find_flush()
        source = Batches(self.types)
        output = _Output(self, source)
        key_of = self.calls.key_of(lambda column: lambda args: args[0][column])
        window = Window(
            ([(row,) for row in self._rows(source, batch)] for batch in batches),
            self.calls.open,
            concurrency=self.calls.options.concurrency,
            ordered=self.ordered,
            key_of=key_of,
        )
        results = window.results()
        try:
            for called in results:
                yield output.batch(called)
                flush()
        finally:
            results.close()
        figures = self.calls.ended()
        yield output.last(marks(figures))

    def _rows(self, source: Batches, batch: pa.RecordBatch) -> Iterator[Any]:
        if not source.names:
            check_journal_key(self.calls.name, self.calls.options, batch.schema.names)
        return source.rows(batch)


class _Output:
    """Makes batches of the results of calls."""

    def __init__(self, step: CalledRows, source: Batches) -> None:
        self._name = step.calls.name
        self._found_in = step.calls.found_in
        self._on_error = step.calls.options.on_error
        self._source = source
        self._names = step.schema.names
        self._writer = RowWriter(step.schema)

    def batch(self, several: Sequence[Called]) -> pa.RecordBatch:
        rows: list[Any] = []
        errors: list[str | None] = []
        attempts: list[int] = []
        for called in several:
            if called.outcome.error is None:
                new = in_rows(called.outcome.value)
                rows += new
                errors += [None] * len(new)
                attempts += [called.outcome.attempts] * len(new)
            elif self._on_error == "fail":
                raise self._failed(called) from called.outcome.error
            elif self._on_error == "column":
                rows.append(self._row_of_failed(called))
                errors.append(in_words(called.outcome.error))
                attempts.append(called.outcome.attempts)
        try:
            return self._written(rows, errors, attempts)
        except Exception:
            if not self._find_misfits(several):
                raise
        return self.batch(several)

    def last(self, marked: pa.Array) -> pa.RecordBatch:
        """Rows that only carry figures: all other columns are null. Spark observes and then drops them."""
        count = len(marked)
        nulls = [pa.nulls(count, kind.type) for kind in self._writer.schema]
        if self._on_error == "column":
            nulls += [pa.nulls(count, pa.string()), pa.nulls(count, pa.int32())]
        return pa.RecordBatch.from_arrays([*nulls, marked], names=[*self._names, *self._added(), MARK])

    def _written(self, rows: Sequence[Any], errors: list[str | None], attempts: list[int]) -> pa.RecordBatch:
        added = [no_marks(len(rows))]
        if self._on_error == "column":
            added = [pa.array(errors, pa.string()), pa.array(attempts, pa.int32()), *added]
        return self._writer.batch(rows, added, [*self._added(), MARK])

    def _added(self) -> list[str]:
        return [ERROR, ATTEMPTS] if self._on_error == "column" else []

    def _failed(self, called: Called) -> Exception:
        error = called.outcome.error
        assert error is not None
        if isinstance(error, Misfit):
            return error
        return failed(self._name, called.row, self._source.names, called.args[0], error, called.outcome.attempts)

    def _row_of_failed(self, called: Called) -> tuple[Any, ...]:
        """Columns of the result that the input has too keep its value, so that an error can be told apart by its id."""
        row = called.args[0]
        values = dict(zip(self._source.names, row, strict=True))
        kept = tuple([values.get(name) for name in self._names])
        if self._writer.why_not(kept) is None:
            return kept
        return (None,) * len(self._names)

    def _find_misfits(self, several: Sequence[Called]) -> bool:
        """Turn results that do not fit into errors of their calls. True if there were any."""
        before = [called.outcome.error for called in several]
        for called in several:
            if called.outcome.error is None:
                for row in in_rows(called.outcome.value):
                    found = self._writer.why_not(row)
                    if found is not None:
                        called.outcome.error = misfit(self._name, called.row, found, self._found_in(called.outcome))
                        break
        return before != [called.outcome.error for called in several]
