"""The router: every value once to each chosen task, its lineage beside it, and every bundle acknowledged once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor
from random import Random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.core.bundles import new_bundle
from tailrace.core.plan.plan import EdgePlan
from tailrace.core.protocol.lineage import broadcast_lineages, child_lineages
from tailrace.core.routing.router import MAX_BUNDLE, Lane, LaneEdge
from tailrace.policy import broadcast, fields, shuffle
from tailrace.policy.groupings.api import ALL, Chooser
from tailrace.topology import Port

SALT = 0x1234567
COUNTS = st.integers(0, 8) | st.sampled_from([MAX_BUNDLE, MAX_BUNDLE + 1, 3 * MAX_BUNDLE + 7])


@dataclass(frozen=True)
class ByTable:
    """A grouping that picks what it is told to."""

    table: tuple[int, ...]
    name: str = "table"
    keyed: bool = True

    def bind(self, tasks: int, rng: Random) -> Chooser:
        return self

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        return [self.table[value % len(self.table)] for value in values]


def edge(grouping: Any, lineages: bool, by_lineage: bool = False) -> EdgePlan:
    return EdgePlan(0, 0, 1, grouping, Port.MAIN, SALT, False, False, lineages, by_lineage)


def out(grouping: Any, tasks: int, lineages: bool, by_lineage: bool = False) -> LaneEdge:
    rng = Random(1)
    lanes = [Lane(0, 10 + task) for task in range(tasks)]
    return LaneEdge(edge(grouping, lineages, by_lineage), lanes, grouping.bind(tasks, rng), rng)


def send(route: LaneEdge, count: int, parents: list[int] | None, indices: list[int] | None) -> int:
    return route.send(7, 2, 99, list(range(count)), parents, indices)


def arrived(route: LaneEdge) -> list[list[tuple[int, int | None]]]:
    """By task: (value, lineage), in order."""
    return [
        [
            (value, None if bundle[4] is None else bundle[4][position])
            for bundle in lane.bundles
            for position, value in enumerate(bundle[5])
        ]
        for lane in route.lanes
    ]


def check_bundles(route: LaneEdge, ids: int, with_lineages: bool) -> None:
    bundles = [bundle for lane in route.lanes for bundle in lane.bundles]
    assert ids == reduce(xor, (bundle[3] for bundle in bundles), 0)
    assert len({bundle[3] for bundle in bundles}) == len(bundles)
    for emission, split, offset, _, lineages, values, origin, attached in bundles:
        assert (emission, split, offset) == (7, 2, 99)
        assert (origin, attached) == (None, None)
        assert 0 < len(values) <= MAX_BUNDLE
        if with_lineages:
            assert lineages is not None and len(lineages) == len(values)
        else:
            assert lineages is None


@given(COUNTS, st.lists(st.integers(0, 3), min_size=1, max_size=6), st.booleans())
@example(MAX_BUNDLE + 1, [0, 1, 2], True)
def test_each_value_goes_once_to_the_task_that_was_chosen(count: int, table: list[int], lineages: bool) -> None:
    grouping = ByTable(tuple(table))
    route = out(grouping, 4, lineages)
    parents = [1000 + value for value in range(count)] if lineages else None
    ids = send(route, count, parents, list(range(count)) if lineages else None)
    check_bundles(route, ids, lineages)
    names = child_lineages(parents, SALT, range(count)) if parents is not None else [None] * count
    wanted: list[list[tuple[int, int | None]]] = [[], [], [], []]
    for value, task in enumerate(grouping.choose_many(range(count))):
        wanted[task].append((value, names[value]))
    assert arrived(route) == wanted


@given(COUNTS, st.integers(1, 4), st.booleans())
@example(MAX_BUNDLE + 1, 3, True)
def test_a_broadcast_reaches_every_task_under_a_name_of_its_own(count: int, tasks: int, lineages: bool) -> None:
    route = out(broadcast(), tasks, lineages)
    parents = [5 * value for value in range(count)] if lineages else None
    ids = send(route, count, parents, None)
    check_bundles(route, ids, lineages)
    for task, got in enumerate(arrived(route)):
        names = broadcast_lineages(child_lineages(parents, SALT, None), task) if parents is not None else [None] * count
        assert got == list(zip(range(count), names, strict=True))
    if lineages:
        names = [name for got in arrived(route) for _, name in got]
        assert len(set(names)) == len(names)


@given(COUNTS, st.integers(2, 5), st.integers(0, 2**64 - 1))
def test_two_incarnations_meet_in_one_task_of_a_committing_sink(count: int, tasks: int, parent: int) -> None:
    one, two = out(shuffle(), tasks, True, by_lineage=True), out(shuffle(), tasks, True, by_lineage=True)
    send(two, 1, [parent ^ 1], None)  # another past
    for lane in two.lanes:
        lane.take()
    ids = [send(route, count, [parent] * count, list(range(count))) for route in (one, two)]
    check_bundles(one, ids[0], True)
    assert arrived(one) == arrived(two)
    assert sum(len(got) for got in arrived(one)) == count


def test_routing_by_lineage_uses_all_tasks() -> None:
    route = out(shuffle(), 4, True, by_lineage=True)
    send(route, 1000, list(range(1000)), None)
    assert all(150 < len(got) < 350 for got in arrived(route))


@given(COUNTS, st.integers(1, 4))
def test_a_shuffle_is_even(count: int, tasks: int) -> None:
    route = out(shuffle(), tasks, False)
    check_bundles(route, send(route, count, None, None), False)
    sizes = [len(got) for got in arrived(route)]
    assert sum(sizes) == count and max(sizes) - min(sizes) <= 1


def test_a_key_stays_with_its_task_from_call_to_call() -> None:
    route = out(fields(lambda value: value % 3), 4, False)
    for _ in range(5):
        send(route, 30, None, None)
    for got in arrived(route):
        assert len(got) % 50 == 0


def test_a_lane_is_emptied_by_taking() -> None:
    lane = Lane(0, 4)
    lane.bundles.append(new_bundle(1, 2, 3, 4, None, ["a"]))
    assert lane.take() == [new_bundle(1, 2, 3, 4, None, ["a"])] and lane.take() == []


def test_a_grouping_may_broadcast_some_values_only() -> None:
    route = out(ByTable((0, ALL)), 3, True)
    ids = send(route, 4, [1, 2, 3, 4], None)
    check_bundles(route, ids, True)
    assert [sorted(value for value, _ in got) for got in arrived(route)] == [[0, 1, 2, 3], [1, 3], [1, 3]]
