"""Which of many tuples to look at, where some are enough."""

from __future__ import annotations

from random import Random


def some_of(count: int, most: int, rng: Random) -> slice:
    """Every n-th of ``count``, so that at most ``most`` are left.

    From a random one on: what repeats itself in a stream must not be met in step, over and over.
    """
    step = -(-count // most)
    return slice(int(rng.random() * step), None, step) if step > 1 else slice(None)
