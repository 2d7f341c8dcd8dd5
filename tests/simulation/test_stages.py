"""Several stages: against formulas, against examples worked out by hand, and against chance."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import sqrt
from random import Random
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.staged import Chance, Planned, Timeout, audited, facts
from tailrace.clock import MILLISECOND_NS as MS
from tailrace.errors import TopologyError
from tailrace.policy import fields, local
from tailrace.policy.hedging.api import Load
from tailrace.sim import (
    POLICIES,
    ByContent,
    Constant,
    Exponential,
    Forest,
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
    grow,
    simulate,
)

CONSTANT = Constant(10 * MS)


def test_two_queues_in_a_row_are_independent_of_each_other() -> None:
    """Jackson: what leaves M/M/1 is Poisson, so the mean sojourns add up."""
    stages = (Stage("a", Exponential(10 * MS)), Stage("b", Exponential(8 * MS)))
    model = Model(Poisson(rate_per_s=70), tuples=15_000, tasks=1, stages=stages)
    reports = [simulate(model, seed=seed) for seed in range(10)]
    means = [report.mean_ns / MS for report in reports]
    error = 3 * stdev(means) / sqrt(len(means))
    assert fmean(means) == pytest.approx(1_000 / (100 - 70) + 1_000 / (125 - 70), abs=error)
    assert error < 3
    waits = [report.stages[1].mean_wait_ns / MS for report in reports]
    assert fmean(waits) == pytest.approx(1_000 / (125 - 70) - 8, abs=3 * stdev(waits) / sqrt(len(waits)))


def test_a_stage_of_no_work_before_another_changes_nothing() -> None:
    """Nearly: it takes a nanosecond."""
    one = Model(Poisson(load=0.8), ByContent(items=64), tuples=2_000, tasks=3)
    two = Model(
        Poisson(load=0.8),
        ByContent(items=64),
        tuples=2_000,
        tasks=3,
        stages=(Stage("work"), Stage("sink", Constant(1), tasks=1)),
    )
    for alone, chained in zip(simulate(one, seed=3).done_ns, simulate(two, seed=3).done_ns, strict=True):
        assert alone < chained <= alone + 3


def test_a_root_waits_for_its_slower_branch() -> None:
    """a takes 10 ms, then b 5 ms and c 20 ms side by side. The second root finds c busy for 10 ms."""
    stages = (
        Stage("a", CONSTANT),
        Stage("b", Constant(5 * MS), inputs=("a",)),
        Stage("c", Constant(20 * MS), inputs=("a",)),
    )
    report = simulate(Model(Paced(rate_per_s=100), tuples=2, tasks=1, stages=stages))
    assert report.done_ns == [30 * MS, 50 * MS]
    assert [stage.executed for stage in report.stages] == [(2,), (2,), (2,)]
    assert [list(stage.waits_ns) for stage in report.stages] == [[], [], [10 * MS]]
    assert report.stages[2].wait_percentile_ns(0.5) == 0
    assert report.stages[2].wait_percentile_ns(0.99) == 10 * MS


def test_a_join_gets_the_tuples_of_both_branches() -> None:
    """And the source may fork as well: a and b at 0 ms, join from 10 ms on for both, one after the other."""
    stages = (
        Stage("a", CONSTANT),
        Stage("b", CONSTANT, inputs=("source",)),
        Stage("join", Constant(3 * MS), inputs=("a", "b")),
    )
    report = simulate(Model(Paced(rate_per_s=1), tuples=1, tasks=1, stages=stages))
    assert report.done_ns == [16 * MS]
    assert report.executed == (1, 1, 2)


def test_links_between_stages() -> None:
    """Tasks 0 and 1 of every stage are on nodes of their own; 1 ms between nodes, 1 us within one."""
    model = Model(
        Paced(rate_per_s=1),
        CONSTANT,
        tuples=2,
        tasks=2,
        nodes=(Node(), Node()),
        sender_nodes=(0,),
        link=Uplink(MS),
        local=Uplink(1_000),
        stages=(Stage("a", workers=(0,)), Stage("b", workers=(1,)), Stage("c", grouping="local", workers=(1,))),
    )
    assert simulate(model).latencies_ns == [30 * MS + MS + 2_000] * 2


def test_local_stays_and_says_so_if_it_cannot() -> None:
    stages = (Stage("a", grouping=fields(lambda value: value)), Stage("b", grouping=local()))
    report = simulate(Model(Poisson(load=0.5), ByContent(items=9), tuples=500, tasks=3, stages=stages))
    assert report.stages[0].executed == report.stages[1].executed
    uneven = (Stage("a", tasks=3), Stage("b", tasks=2, grouping=local()))
    with pytest.raises(TopologyError, match="a local edge has no task of the sender's index: own=2 tasks=2"):
        simulate(Model(Paced(load=0.5), CONSTANT, tuples=10, stages=uneven))


def test_load_is_that_of_the_busiest_stage() -> None:
    stages = (Stage("few", fan_out=0.5), Stage("half", tasks=1), Stage("many", tasks=9, fan_out=(1, 3)), Stage("end"))
    model = Model(Paced(load=0.8), CONSTANT, tuples=4_000, tasks=2, stages=stages)
    report = simulate(model)
    shares = [sum(stage.busy_ns) / len(stage.busy_ns) / report.due_ns[-1] for stage in report.stages]
    assert shares == pytest.approx([0.8, 0.8, 0.8 / 9, 0.8], rel=0.1)
    assert max(shares) == pytest.approx(0.8, rel=0.02)


# -- stalls


def test_stalls_are_drawn_for_each_execution() -> None:
    model = Model(Paced(load=0.5), CONSTANT, tuples=20_000, tasks=5, stalls=Stalls(0.01, 50))
    forest = grow(model, 3)
    plain = [CONSTANT.mean_ns, 50 * CONSTANT.mean_ns]
    for works in (forest.works_ns, *forest.again_ns):
        assert sorted(set(works)) == plain
        assert works.count(plain[1]) == pytest.approx(200, abs=45)
    for one, other in pairwise((forest.works_ns, *forest.again_ns)):
        both = sum(a == b == plain[1] for a, b in zip(one, other, strict=True))
        assert both < 12, "the next incarnation draws again"
    report = simulate(model, seed=3)
    assert sum(report.busy_ns) == sum(forest.works_ns)
    assert sum(report.busy_ns) / (5 * report.due_ns[-1]) == pytest.approx(0.5, rel=0.02), "stalls are part of the load"


# -- hedging, worked out by hand


def forest(due_ms: list[int], works_ms: list[list[int]], again_ms: list[list[int]]) -> Forest:
    """Chains: the works of each root, stage by stage."""
    roots, stages = len(due_ms), len(works_ms[0])
    number = [[stage * roots + root for stage in range(stages)] for root in range(roots)]
    columns = [[row[stage] * MS for stage in range(stages) for row in table] for table in (works_ms, again_ms)]
    return Forest(
        due_ns=[at * MS for at in due_ms],
        roots=[(row[0],) for row in number],
        stages=[stage for stage in range(stages) for _ in range(roots)],
        values=[0] * (roots * stages),
        works_ns=columns[0],
        again_ns=columns[1:] * 2,
        children=[
            (number[root][stage + 1],) if stage + 1 < stages else () for stage in range(stages) for root in range(roots)
        ],
    )


def test_a_hedge_wins_and_what_is_queued_of_the_loser_is_thrown_away() -> None:
    """Two tasks in turn; whatever is not done after 10 ms is emitted again.

    Root 0 stalls: 100 ms. Root 1 takes the other task 1 ms. Root 2 queues behind root 0. At 10 ms root 0 is emitted
    again and would be sent to the task that it stalls; it takes the other, 1 ms. At 12 ms so does root 2, and when the
    stalled task is free its first incarnation counts no more.
    """
    model = Model(Paced(load=1), CONSTANT, tuples=3, tasks=2)
    trees = forest([0, 1, 2], [[100], [1], [1]], [[1], [1], [1]])
    report = simulate(model, hedge=Timeout(10 * MS), forest=trees)
    assert report.done_ns == [11 * MS, 2 * MS, 13 * MS]
    assert (report.hedges, report.hedges_won, report.hedges_wasted, report.cancelled) == (2, 2, 0, 1)
    assert sorted(report.busy_ns) == [3 * MS, 100 * MS]
    assert report.extra_work == pytest.approx(2 / 101)
    assert report.hedge == "timeout"
    assert simulate(model, forest=trees).done_ns == [100 * MS, 2 * MS, 101 * MS]


def test_what_a_loser_becomes_is_not_sent() -> None:
    """Root 0 stalls in the first stage, is overtaken, and goes no further."""
    model = Model(Paced(load=1), CONSTANT, tuples=1, tasks=2, stages=(Stage("a"), Stage("b")))
    report = simulate(model, hedge=Timeout(10 * MS), forest=forest([0], [[100, 5]], [[2, 5]]))
    assert report.done_ns == [17 * MS]
    assert sum(report.stages[0].executed) == 2
    assert sum(report.stages[1].executed) == 1
    assert (report.hedges, report.hedges_won, report.cancelled) == (1, 1, 0)


def test_what_is_still_travelling_of_the_loser_is_thrown_away_as_well() -> None:
    """One task is beside the sender, the other 50 ms away: if it is chosen first, the hedge is done before it hears."""
    model = Model(
        Paced(load=1), CONSTANT, tuples=1, tasks=2, nodes=(Node(), Node()), sender_nodes=(0,), link=Uplink(50 * MS)
    )
    trees = forest([0], [[1]], [[1]])
    reports = [simulate(model, hedge=Timeout(10 * MS), seed=seed, forest=trees) for seed in range(9)]
    found = {(report.done_ns[0], report.executed, report.hedges_won, report.cancelled) for report in reports}
    assert found == {(MS, (1, 0), 0, 0), (11 * MS, (1, 0), 1, 1)}


def test_the_first_incarnation_may_win_all_the_same() -> None:
    """It is done at 14 ms, while its hedge is queued behind another root until 50 ms."""
    model = Model(Paced(load=1), CONSTANT, tuples=2, tasks=2)
    report = simulate(model, hedge=Timeout(10 * MS), forest=forest([0, 0], [[14], [50]], [[14], [50]]))
    assert report.done_ns == [14 * MS, 50 * MS]
    assert (report.hedges, report.hedges_won, report.hedges_wasted) == (2, 0, 2)
    assert report.cancelled == 1, "root 0 again; root 1 again was started at 14 ms, and ran in vain"
    assert sorted(report.busy_ns) == [50 * MS, 64 * MS]
    assert report.extra_work == pytest.approx(50 / 64)


def test_timers_are_exact_and_the_busiest_stage_is_observed() -> None:
    """Two stages, 10 and 20 ms of work every 40 ms: a half at most, from the first 100 ms on."""
    seen: list[tuple[float, int]] = []
    asked: list[int] = []

    class Watching(Timeout):
        def bind(self, rng: Random) -> Planned:
            half = super().bind(rng)
            due = half.due
            half.observed = lambda load, now_ns: seen.append((load.utilisation, now_ns))  # type: ignore[method-assign]
            half.due = lambda now_ns: asked.append(now_ns) or due(now_ns)  # type: ignore[func-returns-value, method-assign]
            return half

    stages = (Stage("a"), Stage("b", Constant(20 * MS)))
    model = Model(Paced(rate_per_s=25), CONSTANT, tuples=100, tasks=1, stages=stages)
    simulate(model, hedge=Watching(29_999_999))
    assert [now_ns for _, now_ns in seen[:3]] == [100 * MS, 200 * MS, 300 * MS]
    assert seen[12][0] == pytest.approx(0.5, abs=0.02)
    assert 29_999_999 in asked


def test_load_reports_add_up_to_all_that_was_done_and_thrown_away() -> None:
    """Three stages of 10 ms each on two tasks: a tuple that is thrown away spares its descendants too."""
    loads: list[Load] = []

    class Summing(Timeout):
        def bind(self, rng: Random) -> Planned:
            half = super().bind(rng)
            half.observed = lambda load, now_ns: loads.append(load)  # type: ignore[method-assign]
            return half

    stages = (Stage("a"), Stage("b"), Stage("c"))
    model = Model(Poisson(load=0.5), CONSTANT, tuples=400, tasks=2, stages=stages)
    report = simulate(model, hedge=Summing(35 * MS), seed=3)
    assert sum(load.roots for load in loads) == 400
    assert sum(load.hedges for load in loads) == report.hedges > 50
    assert 0.99 * sum(report.busy_ns) < sum(load.work_ns for load in loads) <= sum(report.busy_ns)
    unrun = sum(load.unrun_ns for load in loads) / (10 * MS)
    emitted = 3 * (400 + report.hedges)
    assert unrun == pytest.approx(emitted - sum(report.executed), rel=0.02)


@pytest.mark.parametrize(
    ("named", "text"),
    [
        (lambda now_ns: [0] * 3, "not a root to emit again: rule=lawless root=0"),  # too often
        (lambda now_ns: [1], "not a root to emit again: rule=lawless root=1"),  # before it was emitted
        (lambda now_ns: [2], "not a root to emit again: rule=lawless root=2"),  # there is none
        (lambda now_ns: [0] if now_ns else [], "a root is emitted again that is done: rule=lawless root=0"),
    ],
)
def test_a_rule_that_breaks_its_law_is_found_out(named: Callable[[int], list[int]], text: str) -> None:
    class Lawless(Timeout):
        def bind(self, rng: Random) -> Planned:
            half = super().bind(rng)
            half.due = named  # type: ignore[method-assign]
            return half

    with pytest.raises(AssertionError, match=text):
        simulate(Model(Paced(rate_per_s=50), CONSTANT, tuples=2), hedge=Lawless(40 * MS, "lawless"))


# -- whatever the model


links = st.builds(Uplink, st.sampled_from([0, 50_000, 3_000_000]), st.sampled_from([None, 1e5, 1e8]))
queues = st.builds(Queue, st.sampled_from(Scope), st.sampled_from(Order), st.sampled_from([0.0, 0.5]))
services = st.sampled_from([Exponential(MS), Lognormal(MS, 2.0), ByContent(items=16, costs=4, jitter=0.5)])
nodes = st.builds(Node, st.sampled_from([0.5, 1.0]), st.sampled_from([(), (Slowdown(0, 10**8, 4.0),)]))
stalls = st.none() | st.builds(Stalls, st.sampled_from([0.0, 0.2]), st.just(20.0))
NAMES = ("a", "b", "c", "d")


@st.composite
def staged_models(draw: st.DrawFn) -> Model:
    stages: list[Stage] = []
    for name in NAMES[: draw(st.integers(1, len(NAMES)))]:
        before = ("source", *(stage.name for stage in stages))
        inputs = st.lists(st.sampled_from(before), unique=True, max_size=2).map(tuple)
        stages.append(
            Stage(
                name,
                draw(st.none() | services),
                draw(st.integers(0, 3)),
                draw(inputs),
                draw(st.none() | st.just("broadcast") | st.sampled_from(list(POLICIES))),
                draw(st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.5, (0, 2)])),
                draw(st.none() | queues),
                draw(stalls),
                draw(st.sampled_from([(), (0,), (1, 0)])),
            )
        )
    return Model(
        Poisson(load=draw(st.sampled_from([0.2, 0.9, 3.0]))),
        draw(services),
        tuples=draw(st.integers(1, 40)),
        tasks=draw(st.integers(1, 4)),
        senders=draw(st.integers(1, 3)),
        workers=draw(st.integers(2, 3)),
        nodes=tuple(draw(st.lists(nodes, min_size=1, max_size=2))),
        link=draw(links),
        local=draw(links),
        queue=draw(queues),
        stages=tuple(stages),
    )


@settings(max_examples=150)
@given(
    staged_models(),
    st.sampled_from(list(POLICIES)),
    st.none() | st.builds(Chance, st.sampled_from([0.3, 1.0]), st.sampled_from([1, 2 * MS, 50 * MS])),
    st.integers(0, 2**32),
)
def test_no_tuple_is_lost_or_doubled(model: Model, policy: str, rule: Chance | None, seed: int) -> None:
    trees = grow(model, seed)
    trees.validate(model)
    with audited(model.tuples) as audit:
        report = simulate(model, policy, hedge=rule, seed=seed)
    broadcasting = {number for number, stage in enumerate(model.operators) if stage.grouping == "broadcast"}
    audit.check(model, trees, report, broadcasting)
    assert len(report.latencies_ns) == model.tuples
    assert all(due < done for due, done in zip(report.due_ns, report.done_ns, strict=True))
    assert report.backlog()[-1][1] == 0
    assert facts(simulate(model, policy, hedge=rule, seed=seed, forest=trees)) == facts(report)
