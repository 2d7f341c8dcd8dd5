"""Drives both sides of a load-aware grouping with slow tasks and slow messages, and checks their laws at every step.

This driver is independent of the runtime and of the simulator: the laws must hold for any driver that keeps the rules
of ``tailrace.policy.groupings.feedback``. All messages are pickled on their way.
"""

from __future__ import annotations

import heapq
import pickle
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from tailrace.errors import shorten
from tailrace.policy.groupings.api import ALL, FIRST, HELD
from tailrace.policy.groupings.feedback import FeedbackGrouping, Message

MAX_MESSAGE_BYTES = 65_536
"""Largest pickled message. Feedback is there to save time, not to fill links."""

MAX_EVENTS_A_TUPLE = 1_000
"""Events for each tuple after which the two sides are taken to exchange messages for ever."""

DROPPED = 0.05
"""Share of tuples that are thrown away instead of run, as if a hedge had completed first."""

REPORTED = 0.5
"""Probability that tuples are reported before the queue is empty."""

LONGEST_NS = (2_000_000, 20_000)
PHASE_NS = 20_000_000
"""Longest calls, in turn for a phase each. Messages take up to 300,000 ns, which is in between."""

LATE_NS = (0, 0, 3_000_000)
"""How late a task reports, drawn for each execution."""

Sent = tuple[int, int, Any, Message | None]
"""(sender, index, value, attached)"""


class LawBroken(Exception):
    """A clause of a law was broken; with the facts."""

    def __init__(self, law: str, **facts: object) -> None:
        super().__init__(law, facts)
        self.law = law
        self.facts = facts


def drive_feedback(grouping: FeedbackGrouping, tasks: int, senders: int, seed: int, values: Sequence[Any]) -> list[int]:
    """The task of each tuple in the order of ``values``, or ``ALL`` if it was broadcast. Raises ``LawBroken``."""
    return _Stage(grouping, tasks, senders, seed).run(values)


class _Stage:
    """Senders, tasks and the messages between them, in virtual time."""

    def __init__(self, grouping: FeedbackGrouping, tasks: int, senders: int, seed: int) -> None:
        self.rng = Random(seed)
        self.choosers = [grouping.bind(tasks, Random(seed * 1_000 + sender)) for sender in range(senders)]
        self.receivers = [
            grouping.bind_receiver(task, tasks, senders, Random(seed * 1_000 + senders + task)) for task in range(tasks)
        ]
        self.held: list[deque[tuple[int, Any]]] = [deque() for _ in range(senders)]
        self.queues: list[deque[Sent]] = [deque() for _ in range(tasks)]
        self.runs: list[list[tuple[int, Any, int]]] = [
            [] for _ in range(tasks)
        ]  # (sender, value, duration) that are not reported yet
        self.chosen: dict[int, int] = {}
        self.executed = 0
        self.expected = 0
        self.now_ns = 1
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.sequence = 0
        self.free_ns: dict[tuple[str, int, int], int] = {}  # arrival of the last message between two

    def run(self, values: Sequence[Any]) -> list[int]:
        for task in range(len(self.receivers)):
            self.post_from_task(task)
        gap_ns = 1_000_000 // len(self.receivers)
        for index, value in enumerate(values):
            self.at(1 + index * gap_ns, partial(self.arrive, index, value))
        steps = 0
        while self.events:
            steps += 1
            if steps > MAX_EVENTS_A_TUPLE * len(values):
                raise LawBroken("the two sides come to rest", events=steps)
            self.now_ns, _, action = heapq.heappop(self.events)
            action()
        held = sum(map(len, self.held))
        if held:
            raise LawBroken("a held tuple is released in the end", held=held)
        if self.executed != self.expected:
            raise LawBroken("each tuple is run once", executed=self.executed, expected=self.expected)
        return [self.chosen[index] for index in range(len(values))]

    def at(self, at_ns: int, action: Callable[[], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (at_ns, self.sequence, action))

    def post(self, lane: tuple[str, int, int], action: Callable[[], None]) -> None:
        """Deliver after a random time, in order within a lane, for tuples and messages alike."""
        arrival = max(self.free_ns.get(lane, 0), self.now_ns + self.rng.randrange(0, 300_000))
        self.free_ns[lane] = arrival
        self.at(arrival, action)

    def arrive(self, index: int, value: Any) -> None:
        sender = index % len(self.choosers)
        chooser = self.choosers[sender]
        chooser.tick(self.now_ns)
        choices = list(chooser.choose_many([value]))
        if len(choices) != 1:
            raise LawBroken("one choice a value", values=1, choices=len(choices))
        leaving, held = [(index, value)], self.held[sender]
        if choices[0] <= HELD:
            held.append((index, value))
            leaving = [held.popleft()] if choices[0] <= FIRST else []
            choices = [FIRST - choices[0]] if leaving else []
        self.leave(sender, choices, leaving)

    def leave(self, sender: int, choices: Sequence[int], tuples: Sequence[tuple[int, Any]]) -> None:
        chooser = self.choosers[sender]
        attached: dict[int, Message] = {}
        for position, message in chooser.attached:
            if not 0 <= position < len(choices):
                raise LawBroken("a message is attached to a tuple that leaves", position=position, leaving=len(choices))
            attached[position] = _carried(message)
        chooser.attached.clear()
        for position, choice in enumerate(choices):
            index, value = tuples[position]
            self.chosen[index] = choice
            for task in range(len(self.receivers)) if choice == ALL else (choice,):
                if not isinstance(task, int) or not 0 <= task < len(self.receivers):
                    law = "a choice is ALL, HELD or lies in range(tasks)"
                    raise LawBroken(law, value=shorten(value), choice=shorten(task))
                self.expected += 1
                sent = (sender, index, value, attached.get(position))
                self.post(("down", sender, task), partial(self.receive, task, sent))
        for task, message in _emptied(chooser.outbox):
            if not 0 <= task < len(self.receivers):
                raise LawBroken("a message goes to one of the tasks", task=task)
            self.post(("down", sender, task), partial(self.tell, task, sender, _carried(message)))

    def receive(self, task: int, sent: Sent) -> None:
        receiver = self.receivers[task]
        if sent[3] is None and self.rng.random() < REPORTED:
            receiver.received_many(sent[0], 1, self.now_ns)
        else:
            receiver.received(sent[0], sent[3], self.now_ns)
        self.queues[task].append(sent)
        if len(self.queues[task]) == 1:
            self.start(task)
        self.post_from_task(task)

    def start(self, task: int) -> None:
        duration_ns = self.rng.randrange(1, LONGEST_NS[self.now_ns // PHASE_NS % len(LONGEST_NS)])
        self.at(self.now_ns + duration_ns, partial(self.finish, task, duration_ns))

    def finish(self, task: int, duration_ns: int) -> None:
        sender, _, value, attached = self.queues[task].popleft()
        self.executed += 1
        self.receivers[task].late_ns = self.rng.choice(LATE_NS)
        queued, run = len(self.queues[task]), self.runs[task]
        dropped = self.rng.random() < DROPPED
        if run and (run[0][0] != sender or dropped or attached is not None):
            self.report_run(task, queued + 1)
        if dropped:
            self.receivers[task].dropped(sender, attached, queued, self.now_ns)
        elif attached is None:
            run.append((sender, value, duration_ns))
            if not queued or self.rng.random() < REPORTED:
                self.report_run(task, queued)
        else:
            self.receivers[task].executed(sender, value, attached, duration_ns, queued, self.now_ns)
        self.post_from_task(task)
        if queued:
            self.start(task)

    def report_run(self, task: int, queued: int) -> None:
        receiver, run = self.receivers[task], self.runs[task]
        senders, values, durations_ns = zip(*run, strict=True)
        run.clear()
        receiver.executed_many(senders[0], values, durations_ns, queued, self.now_ns)

    def tell(self, task: int, sender: int, message: Message) -> None:
        self.receivers[task].hear(sender, message, self.now_ns)
        self.post_from_task(task)

    def post_from_task(self, task: int) -> None:
        for sender, message in _emptied(self.receivers[task].outbox):
            if not 0 <= sender < len(self.choosers):
                raise LawBroken("a message goes to one of the senders", sender=sender)
            self.post(("up", sender, task), partial(self.hear, sender, task, _carried(message)))

    def hear(self, sender: int, task: int, message: Message) -> None:
        released = list(self.choosers[sender].hear(task, message, self.now_ns))
        held = self.held[sender]
        if len(released) > len(held):
            raise LawBroken("no more tuples are released than are held", released=len(released), held=len(held))
        self.leave(sender, released, [held.popleft() for _ in released])


def _emptied(box: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
    taken = list(box)
    box.clear()
    return taken


def _carried(message: Message) -> Message:
    try:
        encoded = pickle.dumps(message)
    except Exception as error:
        raise LawBroken("messages survive pickling", message=shorten(message), error=error) from error
    if len(encoded) > MAX_MESSAGE_BYTES:
        raise LawBroken("messages are small", bytes=len(encoded), limit=MAX_MESSAGE_BYTES)
    carried: Message = pickle.loads(encoded)
    return carried
