"""What is going to happen in a simulation, in the order of (time, kind, sequence), and the time it is."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count
from typing import Any

from tailrace.policy.groupings.feedback import Message

FINISH, DELIVER, TO_SENDER, TO_TASK, WAKE, EMIT = range(6)
"""Kinds, in the order in which they happen at one moment: a task that gets free is free for what comes then."""

Event = tuple[int, int, int, Any, int, int, Any]
"""(time, kind, sequence, who, and what kinds need: two numbers and an object)"""


class Agenda:
    """Events, and the mail: messages that take no time, which are read when the event at hand is over."""

    __slots__ = ("events", "mail", "next", "now_ns")

    def __init__(self) -> None:
        self.now_ns = 0
        self.events: list[Event] = []
        self.mail: deque[tuple[int, Any, int, int, Message]] = deque()  # as events, without time and sequence
        self.next = count().__next__

    def push(self, at_ns: int, kind: int, who: Any, a: int, b: int, what: Any) -> None:
        heapq.heappush(self.events, (at_ns, kind, self.next(), who, a, b, what))
