"""``tr.udf`` on a Spark that runs."""

from __future__ import annotations

import asyncio
import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

import tailrace as tr

register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not have the tests


@tr.udf("label string, score double", calls=tr.Calls(concurrency=4))
async def classify(text: str, factor: float = 1.0) -> tuple[str, float]:
    """Say how long a text is."""
    await asyncio.sleep(0)
    return "long" if len(text) > 4 else "short", len(text) * factor


@tr.udf(DoubleType())
def halved(number: float) -> float:
    return number / 2


class Numbered:
    async def open(self) -> None:
        self.count = 0

    def process(self, text: str) -> int:
        self.count += 1
        return self.count

    def close(self) -> None:
        assert self.count


def test_a_column_function_takes_names_and_columns(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, "wave"), (2, "particle")], "id long, text string")
    got = df.select("id", classify("text").alias("c"), halved(F.col("id")), classify(factor=F.lit(2.0), text="text"))
    assert got.columns == ["id", "c", "halved(id)", "classify(text, 2.0)"]
    assert [tuple(row) for row in got.collect()] == [
        (1, Row(label="short", score=4.0), 0.5, Row(label="short", score=8.0)),
        (2, Row(label="long", score=8.0), 1.0, Row(label="long", score=16.0)),
    ]


def test_rows_keep_their_order(spark: SparkSession) -> None:
    @tr.udf("long", calls=tr.Calls(concurrency=16))
    async def uneven(number: int) -> int:
        await asyncio.sleep(0.02 if number % 10 == 0 else 0)
        return number

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "30")
    try:
        got = spark.range(0, 200, numPartitions=2).select("id", uneven("id").alias("same")).collect()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert [row.same for row in got] == [row.id for row in got] == list(range(200))


@pytest.mark.parametrize("calls", [None, tr.Calls(concurrency=1)], ids=["plain", "calls"])
def test_each_task_has_an_object_of_a_class(spark: SparkSession, calls: tr.Calls | None) -> None:
    numbered = tr.udf("int", calls=calls)(Numbered)
    got = spark.range(0, 4, numPartitions=2).select(numbered(F.col("id").cast("string")).alias("n")).collect()
    assert [row.n for row in got] == [1, 2, 1, 2]
    assert numbered(7) == 1


def odd_fails(number: int) -> float | str:
    if number == 3:
        return "high"
    return 1 / (number - 1)


def test_errors_are_a_column(spark: SparkSession) -> None:
    scored = tr.udf("double", calls=tr.Calls(on_error="column", retries=1, backoff_s=0))(odd_fails)
    got = spark.range(0, 4, numPartitions=1).select(scored("id").alias("s")).select("s.*").collect()
    assert got[0] == Row(value=-1.0, error=None, attempts=1)
    assert got[1] == Row(value=None, error="ZeroDivisionError: division by zero", attempts=2)
    assert got[3].error.startswith("Misfit: result does not fit: column=value type=double value='high': ")
    assert got[2].value == 1.0
    figures = scored.figures()
    assert (figures.calls, figures.failed, figures.retries) == (4, 1, 1)


def test_errors_are_null(spark: SparkSession) -> None:
    scored = tr.udf("double", calls=tr.Calls(on_error="skip"))(odd_fails)
    assert [row.s for row in spark.range(0, 4).select(scored("id").alias("s")).collect()] == [-1.0, None, 1.0, None]


@pytest.mark.parametrize("calls", [None, tr.Calls(retries=1, backoff_s=0)], ids=["plain", "calls"])
def test_errors_end_the_query(spark: SparkSession, calls: tr.Calls | None) -> None:
    scored = tr.udf("double", calls=calls)(odd_fails)
    with pytest.raises(Exception, match="call failed") as caught:
        spark.range(0, 2, numPartitions=1).select(scored("id")).collect()
    attempts = "" if calls is None else " attempts=2"
    assert f"call failed: function=odd_fails row=1 number=1{attempts}: ZeroDivisionError: " in str(caught.value)


def test_a_result_that_does_not_fit_ends_the_query(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="result does not fit: column=value type=double value='high'") as caught:
        spark.range(2, 4, numPartitions=1).select(tr.udf("double")(odd_fails)("id")).collect()
    assert "; function=odd_fails row=1: does the function return what its schema says?" in str(caught.value)


MISFITS: list[tuple[str, Any, Any, str]] = [
    ("long", 1.5, 2.0, "column=value type=bigint value=1.5: not an integer: 1.5"),
    ("array<int>", [1, 1.5], [2.0], "column=value[1] type=int value=1.5: not an integer: 1.5"),
    ("label string, n int", {"labl": "a"}, {"label": "a"}, "no such field: 'labl': did you mean label?"),
    ("label string, n int", ("a", 1.5), ("a", 1), "column=value.n type=int value=1.5: not an integer: 1.5"),
    ("decimal(4,2)", Decimal("NaN"), Decimal(1), "value=Decimal('NaN'): not a number: Decimal('NaN')"),
]


def test_results_are_not_cut_to_fit(spark: SparkSession) -> None:
    in_a_column = tr.Calls(on_error="column")
    columns = [
        tr.udf(schema, calls=in_a_column)(lambda number, wrong=wrong, right=right: wrong if number else right)("id")
        for schema, wrong, right, _ in MISFITS
    ]
    good, bad = spark.range(0, 2, numPartitions=1).select(*columns).collect()
    assert all(one.error is None and one.value is not None for one in good)
    for one, (_, _, _, why) in zip(bad, MISFITS, strict=True):
        assert one.value is None
        assert why in one.error


@pytest.mark.parametrize("calls", [None, tr.Calls()], ids=["plain", "calls"])
def test_a_result_that_would_be_cut_ends_the_query(spark: SparkSession, calls: tr.Calls | None) -> None:
    halves = tr.udf("array<int>", calls=calls)(lambda number: [number / 2])
    with pytest.raises(Exception, match="result does not fit") as caught:
        spark.range(0, 2, numPartitions=1).select(halves("id")).collect()
    assert "column=value[0] type=int value=0.5: not an integer: 0.5" in str(caught.value)


def test_a_filter_on_results_makes_no_second_call(spark: SparkSession, tmp_path: Path) -> None:
    scored = tr.udf("double", calls=tr.Calls(on_error="column"))(odd_fails)
    df = spark.range(0, 4).select("id", scored("id").alias("s"))
    good = df.filter("s.error is null").select("id", "s.value")
    assert len(good.collect()) == 2
    assert scored.figures().calls == 4


def test_a_journal_is_keyed_by_a_parameter(spark: SparkSession, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()

    def paid(number: int, rest: int) -> int:
        (made / f"{number}").touch(exist_ok=False)
        return number + rest

    calls = tr.Calls(journal=tmp_path / "journal", journal_key="number")
    for _ in range(2):
        column = tr.udf("long", calls=calls)(paid)
        got = spark.range(5).select(column("id", F.lit(1)).alias("n")).collect()
        assert [row.n for row in got] == [1, 2, 3, 4, 5]
    assert len(list(made.iterdir())) == 5

    def row_of(row: Any) -> Any:
        return row.id, "a row"

    row_of.__name__, row_of.__qualname__ = paid.__name__, paid.__qualname__
    kept = tr.Calls(journal=tmp_path / "journal", journal_key="number")
    rows = spark.range(5).withColumnRenamed("id", "number").withColumn("id", F.col("number"))
    step = tr.map_rows(row_of, "id long, text string", calls=kept)  # in the folder of the column
    assert sorted(rows.transform(step).collect()) == [(number, "a row") for number in range(5)]
    with pytest.raises(tr.OptionError) as caught:
        tr.udf("long", calls=tr.Calls(journal="folder", journal_key="id"))(paid)
    assert str(caught.value) == (
        "journal_key is no parameter of the function: function=paid journal_key=id: did you mean one of number, rest?"
    )


def test_a_column_function_that_was_used_is_part_of_another_step(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, "wave"), (2, "particle")], "id long, text string").coalesce(1)
    assert df.select(classify("text").alias("c")).select("c.label").collect() == [("short",), ("long",)]

    async def labelled(row: Any) -> Any:
        return row.id, (await classify.func(row.text))[0]

    def scored(text: str) -> float:
        return classify(text, 2.0)[1] + halved(1.0)

    step = tr.map_rows(labelled, "id long, label string", calls=tr.Calls(), ordered=True)
    assert df.transform(step).collect() == [(1, "short"), (2, "long")]
    for calls in (None, tr.Calls()):
        got = df.select(tr.udf("double", calls=calls)(scored)("text").alias("n")).collect()
        assert [row.n for row in got] == [8.5, 16.5]


def test_a_journal_key_must_be_given(spark: SparkSession, tmp_path: Path) -> None:
    def paid(number: int, rest: int = 0) -> int:
        return number + rest

    column = tr.udf("long", calls=tr.Calls(journal=tmp_path / "journal", journal_key="rest"))(paid)
    with pytest.raises(tr.OptionError) as caught:
        column("id")
    assert str(caught.value) == "journal_key is not given: function=paid journal_key=rest: is it optional?"
    assert column("id", F.lit(1)) is not None


def test_plain_values_are_taken_at_once() -> None:
    assert halved(5) == 2.5
    assert classify.__doc__ == "Say how long a text is."
    assert classify.func.__name__ == "classify"
    assert repr(classify) == "Udf(classify)"


def test_a_coroutine_runs_to_its_result_inside_a_running_loop() -> None:
    @tr.udf("long")
    async def added(one: int, two: int) -> int:
        await asyncio.sleep(0)
        return one + two

    async def inside() -> Any:
        return added(1, two=2)

    assert added(1, 2) == 3
    assert asyncio.run(inside()) == 3


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda: tr.udf(5), "not a type: udf schema=5: is it a string such as"),
        (lambda: tr.udf("long")(5), "not a function: function=5: did you mean a function?"),
        (lambda: tr.udf("long", calls=tr.Calls(on_error="dead_letter")), "did you mean 'column'?"),
        (lambda: halved(F.lit(1), 2), "a column and a plain value: function=halved value=2: did you mean"),
        (lambda: tr.udf("varchar(3)")(len)("id"), "schema=varchar(3): did you mean string?"),
        (lambda: tr.udf("lng")(len), "not a type: udf=len schema='lng' cause="),
        (lambda: tr.udf("a long, a long")(len), "names differ in case only, or not at all: udf=len schema=struct<a:"),
        (lambda: classify(F.lit("a"), nothing=F.lit(1)), "arguments do not fit: function=classify: "),
    ],
)
def test_what_makes_no_sense_is_refused(spark: SparkSession, use: Any, text: str) -> None:
    with pytest.raises(tr.OptionError, match=re.escape(text)):
        use()
