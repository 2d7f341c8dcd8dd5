"""Rows that a function of ``map_rows`` gets, and rows that it returns."""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from tailrace.errors import shorten
from tailrace.spark.calls.fitting import NOT_AWAITED
from tailrace.spark.calls.values import Misfit, Writer


class InputRow(tuple):  # type: ignore[type-arg]
    """The base of the rows of all schemas. A class for one schema is also a named tuple."""

    __slots__ = ()
    __fields__: tuple[str, ...] = ()  # as PySpark's Row calls the names

    def __getitem__(self, item: Any) -> Any:
        """``row["name"]``, ``row[0]`` or ``row[1:]``."""
        if isinstance(item, str):
            try:
                return tuple.__getitem__(self, self.__fields__.index(item))
            except ValueError:
                raise KeyError(item) from None
        return tuple.__getitem__(self, item)

    def __contains__(self, item: Any) -> bool:
        return item in self.__fields__

    def asDict(self) -> dict[str, Any]:
        return dict(zip(self.__fields__, self, strict=True))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self.__fields__, self, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.__fields__, tuple(self))


def row_maker(names: Sequence[str]) -> Callable[[Iterable[Any]], Any]:
    """A function that makes a row of these columns. It costs what making a named tuple costs."""
    usable = [
        name if name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_") else f"_{place}"
        for place, name in enumerate(names)
    ]
    if len(set(usable)) < len(usable):  # columns of a join may share a name: the first one has it
        usable = [name if usable.index(name) == place else f"_{place}" for place, name in enumerate(usable)]
    named = namedtuple("Row", usable, rename=True)  # type: ignore[misc]
    cls = type("Row", (InputRow, named), {"__slots__": (), "__fields__": tuple(names)})
    return partial(tuple.__new__, cls)


def _restore(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return row_maker(names)(values)


def in_rows(result: Any) -> Sequence[Any]:
    """The rows that one call has returned: none for None, one for a dict or a tuple, all of a list or an iterator."""
    if result is None:
        return ()
    if isinstance(result, dict | tuple):
        return (result,)
    if isinstance(result, list):
        return result
    if isinstance(result, Iterator):
        return list(result)
    return (result,)  # something else, which the writer refuses or takes by its attributes


def finished(result: Any) -> Any:
    """The result of a call, without iterators: they can be neither kept nor read twice."""
    return list(result) if isinstance(result, Iterator) else result


class RowWriter:
    """Turns rows into batches of Arrow."""

    def __init__(self, schema: StructType) -> None:
        self._names = schema.names
        self._writers = [Writer(field.name, field.dataType, field.nullable) for field in schema]
        self.schema = pa.schema([(writer.column, writer.arrow_type) for writer in self._writers])

    def batch(self, rows: Sequence[Any], extra: Sequence[pa.Array] = (), names: Sequence[str] = ()) -> pa.RecordBatch:
        """A batch. Raises anything if a row does not fit: ``why_not`` finds it."""
        arrays = [writer.array(values) for writer, values in zip(self._writers, self._columns(rows), strict=True)]
        return pa.RecordBatch.from_arrays([*arrays, *extra], names=[*self._names, *names])

    def why_not(self, row: Any) -> str | None:
        """How one row fails to fit, or None if it fits."""
        try:
            values = self._tuple(row)
        except Misfit as error:
            return str(error)
        for writer, value in zip(self._writers, values, strict=True):
            found = writer.why_not(value)
            if found is not None:
                return found
        return None

    def _columns(self, rows: Sequence[Any]) -> Sequence[Sequence[Any]]:
        if not rows:
            return [()] * len(self._names)
        kinds = set(map(type, rows))
        width = len(self._names)
        if kinds == {tuple} and set(map(len, rows)) == {width}:
            return [list(map(itemgetter(place), rows)) for place in range(width)]
        if kinds == {dict} and set(map(len, rows)) == {width}:
            try:
                return [list(map(itemgetter(name), rows)) for name in self._names]
            except KeyError:
                pass  # found and named below
        tuples = list(map(self._tuple, rows))
        return [list(map(itemgetter(place), tuples)) for place in range(width)]

    def _tuple(self, row: Any) -> tuple[Any, ...]:
        """The values of one row in the order of the schema. A dict may leave columns out: they are null."""
        names = getattr(row, "__fields__", None)
        if isinstance(row, tuple) and names is not None and set(names) == set(self._names):
            row = dict(zip(names, row, strict=True))  # a Row says which value is which
        if isinstance(row, tuple):
            if len(row) != len(self._names):
                raise Misfit(
                    f"row={shorten(row)} has {len(row)} values for {len(self._names)} columns: "
                    f"columns={','.join(self._names)}"
                )
            return row
        if isinstance(row, Awaitable):
            raise Misfit(f"row={shorten(row)}: {NOT_AWAITED}")
        if not isinstance(row, dict):
            raise Misfit(f"row={shorten(row)} is no row: is it a dict, a tuple, a Row, or a list of them?")
        unknown = [name for name in row if name not in self._names]
        if unknown:
            raise Misfit(f"row={shorten(row)} has a column that was not declared: column={unknown[0]}")
        return tuple([row.get(name) for name in self._names])
