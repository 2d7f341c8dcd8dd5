"""One schema for all files of a folder, inferred from rows when the sink has no schema.

Tasks, restarts and later runs agree in ``out/_tailrace/columns/<number>/schema``: each number is a version, which adds
columns or widens some. A version is published by renaming a directory to its number, which fails if another was faster.
A column may be widened (integers to doubles, unknown parts to known ones) until the first file with it is committed.
That settles it: a value that it does not hold is refused from then on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tailrace.errors import shorten
from tailrace.runtime.connectors.commits.disk import make_directory, remove_tree, sync_directory, write_file
from tailrace.runtime.connectors.schemas.cells import holds, infer, is_exact, join, quick_check, settled

_SETTLED = b"tailrace.settled"


@dataclass(frozen=True)
class Column:
    """A column of the files in the folder."""

    name: str
    kind: Any  # a pyarrow type
    settled: bool = True
    nullable: bool = True

    @cached_property
    def fits(self) -> Callable[[Any], bool]:
        return quick_check(self.kind, self.settled)

    def takes(self, value: Any) -> bool:
        return holds(value, self.kind) and (self.settled or is_exact(value))


ByName = Mapping[str, Column]


class Agreement:
    """One writer's view of the columns that all writers of a folder share."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / "_tailrace" / "columns"
        self._version = 0
        self.columns: ByName = {}
        self._look()

    def learn(self, values: Mapping[Any, Any], row: Any) -> None:
        """Add or widen columns for these values of a row, none of them None. Raises TypeError if that is impossible."""
        while True:
            self._look()
            new: dict[str, Column] = {}
            for name, value in values.items():
                known = self.columns.get(name)
                if known is None or not known.takes(value):
                    new[name] = self._widened(name, known, value, row)
                    if known is None:
                        self._check_name(name, [*self.columns, *new], row)
            if not new or self._publish(new.values()):
                return

    def settle(self, names: Iterable[str]) -> ByName:
        """Fix the types, because a file is about to be written with them.

        If no column has a type yet, those in ``names`` become strings.
        """
        import pyarrow as pa

        while True:
            self._look()
            open_ones = [column for column in self.columns.values() if not column.settled]
            if not self.columns:  # a file without columns could not store its number of rows
                open_ones = [Column(name, pa.null(), False) for name in names]
            ready = [replace(column, kind=settled(column.kind), settled=True) for column in open_ones]
            if not ready or self._publish(ready):
                return self.columns

    def _widened(self, name: Any, known: Column | None, value: Any, row: Any) -> Column:
        if known is not None and known.settled:
            raise unfit(name, known.kind, value, row)
        found = infer(value)
        if found is None:
            raise TypeError(
                f"type of column is not known: column={name} value={shorten(value)} row={shorten(row)}, "
                "did you forget to give to_parquet a schema?"
            )
        kind = found if known is None else join(known.kind, found)
        if kind is None or not holds(value, kind):
            raise unfit(name, known.kind if known is not None else found, value, row)
        exact = is_exact(value)  # otherwise it must not become a column of doubles
        return Column(name, kind if exact else settled(kind), not exact)

    def _check_name(self, name: Any, names: Iterable[Any], row: Any) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(
                f"row has a column whose name is no text: column={name!r} row={shorten(row)}, "
                "did you forget a map that names the columns?"
            )
        for other in names:
            if other != name and other.lower() == name.lower():
                raise TypeError(
                    f"row has two columns that Spark takes for one: columns={[other, name]} row={shorten(row)}, "
                    "is one of them spelt differently by accident?"
                )

    def _look(self) -> None:
        """Read the newest version."""
        import pyarrow as pa

        if not self._root.is_dir():
            return
        newest = max((int(path.name) for path in self._root.iterdir() if path.name.isdecimal()), default=0)
        if newest > self._version:
            data = (self._root / f"{newest:06d}" / "schema").read_bytes()
            schema = pa.ipc.read_schema(pa.py_buffer(data))
            found = [Column(f.name, f.type, _SETTLED in (f.metadata or {})) for f in schema]
            self.columns = {column.name: column for column in found}
            self._version = newest

    def _publish(self, changed: Iterable[Column]) -> bool:
        """Publish the next version, with these columns changed. False if another writer was faster."""
        import pyarrow as pa

        columns = {**self.columns, **{column.name: column for column in changed}}
        fields = [pa.field(c.name, c.kind, metadata={_SETTLED: b""} if c.settled else None) for c in columns.values()]
        make_directory(self._root)
        draft = self._root / f"draft-{uuid.uuid4().hex}"
        draft.mkdir()
        write_file(draft / "schema", pa.schema(fields).serialize().to_pybytes())
        sync_directory(draft)
        target = self._root / f"{self._version + 1:06d}"
        try:
            draft.rename(target)
        except OSError:
            remove_tree(draft)
            if target.is_dir():
                return False
            raise
        sync_directory(self._root)
        self.columns = columns
        self._version += 1
        return True


def unfit(name: str, kind: Any, value: Any, row: Any, declared: bool = False) -> TypeError:
    """The error of a value that does not fit its column, whose type was ``declared`` in a schema, or inferred."""
    hint = "did you forget to convert it" + ("?" if declared else ", or to give to_parquet a schema?")
    return TypeError(
        f"row does not fit the column: column={name} type={kind} value={shorten(value)} row={shorten(row)}, {hint}"
    )
