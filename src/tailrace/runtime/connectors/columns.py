"""How rows become columns: dicts by name, tuples by place (``_1``, ``_2``, …), anything else as ``value``.

Without a schema a column's type is fixed by the first commit in which it holds something other than None; a later
row of another type is refused, because readers of many files want one type. Columns that hold only None are left
out of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.errors import TailraceError, shorten


class Columns:
    """Turns the rows of one writer into pyarrow tables."""

    def __init__(self, schema: Any | None) -> None:
        self._schema = schema
        self._known: dict[str, Any] = {}  # types found so far, if there is no schema

    def table(self, rows: Sequence[Any]) -> Any:
        import pyarrow as pa

        names, cells = self._cells(rows)
        if self._schema is not None:
            fields = list(self._schema)
            arrays = [_array(rows, cells[field.name], field.type, field) for field in fields]
            return pa.Table.from_arrays(arrays, schema=self._schema)
        found = {name: _array(rows, cells[name], self._known.get(name), name) for name in names}
        return pa.table(self._typed(rows, found))

    def _typed(self, rows: Sequence[Any], found: dict[str, Any]) -> dict[str, Any]:
        import pyarrow as pa

        typed = {name: array for name, array in found.items() if not pa.types.is_null(array.type)}
        for name, array in typed.items():
            if _unknown(array.type):
                raise TailraceError(
                    f"type of column is not known: column={name} found={array.type} row={shorten(rows[0])}, "
                    "did you forget to give to_parquet a schema?"
                )
            self._known[name] = array.type
        # A file without columns would forget how many rows it has.
        return typed or {name: array.cast(pa.string()) for name, array in found.items()}

    def _cells(self, rows: Sequence[Any]) -> tuple[list[str], dict[str, list[Any]]]:
        first = rows[0]
        if isinstance(first, dict):
            names = self._names(dict.fromkeys(name for row in rows for name in row))
            return names, {name: [row.get(name) for row in rows] for name in names}
        if not isinstance(first, tuple):
            names = self._names(["value"])
            return names, {names[0]: list(rows)}
        names = self._names(getattr(first, "_fields", None) or [f"_{n}" for n in range(1, len(first) + 1)])
        return names, {name: [row[n] for row in rows] for n, name in enumerate(names)}

    def _names(self, found: Any) -> list[str]:
        return list(found) if self._schema is None else self._schema.names


class Shape:
    """The cheap check that every row gets when it is written: is it like the first one, and like the schema?"""

    def __init__(self, schema: Any | None) -> None:
        self._names = None if schema is None else frozenset(schema.names)
        self._kind: type | None = None
        self._width = 0

    def check(self, row: Any) -> None:
        if self._kind is None:
            self._first(row)
        if self._kind is dict:
            if isinstance(row, dict) and (self._names is None or row.keys() <= self._names):
                return
        elif self._kind is tuple:
            if isinstance(row, tuple) and len(row) == self._width:
                return
        elif not isinstance(row, (dict, tuple)):
            return
        raise self._misfit(row)

    def _first(self, row: Any) -> None:
        kind = next((kind for kind in (dict, tuple) if isinstance(row, kind)), object)
        width = len(row) if kind is tuple else 1
        if (kind is not object and not row) or (
            kind is not dict and self._names is not None and width != len(self._names)
        ):
            raise self._misfit(row)
        self._kind, self._width = kind, width

    def _misfit(self, row: Any) -> TypeError:
        if isinstance(row, dict) and self._names is not None and self._kind in (None, dict):
            detail = f"unknown={sorted(map(str, row.keys() - self._names))} columns={sorted(self._names)}"
        elif self._kind is None:
            detail = f"columns={sorted(self._names) if self._names is not None else 'none'}"
        else:
            names: dict[type, str] = {dict: "a dict", tuple: f"a tuple of {self._width}"}
            detail = f"expected={names.get(self._kind, 'a plain value')}"
        return TypeError(
            f"row does not fit: {detail} type={type(row).__name__} row={shorten(row)}, "
            "did you forget a map that gives all rows one shape?"
        )


def _array(rows: Sequence[Any], values: list[Any], kind: Any | None, field: Any) -> Any:
    """One column; ``field`` is its name, or its field of the schema."""
    import pyarrow as pa

    name = getattr(field, "name", field)
    try:
        array = pa.array(values, type=kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _unfit(rows, values, kind, name, error) from error
    if array.null_count and not getattr(field, "nullable", True):
        row = next(row for row, value in zip(rows, values, strict=True) if value is None)
        raise TypeError(
            f"row has no value in a column that is not null: column={name} row={shorten(row)}, "
            "is the column's name spelt differently?"
        )
    return array


def _unfit(rows: Sequence[Any], values: list[Any], kind: Any | None, name: str, error: Exception) -> TypeError:
    import pyarrow as pa

    if kind is None:
        kind = pa.infer_type([next(value for value in values if value is not None)])
    for row, value in zip(rows, values, strict=True):
        try:
            pa.array([value], type=kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return TypeError(
                f"row does not fit the column: column={name} type={kind} value={shorten(value)} row={shorten(row)}, "
                "did you forget to convert it, or to give to_parquet a schema?"
            )
    return TypeError(f"rows do not fit one type: column={name} fault={error}, did you forget to give a schema?")


def _unknown(kind: Any) -> bool:
    """Whether a type has a part of which only None, or nothing, was seen."""
    import pyarrow as pa

    return pa.types.is_null(kind) or any(_unknown(kind.field(n).type) for n in range(kind.num_fields))
