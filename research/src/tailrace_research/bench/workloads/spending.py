"""How a task spends the work of a tuple: asleep, computing, or looking things up.

A sleep ends about a tenth of a millisecond late, and several where the machine has other things to do. For tasks that
are busy 95% of the time that decides how long queues get. What a sleep took too long is therefore taken off the next
ones. Watching the clock instead would be exact for each tuple, but would take the interpreter from the other tasks of
the worker.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tailrace.clock import MILLISECOND_NS, SECOND_NS, Clock, system_clock
from tailrace.errors import OptionError
from tailrace.policy.hashing import stable_hash
from tailrace.topology import TaskKind

Spend = Callable[[int], None]
"""Spends so many nanoseconds of work."""

CUT = 4
"""No tuple is cut by more than this part of it, so that what it seems to cost stays about right."""

LATE_NS = 50 * MILLISECOND_NS
"""Beyond that a machine was suspended rather than busy: the rest is not made up for."""

ROWS = 100_000
"""Rows of the table of lookups: a few megabytes, which stay in the page cache, as in a database that is warm."""


SOME = 5_000
"""Lookups that a lookup's time is the mean of."""


class Means(Protocol):
    """Law: what a task has spent is what it was asked to spend, however many tuples that was for."""

    @property
    def kind(self) -> TaskKind:
        """The operator's ``kind``, for the engine."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock that counts what is spent."""
        ...

    def open(self) -> Spend:
        """Make the object that spends the work of one task."""
        ...


class Sleeper:
    """Sleeps as long as it is told on average, though each sleep is late."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep, clock: Clock = system_clock) -> None:
        self._sleep = sleep
        self._clock = clock
        self._late_ns = 0

    def spend(self, work_ns: int) -> None:
        cut_ns = min(self._late_ns, work_ns // CUT)
        began_ns = self._clock()
        self._sleep((work_ns - cut_ns) / SECOND_NS)
        took_ns = self._clock() - began_ns
        self._late_ns = min(self._late_ns + took_ns - work_ns, LATE_NS)


@dataclass(frozen=True)
class Sleeping:
    """Costs no processor time, so that a small machine stands for a large one."""

    kind: TaskKind = "blocking"
    clock = staticmethod(system_clock)

    def open(self) -> Spend:
        return Sleeper().spend


@dataclass(frozen=True)
class Computing:
    """Spends processor time of the task's thread: load on the same core makes it slower."""

    kind: TaskKind = "cpu"
    clock = staticmethod(time.thread_time_ns)

    def open(self) -> Spend:
        return compute


def compute(work_ns: int) -> None:
    end_ns = time.thread_time_ns() + work_ns
    while time.thread_time_ns() < end_ns:
        pass


@dataclass(frozen=True)
class LookingUp:
    """Looks up rows by primary key in a SQLite file, one after the other: see ``prepare_lookups``."""

    path: str
    lookup_ns: int
    kind: TaskKind = "blocking"
    clock = staticmethod(time.thread_time_ns)

    def open(self) -> Spend:
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, check_same_thread=False)
        return Lookups(connection, self.lookup_ns).spend


class Lookups:
    """A rest that is shorter than a lookup is carried over to the next tuple."""

    def __init__(self, connection: sqlite3.Connection, lookup_ns: int) -> None:
        self._connection = connection
        self._lookup_ns = lookup_ns
        self._left_ns = 0
        self.done = 0

    def spend(self, work_ns: int) -> None:
        lookups, self._left_ns = divmod(work_ns + self._left_ns, self._lookup_ns)
        for _ in range(lookups):
            self.done += 1
            row = stable_hash(self.done) % ROWS
            self._connection.execute("SELECT name FROM users WHERE id = ?", (row,)).fetchone()


def prepare_lookups(folder: Path) -> LookingUp:
    """Make the table, and measure how much processor time a lookup takes here."""
    path = folder / "users.sqlite"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO users VALUES (?, ?)", ((row, f"user {row}") for row in range(ROWS)))
    lookups = Lookups(connection, 1)
    lookups.spend(SOME)
    began_ns = time.thread_time_ns()
    lookups.spend(SOME)
    lookup_ns = (time.thread_time_ns() - began_ns) // SOME
    connection.close()
    return LookingUp(str(path), max(1, lookup_ns))


@dataclass(frozen=True)
class Stalls:
    """A share of all executions takes many times as long. Each execution is drawn by itself: a second try may be quick.

    Law: whether the n-th execution of a tuple by a task stalls depends on these numbers and the seed alone.
    """

    seed: int
    share: float = 0.01
    factor: float = 50.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.factor < 1:
            raise OptionError(f"not stalls: share={self.share} factor={self.factor}: is the share a fraction?")

    @property
    def mean_factor(self) -> float:
        """By how much they raise the load."""
        return 1 + self.share * (self.factor - 1)

    def factor_of(self, operator: str, task: int, index: int, time: int) -> float:
        drawn = stable_hash((self.seed, operator, task, index, time)) / 2**64
        return self.factor if drawn < self.share else 1.0
