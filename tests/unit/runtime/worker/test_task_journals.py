from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from kit.tasks import context_of, task_of
from tailrace.core.bundles import new_bundle
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.core.tasks.deferred import AsyncTask
from tailrace.core.tasks.open_bundle import Call
from tailrace.runtime.worker.task_journals import TaskJournal, TaskJournals


async def score(value: Any) -> Any:
    return value


def plan_of(folder: Path, **options: Any) -> Plan:
    topology = tr.Topology("paid")
    numbers = topology.source("numbers", tr.from_iterable(range(9)), tasks=2)
    scored = numbers.map("double", lambda n: 2 * n).map("score", score, calls=tr.Calls(journal=folder, **options))
    scored.sink("out", tr.to_call(print))
    return make_plan(topology, 1)


def call_of(plan: Plan, journal: TaskJournal, value: Any, split: int = 0, offset: int = 3, lineage: int = 5) -> Call:
    task = task_of(context_of(plan), plan.operators[2].first_task)
    assert isinstance(task, AsyncTask)
    task.receive([new_bundle(50, split, offset, 77, [lineage], [value])])
    call = task.next_call()
    assert call is not None
    return call


def opened(plan: Plan, epoch: int = 1) -> tuple[TaskJournals, TaskJournal]:
    journals = TaskJournals(plan, epoch)
    return journals, journals.open(plan.operators[2], plan.operators[2].first_task)


def test_tuples_on_the_way_to_a_journal_carry_lineages_and_those_behind_it_do_not(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert [edge.lineages for edge in plan.edges] == [True, True, False]


def test_a_call_is_known_by_operator_split_offset_lineage_and_value(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    _, journal = opened(plan)
    _, again = opened(plan_of(tmp_path), epoch=9)
    key = journal.key_of(call_of(plan, journal, "x"))
    assert again.key_of(call_of(plan, again, "x")) == key
    different = [{"value": "y"}, {"split": 1}, {"offset": 4}, {"lineage": 6}]
    assert all(journal.key_of(call_of(plan, journal, **{"value": "x", **one})) != key for one in different)
    for one in (journal, again):
        one.results.close()


def test_a_tuple_without_identity_fails_with_its_operator(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    _, journal = opened(plan)
    with pytest.raises(
        tr.TaskError, match=r"a value cannot identify a call: type=lock .*\n\noperator failed: operator=sco"
    ):
        journal.key_of(call_of(plan, journal, threading.Lock()))
    journal.results.close()


def test_results_below_the_stored_prefix_are_dropped(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    journals, journal = opened(plan)
    calls = [call_of(plan, journal, "x", offset=offset) for offset in range(4)]
    for call in calls:
        journal.results.keep(journal.key_of(call), "result")
    journal.results._end_file()
    journals.committed({0: 3})
    assert [journal.is_durable(call) for call in calls] == [True, True, True, False]
    assert journal.results.find(journal.key_of(calls[3])) == ("result",)
    journals.committed({1: 100})
    assert journal.results.find(journal.key_of(calls[3])) == ("result",)
    journals.committed({0: 4})
    journal.results.close()
    assert not list(tmp_path.glob("*.results"))


def test_results_that_are_kept_for_good_stay(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, keep=True)
    journals, journal = opened(plan)
    call = call_of(plan, journal, "x")
    journal.results.keep(journal.key_of(call), "result")
    journals.committed({0: 100})
    assert not journal.is_durable(call)
    journal.results.close()
    _, again = opened(plan, epoch=2)
    assert again.results.find(again.key_of(call)) == ("result",)
    again.results.close()


def test_a_call_whose_root_is_durable_is_acknowledged_without_results(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    task = task_of(context_of(plan), plan.operators[2].first_task)
    assert isinstance(task, AsyncTask)
    task.receive([new_bundle(50, 0, 3, 77, [5], ["x"])])
    call = task.next_call()
    assert call is not None
    task.left_over(call)
    assert not any(lane.bundles for lane in task.lanes)
    assert task.acks[0].both == {50: 77}
