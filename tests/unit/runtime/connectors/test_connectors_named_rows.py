"""Rows of PySpark say by name which value is which; nothing inside a nested column is swapped or lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row

from tailrace.connector import Entry, SinkContext
from tailrace.runtime.connectors import to_parquet


def written(folder: Path, schema: Any, *rows: Any) -> list[Any]:
    writer = to_parquet(folder, schema=schema).open(SinkContext("out", 0, 1, 1, "0123456789abcdef", lambda *_: None))
    for row in rows:
        writer.write(row)
    writer.commit([Entry("s", n, n) for n in range(len(rows))])
    writer.close()
    return pq.read_table(folder).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("schema", ["id long, name string", None])
def test_rows_go_by_name(tmp_path: Path, schema: str | None) -> None:
    rows = [Row(name="a", id=1), Row(name="b", id=2)]
    found = written(tmp_path, schema, *rows)
    assert found == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_a_row_may_leave_columns_out(tmp_path: Path) -> None:
    assert written(tmp_path, "id long, name string", Row(id=1)) == [{"id": 1, "name": None}]


def test_a_row_without_names_goes_by_place(tmp_path: Path) -> None:
    assert written(tmp_path, "id long, name string", Row(1, "a")) == [{"id": 1, "name": "a"}]


def test_rows_of_other_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"row does not fit: columns=\['id', 'name'\] type=Row row=Row\(nmae='a'\)"):
        written(tmp_path, "id long, name string", Row(nmae="a"))
    with pytest.raises(TypeError, match="row does not fit: expected=a Row of id,name type=Row"):
        written(tmp_path / "mixed", "id long, name string", Row(id=1, name="a"), Row(name="a", id=1))
    with pytest.raises(TypeError, match="row does not fit: expected=a tuple of 2 type=Row"):
        written(tmp_path / "plain", "id long, name string", (1, "a"), Row(id=1, name="a"))


@pytest.mark.parametrize("value", [{"x": 1, "y": 2}, (1, 2), Row(x=1, y=2)])
def test_structs_take_dicts_and_tuples(tmp_path: Path, value: Any) -> None:
    """Of one form in a file: pyarrow takes no column that mixes dicts and tuples."""
    schema = "at struct<x: long, y: long>"
    assert written(tmp_path, schema, {"at": value}, {"at": value}) == [{"at": {"x": 1, "y": 2}}] * 2


@pytest.mark.parametrize("value", [(1.5, 2), Row(y=1, x=2), (1, 2, 3), {"x": 1, "z": 2}])
def test_structs_that_would_lose_something_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match=r"row does not fit the column: column=at .*, did you forget to convert it\?$"):
        written(tmp_path, "at struct<x: long, y: long>", {"at": value})


REQUIRED = pa.field("item", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.struct([REQUIRED]), {}),
        (pa.struct([REQUIRED]), (None,)),
        (pa.list_(REQUIRED), [1, None]),
        (pa.map_(pa.string(), REQUIRED), {"a": None}),
        (pa.list_(pa.struct([REQUIRED])), [{"item": None}]),
    ],
)
def test_parts_that_are_not_null_must_be_there(tmp_path: Path, kind: Any, value: Any) -> None:
    """Found when the row is written: at the commit, the error would end the run and not only this row."""
    with pytest.raises(TypeError, match="row does not fit the column: column=c"):
        written(tmp_path, pa.schema([("c", kind)]), {"c": value})
