"""The laws of a limit, for any arrivals, clients, delays, deaths and hold-ups, at the moment of use."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kit.limits import LimitSimulation
from tailrace.calls.limit import Limit
from tailrace.calls.limits.fair_queue import FairQueue
from tailrace.clock import MILLISECOND_NS

EXCESS = 1.05
TIMES = st.floats(0, 4)
RATES = st.sampled_from([0.5, 1, 3, 10, 20, 55, 100, 200, 400])


@st.composite
def troubles(draw: st.DrawFn) -> dict[str, Any]:
    """How many clients there are, when calls come to them, and what happens to them."""
    clients = draw(st.integers(1, 6))
    which = st.integers(0, clients - 1)
    return {
        "clients": clients,
        "seed": draw(st.integers(0, 1 << 32)),
        "latency_ns": draw(st.sampled_from([0, MILLISECOND_NS // 10, MILLISECOND_NS, 20 * MILLISECOND_NS])),
        "jitter_ns": draw(st.sampled_from([0, MILLISECOND_NS // 10, MILLISECOND_NS])),
        "call_ns": draw(st.sampled_from([0, MILLISECOND_NS, 30 * MILLISECOND_NS])),
        "bursts": draw(st.lists(st.tuples(TIMES, which, st.integers(1, 60)), max_size=8)),
        "busy": draw(st.lists(st.tuples(which, st.integers(1, 20), TIMES), max_size=4)),
        "hedges": draw(st.lists(st.tuples(TIMES, which), max_size=20)),
        "kills": draw(st.lists(st.tuples(TIMES, which), max_size=3, unique_by=lambda kill: kill[1])),
        "cuts": draw(st.lists(st.tuples(TIMES, which, st.floats(0, 1), st.floats(0, 0.1)), max_size=4)),
        "hold_ups": draw(st.lists(st.tuples(TIMES, which, st.floats(0, 1)), max_size=4)),
    }


def simulated(limit: Limit, trouble: dict[str, Any], **more: Any) -> LimitSimulation:
    timing = {name: trouble[name] for name in ("latency_ns", "jitter_ns", "call_ns")}
    simulation = LimitSimulation(limit, trouble["clients"], trouble["seed"], **timing, **more)
    for at_s, client, count in trouble["bursts"]:
        for _ in range(count):
            simulation.arrive(at_s, client)
    for client, concurrency, from_s in trouble["busy"]:
        simulation.keep_busy(client, concurrency, from_s, until_s=5)
    for at_s, client in trouble["hedges"]:
        simulation.hedge(at_s, client)
    for at_s, client in trouble["kills"]:
        simulation.kill(at_s, client)
    for at_s, client, for_s, joins_s in trouble["cuts"]:
        simulation.cut(at_s, client, for_s, joins_s)
    for at_s, client, for_s in trouble["hold_ups"]:
        simulation.hold_up(at_s, client, for_s)
    return simulation


@settings(deadline=None, max_examples=150)
@given(per_s=RATES, trouble=troubles())
def test_no_second_has_more_than_the_limit(per_s: float, trouble: dict[str, Any]) -> None:
    simulation = simulated(Limit("api", per_s=per_s), trouble)
    simulation.run(7)
    assert simulation.most_in(1.0) <= EXCESS * per_s + 1


@settings(deadline=None, max_examples=50)
@given(per_minute=st.sampled_from([6, 60, 600, 6000]), trouble=troubles())
def test_no_minute_has_more_than_the_limit(per_minute: float, trouble: dict[str, Any]) -> None:
    simulation = simulated(Limit("api", per_minute=per_minute), trouble)
    for client in range(trouble["clients"]):
        simulation.keep_busy(client, 20, from_s=5)
    simulation.run(75)
    assert simulation.most_in(60.0) <= EXCESS * per_minute + 1


@settings(deadline=None, max_examples=100)
@given(concurrency=st.integers(1, 20), per_s=st.one_of(st.none(), RATES), trouble=troubles())
def test_no_more_calls_are_under_way_than_the_limit(
    concurrency: int, per_s: float | None, trouble: dict[str, Any]
) -> None:
    """A call of a dead client ends with it, but the driver hears of its death some time later. Calls that were under
    way when their connection was cut are not counted."""
    trouble["kills"] = []
    if per_s is None:  # calls that take no time would follow each other for ever, at one moment
        trouble["call_ns"] = 30 * MILLISECOND_NS
    simulation = simulated(Limit("api", per_s=per_s, concurrency=concurrency), trouble)
    simulation.run(7)
    assert simulation.most_under_way <= concurrency


@settings(deadline=None, max_examples=100)
@given(
    per_s=st.sampled_from([3, 20, 100, 400]),
    concurrency=st.one_of(st.none(), st.integers(1, 20)),
    trouble=troubles(),
)
def test_every_call_of_a_living_client_is_made(per_s: float, concurrency: int | None, trouble: dict[str, Any]) -> None:
    trouble["busy"] = []
    trouble["bursts"] = [(at_s, client, min(count, 20)) for at_s, client, count in trouble["bursts"]]
    simulation = simulated(Limit("api", per_s=per_s, concurrency=concurrency), trouble)
    calls = sum(count for _, _, count in trouble["bursts"])
    simulation.run(8 + 2 * (calls + 20) / per_s + 0.2 * calls)
    left = {client.number: len(client.starts) for client in simulation.clients if client.alive and client.starts}
    assert not left


@settings(deadline=None, max_examples=60)
@given(
    per_s=st.sampled_from([5, 20, 100, 400]),
    clients=st.integers(1, 8),
    seed=st.integers(0, 1 << 32),
    kills=st.lists(st.floats(0, 12), max_size=3),
)
def test_nearly_all_of_the_limit_is_used_while_there_is_work(
    per_s: float, clients: int, seed: int, kills: list[float]
) -> None:
    simulation = LimitSimulation(Limit("api", per_s=per_s), clients, seed)
    for client in range(clients):
        simulation.keep_busy(client, 30)
    for client, at_s in zip(range(1, clients), kills, strict=False):
        simulation.kill(at_s, client)
    simulation.run(13)
    assert simulation.units(2, 12) >= 0.9 * 10 * per_s


@settings(deadline=None, max_examples=60)
@given(clients=st.integers(2, 10), seed=st.integers(0, 1 << 32), hungry=st.integers(30, 300))
def test_clients_that_always_wait_are_given_the_same(clients: int, seed: int, hungry: int) -> None:
    simulation = LimitSimulation(Limit("api", per_s=50), clients, seed)
    simulation.keep_busy(0, hungry)  # it asks for far more than the others, and first
    for client in range(1, clients):
        simulation.keep_busy(client, 15, from_s=0.01)
    simulation.run(12)
    used = [client.used for client in simulation.clients]
    assert max(used) - min(used) <= 0.1 * max(used) + 4


@given(
    asked=st.lists(st.tuples(st.integers(0, 4), st.floats(0.1, 5)), max_size=60),
    leaving=st.integers(0, 4),
)
def test_the_queue_gives_each_client_its_costs_in_order(asked: list[tuple[int, float]], leaving: int) -> None:
    queue = FairQueue()
    for client, cost in asked:
        queue.add(client, [cost])
    queue.leave(leaving)
    given_out: dict[int, list[float]] = {}
    while (head := queue.next()) is not None:
        given_out.setdefault(head[0], []).append(head[1])
        waiting = {client for client, _ in asked if client != leaving and queue.waiting(client)}
        totals = [sum(given_out.get(client, [])) for client in waiting]
        assert max(totals) - min(totals) <= 5 + 5  # the largest cost, before and after
        queue.pop()
    expected: dict[int, list[float]] = {}
    for client, cost in asked:
        if client != leaving:
            expected.setdefault(client, []).append(cost)
    assert given_out == expected
