"""A checkpoint is found again as it was left, by one driver at a time, and refused where it does not fit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.messages import Position
from tailrace.errors import OptionError
from tailrace.runtime.connectors import from_iterable, from_lines, to_list
from tailrace.runtime.connectors.commits import disk
from tailrace.runtime.driver.checkpoint import Checkpoint
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


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"topology": None}, "topology=None"),
        ({"positions": [1]}, "positions=[1]"),
        ({"positions": {"s/0/2": 7}}, "last is missing"),
        ({"positions": {"s/0/2": {"offset": "7", "last": None}}}, "offset='7'"),
        ({"positions": {"s/0/2": {"offset": 7, "last": "?"}}}, "Only base64 data is allowed"),
        ({"next_epoch": "4"}, "next_epoch='4'"),
        ({"next_epoch": True}, "next_epoch=True"),
        ({"job_id": 5}, "job_id=5"),
    ],
)
def test_a_checkpoint_with_a_part_that_is_none(tmp_path: Path, change: dict[str, Any], cause: str) -> None:
    Checkpoint(tmp_path, plan()).close()
    path = tmp_path / "checkpoint.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    text = f"checkpoint cannot be read: file={path} cause={cause}; is it one of ours?"
    with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
        Checkpoint(tmp_path, plan())


@pytest.mark.parametrize("name", ["topology", "positions", "next_epoch", "job_id", "version"])
def test_a_checkpoint_that_lacks_a_part(tmp_path: Path, name: str) -> None:
    Checkpoint(tmp_path, plan()).close()
    path = tmp_path / "checkpoint.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != name}))
    with pytest.raises(OptionError, match=f"checkpoint cannot be read: .* cause={name} is missing; is it one of ours"):
        Checkpoint(tmp_path, plan())


@pytest.mark.parametrize("name", ["lock", "checkpoint.new"])
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (folder / name).symlink_to(precious)
    try:
        Checkpoint(folder, plan()).close()
    except OptionError as refusal:
        assert str(refusal).startswith(f"not a folder to write to: checkpoint={folder} cause=")
    assert precious.read_text() == "mine"


def test_what_lies_in_the_lock_stays(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("mine")
    Checkpoint(tmp_path, plan()).close()
    assert (tmp_path / "lock").read_text() == "mine"


def test_new_folders_survive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(disk, "sync_directory", synced.append)
    Checkpoint(tmp_path / "a" / "b" / "c", plan()).close()
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]


def stateful(*names: str) -> Plan:
    topology = Topology("t")
    stream = topology.source("s", from_iterable(range(10)))
    for name in names:
        stream = stream.map(name, str, stateful=name.isupper())
    stream.sink("out", to_list())
    return make_plan(topology, 2)


def test_a_checkpoint_holds_no_state(tmp_path: Path) -> None:
    first = Checkpoint(tmp_path, stateful("a", "B", "C"))
    assert first.lost_state(restart=False) == []
    first.store({0: Position(0, None)}, 4)
    first.close()
    again = Checkpoint(tmp_path, stateful("a", "B", "C"))
    assert again.lost_state(restart=False) == [], "nothing is durable yet: it begins at the start"
    again.store({0: Position(3, None)}, 4)
    again.close()
    resumed = Checkpoint(tmp_path, stateful("a", "B", "C"))
    text = (
        f"a checkpoint holds no state: checkpoint={tmp_path} stateful=B, C; "
        "shall operators start with empty state in the middle of the stream? Say state='restart'"
    )
    with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
        resumed.lost_state(restart=False)
    assert resumed.lost_state(restart=True) == ["B", "C"]
    resumed.close()
    without = Checkpoint(tmp_path, stateful("a", "b"))
    assert without.lost_state(restart=False) == []
    without.close()


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
