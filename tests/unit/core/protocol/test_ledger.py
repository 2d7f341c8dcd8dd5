"""The ledger, one decision at a time."""

from __future__ import annotations

from random import Random

import pytest

from tailrace.core.protocol.ledger import SLOW_FACTOR, Ledger, LedgerLimits, Root

TIMEOUT_NS = 1_000


@pytest.fixture
def ledger() -> Ledger:
    return Ledger({0: 0}, LedgerLimits(10, TIMEOUT_NS), Random(1))


def emit(ledger: Ledger, root: Root, ids: int, now_ns: int) -> int:
    emission = ledger.emit(root, now_ns)
    ledger.arm(emission, ids, now_ns)
    return emission


def test_two_incarnations_do_not_share_a_register(ledger: Ledger) -> None:
    root = ledger.admit(0, 0, "a", 1)
    first, second = emit(ledger, root, 5, 1), emit(ledger, root, 9, 2)
    ledger.apply_both({first: 9, second: 5}, 3)  # each gets what the other waits for
    assert not root.durable and not root.complete_ns
    ledger.apply_both({second: 9 ^ 5}, 4)
    assert root.durable and root.complete_ns == 4


def test_a_root_is_done_when_its_last_part_was_in_whatever_order_that_is_heard(ledger: Ledger) -> None:
    root = ledger.admit(0, 0, "a", 1)
    emission = emit(ledger, root, 5, 1)
    ledger.apply_both({emission: 3}, 20)
    ledger.apply_both({emission: 5 ^ 3}, 10)
    assert root.durable and root.complete_ns == 20
    assert (ledger.complete_latency.max, ledger.durable_latency.max) == (19, 19)


def test_acks_for_an_incarnation_that_lost_the_race_mean_nothing(ledger: Ledger) -> None:
    root = ledger.admit(0, 0, "a", 1)
    first, second = emit(ledger, root, 5, 1), emit(ledger, root, 9, 2)
    ledger.apply_both({second: 9}, 3)
    ledger.apply_both({first: 5}, 4)
    ledger.validate()
    assert (root.complete_ns, ledger.pending, ledger.durable_latency.count) == (3, 0, 1)


def test_an_emission_that_sends_nothing_is_durable_at_once(ledger: Ledger) -> None:
    root = ledger.admit(0, 0, "a", 1)
    emit(ledger, root, 0, 2)
    assert root.durable and ledger.uncommitted() == {0: (1, "a")}


def test_complete_is_not_durable(ledger: Ledger) -> None:
    root = ledger.admit(0, 0, "a", 1)
    emission = emit(ledger, root, 5, 1)
    ledger.apply_both({emission: 5 ^ 3}, 2)
    assert not ledger.waits_for_commit
    ledger.apply_complete({emission: 3}, 3)
    assert root.complete_ns == 3 and not root.durable and ledger.waits_for_commit
    assert ledger.uncommitted() == {} and ledger.unfinished() == [root]
    ledger.apply_durable({emission: 3}, 4)
    assert root.durable and not ledger.waits_for_commit


def test_a_gap_holds_the_prefix_back(ledger: Ledger) -> None:
    roots = [ledger.admit(0, offset, offset, 1) for offset in (0, 4, 7)]
    emissions = [emit(ledger, root, 5, 1) for root in roots]
    ledger.apply_both({emissions[1]: 5, emissions[2]: 5}, 2)
    assert ledger.uncommitted() == {} and ledger.pending == 3
    ledger.apply_both({emissions[0]: 5}, 3)
    assert ledger.uncommitted() == {0: (8, 7)} and ledger.pending == 0


def test_a_commit_that_arrives_late_does_not_move_back(ledger: Ledger) -> None:
    for offset in (0, 1):
        emit(ledger, ledger.admit(0, offset, offset, 1), 0, 1)
    ledger.committed(0, 2)
    ledger.committed(0, 1)
    ledger.committed(99, 1)  # a split of another ledger
    assert ledger.settled


def test_the_backstop_doubles_its_patience(ledger: Ledger) -> None:
    root = ledger.admit(0, 0, "a", 1)
    emit(ledger, root, 5, 0)
    strikes = []
    for now_ns in range(20 * TIMEOUT_NS):
        if ledger.overdue(now_ns):
            strikes.append(now_ns - root.emitted_ns)
            emit(ledger, root, 5, now_ns)
    assert strikes == [TIMEOUT_NS * 2**n + 1 for n in range(4)]


def test_the_backstop_doubles_its_patience_with_all_roots_while_some_are_late() -> None:
    """A task that does not return from a call keeps all that it is given, of old roots and new ones."""
    ledger = Ledger({0: 0}, LedgerLimits(1000, TIMEOUT_NS), Random(1))
    emitted = 0
    offset = 0
    for now_ns in range(0, 32 * TIMEOUT_NS, TIMEOUT_NS // 4):
        if ledger.room:
            emit(ledger, ledger.admit(0, offset, offset, 1), 5, now_ns)
            offset += 1
        for root in ledger.overdue(now_ns):
            emit(ledger, root, 5, now_ns)
            emitted += 1
    assert offset > emitted, f"emitted again more often than there are roots: roots={offset} emitted={emitted}"
    late_ns = now_ns + 100 * TIMEOUT_NS
    for root in ledger.unfinished():
        ledger.apply_both(dict.fromkeys(root.emissions, 5), late_ns)
    assert ledger.overdue(late_ns) == []
    lost = ledger.admit(0, offset, offset, late_ns)
    emit(ledger, lost, 5, late_ns)
    assert ledger.overdue(late_ns + 1000 * TIMEOUT_NS) == [lost]


def test_the_backstop_waits_longer_where_work_takes_longer(ledger: Ledger) -> None:
    slow = ledger.admit(0, 0, "slow", 1)
    emission = emit(ledger, slow, 5, 1)
    ledger.apply_both({emission: 5}, 1 + 2 * TIMEOUT_NS)
    root = ledger.admit(0, 1, "b", 1)
    emit(ledger, root, 5, 0)
    assert ledger.overdue(SLOW_FACTOR * 2 * TIMEOUT_NS) == []
    assert ledger.overdue(SLOW_FACTOR * 2 * TIMEOUT_NS + 1) == [root]


def test_a_replayed_root_says_nothing_of_how_long_work_takes(ledger: Ledger) -> None:
    root = ledger.admit(0, 0, "lost once", 1)
    emit(ledger, root, 5, 1)
    emission = emit(ledger, root, 5, 2)
    ledger.apply_both({emission: 5}, 50 * TIMEOUT_NS)
    other = ledger.admit(0, 1, "b", 1)
    emit(ledger, other, 5, 0)
    assert ledger.overdue(TIMEOUT_NS + 1) == [other]


def test_validate_sees_a_span_that_is_too_long() -> None:
    ledger = Ledger({0: 0}, LedgerLimits(1, TIMEOUT_NS), Random(1))
    for offset in (0, 1):
        ledger.admit(0, offset, offset, 1)
    assert ledger.room == -1
    with pytest.raises(AssertionError):
        ledger.validate()


def test_validate_sees_offsets_that_do_not_increase(ledger: Ledger) -> None:
    ledger.admit(0, 5, "a", 1)
    ledger.admit(0, 5, "b", 1)
    with pytest.raises(AssertionError, match="offset 5 is below 6"):
        ledger.validate()


def test_two_ledgers_number_their_emissions_apart() -> None:
    rng = Random(3)
    numbers = []
    for _ in range(2):
        ledger = Ledger({0: 0}, LedgerLimits(5, 1), rng)
        numbers += [ledger.emit(ledger.admit(0, offset, 0, 1), 1) for offset in range(5)]
    assert len(set(numbers)) == 10
