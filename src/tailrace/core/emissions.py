"""Emission numbers: one for each incarnation of a root. All arithmetic on them is in this module.

The low 62 bits number the emissions of one ledger, one after the other from a random start. The two bits above them
hold the hedge index: 0 for an original, 1 and 2 for the hedges that race it. An original and its hedges therefore share
their low bits, and a task that holds a bundle of one of them knows the numbers of the others.
"""

from __future__ import annotations

from random import Random

_ORIGINALS = 1 << 62


def first_emission(rng: Random) -> int:
    """Where a new ledger starts to count: at random, so that acks meant for a dead ledger match nothing in this one."""
    return rng.randrange(_ORIGINALS)


def next_emission(emission: int) -> int:
    """The original that follows this original."""
    return (emission + 1) % _ORIGINALS


def is_hedge(emission: int) -> bool:
    """Whether this emission is a hedge, not an original."""
    return emission >= _ORIGINALS


def original(emission: int) -> int:
    """The number of the original that this emission races; its own, if it is an original."""
    return emission % _ORIGINALS


def hedge_index(emission: int) -> int:
    """0 for an original, 1 for its first hedge, 2 for its second."""
    return emission // _ORIGINALS


def hedge_of(emission: int) -> int:
    """The number of the next hedge, where this is the newest emission of a root."""
    return emission + _ORIGINALS


def race_until(newest: int) -> range:
    """The original and its hedges up to this one, in order."""
    return range(original(newest), newest + 1, _ORIGINALS)


def turn_of(emission: int, tasks: int) -> int:
    """The task that an emission goes to where roots take turns: an original by its number, a hedge to another task.

    Hedges of roots that went to one task, which may be stuck, are spread over all the others. There must be two tasks.
    """
    if emission < _ORIGINALS:
        return emission % tasks
    hedge, first = divmod(emission, _ORIGINALS)
    turn, place = divmod(first, tasks)
    return (place + 1 + (turn + hedge) % (tasks - 1)) % tasks
