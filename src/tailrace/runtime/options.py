"""The options of a run, each with the reason for its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any, Literal

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.core.feedback.budget import FEEDBACK_SHARE
from tailrace.core.protocol.coordinator import CoordinatorLimits
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.send_order.outgoing import OUTGOING_TUPLES
from tailrace.errors import OptionError, refuse_unknown, refuse_uri, shorten
from tailrace.policy.numbers import is_number
from tailrace.policy.techniques import NODE, PLAIN, WORKER, Tail
from tailrace.runtime.listening import Ports, ports_of

MEGABIT_BYTES = 125_000
MOST_WORKERS = 1024
"""Each worker is a process with connections to all others. This is far above what was ever tested."""

RESTART = "restart"
"""Value of ``state``: stateful operators may start empty when a run resumes, since checkpoints hold no state."""

BEAT_S = 0.25
"""Interval of a worker's heartbeats."""

LEAST_BEATS = 2
"""``heartbeat_timeout_s`` must span at least this many heartbeats, so that a single late one does not kill a worker."""

LEASE_TIMEOUTS = 10
"""A worker exits after hearing nothing from its driver for this many heartbeat timeouts: 30 s by default.

A driver may pause for a while (Ctrl-Z, a debugger, a suspended machine), and a worker that exits loses its state.
Staying is safe: a worker that was replaced in the meantime has a lower epoch, which sinks, peers and the coordinator
refuse. If the driver's process ends, so does the connection, and the worker exits at once; the lease is for a machine
or a network that disappeared.
"""


@dataclass(frozen=True)
class RunSettings:
    """The options of a run, checked, with their defaults. ``tailrace.topology.RunOptions`` describes each."""

    workers: int = 2
    checkpoint: str | PathLike[str] | None = None  # a folder that a later run can resume from
    state: Literal["restart"] | None = None  # state that silently begins empty would give wrong results
    max_pending: int = 65_536  # roots in flight per source task; bounds memory, and rate x commit interval
    heartbeat_timeout_s: float = 3.0  # a worker whose function holds the interpreter longer counts as dead
    start_timeout_s: float = 60.0  # a busy machine can take long to start an interpreter
    recovery_timeout_s: float = 300.0  # a backstop, as losses are reported at once: longer than any call should take
    max_deaths: int = 10  # of one worker in a row without progress: a tuple that kills it will do so again
    stop_timeout_s: float = 10.0  # for workers to close their tasks once all is done
    record: str | PathLike[str] | None = None  # a folder for a recording that the simulator can replay
    tail: Tail = PLAIN  # the techniques against tail latency that are on
    feedback_share: float = FEEDBACK_SHARE  # of a core per worker, for the feedback of load-aware groupings
    outgoing_tuples: int = OUTGOING_TUPLES  # per task under a send scheduler, waiting to leave the worker
    link_mbps: float | None = None  # limit on outgoing megabits a second: for benches, or to keep queues in the worker
    link_scope: Literal["worker", "node"] = WORKER  # "node" needs shared memory
    ring: bool = True  # shared memory between workers of one machine; without it they talk over TCP
    encrypt: bool | None = None  # as the Spark session does, which plain processes have none of
    plaintext: bool = False  # in clear although the Spark session is configured to encrypt
    port: int | str | None = None  # the system picks free ones; firewalls may want to know them beforehand

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("checkpoint", "record"):
                if value is not None and (not isinstance(value, str | PathLike) or value == ""):
                    raise OptionError(f"not a folder: {field.name}={shorten(value)}; did you mix two options up?")
                if value is not None:
                    refuse_uri(field.name, value)
                continue
            if field.name == "state":
                if value not in (None, RESTART):
                    raise OptionError(f"nothing to do with state: state={shorten(value)}: did you mean 'restart'?")
                continue
            if field.name == "tail":
                if not isinstance(value, Tail):
                    raise OptionError(f"not a tail: tail={shorten(value)}: did you mean Tail(hedge=…)?")
                continue
            if field.name == "port":
                ports_of(value)
                continue
            if field.name in ("ring", "plaintext", "encrypt"):
                if not isinstance(value, bool) and not (field.name == "encrypt" and value is None):
                    raise OptionError(
                        f"option must be true or false: {field.name}={shorten(value)}; did you mix two up?"
                    )
                continue
            if field.name == "link_scope":
                if value not in (WORKER, NODE):
                    raise OptionError(
                        f"unknown link scope: link_scope={shorten(value)}: did you mean 'worker' or 'node'?"
                    )
                continue
            if field.name == "link_mbps" and value is None:
                continue
            if not (is_number(value) and value > 0):
                raise OptionError(
                    f"option must be a positive number: {field.name}={shorten(value)}; did you mix two up?"
                )
            if field.name == "heartbeat_timeout_s" and value < LEAST_BEATS * BEAT_S:
                raise OptionError(
                    f"workers say every {BEAT_S:g} s that they are alive: heartbeat_timeout_s={shorten(value)} "
                    f"least={LEAST_BEATS * BEAT_S:g}; is it in seconds?"
                )
            if field.name == "workers" and value > MOST_WORKERS:
                raise OptionError(
                    f"too many workers: workers={shorten(value)} most={MOST_WORKERS}; did you mean tasks?"
                )
            if field.name == "feedback_share" and value > 1:
                raise OptionError(f"more than a core: feedback_share={shorten(value)}; did you mean {value / 100:g}?")
            if not field.name.endswith(("_s", "_mbps", "_share")) and not isinstance(value, int):
                raise OptionError(f"option must be a whole number: {field.name}={shorten(value)}; did you mix two up?")
        if self.encrypt and self.plaintext:
            raise OptionError("encrypted and in clear at once: encrypt=True plaintext=True: which of the two?")
        self.check(self.tail)

    def check(self, tail: Tail) -> None:
        """Raises OptionError if these techniques cannot be on with the other options."""
        if tail.shared_queues == NODE and not self.ring:
            raise OptionError(
                "a node's queue is in shared memory: shared_queues='node' ring=False: did you mean 'worker'?"
            )

        if self.link_scope == NODE and self.link_mbps is None:
            raise OptionError("a node's link without a limit: link_scope='node': how much is it, link_mbps=…?")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RunSettings:
        known = [field.name for field in fields(cls)]
        refuse_unknown("option", options, known)
        return cls(**options)

    @property
    def ledger(self) -> LedgerLimits:
        return LedgerLimits(self.max_pending, int(self.recovery_timeout_s * SECOND_NS))

    @property
    def ports(self) -> Ports | None:
        return ports_of(self.port)

    @property
    def lease_s(self) -> float:
        return LEASE_TIMEOUTS * self.heartbeat_timeout_s

    @property
    def link_bytes_per_s(self) -> int | None:
        return None if self.link_mbps is None else max(1, round(self.link_mbps * MEGABIT_BYTES))

    @property
    def coordinator(self) -> CoordinatorLimits:
        return CoordinatorLimits(
            heartbeat_timeout_ns=int(self.heartbeat_timeout_s * SECOND_NS),
            start_timeout_ns=int(self.start_timeout_s * SECOND_NS),
            settle_ns=200 * MILLISECOND_NS,
            flush_every_ns=100 * MILLISECOND_NS,
            leave_timeout_ns=int(self.stop_timeout_s * SECOND_NS),
            max_deaths=self.max_deaths,
        )
