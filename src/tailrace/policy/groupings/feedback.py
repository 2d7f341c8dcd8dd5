"""Groupings that look at load: a half at each sender that chooses, a half at each task that reports, messages between.

Nothing in here sends anything. Whoever drives the halves, the simulator or the runtime, does as follows, and carries
all that goes from one sender to one task, tuples and messages, in order, and so what goes back.

At a sender: ``tick(now_ns)``, then ``choose_many(values)``. A tuple whose choice is ``HELD`` goes to the end of the
sender's line. Where it is ``FIRST - task`` it goes there too, and the first in line goes to that task. ``hear`` returns
tasks, one for each tuple that now leaves the front of that line; it may choose them as they are read, which is at once
and to the end. After either call ``attached`` holds messages that
travel with tuples, by position in the list just returned, and ``outbox`` messages that travel alone; the driver empties
both.

At a task: ``received`` when a tuple enters the queue, ``executed`` when it has been run, with its duration and how many
are still queued, or ``dropped`` if it is thrown away instead because a hedge was faster; all show what was attached to
it. A half that has ``executed_many`` may be told at once of tuples of one sender that came, or were run, one after the
other, if nothing was attached to them. ``hear`` for messages that came alone. After any of these, and once after
``bind_receiver``, the driver empties ``outbox``. A task may be told late: while it runs a tuple it hears nothing, and
afterwards first of what has come meanwhile, then of what it has run. If a half has ``late_ns``, it is told by that how
long ago the first of these was run.

Where a message or a tuple may have been lost, the driver binds all halves of the edge anew, offers the tuples in line
to the new ones, and carries nothing from old halves to new.

Where several tasks draw from one queue the half of the task that the sender *chose* is told, whoever ran the tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Protocol, TypeGuard

from tailrace.policy.groupings.api import Chooser, Grouping

Message = tuple[Any, ...]
"""What travels between the halves: a ``NamedTuple`` of numbers and tuples of numbers, a few bytes when encoded."""


class FeedbackChooser(Chooser, Protocol):
    """The sending half.

    Law: a choice is ``ALL``, ``HELD``, in ``range(tasks)``, or ``FIRST`` less one of those. ``hear`` returns entries of
    ``range(tasks)``, never more than there are tuples in line. A held tuple is released at the latest when all tuples
    that were sent have been executed and all messages heard. Choices depend on arguments and generator only, never on a
    clock of its own.
    """

    attached: list[tuple[int, Message]]
    """(position in the list last returned, message)"""
    outbox: list[tuple[int, Message]]
    """(task, message)"""

    def tick(self, now_ns: int) -> None: ...

    def hear(self, task: int, message: Message, now_ns: int) -> Iterable[int]: ...


class Receiver(Protocol):
    """The half at one receiving task. It serves all senders of the edge.

    Law: ``outbox`` names senders in ``range(senders)``, and what it sends depends on arguments and generator only.
    """

    outbox: list[tuple[int, Message]]
    """(sender, message)"""

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None: ...

    def executed(
        self, sender: int, value: Any, attached: Message | None, duration_ns: int, queued: int, now_ns: int
    ) -> None: ...

    def dropped(self, sender: int, attached: Message | None, queued: int, now_ns: int) -> None:
        """It leaves the queue as an executed one does, and nothing is learnt of its cost."""

    def hear(self, sender: int, message: Message, now_ns: int) -> None: ...


class BulkReceiver(Receiver, Protocol):
    """A half that hears of many tuples at once for less than of each.

    Law: it tells what it would have told of each, or the sum of it; of how long tuples took it may look at some only.
    """

    def received_many(self, sender: int, tuples: int, now_ns: int) -> None: ...

    def executed_many(
        self, sender: int, values: Sequence[Any], durations_ns: Sequence[int], queued: int, now_ns: int
    ) -> None:
        """``queued``: after the last of them."""
        ...


class FeedbackGrouping(Grouping, Protocol):
    """A grouping with two halves. Each sender binds its own chooser: they decide independently.

    Law: that of ``Grouping``; and halves share nothing but messages, which survive pickling.
    """

    def bind(self, tasks: int, rng: Random) -> FeedbackChooser: ...

    def bind_receiver(self, task: int, tasks: int, senders: int, rng: Random) -> Receiver: ...


def has_feedback(grouping: Grouping) -> TypeGuard[FeedbackGrouping]:
    """Does ``grouping`` have a receiving half?"""
    return hasattr(grouping, "bind_receiver")


def hears_many(half: Receiver) -> TypeGuard[BulkReceiver]:
    """Does it hear of many tuples at once?"""
    return hasattr(half, "executed_many")


def wants_answer(message: Message) -> bool:
    """Must a sender that holds no tuples hear this at once, because a task waits for what it says?"""
    return bool(getattr(message, "wants_answer", False))


class Quiet:
    """The base of sending halves that hold nothing, attach nothing and take no notice of time."""

    def __init__(self) -> None:
        self.attached: list[tuple[int, Message]] = []
        self.outbox: list[tuple[int, Message]] = []

    def tick(self, now_ns: int) -> None:
        pass


class Silent:
    """The base of receiving halves that look at executed tuples only."""

    patient = False
    """Whether it may hear of an arrival as late as of the execution, though before it."""

    awaited = False
    """Whether senders hold tuples until it has told them of others."""

    def __init__(self) -> None:
        self.outbox: list[tuple[int, Message]] = []

    @property
    def hears_arrivals(self) -> bool:
        """Whether it does anything about a tuple that has come."""
        return type(self).received is not Silent.received

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None:
        pass

    def received_many(self, sender: int, tuples: int, now_ns: int) -> None:
        for _ in range(tuples if self.hears_arrivals else 0):
            self.received(sender, None, now_ns)

    def dropped(self, sender: int, attached: Message | None, queued: int, now_ns: int) -> None:
        pass

    def hear(self, sender: int, message: Message, now_ns: int) -> None:
        raise AssertionError(f"a receiver heard what nobody sends: sender={sender} message={message}")
