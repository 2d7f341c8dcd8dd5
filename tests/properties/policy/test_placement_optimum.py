"""The search of all placements against trying them one by one, and our rule against the search."""

from __future__ import annotations

from itertools import product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.policy.placement.api import PlacementProblem, over_workers
from tailrace.policy.placement.coarse import coarse_grained
from tailrace.policy.placement.limits import blocks_of
from tailrace.policy.placement.optimal import optimal
from tailrace.policy.placement.problem import placement_problem


@st.composite
def problems(draw: st.DrawFn) -> PlacementProblem:
    tasks = draw(st.integers(1, 6))
    nodes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3).filter(any))
    pairs = [(a, b) for b in range(tasks) for a in range(b)]
    traffic = {pair: draw(st.integers(0, 5)) for pair in pairs}
    cpu = draw(st.lists(st.sampled_from([0.0, 1.0, 1.5, 4.0]), min_size=tasks, max_size=tasks))
    usable = [f"n{number}" for number, workers in enumerate(nodes) if workers]
    pin = {"t/0": draw(st.sampled_from(usable))} if draw(st.booleans()) else {}
    spread = ["t"] if draw(st.booleans()) else []
    named = {f"n{number}": workers for number, workers in enumerate(nodes)}
    return placement_problem({"t": tasks}, named, traffic=traffic, cpu=cpu, pin=pin, spread=spread)


def least_cut(problem: PlacementProblem) -> float:
    blocks = blocks_of(problem)

    def allowed(node_of: tuple[int, ...]) -> bool:
        return (
            all(pin in (None, node) for pin, node in zip(problem.pins, node_of, strict=True))
            and all(
                [node_of[task] for task in tasks].count(node) <= most
                for tasks, most in zip(problem.spread, problem.most_of, strict=True)
                for node in blocks.usable
            )
            and blocks.overload(node_of) == 0
        )

    placements = product(blocks.usable, repeat=len(problem.tasks))
    return min(over_workers(problem, node_of).cut(problem) for node_of in placements if allowed(node_of))


@settings(max_examples=60)
@given(problems())
def test_the_search_finds_the_least_cut_and_ours_comes_near(problem: PlacementProblem) -> None:
    least = least_cut(problem)
    blocks = blocks_of(problem)
    for rule, most in ((optimal(), least), (coarse_grained(), 1.1 * least)):
        placed = rule.place(problem, Random(0))
        assert blocks.overload(placed.node_of) == 0
        assert least - 1e-9 <= placed.cut(problem) <= most + 1e-9, rule.name
