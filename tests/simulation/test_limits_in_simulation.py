"""Limits on virtual time, from seeds: many clients, services that refuse calls, costs that are settled."""

from __future__ import annotations

from random import Random

import pytest

from kit.limits import LimitSimulation
from tailrace.calls.limit import Limit
from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS

EXCESS = 1.05


class Refusing:
    """A service that answers so many calls in each second of its own clock, and refuses the rest."""

    def __init__(self, per_s: float, retry_after_s: float = 0.0) -> None:
        self._per_s = per_s
        self._retry_after_s = retry_after_s
        self._seconds: dict[int, int] = {}
        self.refused = self.answered = 0

    def __call__(self, now_ns: int) -> float | None:
        second = now_ns // SECOND_NS
        self._seconds[second] = self._seconds.get(second, 0) + 1
        if self._seconds[second] > self._per_s:
            self.refused += 1
            return self._retry_after_s
        self.answered += 1
        return None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("per_s", "clients"), [(20, 3), (200, 50), (2000, 3), (2000, 60)])
def test_many_clients_keep_and_use_the_limit(per_s: float, clients: int, seed: int) -> None:
    simulation = LimitSimulation(Limit("api", per_s=per_s), clients, seed, latency_ns=200 * MICROSECOND_NS)
    rng = Random(seed)
    for client in range(clients):
        simulation.keep_busy(client, 64)
        if client % 3 == 1:
            simulation.kill(rng.uniform(0, 8), client)
        if client % 3 == 2:
            simulation.hold_up(rng.uniform(0, 8), client, rng.uniform(0, 0.3))
    simulation.run(8)
    assert simulation.most_in(1.0) <= EXCESS * per_s + 1
    assert simulation.units(2, 8) >= 0.9 * 6 * per_s
    longest = max(client.used for client in simulation.clients if client.alive)
    assert min(client.used for client in simulation.clients if client.alive) >= 0.8 * longest - 2


@pytest.mark.parametrize("seed", range(3))
def test_a_call_does_not_wait_for_a_round_trip_while_there_is_slack(seed: int) -> None:
    simulation = LimitSimulation(Limit("api", per_s=2000), 3, seed)
    for _ in range(3000):
        simulation.arrive(simulation.rng.uniform(3, 13), simulation.rng.randrange(3))
    simulation.run(14)
    waits_ns = sorted(wait_ns for client in simulation.clients for wait_ns in client.waits_ns)
    assert len(waits_ns) == 3000
    assert waits_ns[int(0.99 * 3000)] == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_limit_that_was_declared_too_high_finds_what_the_service_answers(seed: int) -> None:
    service = Refusing(per_s=100)
    simulation = LimitSimulation(Limit("api", per_s=300), 4, seed, service=service)
    for client in range(4):
        simulation.keep_busy(client, 64)
    simulation.run(20)
    service.refused = service.answered = 0
    simulation.run(60)
    assert service.answered >= 0.85 * 40 * 100
    assert service.refused <= 0.25 * service.answered  # they raise the pace by 5% of 300 each second, to find out


@pytest.mark.parametrize("seed", range(3))
def test_a_service_that_refuses_everything_is_left_alone_for_the_time_it_asks_for(seed: int) -> None:
    closed_from_ns = closed_until_ns = 0

    def service(now_ns: int) -> float | None:
        return 3.0 if closed_from_ns <= now_ns < closed_until_ns else None

    simulation = LimitSimulation(Limit("api", per_s=200), 3, seed, service=service)
    closed_from_ns, closed_until_ns = (simulation.begun_ns + second * SECOND_NS for second in (5, 8))
    for client in range(3):
        simulation.keep_busy(client, 64)
    simulation.run(32)
    assert simulation.units(5.7, 8.4) == 0  # after half a second, for the three seconds that it asks for
    assert simulation.units(9.2, 10.2) >= 0.2 * 200  # it has been halved twice
    assert simulation.units(26, 31) >= 0.9 * 5 * 200
    assert simulation.most_in(1.0) <= EXCESS * 200 + 1


@pytest.mark.parametrize("seed", range(3))
def test_costs_that_are_settled_keep_the_rate_of_what_is_used(seed: int) -> None:
    """Calls use half of what they were thought to cost, on average: twice as many are made."""
    used: list[float] = []

    def settle(cost: float, rng: Random) -> float:
        used.append(cost * rng.uniform(0.1, 0.9))
        return used[-1]

    simulation = LimitSimulation(
        Limit("model", per_minute=60_000), 3, seed, settle=settle, call_ns=100 * MILLISECOND_NS
    )
    for _ in range(4000):
        simulation.arrive(
            simulation.rng.uniform(0, 1), simulation.rng.randrange(3), cost=simulation.rng.uniform(20, 60)
        )
    simulation.run(32)
    before = len(used)
    simulation.run(62)
    assert 0.9 * 30 * 1000 <= sum(used[before:]) <= EXCESS * 30 * 1000


@pytest.mark.parametrize("seed", range(3))
def test_hedges_take_only_what_is_left(seed: int) -> None:
    simulation = LimitSimulation(Limit("api", per_s=100), 3, seed)
    for client in range(3):
        simulation.keep_busy(client, 64, from_s=6, until_s=12)
    for _ in range(2000):
        simulation.hedge(simulation.rng.uniform(0, 12), simulation.rng.randrange(3))
    simulation.run(6)
    assert simulation.hedges > 100
    before = simulation.hedges
    simulation.run(12)
    assert simulation.hedges <= before + 6  # those that were made before clients heard that calls wait
    assert simulation.most_in(1.0) <= EXCESS * 100 + 1
