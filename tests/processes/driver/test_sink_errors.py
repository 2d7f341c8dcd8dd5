"""Rows that a sink cannot take, and sinks that fail: what a user sees of a real run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tailrace as tr
from kit.runs import running
from tailrace.connector import SinkContext
from tailrace.errors import TaskError

BAD = 42


def row(number: int) -> dict[str, Any]:
    return {"n": "forty-two" if number == BAD else number}


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_a_row_of_another_type_is_lost_alone(tmp_path: Path, on_error: str) -> None:
    """It failed the commit, with all rows beside it, and again after each restart."""
    letters = tr.to_list()
    topology = tr.Topology("types")
    rows = topology.source("numbers", tr.from_iterable(range(100))).map("row", row)
    rows.sink("out", tr.to_parquet(tmp_path, schema="n long", roll_seconds=0.1), tasks=2, on_error=on_error)
    if on_error == "dead_letter":
        topology.stream("out").dead_letters.sink("letters", letters)
    with running(topology, workers=2) as run:
        run.awaitTermination(60)
    assert sorted(pq.read_table(tmp_path).column("n").to_pylist()) == [n for n in range(100) if n != BAD]
    if on_error == "dead_letter":
        (letter,) = letters.values
        assert letter["operator"] == "out" and letter["value"] == {"n": "forty-two"}
        assert letter["error"].startswith("TypeError: row does not fit the column: column=n type=int64")


def cancelled(number: int) -> int:
    if number == BAD:
        raise asyncio.CancelledError("of its own")
    return number


async def generator_exit(number: int) -> int:
    if number == BAD:
        raise GeneratorExit("of its own")
    return number


@pytest.mark.parametrize("function", [cancelled, generator_exit])
def test_a_function_may_raise_what_is_no_exception(function: Any) -> None:
    topology = tr.Topology("odd")
    topology.source("numbers", tr.from_iterable(range(100))).map("work", function).sink("out", tr.to_list())
    place = f"of its own\n\noperator failed: operator=work task=. tuple={BAD}"
    with pytest.raises(TaskError, match=place), running(topology, workers=2) as run:
        run.awaitTermination(60)


class Unsendable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("an exception that stays where it is")


class FailingHalf:
    """A sink whose driver side fails."""

    committing = False

    def open(self, context: SinkContext) -> Any:
        return FailingWriter(context)

    def on_message(self, task: int, epoch: int, message: Any) -> Any:
        raise Unsendable("the list is full")


class FailingWriter:
    def __init__(self, context: SinkContext) -> None:
        self.context = context

    def write(self, value: Any) -> None:
        self.context.call_driver(self.context.operator, value)

    def close(self) -> None: ...


def test_the_half_of_a_sink_on_the_driver_is_named_when_it_fails() -> None:
    topology = tr.Topology("half")
    topology.source("numbers", tr.from_iterable(range(3))).sink("out", FailingHalf())
    with pytest.raises(TaskError) as raised, running(topology, workers=1) as run:
        run.awaitTermination(60)
    assert "the list is full" in str(raised.value)
    assert "the sink's driver side failed: operator=out task=0" in str(raised.value)
    assert "operator failed: operator=out task=0 tuple=0" in str(raised.value)
