"""Groupings by name, as the simulator's tuples need them: a tuple is its own key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.errors import OptionError
from tailrace.policy import (
    Grouping,
    fields,
    flink_scan,
    full_knowledge,
    least_work,
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
    "osg": lambda: osg(itself),
    "osg_mended": lambda: osg(itself, pooled=True, idle_counts=True),
    "least_work": lambda: least_work(itself),
    "pull": pull,
    "full_knowledge": full_knowledge,
    "least_work_left": lambda: full_knowledge(cumulated=False),
}


def named_policy(name: str) -> Grouping:
    if name not in POLICIES:
        raise OptionError(f"unknown policy: policy={name}: did you mean one of {', '.join(POLICIES)}?")
    return POLICIES[name]()
