"""Without a schema all files of a folder have one, of all tasks, restarts and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.connector import Entry, SinkContext
from tailrace.runtime.connectors import to_parquet
from tailrace.runtime.connectors.schemas.agreement import Agreement


def open_writer(path: Path, task: int = 0, epoch: int = 1, job_id: str = "0123456789abcdef") -> Any:
    return to_parquet(path).open(SinkContext("out", task, 2, epoch, job_id, lambda *_: None, 1))


def commit(writer: Any, *rows: Any) -> None:
    for row in rows:
        writer.write(row)
    writer.commit([Entry("s", n, n) for n in range(len(rows))])


def schemas(path: Path) -> list[dict[str, Any]]:
    found = [pq.read_schema(part) for part in sorted(path.glob("part-*"))]
    return [dict(zip(schema.names, schema.types, strict=True)) for schema in found]


def values(path: Path, name: str = "a") -> list[Any]:
    return pq.read_table(path).column(name).to_pylist()  # type: ignore[no-any-return]


def test_integers_of_one_task_and_floats_of_another_are_doubles(tmp_path: Path) -> None:
    one, two = open_writer(tmp_path, 0), open_writer(tmp_path, 1)
    one.write({"a": 1})
    two.write({"a": 1.5})
    one.commit([Entry("s", 0, 0)])
    two.commit([Entry("s", 1, 1)])
    assert schemas(tmp_path) == [{"a": pa.float64()}, {"a": pa.float64()}]
    assert sorted(values(tmp_path)) == [1.0, 1.5]


def test_a_type_is_settled_by_the_first_file(tmp_path: Path) -> None:
    one, two = open_writer(tmp_path, 0), open_writer(tmp_path, 1)
    commit(one, {"a": 1})
    with pytest.raises(TypeError, match=r"row does not fit the column: column=a type=int64 value=1\.5 .* a schema\?"):
        two.write({"a": 1.5})
    commit(two, {"a": 2.0}, {"a": 3}, {"a": 2**60})
    assert schemas(tmp_path) == [{"a": pa.int64()}] * 2
    assert sorted(values(tmp_path)) == [1, 2, 3, 2**60]


def test_an_integer_that_is_no_double_settles_its_column(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.write({"a": 2**53 + 1, "b": {"c": 2**60}})
    with pytest.raises(TypeError, match=r"column=a type=int64 value=1\.5"):
        writer.write({"a": 1.5})
    with pytest.raises(TypeError, match="column=b type=struct<c: int64>"):
        writer.write({"b": {"c": 1.5}})
    commit(writer, {"a": 1})
    assert values(tmp_path) == [2**53 + 1, 1]
    doubles = open_writer(tmp_path / "b")
    doubles.write({"a": 1.5})
    with pytest.raises(TypeError, match="column=a type=double value=9007199254740993"):
        doubles.write({"a": 2**53 + 1})


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([[], ["x"]], pa.list_(pa.string())),
        ([[1], [0.5]], pa.list_(pa.float64())),
        ([{"b": 1}, {"c": "x"}], pa.struct([("b", pa.int64()), ("c", pa.string())])),
        ([{"b": None}, {"b": 1}], pa.struct([("b", pa.int64())])),
        ([[]], pa.list_(pa.string())),
        ([{"b": None}], pa.struct([("b", pa.string())])),
    ],
)
def test_what_is_not_known_at_first_may_come_before_the_first_file(tmp_path: Path, rows: list[Any], kind: Any) -> None:
    for number, some in enumerate((rows, rows[::-1])):
        commit(open_writer(tmp_path / str(number)), *({"a": value} for value in some))
        (schema,) = schemas(tmp_path / str(number))
        assert schema["a"].equals(kind) or sorted(map(str, schema["a"])) == sorted(map(str, kind))
    with pytest.raises(TypeError, match=r"column=a type="):
        open_writer(tmp_path / "0", 1).write({"a": 7})


def test_decimals_grow_until_the_first_file(tmp_path: Path) -> None:
    from decimal import Decimal

    commit(open_writer(tmp_path), {"a": Decimal("1.5")}, {"a": Decimal("100.25")})
    assert schemas(tmp_path) == [{"a": pa.decimal128(5, 2)}]


def test_columns_of_other_writers_are_in_every_file(tmp_path: Path) -> None:
    one, two = open_writer(tmp_path, 0), open_writer(tmp_path, 1)
    one.write({"a": 1})
    two.write({"b": "x"})
    for number, writer in enumerate((one, two)):
        writer.commit([Entry("s", number, number)])
    assert schemas(tmp_path) == [{"a": pa.int64(), "b": pa.string()}] * 2


def test_tuples_and_dicts_of_two_writers_share_the_files_columns(tmp_path: Path) -> None:
    commit(open_writer(tmp_path, 0), {"a": 1})
    commit(open_writer(tmp_path, 1), (1, 2))
    assert schemas(tmp_path)[1] == {"a": pa.int64(), "_1": pa.int64(), "_2": pa.int64()}


@pytest.mark.parametrize("job_id", ["0123456789abcdef", "fedcba9876543210"])
def test_later_epochs_and_later_runs_keep_the_types(tmp_path: Path, job_id: str) -> None:
    commit(open_writer(tmp_path), {"a": 1})
    with pytest.raises(TypeError, match="column=a type=int64 value='x'"):
        open_writer(tmp_path, epoch=2, job_id=job_id).write({"a": "x"})


def test_of_two_that_publish_at_once_one_looks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Agreement(tmp_path), Agreement(tmp_path)
    look = Agreement._look
    looks: list[Agreement] = []

    def stale(self: Agreement) -> None:
        look(self)
        if self is one and not looks:
            looks.append(self)
            two.learn({"a": 1.5, "b": 1}, {})

    monkeypatch.setattr(Agreement, "_look", stale)
    one.learn({"a": 1}, {})
    assert {name: column.kind for name, column in one.columns.items()} == {"a": pa.float64(), "b": pa.int64()}
    assert sorted(path.name for path in (tmp_path / "_tailrace/columns").iterdir()) == ["000001"]


def test_names_that_spark_cannot_tell_apart_are_refused(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    with pytest.raises(TypeError, match=r"two columns that Spark takes for one: columns=\['a', 'A'\] row={'a': 1, 'A'"):
        writer.write({"a": 1, "A": 2})
    commit(writer, {"a": 1})
    with pytest.raises(TypeError, match=r"two columns that Spark takes for one: columns=\['a', 'A'\]"):
        writer.write({"A": 1})


def test_a_name_is_text(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    with pytest.raises(TypeError, match=r"a column whose name is no text: column=1 row={1: 2}, did you forget a map"):
        writer.write({1: 2})
    commit(writer, {"a": 1})
    assert values(tmp_path) == [1]


def test_a_row_that_is_refused_leaves_no_column_behind(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    commit(writer, {"a": 1})
    with pytest.raises(TypeError, match="column=a type=int64 value='x'"):
        writer.write({"new": 1, "a": "x"})
    commit(writer, {"a": 2})
    assert schemas(tmp_path) == [{"a": pa.int64()}] * 2
