"""The law of groupings as a function that checks any grouping.

The law is in ``tailrace.policy.groupings.api``; each ``_check_*`` below is one clause of it. Load-aware groupings have
a further law, in ``tailrace.policy.groupings.feedback``.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from random import Random
from typing import Any

import cloudpickle

from tailrace.errors import shorten
from tailrace.policy.groupings.api import ALL, FIRST, HELD, Grouping
from tailrace.policy.groupings.feedback import FeedbackGrouping, has_feedback
from tailrace.testing.feedback import LawBroken, drive_feedback

DEFAULT_VALUES = tuple(f"user-{index * index % 61}" for index in range(200))  # keys repeat, some more than others

_IN_ANOTHER_PROCESS = """
import pickle, sys
from tailrace.testing.grouping import _choose_everywhere
sys.stdout.buffer.write(pickle.dumps(_choose_everywhere(*pickle.load(sys.stdin.buffer))))
"""

SENDERS = (1, 3)
"""Numbers of senders that a load-aware grouping is tried with: one alone, and one among others that it does not see."""


def check_grouping(
    grouping: Grouping,
    *,
    tasks: Sequence[int] = (1, 2, 3, 8),
    values: Sequence[Any] = DEFAULT_VALUES,
    seeds: Sequence[int] = (0, 1, 2),
) -> None:
    """Raise ``AssertionError`` unless a grouping keeps its law. Starts one other Python process.

    Args:
        grouping: the grouping.
        tasks: the numbers of downstream tasks to try.
        values: tuples that the grouping's key function understands.
        seeds: the seeds to try.

    Example:
        >>> from tailrace.testing import check_grouping
        >>> check_grouping(tr.fields("user"), values=[{"user": "ada"}, {"user": "grace"}], tasks=[2])
    """
    assert tasks and values and seeds, "nothing to check: tasks, values and seeds need at least one entry each"
    for count in tasks:
        for seed in seeds:
            whole = _choose(grouping, count, seed, values)
            _check_entries(grouping, count, seed, values, whole)
            _check_pieces(grouping, count, seed, values, whole)
            _check_repeatable(grouping, count, seed, values, whole)
            if grouping.keyed:
                _check_keyed(grouping, count, seed, values, whole)
        if grouping.keyed:
            _check_seedless(grouping, count, seeds, values)
    if has_feedback(grouping):
        _check_feedback(grouping, tasks, seeds, values)
    _check_other_process(grouping, tasks, seeds, values)


def _choose(grouping: Grouping, tasks: int, seed: int, values: Sequence[Any]) -> list[int]:
    return list(grouping.bind(tasks, Random(seed)).choose_many(values))


def _choose_everywhere(
    grouping: Grouping, tasks: Sequence[int], seeds: Sequence[int], values: Sequence[Any]
) -> dict[tuple[int, int], list[int]]:
    """The choices without feedback, followed by those with feedback if the grouping has any."""
    choices = {(count, seed): _choose(grouping, count, seed, values) for count in tasks for seed in seeds}
    if has_feedback(grouping):
        for (count, seed), some in choices.items():
            for senders in SENDERS:
                some.extend(drive_feedback(grouping, count, senders, seed, values))
    return choices


def _broken(grouping: Grouping, law: str, **facts: object) -> AssertionError:
    details = " ".join(f"{name}={fact}" for name, fact in facts.items())
    return AssertionError(f"grouping breaks its law: {law}: grouping={grouping.name} {details}")


def _check_same(
    grouping: Grouping, law: str, values: Sequence[Any], a: list[int], b: list[int], **facts: object
) -> None:
    if len(a) != len(b):
        raise _broken(grouping, law, **facts, choices=f"{len(a)}!={len(b)}")
    for index, (left, right) in enumerate(zip(a, b, strict=True)):
        if left != right:
            raise _broken(grouping, law, **facts, index=index, value=shorten(values[index]), expected=left, given=right)


def _check_entries(grouping: Grouping, tasks: int, seed: int, values: Sequence[Any], whole: list[int]) -> None:
    if len(whole) != len(values):
        raise _broken(grouping, "one choice a value", tasks=tasks, seed=seed, values=len(values), choices=len(whole))
    for value, choice in zip(values, whole, strict=True):
        special = (ALL, HELD, *range(FIRST, FIRST - tasks, -1)) if has_feedback(grouping) else (ALL,)
        if not isinstance(choice, int) or not (choice in special or 0 <= choice < tasks):
            law = f"a choice is {'ALL, HELD, FIRST - task' if HELD in special else 'ALL'} or lies in range(tasks)"
            raise _broken(grouping, law, tasks=tasks, seed=seed, value=shorten(value), choice=shorten(choice))


def _check_pieces(grouping: Grouping, tasks: int, seed: int, values: Sequence[Any], whole: list[int]) -> None:
    """The pieces are single values, and lists of different lengths, some of them empty."""
    cuts = Random(seed)
    for largest in (1, 7):
        chooser = grouping.bind(tasks, Random(seed))
        pieces: list[int] = []
        begin = 0
        while begin < len(values):
            end = begin + (1 if largest == 1 else cuts.randint(0, largest))
            pieces.extend(chooser.choose_many(values[begin:end]))
            begin = end
        _check_same(
            grouping, "a list and its pieces give the same choices", values, whole, pieces, tasks=tasks, seed=seed
        )


def _check_repeatable(grouping: Grouping, tasks: int, seed: int, values: Sequence[Any], whole: list[int]) -> None:
    """Two choosers that are called in turn must not share state through the grouping."""
    one, two = grouping.bind(tasks, Random(seed)), grouping.bind(tasks, Random(seed))
    choices: tuple[list[int], list[int]] = ([], [])
    for index in range(len(values)):
        choices[0].extend(one.choose_many(values[index : index + 1]))
        choices[1].extend(two.choose_many(values[index : index + 1]))
    for given in choices:
        _check_same(grouping, "equal seeds give equal choices", values, whole, given, tasks=tasks, seed=seed)


def _check_keyed(grouping: Grouping, tasks: int, seed: int, values: Sequence[Any], whole: list[int]) -> None:
    """The same tuples backwards, and then in order again: each must go where it went before."""
    chooser = grouping.bind(tasks, Random(seed))
    backwards = list(chooser.choose_many(values[::-1]))[::-1]
    again = list(chooser.choose_many(values))
    law = "a keyed grouping's choice does not depend on the past"
    _check_same(grouping, law, values, whole, backwards, tasks=tasks, seed=seed)
    _check_same(grouping, law, values, whole, again, tasks=tasks, seed=seed)


def _check_seedless(grouping: Grouping, tasks: int, seeds: Sequence[int], values: Sequence[Any]) -> None:
    first = _choose(grouping, tasks, seeds[0], values)
    for seed in seeds[1:]:
        law = "a keyed grouping's choice does not depend on the seed"
        _check_same(grouping, law, values, first, _choose(grouping, tasks, seed, values), tasks=tasks, seed=seed)


def _check_feedback(
    grouping: FeedbackGrouping, tasks: Sequence[int], seeds: Sequence[int], values: Sequence[Any]
) -> None:
    for count in tasks:
        for senders in SENDERS:
            for seed in seeds:
                try:
                    first = drive_feedback(grouping, count, senders, seed, values)
                    again = drive_feedback(grouping, count, senders, seed, values)
                except LawBroken as broken:
                    facts = {**broken.facts, "tasks": count, "senders": senders, "seed": seed}
                    raise _broken(grouping, broken.law, **facts) from None
                law = "equal seeds give equal choices"
                _check_same(grouping, law, values, first, again, tasks=count, senders=senders, seed=seed)


def _check_other_process(grouping: Grouping, tasks: Sequence[int], seeds: Sequence[int], values: Sequence[Any]) -> None:
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", _IN_ANOTHER_PROCESS],
        input=cloudpickle.dumps((grouping, list(tasks), list(seeds), list(values))),
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        timeout=60,
    )
    law = "equal choices in any process"
    if done.returncode != 0:
        raise _broken(grouping, law, error=done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    there = pickle.loads(done.stdout)
    shown = list(values) * (1 + len(SENDERS))
    for (count, seed), here in _choose_everywhere(grouping, tasks, seeds, values).items():
        _check_same(grouping, law, shown, here, there[count, seed], tasks=count, seed=seed)
