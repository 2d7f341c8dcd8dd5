"""``Tail``: the techniques against the latency tail that a run uses.

It is a value, and may be exchanged for another while the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeGuard

from tailrace.errors import OptionError, refuse_unknown, shorten
from tailrace.policy.hedging.api import HedgeRule
from tailrace.policy.send_order.api import SendScheduler

QueueScope = Literal["worker", "node"]
"""Which tasks of an operator share a queue: those of one worker, or those of one node."""

WORKER: Final = "worker"
NODE: Final = "node"


class Techniques(TypedDict, total=False):
    """The arguments of ``Tail`` and ``run.tail``. ``None`` switches a technique off.

    Example:
        >>> shared: tr.Techniques = {"shared_queues": "worker"}
        >>> tr.Tail(**shared).names()["shared_queues"]
        'worker'
    """

    hedge: HedgeRule | None
    """Which late roots are emitted once more, as a hedge."""

    replay: HedgeRule | None
    """Another name of ``hedge``."""

    shared_queues: QueueScope | None
    """Which tasks of an operator draw from one queue: those of a worker, or those of all workers of a node."""

    send: SendScheduler | None
    """Which task of an operator in one worker sends next to other workers."""


@dataclass(frozen=True)
class Tail:
    """The techniques against the latency tail that are on. Each is off unless it is given.

    Args:
        hedge: which late roots are emitted once more, as a hedge: ``adaptive_timeout()``, ``fixed_timeout(ms)``, …
            ``replay=`` is another name of it.
        shared_queues: whose tasks of an operator draw from one queue: those of a ``"worker"``, or of a ``"node"``.
        send: which task of an operator in one worker sends next to other workers: ``lbf()``, ``round_robin()``, …

    Example:
        >>> tr.Tail(hedge=tr.adaptive_timeout(), shared_queues="worker").names()
        {'replay': 'adaptive_timeout', 'shared_queues': 'worker', 'send': None}
    """

    hedge: HedgeRule | None = None
    shared_queues: QueueScope | None = None
    send: SendScheduler | None = None

    if TYPE_CHECKING:  # ``_checked`` does the same at run time

        def __init__(
            self,
            hedge: HedgeRule | None = None,
            shared_queues: QueueScope | None = None,
            send: SendScheduler | None = None,
            *,
            replay: HedgeRule | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.hedge is not None and not _is_hedge_rule(self.hedge):
            raise OptionError(f"not a hedging rule: hedge={shorten(self.hedge)}: did you mean adaptive_timeout()?")
        if self.shared_queues is not None:
            checked_scope(self.shared_queues)
        if self.send is not None:
            _check_scheduler(self.send)

    @property
    def replay(self) -> HedgeRule | None:
        """Another name of ``hedge``.

        Example:
            >>> tr.Tail(hedge=tr.fixed_timeout(20)).replay.name
            'fixed_timeout'
        """
        return self.hedge

    def changed(self, techniques: Techniques) -> Tail:
        """The same techniques but for those given.

        Args:
            techniques: new rules by the names of this class's fields; ``None`` switches one off.

        Example:
            >>> tr.Tail(shared_queues="worker").changed({"send": tr.lbf()}).names()
            {'replay': None, 'shared_queues': 'worker', 'send': 'lbf'}
        """
        return replace(self, **_by_field(techniques))

    def names(self) -> dict[str, str | None]:
        """The name of each technique's rule, by the keys of a progress report; ``None`` if the technique is off.

        Example:
            >>> tr.Tail(send=tr.lbf()).names()
            {'replay': None, 'shared_queues': None, 'send': 'lbf'}
        """
        return {"replay": _name(self.hedge), "shared_queues": self.shared_queues, "send": _name(self.send)}


_ALIASES = {"replay": "hedge"}
_NAMES = (*(field.name for field in fields(Tail)), *_ALIASES)


def _by_field(techniques: Mapping[str, Any]) -> dict[str, Any]:
    """``techniques`` by the names of fields instead of their aliases."""
    refuse_unknown("technique", techniques, _NAMES)
    for alias, name in _ALIASES.items():
        if alias in techniques and name in techniques:
            raise OptionError(f"a technique is given twice: {name}=… {alias}=…: {alias} is another name of {name}")
    return {_ALIASES.get(name, name): rule for name, rule in techniques.items()}


def _checked(make: Callable[..., None]) -> Callable[..., None]:
    """``Tail.__init__`` that takes aliases and says which name an unknown one is closest to."""

    @wraps(make)
    def checked(tail: Tail, *rules: Any, **techniques: Any) -> None:
        make(tail, *rules, **_by_field(techniques))

    return checked


if not TYPE_CHECKING:
    Tail.__init__ = _checked(Tail.__init__)


def checked_scope(value: object) -> QueueScope:
    """``value`` if it is a queue scope. Raises ``OptionError`` if not."""
    if _is_scope(value):
        return value
    raise OptionError(f"not a way to share queues: shared_queues={shorten(value)}: did you mean 'worker' or 'node'?")


def _is_scope(value: object) -> TypeGuard[QueueScope]:
    return value in (WORKER, NODE)


def _is_hedge_rule(rule: Any) -> bool:
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
    return None if rule is None else str(rule.name)


PLAIN = Tail()
"""No technique is on."""
