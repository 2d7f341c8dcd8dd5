"""Senders to a task that is behind put in as much as each other, and none is held back for good."""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.clock import MILLISECOND_NS
from tailrace.core.queues.rounds import (
    ANY,
    FIRST_QUEUE,
    LARGEST_ROUND,
    QUEUE_BUNDLES,
    QUEUE_BYTES,
    ROUND_NS,
    Rounds,
    bundle_limit,
)

LIMIT = 64


class Desk:
    """A queue, and senders that always have more."""

    def __init__(self) -> None:
        self.queue: deque[Any] = deque()
        self.rounds = Rounds(self.queue.__len__, lambda: LIMIT)
        self.now_ns = 1

    def send(self, sender: str, has: int) -> int:
        """Put in what it may of what it has."""
        sent = 0
        while sent < has and (room := self.rounds.room(sender)):
            some = min(has - sent, room)
            if self.rounds.behind:
                self.rounds.put(sender, some)
            self.queue.extend([sender] * some)
            sent += some
        return sent

    def run(self, each_ns: int) -> str:
        sender: str = self.queue.popleft()
        self.now_ns += each_ns
        return sender

    def make_room(self) -> bool:
        return self.rounds.behind and self.rounds.due and self.rounds.begin(self.now_ns)

    def grow(self) -> None:
        """Let the task run all that comes until its queue may hold as much as it ever may."""
        while (room := self.rounds.room("own")) != ANY:
            self.send("own", room)
            self.queue.clear()
        assert not self.rounds.behind


def test_a_task_that_keeps_up_has_no_rounds() -> None:
    desk = Desk()
    desk.grow()
    for _ in range(10):
        assert desk.rounds.room("own") == ANY
        desk.send("own", LIMIT - 1)
        desk.queue.clear()
    assert not desk.rounds.behind


@pytest.mark.parametrize("each_ns", [MILLISECOND_NS // 100, MILLISECOND_NS, 100 * MILLISECOND_NS])
@pytest.mark.parametrize("senders", [2, 5])
def test_one_that_is_always_first_gets_no_more_than_others(each_ns: int, senders: int) -> None:
    desk = Desk()
    names = ["own", *(f"link {number}" for number in range(1, senders))]
    ran: list[str] = []
    while len(ran) < 4000:
        for name in (*names, "own"):
            desk.send(name, 1000 if name == "own" else LIMIT)
        ran.append(desk.run(each_ns))
        desk.make_room()
    late = Counter(ran[2000:])
    assert set(late) == set(names)
    assert max(late.values()) - min(late.values()) <= 0.1 * 2000 / senders, late


def test_rounds_last_about_as_long_for_slow_tasks_and_hold_some_queues_for_fast_ones() -> None:
    for each_ns, least, most in ((ROUND_NS, 1, 2), (ROUND_NS // 1000, LARGEST_ROUND * LIMIT, LARGEST_ROUND * LIMIT)):
        desk = Desk()
        desk.send("own", 2 * LIMIT)
        for _ in range(2000):
            desk.send("own", 1000)
            desk.run(each_ns)
            desk.make_room()
        desk.send("own", 1000)
        while not desk.make_room():
            desk.send("own", 1000)
            desk.run(each_ns)
        assert least <= desk.rounds.room("own") <= most


def test_the_sender_that_is_first_does_not_fill_the_queue_alone() -> None:
    desk = Desk()
    sent = sum(desk.send("own", 1) for _ in range(LIMIT))
    assert sent <= 2 * FIRST_QUEUE
    ran = []
    while len(ran) < 4 * LIMIT:
        for name in ("own", "link"):  # which has been made in the meantime
            desk.send(name, LIMIT)
        ran.append(desk.run(MILLISECOND_NS))
        desk.make_room()
    for first in range(sent, 3 * LIMIT, LIMIT):
        shares = Counter(ran[first : first + LIMIT])
        assert abs(shares["own"] - shares["link"]) <= 2 * FIRST_QUEUE, (first, shares)


def test_a_sender_that_has_nothing_keeps_no_share() -> None:
    desk = Desk()
    for name in ("own", "other"):
        desk.send(name, 2 * LIMIT)
    shares = []
    for _ in range(2000):
        desk.send("own", 1000)
        desk.run(1)
        if desk.make_room():
            shares.append(desk.rounds.room("own"))
    assert shares[-1] == LARGEST_ROUND * LIMIT, "the other has not come for some rounds"


def test_one_that_is_late_for_a_round_may_make_up_for_it() -> None:
    desk = Desk()
    desk.send("own", 2 * LIMIT)
    for name in ("own", "late"):
        assert desk.rounds.room(name) == 0
    while not desk.make_room():
        desk.run(ROUND_NS)
    share = desk.rounds.room("late")
    assert desk.send("own", 1000) == share and desk.send("own", 1000) == 0
    while not desk.make_room():
        desk.run(ROUND_NS)
    assert desk.rounds.room("late") == share + desk.rounds.room("own")


def test_rounds_are_over_when_the_queue_is_empty_and_nobody_is_held() -> None:
    desk = Desk()
    desk.send("own", LIMIT)
    assert desk.send("own", 1) == 0
    while desk.queue:
        desk.run(1)
        desk.make_room()
    assert desk.send("own", 1) == 1
    desk.run(1)
    desk.make_room()
    assert not desk.rounds.behind
    desk.grow()


def test_an_empty_queue_holds_nobody_back() -> None:
    """Its task may have looked who is held a moment ago, and sleep."""
    desk = Desk()
    desk.send("own", LIMIT)
    assert desk.rounds.room("own") == 0
    desk.queue.clear()
    desk.rounds.put("own", 1000)
    assert desk.rounds.room("own") > 0


def test_the_limit_is_in_bundles_and_in_bytes() -> None:
    assert [bundle_limit(size) for size in (1, QUEUE_BYTES // 4, 10 * QUEUE_BYTES)] == [QUEUE_BUNDLES, 4, 1]


@pytest.fixture
def short_turns() -> Iterator[None]:
    """Threads that take turns as often as they can meet in more places."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual_s)


@pytest.mark.parametrize("turn", range(4))
def test_nobody_waits_forever_between_threads(turn: int, short_turns: None) -> None:
    """Each sender sleeps when it is held back, and is woken when another round begins, as in a worker."""
    desk, senders, each = Desk(), 3, 2000
    awake = [threading.Event() for _ in range(senders)]
    waiting: set[int] = set()
    stuck: list[int] = []

    def send(sender: int) -> None:
        sent = 0
        while sent < each:
            awake[sender].clear()
            some = desk.send(str(sender), min(9, each - sent))
            if not some:
                waiting.add(sender)
                some = desk.send(str(sender), min(9, each - sent))
                if not some and not awake[sender].wait(20):
                    stuck.append(sender)
                    return
            sent += some

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(senders)]
    for thread in threads:
        thread.start()
    ran: Counter[str] = Counter()
    while any(thread.is_alive() for thread in threads) or desk.queue:
        if desk.queue:  # if there is nothing to run it sleeps, and looks after nobody
            ran[desk.run(1)] += 1
            if (desk.rounds.behind or waiting) and desk.rounds.due:
                desk.rounds.begin(desk.now_ns)
                while waiting:
                    awake[waiting.pop()].set()
    assert not stuck
    assert ran == {str(sender): each for sender in range(senders)}


def test_a_queue_that_its_task_keeps_empty_grows_to_its_limit() -> None:
    desk = Desk()
    desk.grow()
    while desk.rounds.room("only") == ANY:
        desk.queue.append("only")
    assert len(desk.queue) == LIMIT > FIRST_QUEUE


def test_a_sender_that_comes_with_much_does_not_fill_a_young_queue_at_once() -> None:
    """A link that was waited for brings a whole frame of bundles."""
    desk = Desk()
    assert desk.send("link", 1000) <= 2 * FIRST_QUEUE
    assert desk.rounds.behind and desk.rounds.room("own") == 0
