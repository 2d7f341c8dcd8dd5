"""Placement problems as they are written down: names resolved, nonsense refused in one sentence."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tailrace.errors import OptionError
from tailrace.policy.placement.api import PlacementProblem
from tailrace.policy.placement.limits import blocks_of, pack_heaviest_first
from tailrace.policy.placement.problem import placement_problem
from tailrace.policy.placement.round_robin import round_robin_placement

NAN = float("nan")
KNOWN = "operators=read (2 tasks), work (3 tasks): did you mean work?"


def problem(**changes: Any) -> PlacementProblem:
    wanted: dict[str, Any] = {"operators": {"read": 2, "work": 3}, "nodes": {"a": 2, "b": 1}, "traffic": {}, **changes}
    return placement_problem(wanted.pop("operators"), wanted.pop("nodes"), **wanted)


def test_tasks_are_numbered_through_operators_and_traffic_has_no_direction() -> None:
    made = problem(traffic={(0, 2): 3, (2, 0): 4, (1, 1): 9, (4, 3): 0, (3, 1): 1})
    assert made.tasks == ("read/0", "read/1", "work/0", "work/1", "work/2")
    assert made.traffic == ((0, 2, 7.0), (1, 3, 1.0))
    assert made.total_traffic == 8.0
    assert made.cpu == (1.0,) * 5


def test_constraints_name_tasks_and_operators() -> None:
    made = problem(
        pin={"work": "b", "read/1": "a"}, together=[("read/0", "work/1"), ("work/1", "work/2")], spread=["read"]
    )
    assert made.pins == (None, 0, 1, 1, 1)
    assert made.together == ((0, 3, 4),)
    assert made.spread == ((0, 1),)
    assert made.most_of == (1,)


def test_a_spread_operator_has_as_few_tasks_on_a_node_as_can_be() -> None:
    made = problem(operators={"read": 7}, nodes={"a": 9, "b": 0, "c": 1, "d": 1}, spread=["read"])
    assert made.most_of == (3,)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"operators": {}}, "nothing to place: operators={}: did you forget to declare them?"),
        ({"operators": {"read": 0}}, "tasks is not a positive integer: operator=read tasks=0"),
        ({"nodes": {}}, "no free workers: nodes={}: tasks need one at least"),
        ({"nodes": {"a": 0, "b": 0}}, "no free workers: nodes={'a': 0, 'b': 0}: tasks need one at least"),
        ({"nodes": {"a": -1}}, "free workers must be a number of 0 or more: node=a workers=-1"),
        ({"cpu": [1.0]}, "cpu needs one entry a task: tasks=5 given=1"),
        ({"cpu": [1, 1, NAN, 1, 1]}, "cpu must be a number of 0 or more: task=2 cpu=nan: was it measured?"),
        ({"traffic": {(0, 5): 1}}, "traffic of a task that is not there: pair=(0, 5) tasks=5"),
        ({"traffic": {(0, 1): -2}}, "traffic must be a number of 0 or more: pair=(0, 1) tuples=-2"),
        ({"slack": -0.1}, "slack must be a share of 0 or more: slack=-0.1: 0.1 lets a node carry a tenth more"),
        ({"pin": {"wrk": "a"}}, f"no such task or operator: name='wrk' {KNOWN}"),
        ({"together": [("work/3", "read/0")]}, f"no such task or operator: name='work/3' {KNOWN}"),
        ({"pin": {"work": "c"}}, "no such node: pin=work node='c': did you mean one of a, b?"),
        ({"spread": ["sink"]}, "no such operator: operator='sink': did you mean one of read, work?"),
        ({"spread": ["work/1"]}, "no such operator: operator='work/1': did you mean work?"),
        ({"together": ["read"]}, "together takes sets of names: together='read': did you mean ['read', …]?"),
        ({"together": "read"}, "together takes sets of names: together='read': did you mean [[…], […]]?"),
        (
            {"nodes": {"a": 1, "b": 0}, "pin": {"work": "b"}},
            "a node without free workers takes no tasks: pin=work node=b",
        ),
        (
            {"pin": {"work": "a", "work/1": "b"}},
            "a task is pinned to two nodes: task=work/1 nodes=a, b: is one pin for its whole operator?",
        ),
        (
            {"pin": {"read/0": "a", "work/1": "b"}, "together": [("read/0", "work/1")]},
            "tasks are to be together and on two nodes: read/0 on a, work/1 on b",
        ),
        (
            {"together": [("read", "work/1")], "spread": ["read"]},
            "tasks are to be together and spread: operator=read together=read/0, read/1 most_on_a_node=1",
        ),
        (
            {"pin": {"work": "a"}, "spread": ["work"]},
            "tasks are to be spread and on one node: operator=work node=a "
            "pinned=work/0, work/1, work/2 most_on_a_node=2",
        ),
    ],
)
def test_nonsense_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        problem(**changes)
    assert str(caught.value) == sentence


def test_constraints_that_contradict_each_other_by_way_of_others() -> None:
    """read/1 must leave read/0, work/0 goes with it, and there is work/1 already."""
    made = placement_problem(
        {"read": 2, "work": 2},
        {"a": 1, "b": 1},
        traffic={},
        pin={"read/0": "a", "work/1": "b"},
        together=[("read/1", "work/0")],
        spread=["read", "work"],
    )
    for place in (lambda: blocks_of(made), lambda: round_robin_placement().place(made, Random(0))):
        with pytest.raises(OptionError) as caught:
            place()
        assert str(caught.value) == (
            "constraints leave no node for a task: task='read/1, work/0' tries=5: "
            "do pin=, together= and spread= contradict each other?"
        )


def test_choices_that_lead_nowhere_are_taken_back() -> None:
    """Where read/0 and work/0 go at first, on node a, leaves none for work/1 and write/0."""
    made = placement_problem(
        {"read": 2, "work": 2, "write": 2},
        {"a": 1, "b": 1},
        traffic={},
        pin={"write/1": "b"},
        together=[("read/0", "work/0"), ("work/1", "write/0")],
        spread=["read", "work", "write"],
    )
    assert round_robin_placement().place(made, Random(0)).node_of == (1, 0, 1, 0, 0, 1)


@pytest.mark.parametrize(
    ("nodes", "cpu", "limits"),
    [
        ((1, 1), [1] * 6, [3.3, 3.3]),  # the slack
        ((1, 1), [1] * 5, [3, 3]),  # one of them has three
        ((2, 1), [1] * 6, [4.4, 2.2]),
        ((9, 1), [1] * 6, [6, 2 / 3]),  # nothing fits the small one: what is left over goes to the large one
        ((1, 1), [8, 1, 1], [8, 8]),
        ((1, 0), [1] * 3, [3.3, 0]),
    ],
)
def test_limits(nodes: tuple[int, ...], cpu: list[float], limits: list[float]) -> None:
    made = placement_problem({"a": len(cpu)}, {f"n{i}": n for i, n in enumerate(nodes)}, traffic={}, cpu=cpu)
    blocks = blocks_of(made)
    assert blocks.limit == pytest.approx(limits, abs=1e-6)
    assert blocks.overload(pack_heaviest_first(made, blocks)) == 0


def test_a_node_may_carry_what_is_pinned_to_it_and_the_others_no_more_for_it() -> None:
    made = placement_problem({"a": 8}, {"x": 1, "y": 1, "z": 1}, traffic={}, pin={f"a/{i}": "x" for i in range(6)})
    assert blocks_of(made).limit == pytest.approx([6, 8 / 3 * 1.1, 8 / 3 * 1.1])
