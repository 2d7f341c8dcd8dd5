"""The techniques against the tail that are on: a value, which a run is given and which may change while it lasts."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from tailrace.errors import OptionError, shorten
from tailrace.policy.replay import ReplayRule
from tailrace.policy.send import SendScheduler

WORKER, NODE = "worker", "node"


@dataclass(frozen=True)
class Tail:
    """What is on. Nothing, unless said."""

    replay: ReplayRule | None = None  # which late roots are emitted once more
    shared_queues: str | None = None  # "worker" or "node": whose tasks of an operator draw from one queue
    send: SendScheduler | None = None  # which task of an operator in one worker sends next to other workers

    def __post_init__(self) -> None:
        if self.replay is not None and not _is_replay_rule(self.replay):
            raise OptionError(f"not a replay rule: replay={shorten(self.replay)}: did you mean adaptive_timeout()?")
        if self.shared_queues not in (None, WORKER, NODE):
            raise OptionError(
                f"not a way to share queues: shared_queues={shorten(self.shared_queues)}: "
                "did you mean 'worker' or 'node'?"
            )
        if self.send is not None:
            _check_scheduler(self.send)

    def changed(self, techniques: dict[str, Any]) -> Tail:
        """The same but for these."""
        known = [field.name for field in fields(self)]
        unknown = sorted(set(techniques) - set(known))
        if unknown:
            raise OptionError(f"unknown technique: {', '.join(unknown)}; known={', '.join(known)}")
        return replace(self, **techniques)

    def names(self) -> dict[str, str | None]:
        """Each technique, and the name of the rule that is on."""
        return {field.name: _name(getattr(self, field.name)) for field in fields(self)}


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
