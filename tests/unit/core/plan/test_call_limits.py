"""The limits of a plan, and how many tasks share each."""

from __future__ import annotations

import tailrace as tr
from tailrace.core.plan.call_limits import limits_of, tasks_of
from tailrace.core.plan.planner import make_plan


def same(value: int) -> int:
    return value


def test_tasks_of_all_operators_with_a_limit_share_it() -> None:
    api, other = tr.limit("api", per_s=5), tr.limit("other", per_s=5)
    topology = tr.Topology("limited")
    numbers = topology.source("numbers", tr.from_iterable([1]))
    first = numbers.map("first", same, tasks=3, calls=tr.Calls(limit=api))
    second = first.map("second", same, tasks=2, calls=tr.Calls(limit=api)).map("plain", same, tasks=4)
    second.map("third", same, calls=tr.Calls(limit=other)).sink("out", tr.to_list())
    plan = make_plan(topology, 2)
    assert [limit.name for limit in limits_of(plan)] == ["api", "api", "other"]
    assert (tasks_of(plan, api), tasks_of(plan, other)) == (5, 1)
