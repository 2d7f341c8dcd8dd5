"""What workers and the coordinator tell each other. Every message of a worker carries its epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.policy.hedging.api import Load
from tailrace.policy.techniques import PLAIN, Tail

Address = tuple[str, int]


@dataclass(frozen=True)
class Member:
    """A worker that others may talk to."""

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
    """All tasks are open; sinks have shut out lower epochs and read back their lineages."""

    worker: int
    epoch: int


@dataclass(frozen=True)
class Applied:
    """The worker acts on this version of the membership, and has seen roots of splits as far as this."""

    worker: int
    epoch: int
    version: int
    seen: Mapping[int, int] = field(default_factory=dict)  # by split index: the offset behind the furthest


@dataclass(frozen=True)
class LinkLost:
    """A connection broke, or skipped a frame, between two live workers: something was lost."""

    worker: int
    epoch: int
    peer: int  # with whom
    peer_epoch: int


@dataclass(frozen=True)
class Renew:
    """Something was lost that the halves of a load-aware grouping may wait for. They shall begin anew, everywhere."""

    worker: int
    epoch: int


@dataclass(frozen=True)
class Position:
    """A prefix: every offset below it is durable. ``last`` is a fingerprint of the record just below."""

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
    """What a source task waits for."""

    worker: int
    epoch: int
    task: int
    settled: bool  # it will read no more, and all it has read is durable and committed
    wants_commit: bool  # it can go no further until sinks commit
    quiet: frozenset[int] = frozenset()  # splits of which nothing is pending: finished, or with nothing new
    reach: Mapping[int, int] = field(default_factory=dict)  # by split: the offset behind the newest root, if it is news


@dataclass(frozen=True)
class Passed:
    """All that a source task could read when it heard of a barrier is durable and committed."""

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
    """A task cannot go on, and a restart would not help."""

    worker: int
    epoch: int
    error: Exception


FromWorker = Registered | Ready | Applied | LinkLost | Renew | Prefixes | SourceReport | Passed | Alive | Failed


# -- from the coordinator


@dataclass(frozen=True)
class Assign:
    """Open these tasks: where sources begin, and what sinks need not remember."""

    starts: Mapping[int, Position]  # by split index
    draining: bool
    tail: Tail = PLAIN


@dataclass(frozen=True)
class Members:
    """Who may be talked to. Whatever comes from a lower epoch of a worker is refused.

    With each version the halves of load-aware groupings begin anew, also if the members are the same.
    """

    version: int
    members: Mapping[int, Member]
    epochs: Mapping[int, int]  # the lowest epoch that counts, for every worker, absent ones too


@dataclass(frozen=True)
class Recover:
    """Everybody acts on the present membership: sources emit again whatever is pending, then go on.

    ``reach`` is how far splits are known to have been read, by whomever: a source that drains reads as far.
    """

    reach: Mapping[int, int] = field(default_factory=dict)  # by split, where it is above the prefix


@dataclass(frozen=True)
class Committed:
    """These prefixes are where a restart will find them."""

    offsets: Mapping[int, int]


@dataclass(frozen=True)
class Flush:
    """Sinks commit what they have."""


@dataclass(frozen=True)
class Barrier:
    """Sources say when all that they can read now is durable."""

    number: int


@dataclass(frozen=True)
class Drain:
    """Sources read no more."""


@dataclass(frozen=True)
class Techniques:
    """The techniques that are on from now on."""

    tail: Tail


@dataclass(frozen=True)
class Leave:
    """Close all tasks and exit."""

    reason: str


ToWorker = Assign | Members | Recover | Committed | Flush | Barrier | Drain | Techniques | Load | Leave


# -- what the coordinator's host is told to do


@dataclass(frozen=True)
class StartWorker:
    worker: int
    epoch: int


@dataclass(frozen=True)
class Abandon:
    """This epoch is dead to us, whether or not its process is."""

    worker: int
    epoch: int
    why: str


@dataclass(frozen=True)
class Send:
    worker: int
    epoch: int
    message: ToWorker


@dataclass(frozen=True)
class Persist:
    """Store this, and say so when it is done. There is one under way at most."""

    positions: Mapping[int, Position]
    next_epoch: int  # no later run may use an epoch below it


@dataclass(frozen=True)
class Finish:
    """The run is over."""

    error: Exception | None


Command = StartWorker | Abandon | Send | Persist | Finish

Event = Any  # FromWorker, or one of the coordinator's own events
