"""Tuples sent in a scheduler's order, on real workers: each once and none overtaken, whatever dies or is switched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import tailrace as tr
from kit.runs import assert_same_rows, finish, homes, kill, received, running
from tailrace.testing.processes import wait_until

ROWS = 9_000


def three(number: int) -> Iterator[int]:
    return iter(range(3 * number, 3 * number + 3))


def itself(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("send", "options"),
    [
        (tr.lbf(), {}),
        (tr.lbf_work(20), {"ring": False, "link_mbps": 60, "link_scope": "node"}),
        pytest.param(tr.lbf(interval_ms=2), {}, marks=pytest.mark.soak),
        pytest.param(tr.round_robin(), {"ring": False}, marks=pytest.mark.soak),
    ],
)
def test_every_tuple_once_though_a_worker_dies(send: Any, options: dict[str, Any]) -> None:
    sink = tr.to_list()
    topology = tr.Topology("sent")
    numbers = topology.source("numbers", tr.at_rate(range(ROWS // 3), 2_000), tasks=2)  # not done before the kill
    parts = numbers.flat_map("parts", three, tasks=4)
    parts.map("work", itself, tasks=4, kind="blocking").sink("out", sink, tasks=2)
    tail = tr.Tail(send=send)
    with running(topology, workers=2, tail=tail, max_pending=600, outgoing_tuples=40, **options) as run:
        wait_until(lambda: received(run, "out") >= ROWS // 10, 60, "rows at the sink")
        kill(run, 0)
        progress = finish(run)
    assert_same_rows(sink.values, range(ROWS))
    assert progress["reemitted"] > 0, "nothing was under way when the worker died"
    assert progress["tail"]["send"] == send.name
    parts_now = next(operator for operator in progress["operators"] if operator["name"] == "parts")
    assert 0 < parts_now["largestBacklog"] < 40 + 3, "the bound, and the rest of a bundle"
    assert parts_now["backlog"] == 0


class Tag:
    """Numbers what a task sends."""

    def open(self, context: tr.Context) -> None:
        self.task, self.sent = context.task, 0

    def process(self, value: int) -> tuple[int, int, int]:
        self.sent += 1
        return self.task, self.sent, value


class Judge:
    """Says of each tuple whether it came after all that its sender had sent here before."""

    def open(self, context: tr.Context) -> None:
        self.last: dict[int, int] = {}

    def process(self, tagged: tuple[int, int, int]) -> tuple[int, bool]:
        task, number, value = tagged
        before = self.last.get(task, 0)
        self.last[task] = number
        return value, number > before


@pytest.mark.parametrize("kind", ["auto", pytest.param("cpu", marks=pytest.mark.soak)])
def test_switched_while_it_runs_nothing_is_lost_or_overtaken(kind: str) -> None:
    """The loop works beside short calls; where there are tasks of kind="cpu", on a thread of its own."""
    sink = tr.to_list()
    topology = tr.Topology("switched")
    numbers = topology.source("numbers", tr.at_rate(range(9_000), 6_000), tasks=2)
    tagged = numbers.map("tag", Tag, tasks=4, grouping=tr.shuffle())
    tagged.map("judge", Judge, tasks=4, kind=kind).sink("out", sink, tasks=2)
    with running(topology, workers=2) as run:
        for turn in range(8):
            time.sleep(0.1)
            run.tail(send=(tr.lbf(), None, tr.lbf(interval_ms=5), tr.fifo())[turn % 4])
        assert run.tail().send == tr.fifo()
        run.tail(send=None)
        progress = finish(run)
    assert_same_rows((value for value, _ in sink.values), range(9_000))
    assert all(in_order for _, in_order in sink.values)
    assert progress["recoveries"] == 0 and progress["reemitted"] == 0, "a link was lost on its way"
    assert progress["tail"]["send"] is None


@pytest.mark.parametrize(("scope", "senders"), [("worker", 1), ("node", 2)])
def test_a_limited_link_carries_no_more_and_shows_who_waits(scope: str, senders: int) -> None:
    """Thirty tuples of ten kilobytes at three megabits a second take eight tenths of a second, whoever sends them."""
    topology = tr.Topology("limited")
    numbers = topology.source("numbers", tr.from_iterable(range(30)), tasks=senders)
    big = numbers.map("big", _big, tasks=senders, grouping=tr.local())
    big.sink("out", tr.to_call(itself), tasks=1)
    workers = senders + 1
    assert len({*homes(topology, workers, "big"), *homes(topology, workers, "out")}) == workers
    with running(topology, workers=workers, link_mbps=3, link_scope=scope, outgoing_tuples=4) as run:
        began = time.monotonic()
        progress = finish(run)
    assert time.monotonic() - began > 0.6, "the link carried more than it should"
    task = next(operator for operator in progress["operators"] if operator["name"] == "numbers")["tasks"][0]
    assert task["largestBacklog"] >= 4 and task["blockedMs"] > 300 / senders


def _big(number: int) -> bytes:
    return bytes(10_000)
