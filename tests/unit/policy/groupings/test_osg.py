"""OSG step by step: the sketch, both state machines, and several senders."""

from __future__ import annotations

from random import Random
from statistics import mean
from typing import Any

import pytest

from tailrace.errors import OptionError, TopologyError
from tailrace.policy import osg
from tailrace.policy.groupings.load.cost_table import CostTable
from tailrace.policy.groupings.load.sketch import CountMinPair, Estimates, Shape
from tailrace.policy.groupings.osg import Matrices, OsgChooser, OsgReceiver, Reply, SchedulerState, Sync


def itself(value: Any) -> Any:
    return value


# -- the sketch


def test_the_paper_s_sizes() -> None:
    """The paper prints 54 columns for epsilon 0.05; its formula says 55."""
    assert (Shape(0.05, 0.1, 0).rows, Shape(0.05, 0.1, 0).columns) == (4, 55)
    assert (Shape(0.7, 0.25, 0).rows, Shape(0.7, 0.25, 0).columns) == (2, 4)
    assert Shape(0.001, 0.1, 0).columns == 2719


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 0.1), (0.05, 0), (0.05, 1)])
def test_a_sketch_of_no_size(epsilon: float, delta: float) -> None:
    with pytest.raises(OptionError, match="a sketch needs epsilon > 0 and 0 < delta < 1: epsilon="):
        osg(itself, epsilon=epsilon, delta=delta)


def test_hashes_are_2_universal() -> None:
    """Over many functions of the family, two given items share a cell in 1/columns of them; 3 standard errors."""
    shared = rows = 0
    for seed in range(1_500):
        shape = Shape(0.5, 0.1, seed)
        for one, other in ((1, 2), (17, 1 << 62)):
            shared += sum(a == b for a, b in zip(shape.cells_of(one), shape.cells_of(other), strict=True))
            rows += shape.rows
    expected = 1 / shape.columns
    assert shared / rows <= expected + 3 * (expected * (1 - expected) / rows) ** 0.5


def test_cells_are_the_same_everywhere() -> None:
    assert Shape(0.05, 0.1, 7).cells_of(12345) == (27, 70, 143, 172)
    assert Shape(0.05, 0.1, 7).cells_of(12345) != Shape(0.05, 0.1, 8).cells_of(12345)


def test_a_count_is_never_too_small_and_the_smallest_is_used() -> None:
    shape = Shape(0.3, 0.1, 3)
    pair = CountMinPair(shape)
    rng = Random(1)
    items = [min(rng.randrange(1, 100), rng.randrange(1, 100)) for _ in range(1_000)]
    for item in items:
        pair.add(shape.cells_of(item), 10 * item)
    estimates = Estimates(pair.content(), shape.rows)
    for item in set(items):
        counts = [pair.counts[cell] for cell in shape.cells_of(item)]
        assert min(counts) >= items.count(item)
        best = shape.cells_of(item)[counts.index(min(counts))]
        assert estimates.of(shape.cells_of(item)) == pair.sums[best] / pair.counts[best]


def test_an_item_that_was_never_seen_costs_the_mean() -> None:
    shape = Shape(0.01, 0.1, 3)
    pair = CountMinPair(shape)
    for item, amount in ((1, 10), (2, 20), (3, 60)):
        pair.add(shape.cells_of(item), amount)
    assert Estimates(pair.content(), shape.rows).of(shape.cells_of(99)) == 30


def test_theorem_4_3_against_the_sketch() -> None:
    """E[W/C] of one row when all items are equally frequent; the paper writes k for the columns."""
    items, columns = 40, 6
    costs = [1 + (item * item) % 37 for item in range(items)]
    whole = sum(costs)
    found: dict[int, list[float]] = {v: [] for v in (0, 7, 39)}
    for seed in range(1_000):
        shape = Shape(2.72 / columns, 0.5, seed)
        assert (shape.rows, shape.columns) == (1, columns)
        pair = CountMinPair(shape)
        for item, cost in enumerate(costs):
            pair.add(shape.cells_of(item * 7919 + 13), cost)
        for v, ratios in found.items():
            ratios.append(Estimates(pair.content(), 1).of(shape.cells_of(v * 7919 + 13)))
    for v, ratios in found.items():
        cost = costs[v]
        gap = columns * (whole - items * cost) / (items * (items - 1))
        expected = (whole - cost) / (items - 1) - gap * (1 - (1 - 1 / columns) ** items)
        error = (sum((ratio - mean(ratios)) ** 2 for ratio in ratios) / len(ratios) ** 2) ** 0.5
        assert mean(ratios) == pytest.approx(expected, abs=4 * error)


# -- the task's half


def receiver(senders: int = 1, window: int = 4, tolerance: float = 0.05) -> OsgReceiver:
    return osg(itself, window=window, tolerance=tolerance, idle_counts=False).bind_receiver(0, 2, senders, Random(0))


def execute(half: OsgReceiver, *durations_ns: int, value: Any = 1, attached: Any = None, sender: int = 0) -> None:
    for duration_ns in durations_ns:
        half.executed(sender, value, attached, duration_ns, 0, 0)


def test_a_task_sends_its_matrices_when_they_are_stable() -> None:
    half = receiver(senders=2)
    execute(half, 10, 10, 10)
    assert half._snapshot is None, "START lasts for a window"
    execute(half, 10)
    assert half._snapshot is not None
    execute(half, 90, 90, 90, 90)
    assert not half.outbox, "the mean moved from 10 to 50: not stable"
    execute(half, 50, 50, 50, 50)
    assert [sender for sender, _ in half.outbox] == [0, 1]
    (_, message), _ = half.outbox
    assert isinstance(message, Matrices)
    assert sum(message.content.counts) == 4 * 12
    assert sum(message.content.sums) == 4 * (40 + 360 + 200)
    half.outbox.clear()
    execute(half, *[50] * 7)
    assert not half.outbox, "back in START, with empty matrices"
    execute(half, 50)
    assert len(half.outbox) == 2


def test_a_task_replies_with_the_difference_once_it_has_executed_the_tuple() -> None:
    half = receiver(senders=2)
    execute(half, 10, 20)
    execute(half, 15, sender=1)
    execute(half, 5, attached=Sync(3, 30.0), sender=1)
    assert half.outbox == [(1, Reply(3, -10.0))], "of its own 20; what others sent is not its business"


def test_a_task_replies_if_the_tuple_was_dropped() -> None:
    """Otherwise the sender would wait for ever."""
    half = receiver()
    execute(half, 10)
    half.dropped(0, Sync(3, 30.0), 0, 0)
    assert half.outbox == [(0, Reply(3, -20.0))]


# -- the sender's half


def chooser(tasks: int = 2) -> OsgChooser:
    return osg(itself).bind(tasks, Random(0))


def matrices(**costs: int) -> Matrices:
    shape = Shape(0.05, 0.1, 0)
    pair = CountMinPair(shape)
    from tailrace.policy import stable_hash

    for item, cost in costs.items():
        pair.add(shape.cells_of(stable_hash(item)), cost)
    return Matrices(pair.content())


def test_a_sender_goes_through_the_states_of_figure_3() -> None:
    half = chooser()
    first = half.choose_many("aaaa")
    assert list(first) in ([0, 1, 0, 1], [1, 0, 1, 0])
    half.hear(0, matrices(a=10, b=1), 0)
    assert half.state is SchedulerState.ROUND_ROBIN, "not before all have sent theirs"
    half.hear(1, matrices(a=10, b=1), 0)
    assert half.state is SchedulerState.SEND_ALL
    assert list(half.choose_many("aab")) == [0, 1, 0]
    assert half.attached == [(0, Sync(1, 10.0)), (1, Sync(1, 10.0))]
    assert half.state is SchedulerState.WAIT_ALL
    half.hear(0, Reply(1, 100.0), 0)
    assert half.state is SchedulerState.WAIT_ALL
    half.hear(1, Reply(1, 0.0), 0)
    assert half.state is SchedulerState.RUN
    assert list(half.choose_many("a" * 10)) == [1] * 10 and list(half.choose_many("bb")) == [1, 0]


def test_new_matrices_start_another_epoch_and_old_replies_are_ignored() -> None:
    half = chooser()
    half.hear(0, matrices(a=10), 0)
    half.hear(1, matrices(a=10), 0)
    half.choose_many("a")
    half.attached.clear()
    half.hear(1, matrices(a=20), 0)
    assert list(half.choose_many("aa")) == [0, 1]
    assert [message.epoch for _, message in half.attached if isinstance(message, Sync)] == [2, 2]
    half.hear(0, Reply(1, 1e9), 0)
    half.hear(0, Reply(2, 0.0), 0)
    half.hear(1, Reply(2, 0.0), 0)
    assert half.state is SchedulerState.RUN
    assert half._cumulated_ns == [20.0, 20.0]


@pytest.mark.parametrize("resync", [False, True])
def test_a_sender_may_ask_again_without_new_matrices(resync: bool) -> None:
    """Every ``window`` tuples to each of the tasks, counted from the last synchronization."""
    half = osg(itself, window=3, resync=resync).bind(2, Random(0))
    for task in (0, 1):
        half.hear(task, matrices(a=10), 0)
    for epoch in (1, 2):
        half.choose_many("aa")
        half.attached.clear()
        for task in (0, 1):
            half.hear(task, Reply(epoch, 0.0), 0)
        half.choose_many("aaaaa")
        assert (half.state, half.epoch) == (SchedulerState.RUN, epoch if resync else 1)
        half.choose_many("a")
        assert (half.state, half.epoch) == ((SchedulerState.SEND_ALL, epoch + 1) if resync else (SchedulerState.RUN, 1))


def test_pooled_sketches_price_alike_at_all_tasks() -> None:
    half = osg(itself, pooled=True).bind(2, Random(0))
    half.hear(0, matrices(a=10), 0)
    assert half.state is SchedulerState.ROUND_ROBIN
    half.hear(1, matrices(a=30), 0)
    half.choose_many("aa")
    assert half._cumulated_ns == [20.0, 20.0]


def test_a_reply_may_count_idle_time() -> None:
    half = osg(itself, idle_counts=True).bind_receiver(0, 2, 1, Random(0))
    half.executed(0, 1, None, 10, 0, 10)
    half.executed(0, 1, Sync(1, 20.0), 10, 0, 100)
    assert half.outbox == [(0, Reply(1, -20.0, 1.0))], "the time is added by the sender"
    shared = osg(itself, idle_counts=True).bind_receiver(0, 2, 4, Random(0))
    shared.executed(2, 1, Sync(1, 20.0), 10, 0, 100)
    assert shared.outbox == [(2, Reply(1, -20.0, 0.25))], "each of four senders answers for a quarter"


def test_osg_needs_a_key_and_names_a_tuple_without() -> None:
    with pytest.raises(TopologyError, match="a grouping needs a key and has none: grouping=osg"):
        osg()
    with pytest.raises(LookupError, match=r"a tuple has no such key: grouping=osg key='user' tuple=\{'usr': 1\}"):
        osg("user").bind(2, Random(0)).choose_many([{"usr": 1}])
    with pytest.raises(OptionError, match="osg needs window >= 1, a whole number, and tolerance >= 0: window=0"):
        osg("user", window=0)


# -- our estimator


def test_a_frequent_item_has_its_own_price_and_a_new_one_the_mean() -> None:
    table = CostTable(1, 100)
    for _ in range(20):
        table.add(1, 0, 10)
        table.add(2, 0, 30)
    assert table.estimate(1) == pytest.approx(10, rel=0.01)
    assert table.estimate(99) == pytest.approx(20, rel=0.1)


def test_noise_draws_estimates_to_the_mean() -> None:
    """Two samples of pure noise say little about an item; two without noise say all."""
    rng = Random(5)
    noisy, exact = CostTable(1, 1_000), CostTable(1, 1_000)
    for index in range(4_000):
        item = index % 200
        noisy.add(item, 0, rng.uniform(0, 200))
        exact.add(item, 0, 1 + item)
    for _ in range(2):
        noisy.add(7_777, 0, 200)
        exact.add(7_777, 0, 200)
    assert noisy.estimate(7_777) < 120
    assert exact.estimate(7_777) == pytest.approx(200, rel=0.05)


def test_a_cost_that_changes_is_learnt_anew() -> None:
    table = CostTable(1, 100)
    for _ in range(1_000):
        table.add(1, 0, 10)
        table.add(2, 0, 50)
    for _ in range(300):
        table.add(1, 0, 40)
        table.add(2, 0, 50)
    assert table.estimate(1) == pytest.approx(40, rel=0.1)


def test_the_speed_of_a_task_is_told_from_the_cost_of_items() -> None:
    table = CostTable(3, 100)
    rng = Random(2)
    for _ in range(3_000):
        item, task = rng.randrange(1, 20), rng.randrange(3)
        table.add(item, task, 10 * item * (1, 1, 4)[task])
    assert table.slowness(2) / table.slowness(0) == pytest.approx(4, rel=0.1)
    assert table.estimate(7) / table.estimate(14) == pytest.approx(0.5, rel=0.1)


def test_a_table_is_bounded_and_keeps_what_is_frequent() -> None:
    table = CostTable(1, 64)
    for index in range(20_000):
        table.add(index % 8, 0, 1)
        table.add(1_000 + index, 0, 100)
        assert len(table) <= 64
    assert all(table.estimate(item) < 5 for item in range(8))
