"""A simulated worker that sends: what an order of sending can change, and what it cannot."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tailrace.errors import OptionError
from tailrace.policy import SendScheduler, fifo, lbf, lbf_work, round_robin
from tailrace_research.bench.tail.send.bursts import MOST_TUPLES, TASKS, Bursts, draw_bursts, home
from tailrace_research.bench.tail.send.node_uplink import FIRST_COME, NODE, SPLIT, simulate_node
from tailrace_research.bench.tail.send.worker_uplink import SendingResult, simulate_sending

CONSERVING = [lbf(), lbf_work(20), fifo(), round_robin()]


@pytest.fixture(scope="module")
def bursts() -> Bursts:
    return draw_bursts(seed=3, tuples=1_700, slot_ns=750_000)


def send(bursts: Bursts, scheduler: SendScheduler, **changes: Any) -> SendingResult:
    settings: dict[str, Any] = {"most_tuples": MOST_TUPLES, "rng": Random(1), **changes}
    link = {"size": bursts.tuple_bytes, "bytes_per_s": bursts.bytes_per_s}
    return simulate_sending(scheduler, bursts.due_ns, **link, **settings)


@pytest.mark.parametrize("settings", [{}, {"most_tuples": 10_000}, {"most_tuples": 40, "most_inputs": 16}])
def test_no_order_that_never_rests_changes_the_mean(bursts: Bursts, settings: dict[str, Any]) -> None:
    """By Little's law, and bounds do not change it."""
    means = [send(bursts, scheduler, **settings).mean_ns for scheduler in CONSERVING]
    assert max(means) == pytest.approx(min(means), rel=1e-9)
    assert means[0] > 10_000_000, "nothing waits"


def test_the_order_decides_who_waits_and_how_large_backlogs_get(bursts: Bursts) -> None:
    largest_first, first_in, turns = (send(bursts, scheduler) for scheduler in (lbf(), fifo(), round_robin()))
    assert max(largest_first.largest) < 0.5 * min(max(first_in.largest), max(turns.largest))
    assert sum(largest_first.blocked_ns) == 0 < sum(first_in.blocked_ns) < sum(turns.blocked_ns)
    assert largest_first.slowest_mean_ns < first_in.slowest_mean_ns < turns.slowest_mean_ns
    assert turns.blocked_ns[1:] == [0] * (TASKS - 1), "only the task that bursts is held back"
    others = [[sum(one) / len(one) for one in result.latencies_ns[1:]] for result in (largest_first, first_in)]
    assert all(mine > fair for mine, fair in zip(*others, strict=True)), "those who send little pay for it"


def test_wasted_turns_are_what_costs(bursts: Bursts) -> None:
    plain_ns = send(bursts, lbf()).mean_ns
    assert send(bursts, lbf(interval_ms=10)).mean_ns > 1.3 * plain_ns
    assert send(bursts, lbf(interval_ms=50)).mean_ns > 3 * plain_ns
    assert send(bursts, round_robin(skip_empty=False)).mean_ns > 5 * plain_ns


@pytest.mark.parametrize("scheduler", [*CONSERVING, lbf(interval_ms=20)], ids=lambda s: f"{s.name}_{s.interval_ns}")
def test_every_tuple_is_sent_once_and_no_faster_than_the_link(bursts: Bursts, scheduler: SendScheduler) -> None:
    result = send(bursts, scheduler)
    assert [len(one) for one in result.latencies_ns] == [len(one) for one in bursts.due_ns]
    assert max(result.largest) <= MOST_TUPLES
    assert min(map(min, result.latencies_ns)) >= 0


def test_a_source_that_stops_for_all_holds_up_those_who_have_room() -> None:
    """Two tasks; the first may have one tuple in its queue and one at its input, then the source waits for it."""
    due_ns = [[0] * 40, [1]]
    free, held = (
        simulate_sending(
            round_robin(), due_ns, size=1_000, bytes_per_s=100_000, most_tuples=1, rng=Random(1), most_inputs=most
        )
        for most in (None, 1)
    )
    assert free.latencies_ns[1][0] < 50_000_000 < 300_000_000 < held.latencies_ns[1][0]


def test_nothing_to_send() -> None:
    with pytest.raises(OptionError, match="nothing would ever be sent: tasks=2: is any list of due times not empty"):
        simulate_sending(lbf(), [[], []], size=1, bytes_per_s=1, most_tuples=1, rng=Random(1))


def share(bursts: Bursts, sharing: str, scheduler: SendScheduler, workers: int = 2) -> SendingResult:
    link = {"size": bursts.tuple_bytes, "bytes_per_s": bursts.bytes_per_s, "most_tuples": MOST_TUPLES}
    return simulate_node(sharing, scheduler, bursts.due_ns, home(workers), **link, seed=1)


@pytest.mark.parametrize("scheduler", CONSERVING, ids=lambda scheduler: scheduler.name)
def test_workers_that_share_a_link_by_one_order_send_as_one_would(bursts: Bursts, scheduler: SendScheduler) -> None:
    """The mean is that of one worker with all tasks; what each has to itself is idle while the other would use it."""
    alone, together, halves = send(bursts, scheduler), share(bursts, NODE, scheduler), share(bursts, SPLIT, scheduler)
    assert together.mean_ns == pytest.approx(alone.mean_ns, rel=1e-9)
    assert max(together.largest) == pytest.approx(max(alone.largest), abs=2)  # ties may fall otherwise
    assert halves.mean_ns > 1.5 * together.mean_ns
    assert [len(one) for one in halves.latencies_ns] == [len(one) for one in bursts.due_ns]


def test_who_comes_first_uses_all_of_the_link_and_has_the_wrong_queue_grow(bursts: Bursts) -> None:
    first_come, together = share(bursts, FIRST_COME, lbf()), share(bursts, NODE, lbf())
    assert first_come.mean_ns == pytest.approx(together.mean_ns, rel=1e-9)
    assert max(first_come.largest) > 1.5 * max(together.largest)
    assert first_come.slowest_mean_ns > 1.2 * together.slowest_mean_ns


def test_a_way_to_share_that_is_none(bursts: Bursts) -> None:
    with pytest.raises(OptionError) as refusal:
        share(bursts, "halves", lbf())
    assert str(refusal.value) == "no such way to share a link: sharing=halves: did you mean 'node'?"
