"""The simulator is deterministic, loses nothing and doubles nothing, and notices if somebody does."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tailrace as tr
from kit.staged import Chance, facts
from tailrace.policy import HELD, broadcast, pull
from tailrace.sim import (
    POLICIES,
    ByContent,
    Exponential,
    Lognormal,
    Model,
    Node,
    Order,
    Paced,
    Poisson,
    Queue,
    Scope,
    Slowdown,
    Stage,
    Stalls,
    Uplink,
    simulate,
)

MODEL = Model(
    Poisson(load=0.9),
    ByContent(items=64, jitter=0.1),
    tuples=3_000,
    tasks=4,
    senders=3,
    nodes=(Node(), Node(0.7, (Slowdown(10**9, 5 * 10**9, 3.0),))),
    link=Uplink(200_000, 1e8),
)

STAGED = replace(
    MODEL,
    tuples=200,
    stages=(Stage("a", fan_out=(0, 3)), Stage("b", Exponential(3_000_000)), Stage("c", inputs=("a",)), Stage("d")),
    stalls=Stalls(0.05, 20),
)

# Only these: `sys.path` of a test run holds the folders of all tests.
FOLDERS = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
DIGESTS = """
from test_simulate import digests
print(digests())
"""


def digests() -> str:
    whole = hashlib.sha256()
    for name in POLICIES:
        report = simulate(MODEL, name, seed=11)
        whole.update(repr((name, list(report.done_ns), report.executed, report.messages)).encode())
        whole.update(repr(facts(simulate(STAGED, name, hedge=Chance(0.3), seed=11))).encode())
    return whole.hexdigest()


def test_equal_seeds_give_equal_bits_in_any_process() -> None:
    found = {digests()}
    for hash_seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": FOLDERS},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout.strip())
    assert len(found) == 1


def test_seeds_differ_and_policies_see_the_same_tuples() -> None:
    one, other, pulled = simulate(MODEL, seed=1), simulate(MODEL, seed=2), simulate(MODEL, "pull", seed=1)
    assert one.due_ns != other.due_ns
    assert one.due_ns == pulled.due_ns
    assert one.done_ns != pulled.done_ns


def test_the_page_s_python_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "what-if.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})


def test_it_is_there_as_tr_sim() -> None:
    assert tr.sim.simulate is simulate


slowdowns = st.builds(Slowdown, st.just(0), st.integers(1, 10**8), st.just(4.0))
nodes = st.builds(Node, st.sampled_from([0.5, 1.0, 3.0]), st.lists(slowdowns, max_size=2).map(tuple))
links = st.builds(Uplink, st.sampled_from([0, 1, 50_000, 3_000_000]), st.sampled_from([None, 1e5, 1e8]))
queues = st.builds(Queue, st.sampled_from(Scope), st.sampled_from(Order), st.sampled_from([0.0, 0.5]))
services = st.sampled_from(
    [Exponential(1_000_000), Lognormal(1_000_000, 2.0), ByContent(items=16, costs=4, jitter=0.5)]
)
loads = st.sampled_from([0.2, 0.9, 3.0])
arrivals = st.builds(Poisson, load=loads) | st.builds(Paced, load=loads)
models = st.builds(
    Model,
    arrivals,
    services,
    tuples=st.integers(1, 120),
    tasks=st.integers(1, 6),
    senders=st.integers(1, 4),
    workers=st.integers(0, 4),
    nodes=st.lists(nodes, min_size=1, max_size=3).map(tuple),
    link=links,
    local=links,
    queue=queues,
)


@settings(max_examples=150)
@given(models, st.sampled_from([*POLICIES, "broadcast"]), st.integers(0, 2**32))
def test_whatever_the_model_each_tuple_is_run_once(model: Model, policy: str, seed: int) -> None:
    report = simulate(model, broadcast() if policy == "broadcast" else policy, seed=seed)
    copies = model.tasks if policy == "broadcast" else 1
    assert sum(report.executed) == copies * model.tuples
    assert len(report.latencies_ns) == model.tuples, "a root is done once, when the last copy has been run"
    assert all(due < done for due, done in zip(report.due_ns, report.done_ns, strict=True))
    assert sum(report.busy_ns) <= model.tasks * report.end_ns
    assert report.backlog()[-1][1] == 0


class _Forgets:
    """A chooser of ``pull`` that lets one tuple in a hundred go astray in its line."""

    def __init__(self, half: Any) -> None:
        self.half = half
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.half, name)

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        self.asked += 1
        return [HELD] if self.asked % 100 == 0 else self.half.choose_many(values)


def test_a_grouping_that_loses_tuples_is_found_out() -> None:
    class Forgetful(type(pull())):  # type: ignore[misc]
        def bind(self, tasks: int, rng: Random) -> Any:
            return _Forgets(super().bind(tasks, rng))

    with pytest.raises(AssertionError, match="tuples left over: held="):
        simulate(MODEL, Forgetful())
