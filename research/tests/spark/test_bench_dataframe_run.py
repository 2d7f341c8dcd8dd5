"""The rows of ``bench dataframe`` really run, in small. How fast is for the benchmark to tell."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import TailraceError
from tailrace_research.bench.dataframe import even, journal, limit, skewed, stream, window
from tailrace_research.bench.dataframe.run import DataFrameSizes, Row, render_table, run_dataframe_benchmark

SIZES = DataFrameSizes(
    calls=400, rows=2_000, paid=200, seconds=3.0, repeats=1, skewed_rows=400, skewed_s=0.5, streamed_s=3.0
)


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


def test_the_window_row_makes_all_calls_on_all_sides(spark: SparkSession) -> None:
    result = measured(spark, window.WINDOW)
    for rows in (window.SMALL, window.DEFAULT):
        for side in window.SIDES:
            name = f"window_{rows}_{side}"
            assert len(SIZES.traces[name]) >= SIZES.calls
            assert 0 < result[f"{name}_p50_ms"] <= result[f"{name}_p99_ms"]
            assert result[f"{name}_extra_calls"] == 0 or side == "hedged"
    assert result["window_ratio"] > 0


def test_the_even_row_takes_time_on_both_sides(spark: SparkSession) -> None:
    result = measured(spark, even.EVEN)
    assert result["even_ratio"] == pytest.approx(result["even_rows_s"] / result["even_plain_s"])


def test_the_limit_row_counts_what_the_service_took(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "RATES", (40,))
    monkeypatch.setattr(limit, "REFUSING_S", 1.0)
    result = measured(spark, limit.LIMIT)
    assert len(SIZES.traces["limit_40"]) >= 40 * SIZES.seconds
    assert result["limit_40_excess"] == result["limit_excess"]
    assert 0 < result["limit_use"] < 1


def test_the_journal_row_counts_calls_through_kills(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "KILLS", 1)
    result = measured(spark, journal.JOURNAL)
    assert SIZES.paid <= result["journal_calls"] <= SIZES.paid + result["journal_on_in_flight"]
    assert result["journal_calls_without"] >= SIZES.paid
    assert result["journal_on_in_flight"] > 0, "the driver was killed at least"
