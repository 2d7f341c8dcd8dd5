"""What is said of a run that was given up."""

from __future__ import annotations

from typing import Any

import tailrace as tr
from tailrace.core.plan.planner import make_plan
from tailrace.runtime.driver.unfinished_work import describe_unfinished


def _told(name: str, received: int, emitted: int, queued: int = 0, letters: int = 0) -> dict[str, Any]:
    return {"name": name, "received": received, "emitted": emitted, "queued": queued, "deadLetters": letters}


def test_what_operators_have_not_run_is_counted_edge_by_edge() -> None:
    topology = tr.Topology("left")
    numbers = topology.source("numbers", tr.from_iterable(range(10)))
    work = numbers.map("work", str, on_error="dead_letter")
    work.sink("out", tr.to_list())
    work.dead_letters.sink("letters", tr.to_list())
    numbers.map("all", str, tasks=3, grouping=tr.broadcast()).sink("all-out", tr.to_list())
    plan = make_plan(topology, 2)
    operators = [
        _told("numbers", 100, 100),
        _told("work", 80, 70, letters=10),
        _told("out", 70, 0, queued=2),  # counted when others had not yet told what they sent
        _told("letters", 9, 0),
        _told("all", 300, 300),
        _told("all-out", 301, 0),
    ]
    found = describe_unfinished(plan, {"pending": 21, "operators": operators})
    assert found == "pending=21 waiting=work:20,out:2,letters:1"
    done = [{**told, "received": told["received"] + 20, "queued": 0} for told in operators]
    assert describe_unfinished(plan, {"pending": 0, "operators": done}) == "pending=0 waiting=none"


def test_a_run_without_any_progress_left_something_unknown() -> None:
    topology = tr.Topology("left")
    topology.source("numbers", tr.from_iterable(range(10))).sink("out", tr.to_list())
    assert describe_unfinished(make_plan(topology, 1), None) == "pending=unknown"
