"""Turns on a link that workers share: who is picked, who is passed over, and a signal that nobody else may use."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.core.plan.node_groups import node_group_of_machine
from tailrace.core.protocol.messages import Member
from tailrace.core.send_order.node_uplink import PATIENCE_NS, POLL_NS, WAIT, NodeUplink, NodeWords
from tailrace.core.send_order.uplink_budget import DEPTH_NS
from tailrace.errors import SegmentError
from tailrace.policy.send_order.api import NEVER_NS, Waiting
from tailrace.policy.send_order.largest_backlog import lbf
from tailrace.runtime.send_order.shared_words import SharedWords

NOW_NS = 5 * SECOND_NS


def two_workers(operators: list[int], home: list[int]) -> tuple[NodeUplink, NodeUplink]:
    places = NodeWords(operators, home)
    words = [0] * places.count
    places.clear(words)
    first, second = (NodeUplink(words, places, worker, 1_000_000, 2) for worker in (0, 1))
    return first, second


def backlog(tuples: int, since_ns: int = NOW_NS) -> Waiting:
    waiting = Waiting(1)
    waiting.tuples[0], waiting.since_ns[0] = tuples, since_ns if tuples else NEVER_NS
    return waiting


def test_the_longest_queue_of_the_node_sends_whichever_worker_it_is_in() -> None:
    mine, other = two_workers([2], [0, 1])
    mine.publish(backlog(2), [0])
    other.publish(backlog(3), [1])
    assert mine.look(lbf(), NOW_NS) == WAIT and mine.again_ns == NOW_NS + POLL_NS
    assert other.look(lbf(), NOW_NS) == 1
    other.spend(1, 20_000, NOW_NS)  # what the bucket holds, and as much again
    other.publish(backlog(1), [1])
    assert mine.look(lbf(), NOW_NS) == WAIT and mine.again_ns == NOW_NS + 10 * MILLISECOND_NS
    assert mine.look(lbf(), mine.again_ns) == 0


def test_a_turn_is_kept_for_a_while_and_then_passed_over_until_its_worker_looks_again() -> None:
    mine, other = two_workers([2], [0, 1])
    mine.publish(backlog(2), [0])
    other.publish(backlog(3), [1])
    assert mine.look(lbf(), NOW_NS + PATIENCE_NS - 1) == WAIT
    assert mine.again_ns == NOW_NS + PATIENCE_NS
    assert mine.look(lbf(), NOW_NS + PATIENCE_NS) == 0
    mine.spend(0, 100, NOW_NS + PATIENCE_NS)
    mine.publish(backlog(1), [0])
    assert mine.look(lbf(), NOW_NS + PATIENCE_NS + MILLISECOND_NS) == 0, "it does not count yet"
    other.publish(backlog(3), [1])
    assert other.look(lbf(), NOW_NS + PATIENCE_NS + MILLISECOND_NS) == 1


def test_a_turn_is_kept_from_when_its_tuple_came_though_the_link_was_free_long_before() -> None:
    mine, other = two_workers([2], [0, 1])
    mine.publish(backlog(1, since_ns=NOW_NS - SECOND_NS), [0])
    other.publish(backlog(3), [1])
    assert mine.look(lbf(), NOW_NS) == WAIT


def test_of_those_who_are_not_here_the_part_is_left_to_them() -> None:
    places = NodeWords([2], [0, 1])
    words = [0] * places.count
    places.clear(words)
    mine = NodeUplink(words, places, 0, 1_000_000, 4)
    mine.publish(backlog(2), [0])
    mine.spend(0, 1_000, NOW_NS)
    assert words[places.FREE] == NOW_NS - DEPTH_NS + 4 * MILLISECOND_NS
    NodeUplink(words, places, 1, 1_000_000, 4)
    mine.spend(0, 1_000, NOW_NS)
    assert words[places.FREE] == NOW_NS - DEPTH_NS + 6 * MILLISECOND_NS


def test_operators_take_turns_on_all_workers_together() -> None:
    mine, other = two_workers([1, 1], [0, 1])
    mine.publish(backlog(9), [0])
    other.publish(backlog(1), [1])
    assert (mine.look(lbf(), NOW_NS), other.look(lbf(), NOW_NS)) == (0, WAIT)
    mine.spend(0, 100, NOW_NS)
    assert (mine.look(lbf(), NOW_NS), other.look(lbf(), NOW_NS)) == (WAIT, 1)


def test_a_signal_is_for_one_task_of_the_node_until_the_next_tick() -> None:
    mine, other = two_workers([2], [0, 1])
    mine.publish(backlog(2), [0])
    other.publish(backlog(3), [1])
    scheduler = lbf(interval_ms=10)
    assert mine.look(scheduler, NOW_NS) == WAIT
    assert other.look(scheduler, NOW_NS) == 1
    other.spend(1, 100, NOW_NS)
    other.publish(backlog(0), [1])
    later_ns = NOW_NS + 10 * MILLISECOND_NS
    assert mine.look(scheduler, later_ns - 1) == WAIT, "the signal is another's, though it has nothing to send"
    assert mine.look(scheduler, later_ns) == 0


def test_a_circle_is_the_workers_of_a_machine_in_their_epochs() -> None:
    members = {
        0: Member(1, ("here", 5)),
        1: Member(3, ("there", 5)),
        2: Member(2, ("here", 6)),
    }
    group = node_group_of_machine(members, 2)
    assert group is not None
    assert (group.maker, group.members) == (0, ((0, 1), (2, 2)))
    assert node_group_of_machine(members, 4) is None


# -- the memory


def test_words_of_one_are_seen_by_the_other_and_one_has_the_lock() -> None:
    made = SharedWords.make(8)
    opened = SharedWords.open(os.getpid(), made.number, made.nonce, 8)
    made.words[7] = NEVER_NS
    assert list(opened.words) == [0] * 7 + [NEVER_NS]
    assert made.take() and not opened.take()
    made.release()
    assert opened.take()
    opened.close()
    assert made.take(), "who goes leaves no lock behind"
    made.close()


def test_the_dead_hold_no_lock() -> None:
    made = SharedWords.make(1)
    child = os.fork()
    if child == 0:
        opened = SharedWords.open(os.getppid(), made.number, made.nonce, 1)
        opened.words[0] = int(opened.take())
        signal.pause()
    deadline = time.monotonic() + 20
    while not made.words[0] and time.monotonic() < deadline:
        time.sleep(0.002)
    assert made.words[0] and not made.take()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert made.take()
    made.close()


@pytest.mark.parametrize(("nonce", "count"), [("00" * 16, 4), (None, 5)])
def test_another_file_than_was_meant(nonce: str | None, count: int) -> None:
    made = SharedWords.make(4)
    with pytest.raises(SegmentError, match="another file than was meant: path=/proc/"):
        SharedWords.open(os.getpid(), made.number, nonce or made.nonce, count)
    number = made.number
    made.close()
    with pytest.raises(SegmentError, match="no such memory: "):
        SharedWords.open(os.getpid(), number, "", 4)
