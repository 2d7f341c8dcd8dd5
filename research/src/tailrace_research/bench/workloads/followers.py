"""A follower graph of the size that OSG's REACH has: 9,960 users, 183,005 edges, at most 734 followers.

How many a user has follows a lognormal law; who they are is random. The paper's graph came from a generator of social
networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random

USERS = 9_960
EDGES = 183_005
MOST = 734  # followers of one user
SIGMA = 1.4  # of the logarithm of how many followers a user has
DEPTH = 3

Graph = tuple[tuple[int, ...], ...]
"""User -> followers."""


@cache
def follower_graph(seed: int) -> Graph:
    rng = Random(f"{seed} followers")
    users = list(range(USERS))  # so that all followers are the same few objects
    return tuple(tuple(rng.sample(users, degree)) for degree in _degrees(rng))


def _degrees(rng: Random) -> list[int]:
    """As many as the edges in all, the largest being the most that there may be."""
    drawn = sorted(rng.lognormvariate(0, SIGMA) for _ in range(USERS))
    low, high = 0.0, float(EDGES)
    for _ in range(60):  # bisect for the scale that gives the right sum
        scale = (low + high) / 2
        low, high = (scale, high) if sum(_scaled(drawn, scale)) < EDGES else (low, scale)
    degrees = _scaled(drawn, low)
    for index in range(EDGES - sum(degrees)):  # what rounding has left over
        degrees[index] += 1
    rng.shuffle(degrees)
    return degrees


def _scaled(drawn: Sequence[float], scale: float) -> list[int]:
    return [*(min(MOST, int(scale * value)) for value in drawn[:-1]), MOST]


@cache
def bits_of(seed: int) -> tuple[int, ...]:
    """User -> followers, as the bits of an integer: 13 MB in all."""
    return tuple(map(_bits, follower_graph(seed)))


def _bits(followers: Sequence[int]) -> int:
    held = bytearray(USERS // 8 + 1)
    for user in followers:
        held[user >> 3] |= 1 << (user & 7)
    return int.from_bytes(held, "little")


@cache
def reach(seed: int) -> tuple[int, ...]:
    """How many users hear of what each user says, over at most ``DEPTH`` hops.

    For all of them at once, by what they share: a walk from each would take seconds.
    """
    graph = follower_graph(seed)
    within = [1 << user | bits for user, bits in enumerate(bits_of(seed))]
    for _ in range(DEPTH - 1):
        within = [_union(within, (user, *graph[user])) for user in range(USERS)]
    return tuple(users.bit_count() - 1 for users in within)


def _union(sets: Sequence[int], users: Sequence[int]) -> int:
    together = 0
    for user in users:
        together |= sets[user]
    return together
