"""Everything that travels between tasks: bundles of tuples, and feedback messages on load-aware edges.

Both are plain tuples, because one is made for every tuple and hop: building a class would cost several times as much.
Their fields are read by the names below (``bundle[VALUES]``) or by unpacking all of them. The first field says which
of the two a tuple is: a bundle has an emission number there, a feedback message has ``FEEDBACK``. Code that runs once a
bundle compares that field itself; all other code calls ``is_feedback``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

from tailrace.policy.groupings.feedback import Message, wants_answer

Origin = tuple[int, int, int]
"""(edge index, index of the sending task within its operator, version of the membership)"""

ORIGIN_VERSION: Final = 2

Bundle = tuple[int, int, int, int, list[int] | None, list[Any], Origin | None, Sequence[Message | None] | None]
"""Tuples that go to one task together, with one ack id. The fields are named by the constants that follow."""

EMISSION: Final = 0
"""The emission number of the root incarnation that the tuples descend from (``tailrace.core.emissions``)."""
SPLIT: Final = 1
"""The index of the split that the root was read from."""
OFFSET: Final = 2
"""The root's offset in that split."""
ACK: Final = 3
"""The bundle's ack id: random, 64 bits."""
LINEAGES: Final = 4
"""The lineage of each tuple, or None where neither a committing sink nor a journal lies downstream."""
VALUES: Final = 5
"""The tuples themselves: at least one."""
ORIGIN: Final = 6
"""The sender of the bundle on a load-aware edge, to which the receiving task reports. None on all other edges."""
ATTACHED: Final = 7
"""The feedback attached to each tuple, or None if no tuple has any. Always None where ``ORIGIN`` is."""

FeedbackMessage = tuple[int, int, int, int, Message]
"""(``FEEDBACK``, edge index, index of the speaking task within its operator, version of the membership, message)

It goes from the sender of a load-aware edge to the receiver in the same lane as bundles, so that their order is kept,
and from the receiver to the sender by itself.
"""

FEEDBACK: Final = -1
"""The first field of a feedback message. Emission numbers are never negative."""

VERSION: Final = 3
MESSAGE: Final = 4

_first_field = itemgetter(0)


def new_bundle(
    emission: int,
    split: int,
    offset: int,
    ack: int,
    lineages: list[int] | None,
    values: list[Any],
    origin: Origin | None = None,
    attached: Sequence[Message | None] | None = None,
) -> Bundle:
    """The routers write the tuple out instead, because a call for each bundle would cost as much as the bundle."""
    return (emission, split, offset, ack, lineages, values, origin, attached)


def feedback_message(edge: int, task: int, version: int, message: Message) -> FeedbackMessage:
    """A feedback message from ``task`` about ``edge``. ``version`` is that of the membership it was made in."""
    return (FEEDBACK, edge, task, version, message)


def is_feedback(item: Sequence[Any]) -> bool:
    """Whether this is a feedback message, not a bundle."""
    return bool(item[EMISSION] == FEEDBACK)


def has_feedback_messages(items: Iterable[Sequence[Any]]) -> bool:
    """Whether there are feedback messages among these bundles."""
    return FEEDBACK in map(_first_field, items)


def tuples_in(items: Iterable[Sequence[Any]]) -> int:
    """How many tuples these bundles hold. There may be feedback messages among them."""
    return sum([len(item[VALUES]) for item in items if item[EMISSION] != FEEDBACK])


def some_of(bundle: Bundle, positions: Sequence[int], ack: int) -> Bundle:
    """A bundle of the tuples at these positions only, under another ack id."""
    emission, split, offset, _, lineages, values, origin, attached = bundle
    return (
        emission,
        split,
        offset,
        ack,
        None if lineages is None else [lineages[position] for position in positions],
        [values[position] for position in positions],
        origin,
        None if attached is None else [attached[position] for position in positions],
    )


def divided(bundle: Bundle, first: int, new_id: int) -> tuple[Bundle, Bundle]:
    """The first tuples of a bundle, and the others, as bundles of their own.

    ``new_id`` is a random ack id. The exclusive or of the two parts' ids is the bundle's, so that the ledger gets what
    it waits for whichever tasks run them.
    """
    emission, split, offset, ack, lineages, values, origin, attached = bundle
    head, tail = slice(first), slice(first, None)
    parts = [
        (
            emission,
            split,
            offset,
            part_ack,
            None if lineages is None else lineages[part],
            values[part],
            origin,
            None if attached is None else attached[part],
        )
        for part, part_ack in ((head, new_id), (tail, ack ^ new_id))
    ]
    return parts[0], parts[1]


def any_urgent(messages: Iterable[FeedbackMessage]) -> bool:
    """Whether one of these must be delivered at once, because a task waits for the answer."""
    return any(wants_answer(message[MESSAGE]) for message in messages)
