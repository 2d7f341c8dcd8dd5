"""``calls=…`` of an operator: what it means together with other parameters, and what is refused in which words."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

import tailrace as tr
from kit.connectors import AnySink, AnySource
from tailrace.core.plan.planner import make_plan
from tailrace.topology import OnError


async def fetch(value: int) -> int:
    return value


def plain(value: int) -> int:
    return value


class Opened:
    async def open(self, context: tr.Context) -> None: ...

    def process(self, value: int) -> int:
        return value

    async def close(self) -> None: ...


class AllAsync(Opened):
    async def process(self, value: int) -> int:  # type: ignore[override]
        return value


@pytest.fixture
def topology() -> tr.Topology:
    return tr.Topology("enrich")


@pytest.fixture
def lines(topology: tr.Topology) -> tr.Stream[Any]:
    return topology.source("lines", AnySource(), tasks=2)


def text_of(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(tr.TopologyError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("role", ["map", "flat_map", "filter"])
@pytest.mark.parametrize("body", [fetch, plain, Opened, functools.partial(AllAsync)])
def test_an_operator_with_calls(topology: tr.Topology, lines: tr.Stream[Any], role: str, body: Any) -> None:
    calls = tr.Calls(concurrency=7, retries=2)
    stream = getattr(lines, role)("score", body, calls=calls)
    operator = topology.operator("score")
    assert operator.calls == calls
    assert operator.options == {"concurrency": 7}
    stream.sink("out", AnySink())
    (found,) = (one for one in make_plan(topology, 1).operators if one.name == "score")
    assert found.is_async


def test_it_is_never_fused_into_its_upstream(topology: tr.Topology, lines: tr.Stream[Any]) -> None:
    lines.map("score", plain, calls=tr.Calls(), grouping=tr.local()).sink("out", AnySink())
    assert not make_plan(topology, 1).edges[0].fused


@pytest.mark.parametrize(
    ("own", "of_calls", "found"),
    [
        ({}, {}, OnError.FAIL),
        ({}, {"on_error": "skip"}, OnError.SKIP),
        ({"on_error": "skip"}, {}, OnError.SKIP),
        ({"on_error": "dead_letter"}, {"on_error": "dead_letter"}, OnError.DEAD_LETTER),
    ],
)
def test_the_on_error_that_is_given_counts(
    topology: tr.Topology, lines: tr.Stream[Any], own: Any, of_calls: Any, found: OnError
) -> None:
    lines.map("score", plain, calls=tr.Calls(**of_calls), **own)
    assert topology.operator("score").on_error is found


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (
            {"calls": {"retries": 2}},
            "not options of calls: operator=x calls={'retries': 2}: did you mean tr.Calls(timeout_s=…)?",
        ),
        (
            {"calls": tr.Calls(concurrency=4), "concurrency": 8},
            "two different values: operator=x concurrency=8 Calls.concurrency=4: could you leave out the first?",
        ),
        (
            {"calls": tr.Calls(on_error="skip"), "on_error": "dead_letter"},
            "two different values: operator=x on_error='dead_letter' Calls.on_error='skip': which of them do you mean?",
        ),
        (
            {"calls": tr.Calls(on_error="skip"), "on_error": "fail"},
            "two different values: operator=x on_error='fail' Calls.on_error='skip': which of them do you mean?",
        ),
        (
            {"calls": tr.Calls(on_error="column")},
            "a topology has no columns: operator=x on_error='column': did you mean 'dead_letter'?",
        ),
        (
            {"calls": tr.Calls(journal="here", journal_key="id")},
            "journal_key names a column of a DataFrame; in a topology the place of a tuple in its source is the key: "
            "operator=x journal_key='id': could you leave it out?",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(lines: tr.Stream[Any], declared: Any, text: str) -> None:
    assert text_of(lines.map, "x", plain, **declared) == text


def test_the_same_concurrency_twice_is_fine(topology: tr.Topology, lines: tr.Stream[Any]) -> None:
    lines.map("x", plain, calls=tr.Calls(concurrency=8), concurrency=8)
    assert topology.operator("x").options == {"concurrency": 8}


def test_batches_take_no_calls_and_no_coroutines(lines: tr.Stream[Any]) -> None:
    assert text_of(lines.map_batch, "x", list, calls=tr.Calls()) == (
        "a batch cannot be called with calls=…: operator=x: could map do it, one tuple a call?"
    )
    assert text_of(lines.map_batch, "x", fetch) == (
        "a function of a batch cannot be async: operator=x: could map do it, one tuple a call?"
    )


@pytest.mark.parametrize("option", ["retry_on", "cost"])
def test_functions_of_calls_must_travel(lines: tr.Stream[Any], option: str) -> None:
    lock = threading.Lock()

    def uses_lock(thing: Any) -> bool:
        with lock:
            return True

    if option == "retry_on":
        calls = tr.Calls(retry_on=uses_lock)
        path = "attribute=retry_on:lock"
    else:
        calls = tr.Calls(limit=tr.limit("api", per_s=5, cost=uses_lock))
        path = "attribute=limit.cost:lock"
    assert text_of(lines.map, "x", plain, calls=calls) == (
        f"a function of calls cannot be shipped to the workers: operator=x {path} type=_thread.lock: "
        "could it do without it?"
    )


@pytest.mark.parametrize("method", ["open", "close"])
def test_an_async_method_needs_an_event_loop(lines: tr.Stream[Any], method: str) -> None:
    async def later(self: Any, *context: Any) -> None: ...

    cls = type("Half", (), {"process": lambda self, value: value, method: later})
    assert text_of(lines.map, "x", cls) == (
        f"{method} is async and process is not, so there is no event loop to run it in: operator=x class=Half: "
        "did you mean async def process, or calls=tr.Calls(…)?"
    )
    lines.map("y", cls, calls=tr.Calls())
    lines.map("z", AllAsync)
