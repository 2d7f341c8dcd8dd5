"""A DataFrame as a source: Spark writes it once, workers read the files."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from kit.data_sources import assert_once, copy
from kit.runs import finish
from tailrace.connector import SplitStart
from tailrace.errors import OptionError, TailraceError
from tailrace.spark.connectors.dataframe import from_dataframe, sweep
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
        f"folder holds another DataFrame: folder={tmp_path / 'rows'} found=['id'] columns=['n'], "
        "did you mean another folder?"
    )
    with pytest.raises(OptionError, match=r"option must be a positive number: splits=0"):
        from_dataframe(frame, splits=0)


def test_rows_of_a_driver_that_was_killed_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (f"tailrace-dataframe-{ended.pid}-x", f"tailrace-dataframe-{os.getpid()}-y", "tailrace-dataframe-z"):
        (tmp_path / name / "rows").mkdir(parents=True)
    sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"tailrace-dataframe-{os.getpid()}-y",
        "tailrace-dataframe-z",
    ]
