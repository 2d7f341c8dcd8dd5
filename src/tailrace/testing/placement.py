"""The law of placement rules as a function that checks any rule.

The law is in ``tailrace.policy.placement.api``; each ``_check_*`` below is one clause of it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from random import Random

import cloudpickle

from tailrace.policy.placement.api import Placement, PlacementProblem, PlacementRule
from tailrace.policy.placement.limits import blocks_of
from tailrace.policy.placement.problem import placement_problem

_IN_ANOTHER_PROCESS = """
import pickle, sys
from tailrace.testing.placement import _place_all
sys.stdout.buffer.write(pickle.dumps(_place_all(*pickle.load(sys.stdin.buffer))))
"""


def placement_problems() -> list[PlacementProblem]:
    """Problems of every kind: even and uneven nodes, free and constrained tasks, equal and unequal weights."""
    rng = Random(7)
    traffic = {(a, b): rng.randint(1, 20) for a in range(9) for b in range(a + 1, 9) if rng.random() < 0.5}
    cpu = [rng.randint(1, 8) for _ in range(9)]
    operators = {"read": 2, "work": 4, "write": 3}
    three = {"a": 1, "b": 2, "c": 3}
    pairs = [("read/0", "work/0"), ("work/1", "write/1")]
    pin = {"read/0": "b", "work/3": "a"}
    return [
        placement_problem({"only": 1}, {"a": 1}, traffic={}),
        placement_problem(operators, {"a": 1}, traffic=traffic),
        placement_problem(operators, {"a": 2, "b": 2}, traffic={}),
        placement_problem(operators, {"a": 1, "b": 1, "c": 1}, traffic=traffic),
        placement_problem(operators, {"a": 3, "b": 0, "c": 1}, traffic=traffic, cpu=cpu, slack=0.0),
        placement_problem(operators, {"a": 1, "b": 1}, traffic=traffic, cpu=[0.0] * 9),
        placement_problem(operators, three, traffic=traffic, pin={"work": "b"}, together=[("read", "write/2")]),
        placement_problem(
            operators, three, traffic=traffic, cpu=cpu, pin=pin, together=pairs, spread=["work", "write"]
        ),
    ]


def check_placement(
    rule: PlacementRule, *, problems: Sequence[PlacementProblem] | None = None, seeds: Sequence[int] = (0, 1)
) -> None:
    """Raise ``AssertionError`` unless a placement rule keeps its law. Starts one other Python process.

    Args:
        rule: the rule.
        problems: the problems to try. ``None``: some that come with the kit.
        seeds: the seeds to try.

    Example:
        >>> from tailrace.policy import placement_problem, round_robin_placement
        >>> from tailrace.testing import check_placement
        >>> problem = placement_problem({"read": 1, "work": 2}, {"a": 1, "b": 1}, traffic={(0, 1): 5.0})
        >>> check_placement(round_robin_placement(), problems=[problem])
    """
    problems = placement_problems() if problems is None else problems
    assert problems and seeds, "nothing to check: problems and seeds need at least one entry each"
    here = _place_all(rule, problems, seeds)
    for (number, seed), placement in here.items():
        problem = problems[number]
        facts: dict[str, object] = {"problem": number, "seed": seed}
        _check_places(rule, problem, placement, facts)
        _check_constraints(rule, problem, placement, facts)
        if rule.balanced:
            _check_limits(rule, problem, placement, facts)
        if rule.place(problem, Random(seed)) != placement:
            raise _broken(rule, "equal problems and equal seeds give equal placements", **facts)
    _check_other_process(rule, problems, seeds, here)


def _place_all(
    rule: PlacementRule, problems: Sequence[PlacementProblem], seeds: Sequence[int]
) -> dict[tuple[int, int], Placement]:
    return {
        (number, seed): rule.place(problem, Random(seed)) for number, problem in enumerate(problems) for seed in seeds
    }


def _broken(rule: PlacementRule, law: str, **facts: object) -> AssertionError:
    details = " ".join(f"{name}={fact}" for name, fact in facts.items())
    return AssertionError(f"placement rule breaks its law: {law}: rule={rule.name} {details}")


def _check_places(
    rule: PlacementRule, problem: PlacementProblem, placement: Placement, facts: dict[str, object]
) -> None:
    if not len(placement.node_of) == len(placement.worker_of) == len(problem.tasks):
        law = "every task gets one node and one worker"
        raise _broken(rule, law, **facts, tasks=len(problem.tasks), given=len(placement.node_of))
    for task, (node, worker) in enumerate(zip(placement.node_of, placement.worker_of, strict=True)):
        if not (0 <= node < len(problem.nodes) and 0 <= worker < problem.nodes[node].workers):
            law = "a task's worker is one that its node has"
            raise _broken(rule, law, **facts, task=problem.tasks[task], node=node, worker=worker)


def _check_constraints(
    rule: PlacementRule, problem: PlacementProblem, placement: Placement, facts: dict[str, object]
) -> None:
    for task, pin in enumerate(problem.pins):
        if pin is not None and placement.node_of[task] != pin:
            raise _broken(rule, "pins are kept", **facts, task=problem.tasks[task], node=placement.node_of[task])
    for tasks in problem.together:
        if len({(placement.node_of[task], placement.worker_of[task]) for task in tasks}) > 1:
            names = [problem.tasks[task] for task in tasks]
            raise _broken(rule, "tasks to be together share a worker", **facts, tasks=names)
    for tasks, most in zip(problem.spread, problem.most_of, strict=True):
        nodes = [placement.node_of[task] for task in tasks]
        if any(nodes.count(node) > most for node in nodes):
            law = "no node has more of a spread operator's tasks than most_of"
            raise _broken(rule, law, **facts, tasks=[problem.tasks[task] for task in tasks], nodes=nodes, most_of=most)


def _check_limits(
    rule: PlacementRule, problem: PlacementProblem, placement: Placement, facts: dict[str, object]
) -> None:
    limits = blocks_of(problem).limit
    for node, (load, limit) in enumerate(zip(placement.loads(problem), limits, strict=True)):
        if load > limit:
            law = "a balanced rule loads no node above its limit"
            raise _broken(rule, law, **facts, node=problem.nodes[node].name, load=load, limit=limit)


def _check_other_process(
    rule: PlacementRule,
    problems: Sequence[PlacementProblem],
    seeds: Sequence[int],
    here: dict[tuple[int, int], Placement],
) -> None:
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", _IN_ANOTHER_PROCESS],
        input=cloudpickle.dumps((rule, list(problems), list(seeds))),
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        timeout=60,
    )
    law = "equal placements in any process"
    if done.returncode != 0:
        raise _broken(rule, law, error=done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    there = pickle.loads(done.stdout)
    for (number, seed), placement in here.items():
        if there[number, seed] != placement:
            raise _broken(rule, law, problem=number, seed=seed)
