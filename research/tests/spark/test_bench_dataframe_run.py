"""The rows of ``bench dataframe`` about skewed tables and streams really run. How fast is for the benchmark to tell."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import TailraceError
from tailrace_research.bench.dataframe import skewed, stream
from tailrace_research.bench.dataframe.run import DataFrameSizes, Row, render_table, run_dataframe_benchmark

SIZES = DataFrameSizes(repeats=1, skewed_rows=400, skewed_s=0.5, streamed_s=3.0)


def measured(spark: SparkSession, row: Row, sizes: DataFrameSizes = SIZES) -> dict[str, Any]:
    said: list[str] = []
    result = run_dataframe_benchmark([row], sizes, said.append, spark)
    assert len(said) == len(row.contests(sizes, spark)), "a line about each contest"
    assert render_table([row], result)
    return result


def test_the_skewed_row_gives_the_same_rows_by_all_ways(spark: SparkSession) -> None:
    result = measured(spark, skewed.SKEWED)
    for side in skewed.SIDES:
        assert result[f"skewed_{side}_s"] >= SIZES.skewed_s, "nothing is faster than all slots together"
        assert len(SIZES.traces[f"skewed_{side}"]) == 400
        assert 0 < SIZES.traces[f"skewed_{side}"][-1] < result[f"skewed_{side}_s"]
    assert result["skewed_as_is_speedup"] > 0
    assert result["skewed_tuned_ratio"] > 0


def test_the_skewed_row_notices_that_rows_differ(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        skewed, "_mapped", lambda frame, side, out: frame.selectExpr("id", "0D AS score", "0D AS done_s")
    )
    with pytest.raises(TailraceError, match="rows differ from those expected: rows=400 expected=400"):
        measured(spark, skewed.SKEWED)


def test_the_stream_row_sees_every_row_of_both_sides(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "GENTLY_S", 1.0)
    monkeypatch.setattr(stream, "WARM_UP_S", 2.0)
    monkeypatch.setattr(stream, "RATE", 60)
    result = measured(spark, stream.STREAM)
    for side in stream.SIDES:
        found = {key: result[f"stream_{side}_{key}"] for key in stream.FIGURES}
        assert 1_000 * stream.COST_S < found["p50_ms"] <= found["p99_ms"]
        assert found["begun_p99_ms"] < found["p99_ms"]
        assert found["files_per_min"] > 0
        assert 0.05 < found["busy"] < 0.5, "a fifth of the rate"
    assert result["stream_p99_ratio"] > 0
    assert not spark.streams.active


def test_a_stream_that_loses_rows_is_told(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "WARM_UP_S", 1.0)
    monkeypatch.setattr(stream, "RATE", 60)
    monkeypatch.setattr(stream, "TIMEOUT_S", -3.0)
    with pytest.raises(TailraceError, match=r"rows are missing: rows=\d+ sent=\d+"):
        measured(spark, stream.STREAM)
    assert not spark.streams.active
