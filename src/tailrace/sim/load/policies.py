"""Groupings by name for simulations, in which each tuple is its own key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.errors import OptionError, did_you_mean
from tailrace.policy import (
    Grouping,
    broadcast,
    fields,
    flink_scan,
    full_knowledge,
    latency_balanced,
    least_work,
    local,
    osg,
    partial_key,
    power_of_two,
    pull,
    shuffle,
    storm_load_aware,
)


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
"""Groupings that a stage may have but that cannot be exchanged for others."""


def named_policy(name: str) -> Grouping:
    """The grouping of a name, for simulations: those of ``POLICIES``, and ``broadcast`` and ``local``.

    Args:
        name: the grouping's name.

    Example:
        >>> from tailrace.sim import named_policy
        >>> named_policy("power_of_two").name
        'power_of_two'
    """
    known = {**POLICIES, **FIXED}
    if name not in known:
        raise OptionError(f"unknown policy: policy={name}: {did_you_mean(name, known)}")
    return known[name]()
