"""Tasks of a file sink find out whether they, and the driver, see one folder or several of the same name."""

from __future__ import annotations

import pickle
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.connector import Entry, SinkContext
from tailrace.errors import OptionError
from tailrace.runtime.connectors import to_jsonl, to_parquet
from tailrace.runtime.connectors.commits import witness

JOB = "0123456789abcdef"


def open_on(machine: Path, sink: Any, epoch: int = 1, task: int = 0, job: str = JOB, first_epoch: int = 1) -> Any:
    """Open a task's writer on a machine whose disk is this folder. The driver has the folder of the sink."""

    def call_driver(operator: str, message: Any) -> Any:
        return pickle.loads(pickle.dumps(sink.on_message(task, epoch, pickle.loads(pickle.dumps(message)))))

    copy = replace(pickle.loads(pickle.dumps(sink)), path=machine)
    return copy.open(SinkContext("out", task, 2, epoch, job, call_driver, first_epoch))


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are on a file system that may be shared, as far as their kind tells. Nobody looks for long."""
    monkeypatch.setattr(witness, "local_file_system", lambda folder: None)
    monkeypatch.setattr(witness, "LOOK_FAR_S", 0.05)


@pytest.mark.parametrize("make", [to_jsonl, to_parquet])
def test_tasks_that_share_a_folder_are_let_in(make: Any, tmp_path: Path) -> None:
    sink = make(tmp_path)
    for epoch, task in ((1, 0), (2, 1), (3, 0), (4, 0), (5, 1)):
        writer = open_on(tmp_path, sink, epoch, task)
        writer.recover({})
        writer.write({"n": epoch})
        writer.commit([Entry("s", epoch, epoch)])
    assert len(list(tmp_path.glob("part-*"))) == 5


def test_a_local_disk_of_another_machine_is_refused(tmp_path: Path) -> None:
    """Though there is only one task: on the next machine it would not find what it has committed."""
    here, there = tmp_path / "here", tmp_path / "there"
    with pytest.raises(OptionError) as caught:
        open_on(there, to_jsonl(here))
    kind = witness.local_file_system(tmp_path)
    assert kind is not None, "this test needs a disk"
    assert str(caught.value) == (
        f"machines do not share a folder: sink=out folder={here} filesystem={kind} hosts=2: {socket.gethostname()} "
        f"does not see there what {socket.gethostname()} has made; could it be on a file system that all of them mount?"
    )


@pytest.mark.usefixtures("network")
def test_tasks_on_machines_with_folders_of_their_own_are_refused(tmp_path: Path) -> None:
    sink = to_jsonl(tmp_path / "driver")
    open_on(tmp_path / "one", sink, 1, 0)
    with pytest.raises(
        OptionError, match=r"machines do not share a folder: sink=out folder=.*/two filesystem=unknown hosts=2: "
    ):
        open_on(tmp_path / "two", sink, 2, 1)


@pytest.mark.usefixtures("network")
def test_a_driver_need_not_mount_what_workers_share(tmp_path: Path) -> None:
    sink = to_jsonl(tmp_path / "driver")
    for task in range(2):
        open_on(tmp_path / "workers", sink, 1 + task, task)


@pytest.mark.usefixtures("network")
def test_a_task_that_is_started_again_on_another_machine_is_refused(tmp_path: Path) -> None:
    """It would commit again what it has committed: its own new directory says nothing."""
    sink = to_jsonl(tmp_path / "driver")
    open_on(tmp_path / "one", sink, 1).recover({})
    open_on(tmp_path / "one", sink, 2).recover({})
    with pytest.raises(OptionError, match="machines do not share a folder: sink=out"):
        open_on(tmp_path / "two", sink, 3)


@pytest.mark.usefixtures("network")
def test_runs_and_jobs_that_share_a_sink_are_told_apart(tmp_path: Path) -> None:
    """A later run may be on other machines, where nothing of the first one is to be found."""
    sink = to_jsonl(tmp_path / "driver")
    open_on(tmp_path / "one", sink, 1, first_epoch=1)
    open_on(tmp_path / "two", sink, 2, first_epoch=2)
    open_on(tmp_path / "three", sink, 1, job="fedcba9876543210")


def test_a_directory_that_is_being_renamed_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = to_jsonl(tmp_path)
    open_on(tmp_path, sink, 1, 0)
    whole, misses = witness.places_in, iter([False, True, True])  # the driver's own look comes first

    def in_the_middle_of_a_rename(root: Path) -> Any:
        return [] if next(misses, False) else whole(root)

    monkeypatch.setattr(witness, "places_in", in_the_middle_of_a_rename)
    open_on(tmp_path, sink, 2, 1)
    assert list(misses) == [], "it has looked again"


def test_what_the_driver_knows_stays_there(tmp_path: Path) -> None:
    sink = to_jsonl(tmp_path)
    open_on(tmp_path, sink)
    copy = pickle.loads(pickle.dumps(sink))
    assert copy == sink
    assert copy.on_message(0, 1, witness.Entered(JOB, "out", 1, 0, 1, "host", None)) == []
