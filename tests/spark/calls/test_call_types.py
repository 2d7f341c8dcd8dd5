"""Every type of Spark goes to Python and back as in a plain UDF."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VariantVal,
)

import tailrace as tr

register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not have the tests

ROWS = 20
MOMENTS = st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2100, 1, 1))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    largest = 10**precision - 1
    return st.integers(-largest, largest).map(lambda number: Decimal(number).scaleb(-scale, _context(precision)))


def _context(precision: int) -> Any:
    import decimal

    return decimal.Context(prec=precision)


LEAVES: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (BooleanType(), st.booleans()),
    (ByteType(), st.integers(-(2**7), 2**7 - 1)),
    (ShortType(), st.integers(-(2**15), 2**15 - 1)),
    (IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (LongType(), st.integers(-(2**63), 2**63 - 1)),
    (FloatType(), st.floats(width=32)),
    (DoubleType(), st.floats()),
    (DecimalType(10, 2), decimals(10, 2)),
    (DecimalType(38, 18), decimals(38, 18)),
    (StringType(), st.text(st.characters(codec="utf-8"), max_size=8)),
    (BinaryType(), st.binary(max_size=8)),
    (DateType(), st.dates(dt.date(1600, 1, 1), dt.date(9000, 1, 1))),
    (TimestampType(), MOMENTS),
    (TimestampNTZType(), MOMENTS),
    (DayTimeIntervalType(), st.timedeltas(dt.timedelta(-100_000), dt.timedelta(100_000))),
    (NullType(), st.none()),
]
KEYS = [leaf for leaf in LEAVES if isinstance(leaf[0], LongType | StringType | DateType | BooleanType)]

Typed = tuple[DataType, st.SearchStrategy[Any]]


def nullable(typed: Typed) -> st.SearchStrategy[Any]:
    return st.none() | typed[1]


def nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    arrays = inner.map(lambda one: (ArrayType(one[0]), st.lists(nullable(one), max_size=3)))
    maps = st.tuples(st.sampled_from(KEYS), inner).map(
        lambda two: (MapType(two[0][0], two[1][0]), st.dictionaries(two[0][1], nullable(two[1]), max_size=3))
    )
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda several: (
            StructType([StructField(f"f{place}", one[0]) for place, one in enumerate(several)]),
            st.tuples(*map(nullable, several)).map(
                lambda values: Row(**{f"f{place}": value for place, value in enumerate(values)})
            ),
        )
    )
    return arrays | maps | structs


TYPED = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)


def same(value: Any) -> Any:
    return value


def given_back(row: Any) -> Any:
    return row


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_values_go_through_as_in_a_plain_udf(spark: SparkSession, data: st.DataObject) -> None:
    typed = [*LEAVES, *[data.draw(TYPED) for _ in range(8)]]
    schema = StructType([StructField(f"c{place}", one[0]) for place, one in enumerate(typed)])
    rows = [tuple(data.draw(nullable(one)) for one in typed) for _ in range(ROWS)]
    df = spark.createDataFrame(rows, schema).coalesce(1)

    columns: list[Column] = [F.udf(same, field.dataType)(field.name).alias(field.name) for field in schema]
    expected = [repr(row) for row in df.select(*columns).collect()]
    assert [repr(row) for row in df.collect()] == expected
    single = data.draw(st.sampled_from(schema.fields))
    column = tr.udf(single.dataType)(same)(single.name).alias(single.name)
    assert list(map(repr, df.select(column).collect())) == list(map(repr, df.select(single.name).collect()))
    called = df.select(tr.udf(schema, calls=tr.Calls())(same)(F.struct(*schema.names)).alias("whole")).select("whole.*")
    assert [repr(row) for row in called.collect()] == expected
    assert [repr(row) for row in df.transform(tr.map_rows(given_back, schema)).collect()] == expected
    step = tr.map_rows(given_back, schema, calls=tr.Calls(), ordered=True)
    assert [repr(row) for row in df.transform(step).collect()] == expected


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("parse_json('{\"a\": [1, null]}')", "variant"),
        ("array(parse_json('1'), null)", "array<variant>"),
        ("time'12:34:56.789'", "time"),
        ("cast('ab' as varchar(5))", "string"),
        ("cast('ab' as char(5))", "string"),
        ("interval '1 02:03:04.5' day to second", "interval day to second"),
        ("interval '5' hour", "interval hour"),
    ],
)
def test_types_that_sql_makes_values_of(spark: SparkSession, expression: str, kind: str) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    df = spark.sql(f"select if(id = 0, {expression}, null) as x from range(2)")
    expected = sorted(map(repr, df.select(F.udf(same, kind)("x").alias("x")).collect()))
    assert sorted(map(repr, df.select(tr.udf(kind)(same)("x").alias("x")).collect())) == expected
    assert sorted(map(repr, df.transform(tr.map_rows(given_back, f"x {kind}")).collect())) == expected
    step = tr.map_rows(given_back, f"x {kind}", calls=tr.Calls())
    assert sorted(map(repr, df.transform(step).collect())) == expected


def test_variants_are_variants(spark: SparkSession) -> None:
    def opened(row: Any) -> Any:
        assert isinstance(row.x, VariantVal)
        return (str(row.x.toPython()),)

    df = spark.sql("select parse_json('[1, true]') as x")
    assert df.transform(tr.map_rows(opened, "x string")).collect() == [Row(x="[1, True]")]


def test_moments_with_a_zone_are_the_worker_s_own_time(spark: SparkSession) -> None:
    """As in a plain UDF: naive, in the time zone of the Python process, whatever the session's is."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        df = spark.sql("select timestamp'2026-01-01 12:00:00' as at")
        plain = df.select(F.udf(str, "string")("at").alias("at")).collect()
        assert df.select(tr.udf("string")(lambda at: str(at))("at").alias("at")).collect() == plain
        assert df.transform(tr.map_rows(given_back, "at timestamp")).collect() == df.collect()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __repr__(self) -> str:
        return f"Money({self.cents})"


class MoneyUDT(UserDefinedType):
    @classmethod
    def sqlType(cls) -> DataType:
        return LongType()

    @classmethod
    def module(cls) -> str:
        return "__main__"

    def serialize(self, obj: Money) -> int:
        return obj.cents

    def deserialize(self, datum: int) -> Money:
        return Money(datum)


Money.__UDT__ = MoneyUDT()  # type: ignore[attr-defined]


def test_user_defined_types_are_objects_in_a_frame_and_results_of_a_column(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    import __main__

    monkeypatch.setattr(__main__, "MoneyUDT", MoneyUDT, raising=False)
    df = spark.createDataFrame([(Money(5),)], StructType([StructField("price", MoneyUDT())]))
    doubled = tr.map_rows(lambda row: (row.price.cents * 2,), "cents long")
    assert df.transform(doubled).collect() == [Row(cents=10)]
