"""Walks through the follower graph, three hops deep: how many users hear what a user says?

Law: every walk of a graph finds as many users as ``reach`` says, whatever it walks on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tailrace_research.bench.workloads.followers import DEPTH, bits_of, follower_graph
from tailrace_research.bench.workloads.spending import LookingUp, Means
from tailrace_research.bench.workloads.timetable import Item
from tailrace_research.bench.workloads.working import Work, Working

Walk = Callable[[int], int]
"""User -> how many others hear of it."""

TABLE = "CREATE TABLE followers (user INTEGER, follower INTEGER, PRIMARY KEY (user, follower)) WITHOUT ROWID"
QUERY = """
WITH RECURSIVE near (user, hops) AS (
    VALUES (?, 0) UNION SELECT follower, hops + 1 FROM near JOIN followers USING (user) WHERE hops < ?
)
SELECT COUNT(DISTINCT user) - 1 FROM near
"""


class Walks(Protocol):
    def open(self) -> Walk:
        """For one task."""
        ...


@dataclass(frozen=True)
class InMemory:
    """Through the graph of this process, which is made once."""

    seed: int

    def open(self) -> Walk:
        graph, bits = follower_graph(self.seed), bits_of(self.seed)

        def walk(user: int) -> int:
            near = {user}
            for _ in range(DEPTH - 1):
                near = near.union(*[graph[one] for one in near])
            heard = 1 << user
            for one in near:  # the last hop is the longest: 64 followers at a time
                heard |= bits[one]
            return heard.bit_count() - 1

        return walk


@dataclass(frozen=True)
class InSqlite:
    """Through a table in a file: see ``prepare_walks``."""

    path: str

    def open(self) -> Walk:
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, check_same_thread=False)
        return lambda user: int(connection.execute(QUERY, (user, DEPTH)).fetchone()[0])


def prepare_walks(means: Means, seed: int, folder: str) -> Walks:
    """Where tuples are looked up, walks are too."""
    return _tabled(seed, Path(folder)) if isinstance(means, LookingUp) else InMemory(seed)


def _tabled(seed: int, folder: Path) -> InSqlite:
    path = folder / f"followers-{seed}.sqlite"
    if not path.exists():
        connection = sqlite3.connect(path)
        with connection:
            connection.execute(TABLE)
            edges = ((user, one) for user, followers in enumerate(follower_graph(seed)) for one in followers)
            connection.executemany("INSERT INTO followers VALUES (?, ?)", edges)
        connection.close()
    return InSqlite(str(path))


class Reaching(Working):
    """A task that works out the reach of tweets. It costs what that reach stands for, the walk included.

    Where it stands for nothing, the walk is all of the cost.
    """

    def __init__(self, work: Work, walks: Walks) -> None:
        super().__init__(work)
        self._walk = walks.open()
        self._reached = 0

    def process(self, item: Item) -> Item:
        index, due_ns, _ = super().process(item)
        return index, due_ns, self._reached

    def _ask(self, body: Any) -> tuple[int, int]:
        author, _ = body
        clock = self._work.means.clock
        began_ns = clock()
        self._reached = self._walk(author)
        took_ns = clock() - began_ns
        return max(took_ns, self._work.cost_ns(self._reached)), took_ns
