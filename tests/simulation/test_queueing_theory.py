"""The simulator against results that are known: queues with formulas, and bounds that are proven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, permutations, product
from math import sqrt
from random import Random
from statistics import fmean, stdev
from typing import Any

import pytest

from tailrace.clock import MILLISECOND_NS as MS
from tailrace.policy import Grouping, full_knowledge
from tailrace.sim import (
    ByContent,
    Exponential,
    Model,
    Paced,
    Poisson,
    Queue,
    Scope,
    Slowdown,
    Uniform,
    simulate,
)
from tailrace.sim.load.erlang import mean_wait
from tailrace.sim.load.models.model import Node, Order, Uplink

SEEDS = range(12)
TUPLES = 20_000


def mean_wait_ms(model: Model, policy: str | Grouping = "shuffle") -> tuple[float, float]:
    """Mean over seeds, and three standard errors of it."""
    waits = []
    for seed in SEEDS:
        report = simulate(model, policy, seed=seed)
        waits.append((report.mean_ns - sum(report.busy_ns) / len(report.done_ns)) / MS)
    return fmean(waits), 3 * stdev(waits) / sqrt(len(waits))


def test_m_m_1() -> None:
    model = Model(Poisson(rate_per_s=70), Exponential(10 * MS), tuples=TUPLES, tasks=1)
    wait, error = mean_wait_ms(model)
    assert wait == pytest.approx(0.7 / 0.3 * 10, abs=error)
    assert error < 2


def test_m_g_1() -> None:
    """Pollaczek and Khinchine: the variance of a uniform duration from 0 to 20 ms is 400/12."""
    model = Model(Poisson(rate_per_s=70), Uniform(0, 20 * MS), tuples=TUPLES, tasks=1)
    wait, error = mean_wait_ms(model)
    assert wait == pytest.approx(0.7 * 10 / (2 * 0.3) * (1 + 400 / 12 / 100), abs=error)
    assert error < 1.5


@pytest.mark.parametrize(
    ("policy", "scope"), [("shuffle", Scope.NODE), ("pull", Scope.OWN), ("least_work_left", Scope.OWN)]
)
def test_m_m_c(policy: str, scope: Scope) -> None:
    """One queue for all, whether it is in front of the tasks, at the sender, or in the mind of an oracle."""
    model = Model(Poisson(rate_per_s=400), Exponential(10 * MS), tuples=TUPLES, tasks=5, queue=Queue(scope))
    wait, error = mean_wait_ms(model, policy)
    assert wait == pytest.approx(mean_wait(5, 0.4, 0.1), abs=error)
    assert error < 1


@dataclass(frozen=True)
class AtRandom:
    """What splits a Poisson stream into Poisson streams."""

    name: str = "at_random"
    keyed: bool = False

    def bind(self, tasks: int, rng: Random) -> AtRandomChooser:
        return AtRandomChooser(tasks, rng)


class AtRandomChooser:
    def __init__(self, tasks: int, rng: Random) -> None:
        self.draw = lambda: rng.randrange(tasks)

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        return [self.draw() for _ in values]


@pytest.mark.parametrize(("scope", "servers"), [(Scope.OWN, 1), (Scope.WORKER, 3)])
def test_split_at_random_each_queue_is_one_of_its_own(scope: Scope, servers: int) -> None:
    """Six tasks on two workers, 80 tuples/s for each task, which could do 100."""
    model = Model(Poisson(rate_per_s=480), Exponential(10 * MS), tuples=TUPLES, tasks=6, workers=2, queue=Queue(scope))
    wait, error = mean_wait_ms(model, AtRandom())
    assert wait == pytest.approx(mean_wait(servers, servers * 0.08, 0.1), abs=error)
    assert error < 8 / servers


def test_round_robin_is_worse_than_one_queue_and_better_than_random_splitting() -> None:
    model = Model(Poisson(rate_per_s=400), Exponential(10 * MS), tuples=TUPLES, tasks=5)
    wait, _ = mean_wait_ms(model)
    assert 2 * mean_wait(5, 0.4, 0.1) < wait < 0.8 / 0.2 * 10


@pytest.mark.parametrize("senders", [1, 4])
def test_pulling_is_one_queue(senders: int) -> None:
    """With one sender to the nanosecond; with four, whose lines are only served in turn of age, almost."""
    model = Model(Paced(load=0.95), ByContent(), tuples=20_000, senders=senders)
    pulled = simulate(model, "pull", seed=5)
    shared = simulate(Model(Paced(load=0.95), ByContent(), tuples=20_000, queue=Queue(Scope.NODE)), "shuffle", seed=5)
    if senders == 1:
        assert sorted(pulled.latencies_ns) == sorted(shared.latencies_ns)
    else:
        assert pulled.mean_ns == pytest.approx(shared.mean_ns, rel=0.01)
        assert pulled.percentile_ns(0.99) == pytest.approx(shared.percentile_ns(0.99), rel=0.1)


def test_pulling_over_a_slow_link_keeps_tasks_busy() -> None:
    """Round trips of a fifth of a duration: without tuples asked for ahead a sixth of the capacity would be lost."""
    model = Model(Poisson(load=0.95), Exponential(10 * MS), tuples=30_000, senders=2, link=Uplink(latency_ns=MS))
    report = simulate(model, "pull")
    assert report.end_ns < 1.02 * report.due_ns[-1]
    assert report.mean_ns < simulate(model, "power_of_two").mean_ns


# -- what is proven about greedy


def makespan(costs: tuple[int, ...], choices: tuple[int, ...], tasks: int) -> int:
    loads = [0] * tasks
    for cost, task in zip(costs, choices, strict=True):
        loads[task] += cost
    return max(loads)


@pytest.mark.parametrize(("tasks", "tuples", "largest"), [(2, 6, 4), (3, 6, 3)])
def test_greedy_is_within_2_minus_1_over_k_of_the_optimum(tasks: int, tuples: int, largest: int) -> None:
    """Theorem 4.2, on every sequence of this size."""
    worst = 0.0
    for costs in combinations_with_replacement(range(1, largest + 1), tuples):
        optimum = min(makespan(costs, choices, tasks) for choices in product(range(tasks), repeat=tuples))
        for order in set(permutations(costs)):
            choices = tuple(full_knowledge().bind(tasks, Random(0)).choose_many(order))
            worst = max(worst, makespan(order, choices, tasks) / optimum)
    assert 1.2 < worst <= 2 - 1 / tasks


@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_the_bound_is_tight(tasks: int) -> None:
    costs = (1,) * (tasks * (tasks - 1)) + (tasks,)
    choices = tuple(full_knowledge().bind(tasks, Random(0)).choose_many(costs))
    assert makespan(costs, choices, tasks) == (2 - 1 / tasks) * tasks


# -- speeds, slowdowns, links, disciplines


def test_a_slowdown_stretches_what_runs_through_it() -> None:
    """Ten milliseconds of work: four before, then at half speed."""
    node = Node(slowdowns=(Slowdown(4 * MS, 100 * MS, 2.0),))
    report = simulate(Model(Paced(rate_per_s=1), Uniform(10 * MS, 10 * MS), tuples=1, tasks=1, nodes=(node,)))
    assert report.done_ns == [16 * MS]


def test_a_node_that_is_twice_as_fast() -> None:
    model = Model(Paced(rate_per_s=10), Uniform(10 * MS, 10 * MS), tuples=4, tasks=2, nodes=(Node(2.0), Node(1.0)))
    report = simulate(model)
    assert sorted(report.latencies_ns) == [5 * MS, 5 * MS, 10 * MS, 10 * MS]
    assert report.busy_ns == (10 * MS, 20 * MS)


def test_tuples_of_a_link_follow_each_other() -> None:
    link = Uplink(latency_ns=3 * MS, bytes_per_s=1_000_000)  # a millisecond for a thousand bytes
    model = Model(Paced(rate_per_s=1_000_000), Uniform(1000, 1000), tuples=3, tasks=3, link=link, tuple_bytes=1_000)
    assert [round(latency / MS, 1) for latency in simulate(model).latencies_ns] == [4.0, 5.0, 6.0]
    apart = Model(Paced(rate_per_s=1_000_000), Uniform(1000, 1000), tuples=3, tasks=3, link=link, sender_nodes=(0,))
    assert max(simulate(apart).latencies_ns) < MS, "sender and tasks are on one node"


def test_shortest_expected_first_with_aging() -> None:
    """Better in the mean than first come, first served; without aging the longest wait longest."""
    model = Model(Paced(load=0.95), ByContent(), tuples=20_000, queue=Queue(Scope.NODE))
    reports = {
        aging: simulate(
            Model(Paced(load=0.95), ByContent(), tuples=20_000, queue=Queue(Scope.NODE, Order.SHORTEST, aging))
        )
        for aging in (0.0, 0.3)
    }
    assert reports[0.0].mean_ns < reports[0.3].mean_ns < 0.97 * simulate(model).mean_ns
    assert reports[0.3].max_ns < reports[0.0].max_ns
