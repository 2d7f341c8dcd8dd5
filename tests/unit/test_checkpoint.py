"""A checkpoint is found again as it was left, by one driver at a time, and refused where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.core.messages import Position
from tailrace.core.plan import Plan, make_plan
from tailrace.errors import OptionError
from tailrace.runtime.checkpoint import Checkpoint
from tailrace.runtime.connectors import from_iterable, from_lines, to_list
from tailrace.topology import Topology


def plan(name: str = "t", tasks: int = 2, files: Path | None = None) -> Plan:
    topology = Topology(name)
    source = from_iterable(range(10)) if files is None else from_lines(str(files / "*.txt"))
    topology.source("s", source, tasks=tasks).sink("out", to_list())
    return make_plan(topology, 2)


def test_a_checkpoint_is_found_again(tmp_path: Path) -> None:
    first = Checkpoint(str(tmp_path / "c"), plan())
    assert first.positions() == {0: Position(0, None), 1: Position(0, None)} and first.next_epoch == 1
    first.store({}, 5)
    first.store({1: Position(7, b"\x00last")}, 5)
    first.close()
    second = Checkpoint(str(tmp_path / "c"), plan())
    assert second.positions() == {0: Position(0, None), 1: Position(7, b"\x00last")}
    assert (second.job_id, second.next_epoch) == (first.job_id, 5)


def test_without_a_folder_it_is_kept_in_memory() -> None:
    checkpoint = Checkpoint(None, plan())
    checkpoint.store({0: Position(3, None)}, 1)
    assert checkpoint.positions()[0].offset == 3
    assert Checkpoint(None, plan()).job_id != checkpoint.job_id


def test_one_driver_at_a_time(tmp_path: Path) -> None:
    first = Checkpoint(str(tmp_path), plan())
    with pytest.raises(OptionError, match=r"checkpoint is in use: checkpoint=.*; does another run still go on?"):
        Checkpoint(str(tmp_path), plan())
    first.close()
    Checkpoint(str(tmp_path), plan()).close()


def test_another_topology_is_refused(tmp_path: Path) -> None:
    Checkpoint(str(tmp_path), plan("a")).close()
    with pytest.raises(OptionError, match=r"belongs to another topology: .* topology=b found=a; did you mean another"):
        Checkpoint(str(tmp_path), plan("b"))


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"version": 99}', "null"])
def test_a_file_that_is_no_checkpoint(tmp_path: Path, content: str) -> None:
    (tmp_path / "checkpoint.json").write_text(content)
    with pytest.raises(OptionError, match=r"checkpoint cannot be read: file=.*checkpoint.json cause=.*; is it one of"):
        Checkpoint(str(tmp_path), plan())


def test_splits_that_are_gone_would_be_read_again(tmp_path: Path) -> None:
    first = Checkpoint(str(tmp_path), plan(tasks=2))
    first.store({0: Position(3, None)}, 1)
    first.close()
    text = "checkpoint knows other splits: source=s missing=s/0/2 tasks=3; did you change the number of its tasks?"
    with pytest.raises(OptionError, match=text):
        Checkpoint(str(tmp_path), plan(tasks=3))


def test_files_may_go_once_they_are_read(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("line\n")
    first = Checkpoint(str(tmp_path / "c"), plan(files=tmp_path))
    first.store({0: Position(5, None), 1: Position(0, None)}, 1)
    first.close()
    (tmp_path / "a.txt").unlink()
    second = Checkpoint(str(tmp_path / "c"), plan(files=tmp_path))
    assert second.positions() == {0: Position(0, None)}


def test_a_torn_write_is_not_seen(tmp_path: Path) -> None:
    first = Checkpoint(str(tmp_path), plan())
    first.store({0: Position(3, None)}, 1)
    first.close()
    (tmp_path / "checkpoint.new").write_text('{"version": 1, "pos')
    assert Checkpoint(str(tmp_path), plan()).positions()[0].offset == 3
    assert json.loads((tmp_path / "checkpoint.json").read_text())["topology"] == "t"
