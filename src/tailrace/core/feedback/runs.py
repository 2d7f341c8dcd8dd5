"""The events that a feedback receiver keeps for later: arrivals and finished calls, in as few pieces as possible.

Telling a grouping of many tuples at once costs it much less than telling it of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tailrace.core.bundles import ATTACHED, EMISSION, FEEDBACK, ORIGIN, VALUES, FeedbackMessage, Origin
from tailrace.policy.groupings.feedback import Message

Came = tuple[Origin | None, int, Sequence[Message | None] | None]
"""Tuples that have arrived: (origin, how many, feedback attached to them). The origin is None where they came on an
edge that is not load-aware."""

Arrival = tuple[int, Sequence[Any], int]
"""(when they arrived, each a ``Came`` or a feedback message, how long it took to summarise them)"""

Run = tuple[Origin | None, Sequence[Any], Sequence[Message | None] | None, Sequence[int] | None]
"""Tuples that were run one after the other: (origin, values, feedback attached to them, how long each took). The
durations are None where the tuples were dropped unrun, because their emission was cancelled."""


def came(items: Iterable[Any]) -> list[Came | FeedbackMessage]:
    """Summarise bundles and feedback messages, in order.

    Consecutive tuples of one sender, with nothing attached, become one piece.
    """
    found: list[Came | FeedbackMessage] = []
    last: Origin | None = None  # of the tuples that are counted and not yet in ``found``
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
    """Merge the runs of each sender, where nothing is attached and nothing else lies between them."""
    found: list[Run] = []
    open_runs: dict[Origin, tuple[list[Any], list[int]]] = {}
    for run in runs:
        origin, some, attached, took_ns = run
        if origin is None or attached is not None or took_ns is None:
            open_runs.clear()
            found.append(run)
        elif origin in open_runs:
            values, durations_ns = open_runs[origin]
            values += some
            durations_ns += took_ns
        else:
            values, durations_ns = open_runs[origin] = [*some], [*took_ns]
            found.append((origin, values, None, durations_ns))
    return found
