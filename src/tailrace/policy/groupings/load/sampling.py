"""Sampling: which of many tuples to look at, where some are enough."""

from __future__ import annotations

from random import Random


def some_of(count: int, most: int, rng: Random) -> slice:
    """Every n-th of ``count``, so that at most ``most`` are left.

    The slice begins at a random position, so that it does not move in step with what repeats in a stream.
    """
    step = -(-count // most)
    return slice(int(rng.random() * step), None, step) if step > 1 else slice(None)
