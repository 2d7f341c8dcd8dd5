"""Groupings and replay rules by name. Groupings are as the simulator's tuples need them: a tuple is its own key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.errors import OptionError
from tailrace.policy import (
    Grouping,
    adaptive_timeout,
    broadcast,
    du_timeout,
    fields,
    fixed_timeout,
    flink_scan,
    full_knowledge,
    latency_balanced,
    least_work,
    local,
    osg,
    partial_key,
    power_of_two,
    pull,
    replicate,
    shuffle,
    storm_load_aware,
)
from tailrace.policy.replay import ReplayRule


def itself(value: Any) -> Any:
    return value


POLICIES: dict[str, Callable[[], Grouping]] = {
    "shuffle": shuffle,
    "fields": lambda: fields(itself),
    "partial_key": lambda: partial_key(itself),
    "power_of_two": power_of_two,
    "storm_load_aware": storm_load_aware,
    "flink_scan": flink_scan,
    "latency_balanced": latency_balanced,
    "latency_balanced_fast": lambda: latency_balanced(fast=True),
    "osg": lambda: osg(itself),
    "osg_by_the_text": lambda: osg(itself, idle_counts=False, resync=False),
    "osg_pooled": lambda: osg(itself, pooled=True),
    "least_work": lambda: least_work(itself),
    "pull": pull,
    "full_knowledge": full_knowledge,
    "least_work_left": lambda: full_knowledge(cumulated=False),
}


FIXED: dict[str, Callable[[], Grouping]] = {"broadcast": broadcast, "local": local}
"""Groupings that a stage may have, but that are not a matter of policy."""

REPLAY_RULES: dict[str, Callable[[], ReplayRule]] = {"adaptive_timeout": adaptive_timeout, "du_timeout": du_timeout}
REPLAY_RULES_OF: dict[str, Callable[[float], ReplayRule]] = {"fixed_timeout": fixed_timeout, "replicate": replicate}
"""Rules that need a number: milliseconds, or a fraction of the roots."""


def named_policy(name: str) -> Grouping:
    known = {**POLICIES, **FIXED}
    if name not in known:
        raise OptionError(f"unknown policy: policy={name}: did you mean one of {', '.join(known)}?")
    return known[name]()


def named_replay(text: str) -> ReplayRule:
    """``adaptive_timeout``, ``du_timeout``, ``fixed_timeout=20`` or ``replicate=0.2``."""
    name, given, number = text.partition("=")
    if name in REPLAY_RULES and not given:
        return REPLAY_RULES[name]()
    if name in REPLAY_RULES_OF:
        return REPLAY_RULES_OF[name](_number(text, number))
    known = ", ".join([*REPLAY_RULES, *(f"{name}=NUMBER" for name in REPLAY_RULES_OF)])
    raise OptionError(f"unknown replay rule: replay={text}: did you mean one of {known}?")


def _number(text: str, number: str) -> float:
    try:
        return float(number)
    except ValueError:
        raise OptionError(f"a replay rule needs a number: replay={text}: did you mean replicate=0.2?") from None
