"""A function that cannot travel is refused at once, and the variable that is to blame is named."""

from __future__ import annotations

import functools
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kit.connectors import AnySink, AnySource
from tailrace.errors import TopologyError
from tailrace.policy import fields
from tailrace.topology import Stream, Topology


@pytest.fixture
def lines() -> Stream:
    return Topology("enrich").source("lines", AnySource())


def text_of(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(TopologyError) as caught:
        call(*args, **kwargs)
    assert caught.value.__cause__ is not None
    return str(caught.value)


def refusal(place: str, what: str = "function", hint: str = "could a class open it in open(context) instead?") -> str:
    return f"a {what} cannot be shipped to the workers: operator=lookup {place}: {hint}"


CONNECTION = "type=sqlite3.Connection"


@pytest.fixture
def connection() -> sqlite3.Connection:
    return sqlite3.connect(":memory:")


def test_a_variable(lines: Stream, connection: sqlite3.Connection) -> None:
    assert text_of(lines.map, "lookup", lambda key: connection.execute(key)) == refusal(
        f"variable=connection {CONNECTION}"
    )


def test_a_variable_of_a_variable(lines: Stream, connection: sqlite3.Connection) -> None:
    settings = {"retries": 3, "pool": [connection]}

    def helper(key: str) -> Any:
        return settings, key

    assert text_of(lines.map, "lookup", lambda key: helper(key)) == refusal(
        f"variable=helper:settings['pool'][0] {CONNECTION}"
    )


GLOBAL_CODE = """
import threading
lock = threading.Lock()
unused = threading.Lock()
def lookup(key):
    return [lock for _ in key], key.unused
"""


def test_a_global(lines: Stream) -> None:
    module: dict[str, Any] = {"__name__": "__main__"}  # functions of the main module travel by value
    exec(GLOBAL_CODE, module)
    assert text_of(lines.map, "lookup", module["lookup"]) == refusal("global=lock type=_thread.lock")


def test_a_default(lines: Stream, connection: sqlite3.Connection) -> None:
    assert text_of(lines.map, "lookup", lambda key, other=1, to=connection: to) == refusal(f"default=to {CONNECTION}")
    assert text_of(lines.map, "lookup", lambda key, *, to=connection: to) == refusal(f"default=to {CONNECTION}")


def test_an_argument_of_a_partial(lines: Stream, connection: sqlite3.Connection) -> None:
    assert text_of(lines.map, "lookup", functools.partial(max, 1, connection)) == refusal(f"argument=1 {CONNECTION}")
    assert text_of(lines.map, "lookup", functools.partial(max, key=connection)) == refusal(f"argument=key {CONNECTION}")
    assert text_of(lines.map, "lookup", functools.partial(lambda key: connection)) == refusal(
        f"argument=func:connection {CONNECTION}"
    )


@dataclass
class Lookup:
    connection: sqlite3.Connection

    def __call__(self, key: str) -> Any:
        return self.connection.execute(key)


class Slotted:
    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self, key: str) -> Any:
        return self.inner


def test_an_attribute(lines: Stream, connection: sqlite3.Connection) -> None:
    assert text_of(lines.map, "lookup", Lookup(connection)) == refusal(f"attribute=connection {CONNECTION}")
    assert text_of(lines.map, "lookup", Slotted(Lookup(connection))) == refusal(
        f"attribute=inner.connection {CONNECTION}"
    )


def test_an_attribute_of_a_function(lines: Stream, connection: sqlite3.Connection) -> None:
    def lookup(key: str) -> str:
        return key

    vars(lookup)["cache"] = connection
    assert text_of(lines.map, "lookup", lookup) == refusal(f"attribute=cache {CONNECTION}")


def test_a_method(lines: Stream, connection: sqlite3.Connection) -> None:
    bound = Lookup(connection).__call__
    assert text_of(lines.map, "lookup", bound) == refusal(f"attribute=__self__.connection {CONNECTION}")
    assert text_of(lines.map, "lookup", connection.execute) == refusal(f"attribute=__self__ {CONNECTION}")


def test_a_class(lines: Stream, connection: sqlite3.Connection) -> None:
    class ByVariable:
        def process(self, key: str) -> Any:
            return connection.execute(key)

    class ByAttribute:
        shared = threading.Lock()

        def process(self, key: str) -> Any:
            return self.shared

    assert text_of(lines.map, "lookup", ByVariable) == refusal(f"attribute=process:connection {CONNECTION}")
    assert text_of(lines.map, "lookup", ByAttribute) == refusal("attribute=shared type=_thread.lock")


class Stubborn:
    def __reduce__(self) -> Any:
        raise RuntimeError("no")

    def __call__(self, key: str) -> str:
        return key


def test_a_thing_that_is_itself_to_blame(lines: Stream) -> None:
    assert text_of(lines.map, "lookup", Stubborn()) == refusal(f"type={__name__}.Stubborn")


def test_things_that_contain_each_other(lines: Stream) -> None:
    ring: list[Any] = []
    ring.append({"ring": ring, "thing": Stubborn()})
    assert text_of(lines.map, "lookup", lambda key: ring) == refusal(
        f"variable=ring[0]['thing'] type={__name__}.Stubborn"
    )


def test_the_search_ends_at_some_depth(lines: Stream) -> None:
    nest: Any = Stubborn()
    for _ in range(20):
        nest = [nest]
    assert text_of(lines.map, "lookup", lambda key: nest) == refusal(f"variable=nest{'[0]' * 7} type=builtins.list")


def test_a_variable_without_a_value_is_passed_over(lines: Stream, connection: sqlite3.Connection) -> None:
    def make() -> Callable[[Any], Any]:
        def lookup(key: Any) -> Any:
            return absent, connection

        if lines is None:
            absent = 1
        return lookup

    assert text_of(lines.map, "lookup", make()) == refusal(f"variable=connection {CONNECTION}")


def test_a_key_function(lines: Stream, connection: sqlite3.Connection) -> None:
    grouping = fields(lambda key: connection)
    expected = refusal(f"attribute=key:connection {CONNECTION}", "grouping", "could the key function do without it?")
    assert text_of(lines.map, "lookup", str, grouping=grouping) == expected
    assert [operator.name for operator in lines.topology.operators] == ["lines"]


def test_connectors(lines: Stream, connection: sqlite3.Connection) -> None:
    source, sink = AnySource(), AnySink()
    vars(source)["connection"] = vars(sink)["connection"] = connection
    place, hint = f"attribute=connection {CONNECTION}", "could its open() make it instead?"
    assert text_of(lines.topology.source, "lookup", source) == refusal(place, "source", hint)
    assert text_of(lines.sink, "lookup", sink) == refusal(place, "sink", hint)


def test_what_can_travel_does(lines: Stream) -> None:
    offset = 3
    lines.map("lookup", lambda key: key + offset)
    assert lines.topology.operator("lookup").body(1) == 4


def spark_object(module: str, name: str, pickles: bool = False) -> Any:
    """Known by the names of its type, as this layer does not import Spark."""
    kind = type(name, (), {"__module__": module})
    if not pickles:

        def refuse(self: Any) -> Any:
            raise RuntimeError("not outside of the driver")

        kind.__reduce__ = refuse  # type: ignore[method-assign]
    return kind()


NO_SESSION = "workers have no Spark session; could the driver do this?"
COLLECT = "did you mean to collect() it first, or from_dataframe(…) as a source?"


@pytest.mark.parametrize(
    ("module", "name", "pickles", "hint"),
    [
        ("pyspark.sql.classic.dataframe", "DataFrame", False, COLLECT),
        ("pyspark.core.rdd", "RDD", False, COLLECT),
        ("pyspark.sql.session", "SparkSession", False, NO_SESSION),
        ("pyspark.core.context", "SparkContext", False, NO_SESSION),
        ("py4j.java_gateway", "JavaObject", False, NO_SESSION),
        ("pyspark.core.broadcast", "Broadcast", True, "did you mean its .value, taken on the driver?"),
        ("pyspark.accumulators", "Accumulator", True, "did you mean to count rows at a sink?"),
    ],
)
def test_what_only_a_driver_has(lines: Stream, module: str, name: str, pickles: bool, hint: str) -> None:
    captured = spark_object(module, name, pickles)
    captured.inside = threading.Lock()  # none of the user's business
    assert text_of(lines.map, "lookup", lambda value: captured) == (
        f"a Spark object cannot be used in a worker: operator=lookup variable=captured type={module}.{name}: {hint}"
    )


def test_a_row_of_spark_is_a_value_like_any_other(lines: Stream) -> None:
    pyspark_sql = pytest.importorskip("pyspark.sql")
    row = pyspark_sql.Row(id=1)
    lines.map("lookup", lambda value: row.id)
