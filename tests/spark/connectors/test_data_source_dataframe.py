"""A DataFrame as a source: Spark writes it once, workers read the files."""

from __future__ import annotations

import json
import logging
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tailrace as tr
from kit.data_sources import assert_once, copy
from kit.runs import finish
from tailrace.connector import SplitStart
from tailrace.errors import OptionError, TailraceError
from tailrace.runtime.driver.folder_lock import lock_folder
from tailrace.spark.connectors import staging
from tailrace.spark.connectors.dataframe import from_dataframe
from tailrace.testing.connectors import check_source


def test_the_law_of_dataframes(spark: SparkSession) -> None:
    frame = spark.range(2500).selectExpr("id AS n", "timestamp_seconds(id) AS at", "array(id) AS list")
    source = from_dataframe(frame, splits=3)
    assert len(source.splits(2)) == 3
    records = check_source(from_dataframe(spark.range(40).selectExpr("id AS n"), splits=3))
    assert_once([record.value["n"] for record in records], 40)
    first = source.open(SplitStart(source.splits(1)[0], 600)).poll(1, 0)[0]
    assert first.offset == 600
    assert first.value["at"] == datetime.fromtimestamp(first.value["n"], UTC)
    assert first.value["list"] == [first.value["n"]]
    source.delete()
    assert not source.folder.exists()
    with pytest.raises(TailraceError, match=r"file is not there: file=.*, is the folder reachable by this worker\?"):
        source.open(SplitStart("part-0.parquet"))


def test_a_dataframe_through_a_topology(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = spark.range(5000).selectExpr("id AS n")
    out = tr.to_list()
    topology = copy(from_dataframe(frame, splits=4, folder=tmp_path / "rows"), out, tasks=2)
    finish(topology.run(workers=2))
    assert_once([row["n"] for row in out.values], 5000)
    with caplog.at_level(logging.WARNING):
        again = from_dataframe(frame, folder=tmp_path / "rows")
    assert "rows are there already" in caplog.text
    assert len(again.splits(1)) == 4, "a folder that is complete is read as it is"
    assert sum(len(again.open(SplitStart(name)).poll(9999, 0)) for name in again.splits(1)) == 5000


def test_an_empty_dataframe(spark: SparkSession) -> None:
    assert check_source(from_dataframe(spark.range(10).where("id < 0"))) == []
    assert check_source(from_dataframe(spark.createDataFrame([], "n long"))) == []


def test_dataframes_that_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3)
    with pytest.raises(OptionError) as caught:
        from_dataframe(spark.readStream.format("rate").load())
    assert str(caught.value) == ("DataFrame is streaming: from_dataframe takes bounded ones, did you mean from_stream?")
    (tmp_path / "precious.txt").touch()
    with pytest.raises(OptionError) as caught:
        from_dataframe(frame, folder=tmp_path)
    assert str(caught.value) == (
        f"folder holds something else: folder={tmp_path} found=['precious.txt'], did you mean a new folder in it?"
    )
    from_dataframe(frame, folder=tmp_path / "rows")
    with pytest.raises(OptionError) as caught:
        from_dataframe(frame.withColumnRenamed("id", "n"), folder=tmp_path / "rows")
    assert str(caught.value) == (
        f"folder holds another DataFrame: folder={tmp_path / 'rows'} found=['id bigint'] columns=['n bigint'], "
        "did you mean another folder?"
    )
    with pytest.raises(OptionError) as caught:  # the bytes of the one would be read as the other
        from_dataframe(frame.selectExpr("CAST(id AS timestamp) AS id"), folder=tmp_path / "rows")
    assert str(caught.value) == (
        f"folder holds another DataFrame: folder={tmp_path / 'rows'} found=['id bigint'] columns=['id timestamp'], "
        "did you mean another folder?"
    )
    with pytest.raises(OptionError, match=r"not a folder to write to: folder=.*/precious\.txt/rows cause="):
        from_dataframe(frame, folder=tmp_path / "precious.txt" / "rows")
    with pytest.raises(OptionError, match=r"option must be a positive number: splits=0"):
        from_dataframe(frame, splits=0)


def test_rows_are_written_to_a_folder_that_this_driver_has_locked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no other driver deletes it: ``test_temporary_folders.py`` has the rest."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = from_dataframe(spark.range(3))
    (home,) = tmp_path.glob("tailrace-dataframe-*")
    assert source.folder.parent == home
    with pytest.raises(OptionError, match="taken"):
        lock_folder(home, "taken")
    source.delete()
    assert [path.name for path in home.iterdir()] == ["lock"]
    with pytest.raises(PySparkException):
        from_dataframe(spark.range(3).selectExpr("assert_true(id < 0) IS NULL AS n"))
    assert [path.name for path in home.iterdir()] == ["lock"]


class Killed(BaseException):
    pass


def test_rows_that_were_not_verified_are_written_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies when Spark has done its part, and before the rows have been counted and are on disk."""
    place = tmp_path / "rows"
    for moment in ("rows_in", "_sync"):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(staging, moment, killed)
            from_dataframe(spark.range(10), splits=2, folder=place)
        assert (place / "_SUCCESS").exists()
        next(place.glob("part-*")).unlink()  # it was not on disk yet
    source = from_dataframe(spark.range(10).selectExpr("id AS n"), splits=2, folder=place)
    assert_once([record.value["n"] for record in check_source(source)], 10)
    assert len(source.splits(1)) == 2
    begun = json.loads((place / "_tailrace-rows.json").read_text())
    assert begun == {"kind": "tailrace rows", "version": 1, "columns": [["n", "bigint"]], "complete": True}


def killed(*_: object) -> None:
    raise Killed


def test_a_table_of_spark_is_neither_read_nor_deleted(spark: SparkSession, tmp_path: Path) -> None:
    """It looks like rows that an earlier driver has left."""
    spark.range(10).coalesce(1).write.parquet(str(tmp_path / "table"))
    before = sorted(path.name for path in (tmp_path / "table").iterdir())
    with pytest.raises(OptionError, match=r"folder holds something else: folder=.*_SUCCESS"):
        from_dataframe(spark.range(10), folder=tmp_path / "table")
    assert sorted(path.name for path in (tmp_path / "table").iterdir()) == before
    (tmp_path / "table" / "_tailrace-rows.json").write_text("[]")
    with pytest.raises(OptionError, match=r"rows cannot be read: file=.* found=\[\], is it one of ours\?"):
        from_dataframe(spark.range(10), folder=tmp_path / "table")
