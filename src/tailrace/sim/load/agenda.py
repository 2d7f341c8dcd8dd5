"""The events of a simulation in the order of (time, kind, sequence), and the current time."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count
from typing import Any

from tailrace.policy.groupings.feedback import Message

FINISH, DELIVER, TO_SENDER, TO_TASK, WAKE, EMIT = range(6)
"""Kinds of events, in the order in which they happen at equal times: a task becomes free before a tuple arrives."""

Event = tuple[int, int, int, Any, int, int, Any]
"""(time, kind, sequence, the object it is for, and two numbers and an object that depend on the kind)"""


class Agenda:
    """Events, and the mail: messages that take no time and are read after the current event."""

    __slots__ = ("events", "mail", "next", "now_ns")

    def __init__(self) -> None:
        self.now_ns = 0
        self.events: list[Event] = []
        self.mail: deque[tuple[int, Any, int, int, Message]] = deque()  # as events, without time and sequence
        self.next = count().__next__

    def push(self, at_ns: int, kind: int, who: Any, a: int, b: int, what: Any) -> None:
        heapq.heappush(self.events, (at_ns, kind, self.next(), who, a, b, what))
