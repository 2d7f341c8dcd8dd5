"""Permits of a client whose connection is cut: none is lost, and none is used twice."""

from __future__ import annotations

import pytest

from kit.limits import LimitSimulation
from tailrace.calls.limit import Limit
from tailrace.calls.limits.holder import Holder
from tailrace.calls.limits.messages import Reply, Request
from tailrace.clock import MILLISECOND_NS

CALL_NS = 30 * MILLISECOND_NS


@pytest.mark.parametrize("seed", range(5))
def test_calls_that_end_while_their_client_connects_leave_their_permits_to_others(seed: int) -> None:
    simulation = LimitSimulation(Limit("api", concurrency=4), 2, seed, call_ns=CALL_NS)
    for client in range(2):
        simulation.keep_busy(client, 8, until_s=3)
        simulation.cut(1.0, client, for_s=0.0, joins_s=0.1)  # longer than all calls that it has told of
    simulation.run(4)
    assert simulation.units(2, 3) > 50, "it goes on"
    assert not any(client.starts for client in simulation.clients)
    assert all(client.holder.in_use == 0 for client in simulation.clients)
    simulation.keep_busy(0, 8, from_s=4)
    simulation.run(6)
    assert simulation.under_way == 4, "all permits are there"


@pytest.mark.parametrize("seed", range(5))
def test_a_client_that_was_cut_off_uses_no_permit_that_others_have_now(seed: int) -> None:
    simulation = LimitSimulation(Limit("api", concurrency=4), 2, seed, call_ns=CALL_NS)
    for client in range(2):
        simulation.keep_busy(client, 8, until_s=3)
    simulation.cut(1.0, 0, for_s=0.5)
    simulation.cut(2.0, 0, for_s=0.01)
    simulation.run(4)
    assert simulation.most_under_way == 4, "besides the calls that were under way when it was cut off"
    assert not any(client.starts for client in simulation.clients)


def started(holder: Holder) -> int:
    return len(holder.startable(0))


def holder_with_calls(count: int) -> Holder:
    holder = Holder(Limit("api", concurrency=8))
    for _ in range(count):
        holder.wait(1.0)
    holder.request(0)
    holder.replied(Reply(0, permits=count), 0)
    assert started(holder) == count
    return holder


def test_a_permit_is_not_used_again_without_a_connection() -> None:
    holder = holder_with_calls(2)
    holder.disconnected()
    holder.wait(1.0)
    holder.ended(1.0, None)
    assert started(holder) == 0


def test_permits_of_calls_that_have_ended_since_the_driver_was_told_are_given_back() -> None:
    holder = holder_with_calls(3)
    holder.disconnected()
    holder.ended(1.0, None)
    holder.ended(1.0, None)
    holder.connected(3, 0, 0)
    assert holder.in_a_hurry
    assert holder.request(0) == Request(returned=2, attempts=3)
    holder.ended(1.0, None)
    assert holder.request(0) == Request(returned=1)


def test_calls_of_which_the_driver_was_not_told_leave_no_permit() -> None:
    """They began by a limit of the client's own while the connection was being made."""
    holder = holder_with_calls(3)
    holder.disconnected()
    holder.connected(1, 0, 0)
    for _ in range(3):
        holder.ended(1.0, None)
    assert holder.request(0) == Request(returned=1, attempts=3)
    holder.wait(1.0)
    assert started(holder) == 0
