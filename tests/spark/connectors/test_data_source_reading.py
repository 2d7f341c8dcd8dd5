"""The stream reader of a PySpark data source as a source: the same rows after any restart. No JVM."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kit.data_sources import Counted, Counter2, CounterReader, Range, Simple
from tailrace.connector import SplitStart
from tailrace.errors import NotRepeatable, TailraceError
from tailrace.runtime.connectors.fingerprint import fingerprint
from tailrace.spark.connectors.data_source import from_data_source
from tailrace.testing.connectors import check_source


class OldCounter(Counted):
    """Before Spark 4.2: ``latestOffset`` without arguments. Rows by name, in another order than the schema's."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return OldReader(self)


class OldReader(CounterReader):
    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        return {"n": self.source.upto}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Range)
        return (Row(name=f"row {n}", n=n) for n in range(partition.first, partition.end))


class ArrowCounter(Counted):
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ArrowReader(self)


class ArrowReader(CounterReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Range)
        numbers = range(partition.first, partition.end)
        yield pa.RecordBatch.from_pydict({"n": list(numbers), "name": [f"row {n}" for n in numbers]})


class Fickle(Counter2):
    """Gives other rows each time, and from ``OldCounter`` everything else."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FickleReader(self)


class FickleReader(OldReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Range)
        return ((n, uuid.uuid4().hex) for n in range(partition.first, partition.end))


class Narrow(Counter2):
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return NarrowReader(self)


class NarrowReader(OldReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield (1,)


def expected(rows: int) -> list[dict[str, Any]]:
    return [{"n": n, "name": f"row {n}"} for n in range(rows)]


@pytest.mark.parametrize("source", [Counter2, OldCounter, ArrowCounter, Simple])
def test_the_law_of_sources(source: type[DataSource], tmp_path: Path) -> None:
    made = from_data_source(source, {"rows": "25", "Step": "7"}, log=tmp_path / "log", available_now=True)
    records = check_source(made)
    assert [record.value for record in records] == expected(25)
    offsets = [record.offset for record in records]
    if source is not OldCounter:
        assert offsets[6:8] == [6, 1 << 32], "seven rows a batch"


def test_a_stream_goes_on_when_there_is_more(tmp_path: Path) -> None:
    upto = tmp_path / "upto"
    upto.write_text("3")
    reader = from_data_source(Counter2, {"upto": str(upto)}, log=tmp_path / "log", poll_ms=5).open(SplitStart("stream"))
    assert len(reader.poll(10, 0)) == 3
    assert reader.poll(0, 0) == []
    assert reader.poll(10, 100) == []
    assert not reader.done
    assert reader.ready_ns == 100 + 5_000_000
    upto.write_text("4")
    assert [record.value["n"] for record in reader.poll(10, 200)] == [3]
    reader.close()


def test_the_first_plan_of_a_batch_counts(tmp_path: Path) -> None:
    """A reader that was declared dead and its successor plan the same batch, with different ends."""
    upto = tmp_path / "upto"
    for kind in (Counter2, Simple):
        source = from_data_source(kind, {"upto": str(upto), "step": "9"}, log=tmp_path / kind.__name__)
        upto.write_text("4")
        dead, successor = source.open(SplitStart("stream")), source.open(SplitStart("stream"))
        first = dead.poll(10, 0)
        upto.write_text("8")
        assert successor.poll(10, 0) == first
        assert successor.poll(10, 0) == [*dead.poll(2, 0), *dead.poll(10, 0)]
        files = sorted(path.name for path in source.log.iterdir())
        assert files == ["batch-000000000000.json", "batch-000000000001.json"]


def test_what_is_durable_is_committed_and_forgotten(tmp_path: Path) -> None:
    note = tmp_path / "committed"
    source = from_data_source(Counter2, {"rows": "25", "committed": str(note)}, log=tmp_path / "log")
    reader = source.open(SplitStart("stream"))
    records = [record for _ in range(4) for record in reader.poll(100, 0)]
    assert len(records) == 25
    reader.committed(records[6].offset + 1)
    assert not note.exists(), "the end of a batch is not known before the next one has begun"
    reader.committed(records[9].offset)
    reader.committed(records[9].offset + 1)
    assert note.read_text().splitlines() == ['{"n": 7}']
    assert len(list(source.log.iterdir())) == 4, "a position may still name the end of the batch before"
    again = source.open(SplitStart("stream", records[20].offset, fingerprint(records[19].value)))
    assert note.read_text().splitlines() == ['{"n": 7}', '{"n": 14}'], "what the position says is durable"
    assert again.poll(100, 0) == records[20:21]
    with pytest.raises(NotRepeatable) as caught:
        source.open(SplitStart("stream"))
    assert str(caught.value) == (
        f"log begins after the job: log={source.log} first=1, "
        "does it belong to an earlier job, whose checkpoint is gone?"
    )


def test_a_log_that_is_not_there_any_more(tmp_path: Path) -> None:
    source = from_data_source(Counter2, {"rows": "25"}, log=tmp_path / "log")
    with pytest.raises(NotRepeatable) as caught:
        source.open(SplitStart("stream", (3 << 32) + 1))
    assert str(caught.value) == (
        f"log does not know the batch: log={tmp_path / 'log'} batch=3 offset={(3 << 32) + 1}, "
        "is it the folder that the job began with?"
    )


def test_a_log_of_another_data_source(tmp_path: Path) -> None:
    from_data_source(Counter2, {"rows": "25"}, log=tmp_path).open(SplitStart("stream")).poll(1, 0)
    with pytest.raises(TailraceError) as caught:
        from_data_source(Simple, {"rows": "25"}, log=tmp_path).open(SplitStart("stream"))
    assert str(caught.value) == (
        f"log belongs to another data source: file={tmp_path / 'batch-000000000000.json'} found=Counter2 ours=Simple, "
        "do two sources share the folder?"
    )


def test_a_data_source_that_is_not_repeatable(tmp_path: Path) -> None:
    source = from_data_source(Fickle, {"rows": "5"}, log=tmp_path)
    records = source.open(SplitStart("stream")).poll(2, 0)
    last = fingerprint(records[1].value)
    with pytest.raises(NotRepeatable, match=r"something else when read again: class=Fickle batch=0 row=1 before=\{'n'"):
        source.open(SplitStart("stream", 2, last))


def test_a_row_that_does_not_fit_the_schema(tmp_path: Path) -> None:
    reader = from_data_source(Narrow, {"rows": "5"}, log=tmp_path).open(SplitStart("stream"))
    with pytest.raises(TailraceError) as caught:
        reader.poll(1, 0)
    assert str(caught.value) == (
        "row does not fit the schema: class=Narrow columns=['n', 'name'] row=(1,) type=tuple, "
        "is it a tuple, list, Row or pyarrow.RecordBatch with these columns?"
    )
