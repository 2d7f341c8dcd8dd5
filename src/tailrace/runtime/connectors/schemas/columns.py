"""Turns rows into columns: dicts by name, tuples by position (``_1``, ``_2``, …), anything else as ``value``.

PySpark's ``Row`` is a tuple whose values may have names, which then say which column is which.

Each row is checked when it is written, so that a bad row is refused by itself and commits do not fail. Without a schema
the columns are those that all writers of the folder agree on; columns with only None are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tailrace.errors import shorten
from tailrace.runtime.connectors.schemas.agreement import Agreement, Column, unfit


class Columns:
    """Turns the rows of one writer into pyarrow tables, by a given schema or by one agreed on with other writers."""

    def __init__(self, schema: Any | None, agreement: Agreement | None = None) -> None:
        self._schema = schema
        self._agreement = agreement
        self._shape = Shape(schema)
        fields = [] if schema is None else list(schema)
        columns = [Column(field.name, field.type, True, field.nullable) for field in fields]
        self._columns: Mapping[str, Column] = {column.name: column for column in columns}
        if agreement is not None:
            self._columns = agreement.columns
        self._required = [field.name for field in fields if not field.nullable]

    def check(self, row: Any) -> None:
        """Raise TypeError if the row, or a value in it, does not fit."""
        self._shape.check(row)
        if self._required:
            self._check_required(row)
        columns = self._columns
        doubtful: dict[Any, Any] = {}
        for name, value in self._shape.cells(row):
            if value is not None:
                column = columns.get(name)
                if column is None or not column.fits(value):
                    doubtful[name] = value
        if doubtful:
            self._decide(doubtful, row)

    def table(self, rows: Sequence[Any]) -> Any:
        """A table of these rows, each of which must have passed ``check``."""
        import pyarrow as pa

        if self._agreement is not None:
            self._columns = self._agreement.settle([name for name, _ in self._shape.cells(rows[0])])
        columns = self._columns.values()
        arrays = [pa.array(self._shape.column(rows, column.name), type=column.kind) for column in columns]
        fields = [pa.field(column.name, column.kind, column.nullable) for column in columns]
        return pa.Table.from_arrays(arrays, schema=self._schema or pa.schema(fields))

    def _decide(self, doubtful: Mapping[Any, Any], row: Any) -> None:
        """Decide on values that failed the fast check: learn columns from them, or raise TypeError and learn none."""
        new = {}
        for name, value in doubtful.items():
            column = self._columns.get(name)
            if column is None or not column.takes(value):
                if self._agreement is None or (column is not None and column.settled):
                    declared = self._agreement is None
                    raise unfit(name, None if column is None else column.kind, value, row, declared)
                new[name] = value
        if new and self._agreement is not None:
            self._agreement.learn(new, row)
            self._columns = self._agreement.columns

    def _check_required(self, row: Any) -> None:
        cells = dict(self._shape.cells(row))
        for name in self._required:
            if cells.get(name) is None:
                raise TypeError(
                    f"row has no value in a column that is not null: column={name} row={shorten(row)}, "
                    "is the column's name spelt differently?"
                )


class Shape:
    """The form of rows: dict, tuple or plain value. All rows must match the first one and the schema."""

    def __init__(self, schema: Any | None) -> None:
        self._names = None if schema is None else frozenset(schema.names)
        self._places: list[str] = [] if schema is None else schema.names  # columns of tuples and plain values
        self._kind: type | None = None
        self._width = 0
        self._named: Sequence[str] | None = None  # the names that the values of a Row have

    def check(self, row: Any) -> None:
        if self._kind is None:
            self._first(row)
        if self._kind is dict:
            if isinstance(row, dict) and (self._names is None or row.keys() <= self._names):
                return
        elif self._kind is tuple:
            if isinstance(row, tuple) and len(row) == self._width and _names_in(row) == self._named:
                return
        elif not isinstance(row, (dict, tuple)):
            return
        raise self._misfit(row)

    def _first(self, row: Any) -> None:
        kind = next((kind for kind in (dict, tuple) if isinstance(row, kind)), object)
        width = len(row) if kind is tuple else 1
        named = _names_in(row)
        if named is not None:
            if not self._names_fit(named):
                raise self._misfit(row)
            self._places = list(named)
        elif (kind is not object and not row) or (
            kind is not dict and self._names is not None and width != len(self._names)
        ):
            raise self._misfit(row)
        self._kind, self._width, self._named = kind, width, named
        if self._names is None and kind is not dict and named is None:
            fields = getattr(row, "_fields", None) or [f"_{n}" for n in range(1, width + 1)]
            self._places = list(fields) if kind is tuple else ["value"]

    def _names_fit(self, named: Sequence[str]) -> bool:
        once = len(set(named)) == len(named) > 0
        return once and (self._names is None or self._names.issuperset(named))

    def cells(self, row: Any) -> Iterable[tuple[Any, Any]]:
        """Pairs of column name and value. The row must have passed ``check``."""
        if isinstance(row, dict):
            return row.items()
        return zip(self._places, row if isinstance(row, tuple) else (row,), strict=True)

    def column(self, rows: Sequence[Any], name: str) -> list[Any]:
        """The values of one column. The rows must have passed ``check``."""
        if isinstance(rows[0], dict):
            return [row.get(name) for row in rows]
        if name not in self._places:  # a column of another writer
            return [None] * len(rows)
        place = self._places.index(name)
        return [row[place] for row in rows] if isinstance(rows[0], tuple) else list(rows)

    def _misfit(self, row: Any) -> TypeError:
        if isinstance(row, dict) and self._names is not None and self._kind in (None, dict):
            detail = f"unknown={sorted(map(str, row.keys() - self._names))} columns={sorted(self._names)}"
        elif self._kind is None:
            detail = f"columns={sorted(self._names) if self._names is not None else 'none'}"
        else:
            names: dict[type, str] = {dict: "a dict", tuple: f"a tuple of {self._width}"}
            if self._named is not None:
                names[tuple] = f"a Row of {','.join(self._named)}"
            detail = f"expected={names.get(self._kind, 'a plain value')}"
        return TypeError(
            f"row does not fit: {detail} type={type(row).__name__} row={shorten(row)}, "
            "did you forget a map that gives all rows one shape?"
        )


def _names_in(row: Any) -> Sequence[str] | None:
    """The names of the values in a Row of PySpark, if they have any."""
    return getattr(row, "__fields__", None) if isinstance(row, tuple) else None
