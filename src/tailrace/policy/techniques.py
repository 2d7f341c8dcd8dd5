"""The techniques against the tail that are on: a value, which a run is given and which may change while it lasts."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeGuard

from tailrace.errors import OptionError, refuse_unknown, shorten
from tailrace.policy.hedging.api import ReplayRule
from tailrace.policy.send_order.api import SendScheduler

QueueScope = Literal["worker", "node"]
"""Whose tasks of an operator draw from one queue."""

WORKER: Final = "worker"
NODE: Final = "node"


class Techniques(TypedDict, total=False):
    """What ``Tail`` and ``run.tail`` take. ``None`` switches a technique off."""

    replay: ReplayRule | None
    """Which late roots are emitted once more, as a hedge."""

    shared_queues: QueueScope | None
    """Whose tasks of an operator draw from one queue: those of a worker, or those of all workers of a node."""

    send: SendScheduler | None
    """Which task of an operator in one worker sends next to other workers."""


@dataclass(frozen=True)
class Tail:
    """The techniques against the latency tail that are on. Each is off unless it is given.

    Args:
        replay: which late roots are emitted once more, as a hedge: ``adaptive_timeout()``, ``fixed_timeout(ms)``, …
        shared_queues: whose tasks of an operator draw from one queue: those of a ``"worker"``, or of a ``"node"``.
        send: which task of an operator in one worker sends next to other workers: ``lbf()``, ``round_robin()``, …

    Example:
        >>> tr.Tail(replay=tr.adaptive_timeout(), shared_queues="worker").names()
        {'replay': 'adaptive_timeout', 'shared_queues': 'worker', 'send': None}
    """

    replay: ReplayRule | None = None
    shared_queues: QueueScope | None = None
    send: SendScheduler | None = None

    if not TYPE_CHECKING:  # type checkers see the dataclass's own signature

        def __new__(cls, *rules: Any, **techniques: Any) -> Tail:
            refuse_unknown("technique", techniques, _NAMES)
            return super().__new__(cls)

    def __post_init__(self) -> None:
        if self.replay is not None and not _is_replay_rule(self.replay):
            raise OptionError(f"not a replay rule: replay={shorten(self.replay)}: did you mean adaptive_timeout()?")
        if self.shared_queues is not None:
            checked_scope(self.shared_queues)
        if self.send is not None:
            _check_scheduler(self.send)

    def changed(self, techniques: Techniques) -> Tail:
        """The same techniques but for those given.

        Args:
            techniques: new rules by the names of this class's fields; ``None`` switches one off.

        Example:
            >>> tr.Tail(shared_queues="worker").changed({"send": tr.lbf()}).names()
            {'replay': None, 'shared_queues': 'worker', 'send': 'lbf'}
        """
        refuse_unknown("technique", techniques, _NAMES)
        return replace(self, **techniques)

    def names(self) -> dict[str, str | None]:
        """Each technique, with the name of its rule; ``None`` if it is off.

        Example:
            >>> tr.Tail(send=tr.lbf()).names()
            {'replay': None, 'shared_queues': None, 'send': 'lbf'}
        """
        return {name: _name(getattr(self, name)) for name in _NAMES}


_NAMES = tuple(field.name for field in fields(Tail))


def checked_scope(value: object) -> QueueScope:
    """``value`` if it says whose tasks share queues."""
    if _is_scope(value):
        return value
    raise OptionError(f"not a way to share queues: shared_queues={shorten(value)}: did you mean 'worker' or 'node'?")


def _is_scope(value: object) -> TypeGuard[QueueScope]:
    return value in (WORKER, NODE)


def _is_replay_rule(rule: Any) -> bool:
    return not isinstance(rule, type) and all(hasattr(rule, part) for part in ("name", "cancels", "budget", "bind"))


def _check_scheduler(scheduler: Any) -> None:
    parts = ("name", "work_conserving", "age_floor_ns", "age_drains", "interval_ns", "bind")
    if isinstance(scheduler, type) or not all(hasattr(scheduler, part) for part in parts):
        raise OptionError(f"not a send scheduler: send={shorten(scheduler)}: did you mean lbf()?")
    if not scheduler.work_conserving and scheduler.interval_ns is None:
        raise OptionError(
            f"a scheduler that wastes turns is for simulations, where a turn has a length: send={scheduler.name}: "
            "did you mean round_robin()?"
        )


def _name(rule: Any) -> str | None:
    return rule if rule is None or isinstance(rule, str) else str(rule.name)


PLAIN = Tail()
"""No technique is on."""
