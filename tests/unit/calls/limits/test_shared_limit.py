"""A limit on the driver and its clients, request by request."""

from __future__ import annotations

import pytest

from tailrace.calls.limit import Limit
from tailrace.calls.limits.declared import check_alike, divided
from tailrace.calls.limits.holder import Holder, Lateness
from tailrace.calls.limits.messages import UNSHARED, Reply, Request
from tailrace.calls.limits.shared import ADVANCE, VALID_NS, SharedLimit
from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.errors import OptionError

LATER_NS = 10 * SECOND_NS  # after the ramp


def settled(limit: Limit, clients: int = 1) -> SharedLimit:
    shared = SharedLimit(limit, 0)
    for client in range(clients):
        shared.join(client, 0, 0)
    shared.step(LATER_NS)
    return shared


def test_units_that_were_not_used_are_given_back() -> None:
    shared = settled(Limit("model", per_s=100))
    shared.handle(0, Request(wants=(50.0, 1.0)), LATER_NS)
    ((_, reply),) = shared.step(LATER_NS)
    assert reply.granted == 1
    shared.handle(0, Request(settled=-49.0), LATER_NS)
    ((_, reply),) = shared.step(LATER_NS)
    assert reply.granted == 1


def test_units_that_were_used_beyond_the_cost_are_charged() -> None:
    shared = settled(Limit("model", per_s=100))
    shared.handle(0, Request(settled=97.0), LATER_NS)
    shared.handle(0, Request(wants=(1.0,)), LATER_NS)
    assert not [reply for _, reply in shared.step(LATER_NS + SECOND_NS // 2) if reply.granted]
    assert [reply.granted for _, reply in shared.step(LATER_NS + 2 * SECOND_NS)] == [1]


def test_a_cost_above_what_is_saved_up_is_granted_and_paid_for_afterwards() -> None:
    shared = settled(Limit("model", per_minute=60))
    shared.handle(0, Request(wants=(10.0, 1.0)), LATER_NS)
    assert [reply.granted for _, reply in shared.step(LATER_NS)] == [1]
    assert not [reply for _, reply in shared.step(LATER_NS + 9 * SECOND_NS) if reply.granted]
    assert [reply.granted for _, reply in shared.step(LATER_NS + 11 * SECOND_NS)] == [1]


def test_spare_units_are_granted_only_if_nothing_waits() -> None:
    shared = settled(Limit("api", per_s=20), clients=2)
    shared.handle(0, Request(spare=1.0), LATER_NS)
    assert [(client, reply.spare) for client, reply in shared.step(LATER_NS)] == [(0, 1.0)]
    now_ns = LATER_NS + SECOND_NS
    shared.handle(1, Request(wants=(1.0, 1.0)), now_ns)
    shared.step(now_ns)
    now_ns += SECOND_NS // 20  # not quite enough for the one that waits
    shared.handle(0, Request(spare=1.0), now_ns)
    assert not [reply for _, reply in shared.step(now_ns) if reply.spare]


def test_clients_share_what_may_be_used_in_advance_and_lose_it_when_the_service_refuses_calls() -> None:
    shared = settled(Limit("api", per_s=1000))
    (_, alone), *_ = shared.step(LATER_NS + SECOND_NS, all_clients=True)
    assert alone.advance == ADVANCE * 1000
    now_ns = LATER_NS + 2 * SECOND_NS
    shared.join(1, 0, now_ns)
    assert {client: reply.advance for client, reply in shared.step(now_ns, all_clients=True)} == {0: 7.5, 1: 0.0}
    now_ns += SECOND_NS
    assert {client: reply.advance for client, reply in shared.step(now_ns, all_clients=True)} == {0: 7.5, 1: 7.5}
    shared.handle(0, Request(attempts=1, throttled=1, retry_after_s=5.0), now_ns)
    assert {client: reply.advance for client, reply in shared.step(now_ns)} == {0: 0.0, 1: 0.0}
    assert shared.next_ns == now_ns + 5 * SECOND_NS


def test_permits_of_a_client_that_leaves_go_to_those_that_wait() -> None:
    shared = settled(Limit("api", concurrency=2), clients=3)
    shared.handle(0, Request(permits=2), LATER_NS)
    assert [(client, reply.permits) for client, reply in shared.step(LATER_NS)] == [(0, 2)]
    shared.handle(1, Request(permits=1), LATER_NS)
    shared.handle(2, Request(permits=1), LATER_NS)
    told = {client: (reply.permits, reply.share) for client, reply in shared.step(LATER_NS)}
    assert told == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
    shared.leave(0, LATER_NS)
    assert {client: reply.permits for client, reply in shared.step(LATER_NS)} == {1: 1, 2: 1}


def test_permits_in_use_are_known_after_a_connection_was_lost() -> None:
    shared = SharedLimit(Limit("api", concurrency=3), 0)
    shared.join(0, 2, 0)
    shared.handle(0, Request(permits=2), LATER_NS)
    assert [reply.permits for _, reply in shared.step(LATER_NS)] == [1]


def test_a_concurrency_without_a_rate_shrinks_when_the_service_refuses_calls() -> None:
    shared = settled(Limit("api", concurrency=10))
    shared.handle(0, Request(permits=10), LATER_NS)
    assert [reply.permits for _, reply in shared.step(LATER_NS)] == [10]
    shared.handle(0, Request(attempts=10, throttled=4), LATER_NS)
    told = [reply.share for _, reply in shared.step(LATER_NS + SECOND_NS // 2)]
    assert told == [9]


def granted(holder: Holder, now_ns: int, **fields: object) -> int:
    """Give the holder a reply of now, and count the calls that start."""
    holder.replied(Reply(now_ns, **fields), now_ns)  # type: ignore[arg-type]
    return len(holder.startable(now_ns))


def test_a_client_uses_a_few_units_before_it_asks_and_asks_for_them_afterwards() -> None:
    holder = Holder(Limit("api", per_s=1000))
    granted(holder, 0, advance=2.5)
    for _ in range(4):
        holder.wait(1.0)
    assert len(holder.startable(0)) == 2
    request = holder.request(0)
    assert request is not None
    assert request.wants == (2.0, 1.0, 1.0)
    assert holder.request(0) is None
    assert granted(holder, 0, granted=1, advance=2.5) == 2
    assert not holder.waits


def test_grants_that_come_too_late_are_asked_for_again() -> None:
    holder = Holder(Limit("api", per_s=10))
    granted(holder, 0)
    holder.wait(1.0)
    assert holder.request(0) is not None
    holder.replied(Reply(0, granted=1), VALID_NS + MILLISECOND_NS)
    assert holder.startable(VALID_NS + MILLISECOND_NS) == []
    request = holder.request(VALID_NS + MILLISECOND_NS)
    assert request is not None
    assert request.wants == (1.0,)


def test_a_constant_delay_is_not_late() -> None:
    late = Lateness()
    for second in range(5):
        late.heard(second * SECOND_NS, (second + 3600) * SECOND_NS + 80 * MILLISECOND_NS)
    assert late.ns(5 * SECOND_NS, (5 + 3600) * SECOND_NS + 81 * MILLISECOND_NS) == pytest.approx(1e6, rel=0.2)


def test_a_hedge_takes_nothing_while_a_call_waits_here_or_elsewhere() -> None:
    holder = Holder(Limit("api", per_s=1000))
    granted(holder, 0, advance=2.0, busy=True)
    assert not holder.start_hedge(1.0, 0)
    granted(holder, 0, advance=2.0)
    assert holder.start_hedge(1.0, 0)
    for _ in range(2):
        holder.wait(1.0)
    holder.startable(0)
    assert holder.waits
    assert not holder.start_hedge(0.0, 0)


def test_a_hedge_without_units_asks_for_spare_ones() -> None:
    holder = Holder(Limit("api", per_s=20, concurrency=3))
    granted(holder, 0)
    assert not holder.start_hedge(1.0, 0)
    request = holder.request(0)
    assert request == Request(spare=1.0, permits=1)
    holder.replied(Reply(0, spare=1.0, permits=1), 0)
    assert holder.start_hedge(1.0, 0)


def test_permits_are_kept_while_there_are_enough_and_given_back_when_they_are_scarce() -> None:
    holder = Holder(Limit("api", concurrency=8))
    for _ in range(4):
        holder.wait(1.0)
    assert holder.request(0) == Request(permits=4)
    assert granted(holder, 0, permits=4) == 4
    holder.ended(1.0, None)
    assert holder.request(0) is None
    holder.replied(Reply(0, share=2), 0)
    assert holder.request(0) == Request(returned=1, attempts=4)
    holder.ended(1.0, None)
    assert holder.request(0) == Request(returned=1)
    holder.wait(1.0)
    assert holder.startable(0) == []
    holder.ended(1.0, None)
    assert len(holder.startable(0)) == 1
    assert holder.in_use == 2


def test_two_declarations_under_one_name_are_refused_with_both() -> None:
    first, second = Limit("api", per_s=50, concurrency=8), Limit("api", per_s=20)
    check_alike(first, Limit("api", per_s=50.0, concurrency=8))
    check_alike(first, Limit("other", per_s=20))
    text = r"two limits of one name: limit=api first=\(per_s=50, concurrency=8\) second=\(per_s=20\): did you mean"
    with pytest.raises(OptionError, match=text):
        check_alike(first, second)


def test_a_divided_limit_keeps_a_permit_for_each_task() -> None:
    assert divided(Limit("api", 50, 600, 8), 4) == Limit("api", 12.5, 150, 2)
    assert divided(Limit("api", concurrency=2), 4).concurrency == 1


def test_nothing_is_scarce_at_first() -> None:
    assert Reply(0).share == UNSHARED
