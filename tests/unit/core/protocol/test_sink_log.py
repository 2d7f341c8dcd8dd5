"""The log of a committing sink: written once, remembered as long as a duplicate may come, no longer."""

from __future__ import annotations

import pytest

from tailrace.core.protocol.sink_log import DUPLICATE_DURABLE, DUPLICATE_PENDING, PRUNE_AT_LEAST, WRITE, SinkLog


def write(log: SinkLog, split: int, offset: int, lineage: int) -> None:
    assert log.admit(split, offset, lineage) == WRITE
    log.wrote(split, offset, lineage)


def test_a_duplicate_is_durable_only_when_the_first_copy_is() -> None:
    log = SinkLog({0: 0}, [])
    write(log, 0, 5, 77)
    assert log.admit(0, 5, 77) == DUPLICATE_PENDING
    log.committed()
    assert log.admit(0, 5, 77) == DUPLICATE_DURABLE
    assert log.admit(0, 5, 78) == WRITE


def test_tuples_of_two_roots_whose_lineages_clash_are_both_written() -> None:
    log = SinkLog({0: 0, 1: 0}, [(1, 4, 77)])
    write(log, 0, 5, 77)
    write(log, 0, 6, 77)
    assert log.open_marks == [(0, 5, 77), (0, 6, 77)]
    assert log.admit(0, 5, 77) == DUPLICATE_PENDING and log.admit(1, 4, 77) == DUPLICATE_DURABLE
    log.committed()
    assert log.admit(0, 5, 77) == log.admit(0, 6, 77) == DUPLICATE_DURABLE and len(log) == 3


def test_what_lies_below_the_prefix_is_dropped_even_if_it_was_never_seen() -> None:
    log = SinkLog({0: 3, 1: 0}, [])
    assert [log.admit(0, offset, 100 + offset) for offset in (2, 3)] == [DUPLICATE_DURABLE, WRITE]
    assert log.admit(1, 2, 102) == WRITE
    log.advance(1, 3)
    assert log.admit(1, 2, 102) == DUPLICATE_DURABLE


def test_the_prefix_never_moves_back() -> None:
    log = SinkLog({0: 5}, [])
    log.advance(0, 3)
    assert log.prefixes == {0: 5}


def test_what_was_committed_before_a_restart_is_known() -> None:
    log = SinkLog({0: 3}, [(0, 4, 44), (0, 2, 22)])
    assert log.admit(0, 4, 44) == DUPLICATE_DURABLE
    assert len(log) == 1  # what lies below the prefix needs no memory


def test_open_marks_are_what_the_next_commit_holds_in_the_order_of_writing() -> None:
    log = SinkLog({0: 0, 1: 0}, [])
    for mark in [(1, 9, 3), (0, 5, 1), (0, 5, 2)]:
        write(log, *mark)
    assert log.open_marks == [(1, 9, 3), (0, 5, 1), (0, 5, 2)]
    log.committed()
    assert log.open_marks == []


def test_memory_follows_the_prefix() -> None:
    log = SinkLog({0: 0}, [])
    longest = 0
    for offset in range(10 * PRUNE_AT_LEAST):
        write(log, 0, offset, offset + 1)
        log.committed()
        log.advance(0, offset - 10)
        longest = max(longest, len(log))
    assert longest <= 2 * PRUNE_AT_LEAST
    assert all(log.admit(0, offset, offset + 1) == DUPLICATE_DURABLE for offset in range(10 * PRUNE_AT_LEAST))


def test_nothing_above_the_prefix_is_ever_forgotten() -> None:
    log = SinkLog({0: 0}, [])
    for offset in range(3 * PRUNE_AT_LEAST):
        write(log, 0, offset, offset + 1)
        log.committed()
    assert len(log) == 3 * PRUNE_AT_LEAST


def test_validate_sees_a_contradiction() -> None:
    log = SinkLog({0: 0}, [(0, 1, 7)])
    log.validate()
    log.wrote(0, 1, 7)
    with pytest.raises(AssertionError, match="both committed and not"):
        log.validate()


def test_the_first_root_that_is_not_below_the_prefix_is_remembered() -> None:
    """It is read again after a restart, so that its tuples come once more."""
    log = SinkLog({0: 3}, [(0, 2, 7), (0, 3, 7)])
    assert log.admit(0, 3, 7) == DUPLICATE_DURABLE and len(log) == 1
    last = 3 * PRUNE_AT_LEAST
    for offset in range(4, last + 1):
        write(log, 0, offset, 7)
    log.advance(0, last)
    log.committed()
    assert log.admit(0, last, 7) == DUPLICATE_DURABLE and len(log) == 1, "the others are below the prefix"
