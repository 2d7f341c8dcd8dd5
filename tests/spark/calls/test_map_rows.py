"""``tr.map_rows`` on a Spark that runs."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, Observation, Row, SparkSession

import tailrace as tr
from tailrace.testing.processes import wait_until

register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not have the tests

PAIRS = "id long, text string"


def words(row: Any) -> list[dict[str, Any]]:
    return [{"id": row.id, "text": word} for word in row.text.split()]


async def half_of_them(row: Any) -> Any:
    await asyncio.sleep(0)
    if row["id"] % 2:
        raise ValueError(f"odd: {row.id}")
    return row


@pytest.mark.parametrize("calls", [None, tr.Calls(concurrency=3)], ids=["plain", "calls"])
def test_a_row_becomes_any_number_of_rows(spark: SparkSession, calls: tr.Calls | None) -> None:
    df = spark.createDataFrame([(1, "so it goes"), (2, ""), (3, "on")], PAIRS)
    got = df.transform(tr.map_rows(words, PAIRS, calls=calls)).collect()
    assert sorted(got) == [Row(id=1, text="goes"), Row(id=1, text="it"), Row(id=1, text="so"), Row(id=3, text="on")]


def generated(row: Any) -> Iterator[tuple[int, str]]:
    for number in range(row.id):
        yield number, row.text


@pytest.mark.parametrize("calls", [None, tr.Calls()], ids=["plain", "calls"])
def test_generators_give_rows(spark: SparkSession, calls: tr.Calls | None) -> None:
    df = spark.createDataFrame([(0, "a"), (2, "b")], PAIRS)
    assert sorted(df.transform(tr.map_rows(generated, PAIRS, calls=calls)).collect()) == [(0, "b"), (1, "b")]


def test_order_is_kept_if_asked_for(spark: SparkSession) -> None:
    async def uneven(row: Any) -> tuple[int]:
        await asyncio.sleep(0.02 if row.id % 10 == 0 else 0)
        return (row.id,)

    step = tr.map_rows(uneven, "id long", calls=tr.Calls(concurrency=8), ordered=True)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        got = [row.id for row in spark.range(0, 100, numPartitions=1).transform(step).collect()]
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert got == list(range(100))


def test_errors_go_to_columns_and_keep_what_the_input_has(spark: SparkSession) -> None:
    df = spark.range(4).selectExpr("id", "id * 10 as other")
    calls = tr.Calls(on_error="column", retries=1, backoff_s=0)
    step = tr.map_rows(half_of_them, "id long, other long, name string", calls=calls)
    assert df.columns == ["id", "other"]
    got = {row.id: row for row in df.transform(_named(step)).collect()}
    assert got[1] == Row(id=1, other=10, name=None, error="ValueError: odd: 1", attempts=2)
    assert got[2] == Row(id=2, other=20, name=None, error=None, attempts=1)
    assert len(got) == 4


def _named(step: Any) -> Any:
    return lambda df: step(df.selectExpr("id", "other", "cast(null as string) as name"))


def test_failed_rows_are_skipped_if_asked_for(spark: SparkSession) -> None:
    step = tr.map_rows(half_of_them, "id long", calls=tr.Calls(on_error="skip"))
    assert sorted(spark.range(6).transform(step).collect()) == [(0,), (2,), (4,)]


@pytest.mark.parametrize("calls", [None, tr.Calls(retries=2, backoff_s=0)], ids=["plain", "calls"])
def test_an_error_names_function_row_and_values(spark: SparkSession, calls: tr.Calls | None) -> None:
    def checked(row: Any) -> Any:
        return {"id": 1 // (row.id - 17)}

    df = spark.range(0, 30, numPartitions=1)
    with pytest.raises(Exception, match="ZeroDivisionError") as caught:
        df.transform(tr.map_rows(checked, "id long", calls=calls)).collect()
    values = "row=Row(id=17)" if calls is None else "id=17 attempts=3"
    assert f"call failed: function=checked row=17 {values}: ZeroDivisionError: " in str(caught.value)


@pytest.mark.parametrize("calls", [None, tr.Calls()], ids=["plain", "calls"])
def test_a_result_that_does_not_fit_names_column_and_value(spark: SparkSession, calls: tr.Calls | None) -> None:
    def scored(row: Any) -> Any:
        return {"score": "high" if row.id == 17 else row.id / 2}

    df = spark.range(0, 30, numPartitions=1)
    with pytest.raises(Exception, match="result does not fit") as caught:
        df.transform(tr.map_rows(scored, "score double", calls=calls)).collect()
    text = str(caught.value)
    assert "result does not fit: column=score type=double value='high': " in text
    assert "; function=scored row=17: does the function return what its schema says?" in text


def test_a_result_that_does_not_fit_is_an_error_like_any_other(spark: SparkSession) -> None:
    def scored(row: Any) -> Any:
        return {"id": row.id, "score": "high" if row.id == 1 else row.id / 2}

    step = tr.map_rows(scored, "id long, score double", calls=tr.Calls(on_error="column"))
    got = {row.id: row for row in spark.range(3).transform(step).collect()}
    assert got[1].error.startswith("Misfit: result does not fit: column=score type=double value='high': ")
    assert (got[0].score, got[1].score, got[2].score) == (0.0, None, 1.0)


@pytest.mark.parametrize("calls", [None, tr.Calls(), tr.Calls(on_error="column")], ids=["plain", "calls", "column"])
def test_parts_of_a_result_are_not_cut_to_fit(spark: SparkSession, calls: tr.Calls | None) -> None:
    def counted(row: Any) -> Any:
        return {"id": row.id, "counts": [{"n": row.id / 2}]}

    step = tr.map_rows(counted, "id long, counts array<struct<n:int>>", calls=calls)
    df = spark.range(0, 2, numPartitions=1).transform(step)
    why = "result does not fit: column=counts[0].n type=int value=0.5: not an integer: 0.5; function=counted row=1"
    if calls is None or calls.on_error == "fail":
        with pytest.raises(Exception, match="result does not fit") as caught:
            df.collect()
        assert why in str(caught.value)
        return
    got = {row.id: row for row in df.collect()}
    assert (got[0].counts, got[0].error, got[1].counts) == ([Row(n=0)], None, None)
    assert why in got[1].error


async def enrich(row: Any) -> Any:
    return row.id, f"of {row.id}"


def test_steps_of_one_name_can_be_in_one_plan(spark: SparkSession) -> None:
    """Spark refuses a plan with two observations of one name."""
    step = tr.map_rows(enrich, PAIRS)
    one, other = spark.range(0, 2).transform(step), spark.range(2, 4).transform(step)
    assert {row.text for row in one.union(other).collect()} == {"of 0", "of 1", "of 2", "of 3"}
    calls = tr.Calls()
    chained = one.transform(tr.map_rows(lambda row: (row.id + 10,), "id long", calls=calls))
    chained = chained.transform(tr.map_rows(lambda row: (row.id * 2,), "id long", calls=calls))
    assert {row.id for row in chained.collect()} == {20, 22}


def test_a_name_that_is_given_is_the_name(spark: SparkSession) -> None:
    first, second = Observation("enrichment"), Observation("enrichment")
    for observation in (first, second):
        spark.range(3).transform(tr.map_rows(enrich, PAIRS, observation=observation)).collect()
        assert observation.get["calls"] == 3


class Counting:
    """An object of each task."""

    async def open(self, context: tr.Context) -> None:
        self.label = f"{context.operator}/{context.task}"
        self.count = 0

    def process(self, row: Any) -> tuple[str, int]:
        self.count += 1
        return self.label, self.count

    async def close(self) -> None:
        assert self.count


@pytest.mark.parametrize("calls", [None, tr.Calls(concurrency=1)], ids=["plain", "calls"])
def test_each_task_has_an_object_of_a_class(spark: SparkSession, calls: tr.Calls | None) -> None:
    step = tr.map_rows(Counting, "label string, count int", calls=calls)
    got = sorted(spark.range(0, 6, numPartitions=2).transform(step).collect())
    assert got == [(f"Counting/{task}", count) for task in (0, 1) for count in (1, 2, 3)]


def test_figures_are_observed(spark: SparkSession) -> None:
    tried: Counter[int] = Counter()

    async def flaky(row: Any) -> Any:
        tried[row.id] += 1
        if tried[row.id] == 1 and row.id % 4 == 0:
            raise ConnectionError("reset")
        return None  # rows carry no figures

    observation = Observation("flaky")
    calls = tr.Calls(retries=1, backoff_s=0)
    step = tr.map_rows(flaky, "id long", calls=calls, observation=observation)
    df = spark.range(0, 40, numPartitions=2).transform(step)
    assert df.columns == ["id"]
    assert df.collect() == []
    figures = observation.get
    assert (figures["calls"], figures["attempts"], figures["retries"], figures["failed"]) == (40, 50, 10, 0)
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]


def _counted_calls(spark: SparkSession, folder: Path) -> DataFrame:
    """20,000 slow calls, eight a second, of which each leaves a file."""
    folder.mkdir()

    async def noted(row: Any) -> Any:
        (folder / str(row.id)).touch()
        await asyncio.sleep(0.5)
        return (row.id,)

    return spark.range(0, 20_000, numPartitions=1).transform(
        tr.map_rows(noted, "id long", calls=tr.Calls(concurrency=4))
    )


AT_MOST = 80
"""Calls that are made in ten seconds, which is how long a busy machine may take to stop them. The window has room for
a thousand."""


def test_a_limit_on_rows_stops_calls(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    assert len(_counted_calls(spark, folder).limit(10).collect()) == 10
    assert 10 <= _settled(folder) <= 12 + AT_MOST


def test_a_cancelled_query_makes_no_more_calls(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    df = _counted_calls(spark, folder)
    tracker = spark.sparkContext.statusTracker()
    errors: list[Exception] = []

    def run() -> None:
        spark.sparkContext.setJobGroup("to be cancelled", "calls")
        try:
            df.collect()
        except Exception as error:
            errors.append(error)

    query = threading.Thread(target=run)
    query.start()
    wait_until(lambda: any(folder.iterdir()), 60, "the first call")
    for group in tracker.getActiveJobsIds():
        spark.sparkContext._jsc.sc().cancelJob(group)  # type: ignore[union-attr]
    made = len(list(folder.iterdir()))
    query.join(60)
    assert errors
    assert _settled(folder) <= made + AT_MOST


def _settled(folder: Path) -> int:
    """How many calls were made, once none has been made for two seconds."""
    until = time.monotonic() + 60
    count, since = -1, 0.0
    while time.monotonic() < until:
        now = len(list(folder.iterdir()))
        if now != count:
            count, since = now, time.monotonic()
        elif time.monotonic() - since > 2:
            return count
        time.sleep(0.05)
    raise AssertionError(f"calls go on: made={count}")


def test_a_journal_makes_a_second_run_free(spark: SparkSession, tmp_path: Path) -> None:
    calls_made = tmp_path / "made"
    calls_made.mkdir()

    async def paid(row: Any) -> Any:
        (calls_made / f"{row.id}-{time.monotonic_ns()}").touch()
        return [(row.id, "a"), (row.id, "b")]

    calls = tr.Calls(journal=tmp_path / "journal", journal_key="id", keep=True)
    observation = Observation("paid")
    first = spark.range(20).transform(tr.map_rows(paid, PAIRS, calls=calls)).collect()
    again = spark.range(20).transform(tr.map_rows(paid, PAIRS, calls=calls, observation=observation)).collect()
    assert sorted(first) == sorted(again) == [(number, text) for number in range(20) for text in "ab"]
    assert len(list(calls_made.iterdir())) == 20
    assert observation.get["found"] == 20


def test_rows_without_a_key_share_no_answer(spark: SparkSession, tmp_path: Path) -> None:
    async def paid(row: Any) -> Any:
        return row.id, row.key

    df = spark.range(0, 10, numPartitions=1).selectExpr("id", "if(id < 5, null, id % 2) as key")
    calls = tr.Calls(journal=tmp_path / "journal", journal_key="key", concurrency=1)
    for found in (3, 5):
        observation = Observation(f"found-{found}")
        step = tr.map_rows(paid, "id long, key long", calls=calls, observation=observation)
        got = sorted(df.transform(step).collect())
        assert [row.id for row in got if row.key is None] == [0, 1, 2, 3, 4]
        assert {row.key for row in got} == {None, 0, 1}
        assert observation.get["found"] == found


def test_a_journal_key_that_is_no_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    step = tr.map_rows(words, PAIRS, calls=tr.Calls(journal=tmp_path / "journal", journal_key="idd"))
    with pytest.raises(tr.OptionError) as caught:
        spark.range(3).transform(step)
    assert str(caught.value) == "journal_key is no column: function=words journal_key=idd: did you mean id?"


def test_a_limit_is_shared_by_all_tasks(spark: SparkSession, tmp_path: Path) -> None:
    async def quick(row: Any) -> Any:
        return (row.id, time.time())

    calls = tr.Calls(limit=tr.limit("map-rows", per_s=40))
    got = spark.range(0, 80, numPartitions=4).transform(tr.map_rows(quick, "id long, at double", calls=calls)).collect()
    times = sorted(row.at for row in got)
    assert len(times) == 80
    most = max(sum(1 for at in times if start <= at < start + 1) for start in times)
    assert most <= 44, "four tasks made more than 40 calls in a second"


REFUSED: list[tuple[Any, Any, dict[str, Any], str]] = [
    (5, "id long", {}, "not a function: function=5: did you mean a function?"),
    (Counting(), "id long", {}, "did you mean the class, so that each task has its own object?"),
    (int, "id long", {}, "a class has no process method: function=int: did you forget to define process(self, …)?"),
    (lambda a, b: a, "id long", {}, "did you mean def f(value)?"),
    (words, "id long", {"calls": 5}, "not options of calls: calls=5: did you mean tr.Calls(concurrency=…)?"),
    (
        words,
        "id long",
        {"calls": tr.Calls(on_error="dead_letter")},
        "a DataFrame has no dead letters: on_error='dead_letter': did you mean 'column'?",
    ),
    (
        words,
        "id long",
        {"calls": tr.Calls(journal="here")},
        "nothing identifies a call in the journal: journal_key=None: which column is unique to a call?",
    ),
    (words, "id long", {"ordered": 1}, "ordered is neither True nor False: ordered=1: did you mix two up?"),
]


@pytest.mark.parametrize(("function", "schema", "options", "text"), REFUSED, ids=lambda one: str(one)[:20])
def test_declarations_that_make_no_sense_are_refused(
    function: Any, schema: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(tr.OptionError) as caught:
        tr.map_rows(function, schema, **options)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "on_error", "text"),
    [
        ("long", "fail", "not columns: map_rows=words schema=bigint: did you mean names and types"),
        ("id long, error string", "column", "a column has the name of one that is added: column=error"),
        ("id lng", "fail", "not a type: map_rows=words schema='id lng' cause='.*\"LNG\"': is it a string such as"),
        ("id long, ID long", "fail", "names differ in case only, or not at all: map_rows=words schema=struct<id:"),
        ("id long, year interval year", "fail", "year-month intervals do not exist in Python"),
    ],
)
def test_schemas_that_make_no_sense_are_refused(spark: SparkSession, schema: str, on_error: Any, text: str) -> None:
    with pytest.raises(tr.OptionError, match=text):
        spark.range(1).transform(tr.map_rows(words, schema, calls=tr.Calls(on_error=on_error)))


def test_a_column_that_python_cannot_have_is_refused(spark: SparkSession) -> None:
    df = spark.sql("select interval '1-2' year to month as age")
    with pytest.raises(tr.OptionError, match=r"year-month .* in Python: type=.* column=age"):
        df.transform(tr.map_rows(words, PAIRS))
