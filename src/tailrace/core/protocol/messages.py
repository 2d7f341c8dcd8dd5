"""The messages between workers and the coordinator. Every message of a worker carries its epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.policy.hedging.api import Load
from tailrace.policy.techniques import PLAIN, Tail

Address = tuple[str, int]


@dataclass(frozen=True)
class Member:
    """A worker that others may connect to."""

    epoch: int
    address: Address


# -- from a worker


@dataclass(frozen=True)
class Registered:
    """The process is up and listens."""

    worker: int
    epoch: int
    address: Address
    pid: int
    host: str


@dataclass(frozen=True)
class Ready:
    """All tasks are open. Sinks have shut out lower epochs and read back their lineages."""

    worker: int
    epoch: int


@dataclass(frozen=True)
class Applied:
    """The worker acts on this version of the membership. ``seen``: how far roots of each split have reached it."""

    worker: int
    epoch: int
    version: int
    seen: Mapping[int, int] = field(default_factory=dict)  # by split index: the offset after the furthest root


@dataclass(frozen=True)
class LinkLost:
    """A connection broke, or skipped a frame, between two live workers: something was lost."""

    worker: int
    epoch: int
    peer: int  # the other worker
    peer_epoch: int


@dataclass(frozen=True)
class Renew:
    """Something was lost that one side of a load-aware grouping may wait for. All of them must start again."""

    worker: int
    epoch: int


@dataclass(frozen=True)
class Position:
    """A prefix: every root below ``offset`` is durable. ``last``: a fingerprint of the record just below it."""

    offset: int
    last: bytes | None


@dataclass(frozen=True)
class Prefixes:
    """A ledger's prefixes have moved."""

    worker: int
    epoch: int
    positions: Mapping[int, Position]  # by split index
    reach: Mapping[int, int] = field(default_factory=dict)  # as in a SourceReport


@dataclass(frozen=True)
class SourceReport:
    """The state of a source task has changed."""

    worker: int
    epoch: int
    task: int
    settled: bool  # it will read no more, and all it has read is durable and committed
    wants_commit: bool  # it can go no further until sinks commit
    quiet: frozenset[int] = frozenset()  # splits without pending roots: finished, or with nothing new
    reach: Mapping[int, int] = field(
        default_factory=dict
    )  # by split: the offset after the newest root, where it is new


@dataclass(frozen=True)
class Passed:
    """All that a source task could read when it got a barrier is durable and committed."""

    worker: int
    epoch: int
    task: int
    barrier: int


@dataclass(frozen=True)
class Alive:
    """A heartbeat."""

    worker: int
    epoch: int


@dataclass(frozen=True)
class Failed:
    """A task has failed, and a restart would not help."""

    worker: int
    epoch: int
    error: Exception


FromWorker = Registered | Ready | Applied | LinkLost | Renew | Prefixes | SourceReport | Passed | Alive | Failed


# -- from the coordinator


@dataclass(frozen=True)
class Assign:
    """Open the tasks of this worker. ``starts``: where sources begin, and below which sinks need no memory."""

    starts: Mapping[int, Position]  # by split index
    draining: bool
    tail: Tail = PLAIN


@dataclass(frozen=True)
class Members:
    """The workers that may be connected to. Frames from lower epochs than these are refused.

    With each version load-aware groupings start again, also if the members are the same.
    """

    version: int
    members: Mapping[int, Member]
    epochs: Mapping[int, int]  # the lowest epoch that counts of every worker, also of those that are not there


@dataclass(frozen=True)
class Recover:
    """All workers act on the present membership: sources re-emit all pending roots, then go on.

    ``reach``: how far splits have been read, by any epoch. A source that drains must read that far.
    """

    reach: Mapping[int, int] = field(default_factory=dict)  # by split, where it is above the prefix


@dataclass(frozen=True)
class Committed:
    """These prefixes are stored: a restart will begin there."""

    offsets: Mapping[int, int]


@dataclass(frozen=True)
class Flush:
    """Sinks must commit what they have."""


@dataclass(frozen=True)
class Barrier:
    """Sources must report when all that they can read now is durable."""

    number: int


@dataclass(frozen=True)
class Drain:
    """Sources must read no more."""


@dataclass(frozen=True)
class Techniques:
    """The techniques that are on from now on."""

    tail: Tail


@dataclass(frozen=True)
class Leave:
    """Workers must close all tasks and exit."""

    reason: str


ToWorker = Assign | Members | Recover | Committed | Flush | Barrier | Drain | Techniques | Load | Leave


# -- commands of the coordinator to its host


@dataclass(frozen=True)
class StartWorker:
    """Start a process for this worker, with this epoch."""

    worker: int
    epoch: int


@dataclass(frozen=True)
class Abandon:
    """This epoch is declared dead, whether or not its process is."""

    worker: int
    epoch: int
    why: str


@dataclass(frozen=True)
class Send:
    """Send a message to this worker, if it still has this epoch."""

    worker: int
    epoch: int
    message: ToWorker


@dataclass(frozen=True)
class Persist:
    """Store this, then call ``stored`` or ``not_stored``. At most one is under way."""

    positions: Mapping[int, Position]
    next_epoch: int  # no later run may use an epoch below it


@dataclass(frozen=True)
class Finish:
    """The run is over."""

    error: Exception | None


Command = StartWorker | Abandon | Send | Persist | Finish

Event = Any  # FromWorker, or one of the coordinator's own events
