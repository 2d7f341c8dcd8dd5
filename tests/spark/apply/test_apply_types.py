"""What passes through a topology that changes nothing comes out as it went in: all types, nulls, nested ones."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr

DAYS = timedelta(days=100_000)
TIMES = st.datetimes(datetime(1901, 1, 1), datetime(2199, 12, 31))
ATOMS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-(1 << 7), (1 << 7) - 1),
    "smallint": st.integers(-(1 << 15), (1 << 15) - 1),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "bigint": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(7,2)": st.integers(-9_999_999, 9_999_999).map(lambda units: Decimal(units).scaleb(-2)),
    "decimal(38,0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    "string": st.text(st.characters(codec="utf-8"), max_size=8),
    "binary": st.binary(max_size=8).map(bytearray),
    "date": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "timestamp": TIMES,
    "timestamp_ntz": TIMES,
    "interval day to second": st.timedeltas(-DAYS, DAYS),
}
KEYS = ["int", "bigint", "decimal(7,2)", "string", "date", "timestamp_ntz", "interval day to second"]


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2) -> tuple[str, st.SearchStrategy[Any]]:
    """A type, and its values without null."""
    shape = draw(st.sampled_from(["atom", "atom", "array", "map", "struct"] if depth else ["atom"]))
    if shape == "atom":
        name = draw(st.sampled_from(sorted(ATOMS)))
        return name, ATOMS[name]
    if shape == "struct":
        parts = draw(st.lists(kinds(depth - 1), min_size=1, max_size=3))
        names = ",".join(f"f{place}:{name}" for place, (name, _) in enumerate(parts))
        return f"struct<{names}>", st.tuples(*(st.none() | values for _, values in parts))
    inner, values = draw(kinds(depth - 1))
    if shape == "array":
        return f"array<{inner}>", st.lists(st.none() | values, max_size=3)
    key = draw(st.sampled_from(KEYS))
    return f"map<{key},{inner}>", st.dictionaries(ATOMS[key], st.none() | values, max_size=3)


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[tuple[Any, ...]]]:
    """A schema and its rows."""
    columns = draw(st.lists(kinds(), min_size=4, max_size=12))
    schema = ", ".join(f"c{place} {name}" for place, (name, _) in enumerate(columns))
    rows = st.tuples(*(st.none() | values for _, values in columns))
    return schema, draw(st.lists(rows, max_size=12))


def copying() -> tr.Topology:
    topology = tr.Topology("copy")
    topology.input("rows").output("copies")
    return topology


def plain(value: Any) -> Any:
    """A value whose ``repr`` is the same for equal values, NaN among them."""
    if isinstance(value, dict):
        return sorted((repr(plain(key)), plain(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def counted(frame: DataFrame) -> Counter[str]:
    return Counter(repr(plain(row)) for row in frame.collect())


@given(table=tables())
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_rows_of_any_types_come_back(spark: SparkSession, table: tuple[str, list[tuple[Any, ...]]]) -> None:
    schema, rows = table
    frame = spark.createDataFrame(rows, schema).repartition(2)
    out = copying().apply(frame, frame.schema, workers=1)
    assert out.schema.simpleString() == frame.schema.simpleString()
    assert counted(out) == counted(frame)


EXTREMES = """
SELECT * FROM VALUES
  (timestamp '0001-01-01 00:00:00Z', date '0001-01-01', timestamp_ntz '1200-02-03 04:05:06.000007', 1, 'a'),
  (timestamp '1582-10-10 12:00:00Z', date '1582-10-10', timestamp_ntz '1582-10-10 00:00:00', 2, ''),
  (timestamp '9999-12-31 23:59:59.999999Z', date '9999-12-31', timestamp_ntz '9999-12-31 23:59:59.999999', 3, NULL)
AS extremes(instant, day, reading, number, text)
"""


@pytest.mark.parametrize("as_written", ["INT96", "TIMESTAMP_MICROS"])
def test_times_of_all_centuries_come_back(spark: SparkSession, as_written: str) -> None:
    """However the session writes instants to files."""
    setting = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(setting)
    spark.conf.set(setting, as_written)
    try:
        frame = spark.sql(EXTREMES)
        out = copying().apply(frame, frame.schema, workers=1)
        text = [f"CAST({name} AS string)" for name in frame.columns]
        assert counted(out.selectExpr(*text)) == counted(frame.selectExpr(*text))
    finally:
        spark.conf.set(setting, str(before))


def test_folders_may_have_any_name(spark: SparkSession, tmp_path: Any) -> None:
    """Spark takes some characters of a path that it reads for a pattern."""
    for name in ("a b", "a%b", "a[b]", "a{b}", "a*b?", "ü"):
        out = copying().apply(spark.range(3), "id long", workers=1, checkpoint=tmp_path / name)
        assert sorted(row.id for row in out.collect()) == [0, 1, 2]
