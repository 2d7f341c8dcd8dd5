"""What the halves of a task are told of, in as few pieces as can be: tuples that came, and tuples that were run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tailrace.core.bundles import ATTACHED, EMISSION, FEEDBACK, ORIGIN, VALUES, FeedbackMessage, Origin
from tailrace.policy.groupings.feedback import Message

Came = tuple[Origin | None, int, Sequence[Message | None] | None]
"""Tuples that have come: whose, how many, and what is attached to them. Nobody's: they came on another kind of edge."""

Arrival = tuple[int, Sequence[Any], int]
"""When it was, what came (each a ``Came`` or a note), and how long it took to look at that."""

Run = tuple[Origin | None, Sequence[Any], Sequence[Message | None] | None, Sequence[int] | None]
"""Tuples that were run one after the other: whose, which, what is attached to them, and how long each took.
No durations: they were thrown away."""


def came(items: Iterable[Any]) -> list[Came | FeedbackMessage]:
    """The same in fewer: tuples of one sender that came without a break are one, where nothing is attached."""
    found: list[Came | FeedbackMessage] = []
    last: Origin | None = None  # of the tuples counted and not yet in there
    tuples = 0
    for item in items:
        feedback = item[EMISSION] == FEEDBACK
        if not feedback and item[ATTACHED] is None and item[ORIGIN] is not None:
            if item[ORIGIN] is not last:
                if last is not None:
                    found.append((last, tuples, None))
                last, tuples = item[ORIGIN], 0
            tuples += len(item[VALUES])
            continue
        if last is not None:
            found.append((last, tuples, None))
            last = None
        found.append(item if feedback else (item[ORIGIN], len(item[VALUES]), item[ATTACHED]))
    if last is not None:
        found.append((last, tuples, None))
    return found


def joined(runs: Sequence[Run]) -> list[Run]:
    """The same in fewer: what was run for one sender is one, where nothing is attached and nothing else between."""
    found: list[Run] = []
    going_on: dict[Origin, tuple[list[Any], list[int]]] = {}
    for run in runs:
        origin, some, said, took_ns = run
        if origin is None or said is not None or took_ns is None:
            going_on.clear()
            found.append(run)
        elif origin in going_on:
            values, durations_ns = going_on[origin]
            values += some
            durations_ns += took_ns
        else:
            values, durations_ns = going_on[origin] = [*some], [*took_ns]
            found.append((origin, values, None, durations_ns))
    return found
