from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.runtime.calls.journal_files import open_journal
from tailrace.runtime.connectors.commits.mounts import local_file_system
from tailrace.runtime.driver import run_journals
from tailrace.runtime.driver.run_journals import RunJournals


def plan_of(*calls: tr.Calls, name: str = "paid") -> Plan:
    topology = tr.Topology(name)
    stream: Any = topology.source("numbers", tr.from_iterable(range(9)))
    for number, one in enumerate(calls):
        stream = stream.map(f"score{number}", abs, calls=one)
    stream.sink("out", tr.to_call(print))
    return make_plan(topology, 1)


def journals_of(plan: Plan) -> list[Any]:
    return [op.operator.calls.journal for op in plan.operators if op.operator.calls is not None]


def test_workers_get_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    journals = RunJournals(plan_of(tr.Calls(journal="a"), tr.Calls(), tr.Calls(journal="a")))
    assert journals_of(journals.plan) == [tmp_path / "a", None, tmp_path / "a"]
    journals.release(finished=True)
    assert not (tmp_path / "a").exists()


def test_a_run_that_failed_leaves_its_journal_to_the_next(tmp_path: Path) -> None:
    plan = plan_of(tr.Calls(journal=tmp_path / "a"))
    journals = RunJournals(plan)
    with pytest.raises(tr.OptionError, match="journal is in use"):
        RunJournals(plan)
    journals.release(finished=False)
    assert (tmp_path / "a" / "journal.json").exists()
    RunJournals(plan).release(finished=False)


def test_what_is_kept_for_good_is_not_removed_and_may_be_shared(tmp_path: Path) -> None:
    plan = plan_of(tr.Calls(journal=tmp_path, keep=True), tr.Calls(journal=tmp_path))
    both = RunJournals(plan), RunJournals(plan)
    journal = open_journal(tmp_path, "score0-0-e1", owner="topology paid")
    journal.keep(b"k" * 16, "result")
    journal.close()
    for one in both:
        one.release(finished=True)
    assert len(list(tmp_path.glob("*.results"))) == 1


def test_a_journal_of_another_topology_is_refused_and_no_other_is_held(tmp_path: Path) -> None:
    RunJournals(plan_of(tr.Calls(journal=tmp_path / "b"), name="other")).release(finished=False)
    with pytest.raises(tr.OptionError, match="found='topology other'"):
        RunJournals(plan_of(tr.Calls(journal=tmp_path / "a"), tr.Calls(journal=tmp_path / "b")))
    RunJournals(plan_of(tr.Calls(journal=tmp_path / "a"))).release(finished=True)


def test_a_local_folder_on_several_machines_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journals = RunJournals(plan_of(tr.Calls(journal=tmp_path)))
    monkeypatch.setattr(run_journals, "local_file_system", lambda folder: "ext4")
    with caplog.at_level(logging.WARNING):
        journals.warn_of_hosts(["one", "", "one"])
        assert not caplog.records
        journals.warn_of_hosts(["one", "two"])
        journals.warn_of_hosts(["one", "two"])
    assert [record.getMessage() for record in caplog.records] == [
        f"each machine has a journal of its own: journal={tmp_path} filesystem=ext4 hosts=2: a call is made again when "
        "its tuple or row comes to another machine; could the folder be on a network file system?"
    ]
    journals.release(finished=True)


def test_local_file_systems_are_known(tmp_path: Path) -> None:
    assert local_file_system(Path("/proc")) is None
    assert local_file_system(Path("/dev/shm")) == "tmpfs"
