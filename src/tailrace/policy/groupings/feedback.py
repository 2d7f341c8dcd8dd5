"""Load-aware groupings: a chooser at each sender, a receiver at each task, and feedback messages between them.

Choosers derive from ``FeedbackChooser`` and receivers from ``Receiver``, which have defaults for all that a grouping
does not need. Neither sends anything itself. The engine (the runtime, or a simulator) carries tuples and messages, in
order between any two tasks, and calls the two sides as follows.

At a sender: ``tick(now_ns)``, then ``choose_many(values)``. A tuple whose choice is ``HELD`` joins the end of the
sender's held queue. If the choice is ``FIRST - task`` the tuple joins that queue too, and the first tuple of the queue
goes to that task. ``hear`` returns tasks, one for each tuple that now leaves the front of the held queue; the engine
reads this iterable at once and to its end, since choices may be made as they are read. After either call ``attached``
holds messages that travel with tuples, by position in the list just returned, and ``outbox`` holds messages that travel
alone. The engine empties both.

At a task: ``received`` when a tuple enters the queue; ``executed`` after it has run, with its duration and how many
tuples are still queued; or ``dropped`` if it is thrown away because another emission of its root was complete first.
Each gets the message that was attached to the tuple. Tuples of one sender that arrived or ran one after the other,
without attached messages, may be reported together, by ``received_many`` and ``executed_many``. ``hear`` is for
messages that travelled alone. After any of these, and once after ``bind_receiver``, the engine empties ``outbox``.

A task may report late. While it runs a tuple, the engine calls nothing. Afterwards it sets ``late_ns``, reports the
tuples that arrived meanwhile, and then those that ran.

After a possible loss of tuples or messages the engine binds new choosers and receivers for the whole edge, offers them
the held tuples, and carries nothing from the old ones to the new ones.

Where several tasks share one queue, the receiver of the task that the sender *chose* is told, whichever task ran it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Protocol, TypeGuard

from tailrace.policy.groupings.api import Grouping
from tailrace.policy.groupings.load.cost_totals import CostTotals

Message = tuple[Any, ...]
"""A feedback message: a ``NamedTuple`` of numbers and tuples of numbers, a few bytes when encoded."""


class FeedbackChooser:
    """The sender's side of a load-aware grouping: a chooser that hears from the receiving tasks.

    Law: a choice is ``ALL``, ``HELD``, in ``range(tasks)``, or ``FIRST - task``. ``hear`` returns entries of
    ``range(tasks)``, never more than there are tuples held. A held tuple is released at the latest when all tuples
    that were sent have been executed and all messages heard. Choices depend on arguments and generator only, never on a
    clock of its own.

    Example:
        >>> from random import Random
        >>> chooser = tr.power_of_two().bind(2, Random(1))
        >>> len(chooser.choose_many(range(10)))
        10
    """

    estimated: CostTotals | None = None
    """The estimated cost of tuples, for display. ``None``: it estimates nothing."""

    def __init__(self) -> None:
        self.attached: list[tuple[int, Message]] = []  # (position in the list last returned, message)
        self.outbox: list[tuple[int, Message]] = []  # (task, message)

    @property
    def credits(self) -> int:
        """Tuples that it may send at once before it must hold some, for display."""
        return 0

    def tick(self, now_ns: int) -> None:
        """Time has passed. Called before ``choose_many``."""

    def choose_many(self, values: Sequence[Any]) -> Sequence[int]:
        """A choice for each tuple."""
        raise NotImplementedError

    def hear(self, task: int, message: Message, now_ns: int) -> Iterable[int]:
        """A message has come from a task. Returns where the first held tuples go."""
        raise NotImplementedError


class Receiver:
    """The side of a load-aware grouping at one receiving task. It serves all senders of the edge.

    Law: ``outbox`` names senders in ``range(senders)``, and what it sends depends on arguments and generator only. The
    ``_many`` methods lead to the same messages as one call for each tuple, or to one message with their sum. They may
    look at the durations of some of the tuples only.

    Example:
        >>> from random import Random
        >>> receiver = tr.least_work("items").bind_receiver(0, 2, 1, Random(1))
        >>> receiver.received(0, None, now_ns=0)
        >>> receiver.executed(0, {"items": 3}, None, duration_ns=1000, queued=0, now_ns=1000)
    """

    hears_arrivals = True
    """Whether ``received`` does anything. The engine may leave the call out if not."""

    arrivals_can_wait = False
    """Whether arrivals may be reported as late as the execution, though before it."""

    senders_wait = False
    """Whether senders hold tuples until they hear that others have been executed."""

    late_ns = 0
    """How long ago the first of the tuples ran that are reported next. The engine sets it."""

    def __init__(self) -> None:
        self._outbox: list[tuple[int, Message]] = []

    @property
    def outbox(self) -> list[tuple[int, Message]]:
        """(sender, message)"""
        return self._outbox

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None:
        """A tuple has entered the queue."""

    def received_many(self, sender: int, tuples: int, now_ns: int) -> None:
        """Several have, one after the other and without messages."""
        for _ in range(tuples):
            self.received(sender, None, now_ns)

    def executed(
        self, sender: int, value: Any, attached: Message | None, duration_ns: int, queued: int, now_ns: int
    ) -> None:
        """A tuple has run. ``queued``: how many are left in the queue."""

    def executed_many(
        self, sender: int, values: Sequence[Any], durations_ns: Sequence[int], queued: int, now_ns: int
    ) -> None:
        """Several have, one after the other and without messages. ``queued``: after the last of them."""
        left = queued + len(values)
        for value, duration_ns in zip(values, durations_ns, strict=True):
            left -= 1
            self.executed(sender, value, None, duration_ns, left, now_ns)

    def dropped(self, sender: int, attached: Message | None, queued: int, now_ns: int) -> None:
        """A tuple has left the queue without being run, so nothing is learnt about its cost."""

    def hear(self, sender: int, message: Message, now_ns: int) -> None:
        """A message has come from a sender."""
        raise AssertionError(f"a receiver got a message that no sender sends: sender={sender} message={message}")


class FeedbackGrouping(Grouping, Protocol):
    """A grouping with a side at each sender and one at each receiving task. Senders decide independently.

    Law: that of ``Grouping``; and the two sides share nothing but messages, which survive pickling.

    Example:
        >>> from random import Random
        >>> grouping = tr.least_work("items")
        >>> sender = grouping.bind(2, Random(1))
        >>> receiver = grouping.bind_receiver(0, 2, 1, Random(1))
    """

    def bind(self, tasks: int, rng: Random) -> FeedbackChooser: ...

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> Receiver: ...


def has_feedback(grouping: Grouping) -> TypeGuard[FeedbackGrouping]:
    """Whether receiving tasks report to the senders of this grouping.

    Args:
        grouping: any grouping.

    Example:
        >>> from tailrace.policy import has_feedback
        >>> has_feedback(tr.least_work("items")), has_feedback(tr.shuffle())
        (True, False)
    """
    return hasattr(grouping, "bind_receiver")


def wants_answer(message: Message) -> bool:
    """Whether a task waits for the answer to this message, so that even a sender that holds nothing must read it soon.

    A message type says so by a property of that name; the others need no answer.
    """
    return bool(getattr(message, "wants_answer", False))
