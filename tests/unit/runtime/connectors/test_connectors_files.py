"""The commit protocol on a real directory: names, fences, recovery, forgetting, errors."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tailrace.connector import Entry, SinkContext
from tailrace.errors import Fenced, OptionError, TailraceError
from tailrace.runtime.connectors import to_jsonl, to_parquet
from tailrace.runtime.connectors.commits import files, mounts
from tailrace.runtime.connectors.commits.mounts import mount_with_cached_names
from tailrace.runtime.connectors.commits.staging import Staging

JOB = "0123456789abcdef"


def context(
    epoch: int = 1, task: int = 0, tasks: int = 1, operator: str = "out", job_id: str = JOB, first_epoch: int = 1
) -> SinkContext:
    return SinkContext(operator, task, tasks, epoch, job_id, lambda *_: None, first_epoch)


def commit(writer: Any, *offsets: int) -> None:
    for offset in offsets:
        writer.write(offset)
    writer.commit([Entry("s", offset, offset) for offset in offsets])


def visible(path: Path) -> list[int]:
    return sorted(json.loads(line) for part in path.glob("part-*") for line in part.read_text().splitlines())


def offsets(entries: Any) -> list[int]:
    return sorted(entry.offset for entry in entries)


def manifests(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("_tailrace/*/manifests/*"))


def test_rows_show_only_after_their_commit_and_under_their_name(tmp_path: Path) -> None:
    writer = to_jsonl(tmp_path).open(context(epoch=4, task=2, tasks=3))
    writer.write({"a": "ü"})
    assert list(tmp_path.glob("part-*")) == []
    writer.commit([Entry("s", 0, 1)])
    part = tmp_path / "part-out-01234567-00002-e4-000000.jsonl"
    assert part.read_text() == '{"a": "ü"}\n'
    assert sorted(file.name for file in tmp_path.iterdir()) == ["_tailrace", part.name]
    assert manifests(tmp_path) == ["00002-e4-000000.manifest"]


def test_uncommitted_rows_are_discarded(tmp_path: Path) -> None:
    writer = to_jsonl(tmp_path).open(context())
    commit(writer, 1)
    writer.write(2)
    writer.close()
    assert visible(tmp_path) == [1]
    assert offsets(to_jsonl(tmp_path).open(context(2)).recover({})) == [1]


def test_an_empty_commit_leaves_nothing(tmp_path: Path) -> None:
    writer = to_jsonl(tmp_path).open(context())
    writer.commit([])
    assert manifests(tmp_path) == []
    writer.commit([Entry("s", 5, 5)])  # an entry whose row was skipped
    assert visible(tmp_path) == []
    assert offsets(to_jsonl(tmp_path).open(context(2)).recover({})) == [5]


def test_entries_below_the_prefix_are_not_returned(tmp_path: Path) -> None:
    commit(to_jsonl(tmp_path).open(context()), 1, 2, 3)
    assert offsets(to_jsonl(tmp_path).open(context(2)).recover({"s": 2, "other": 9})) == [2, 3]


def test_entries_of_all_tasks_are_returned_whatever_their_number_was(tmp_path: Path) -> None:
    for task in range(4):
        commit(to_jsonl(tmp_path).open(context(task=task, tasks=4)), task)
    for task in range(3):
        assert offsets(to_jsonl(tmp_path).open(context(2, task, 3, first_epoch=2)).recover({})) == [0, 1, 2, 3]


def test_forgetting_deletes_manifests_that_lie_below_as_a_whole(tmp_path: Path) -> None:
    writer = to_jsonl(tmp_path).open(context())
    commit(writer, 1, 2)
    commit(writer, 3, 4)
    writer.forget({"other": 100})
    assert len(manifests(tmp_path)) == 2
    writer.forget({"s": 4})
    assert manifests(tmp_path) == ["00000-e1-000001.manifest"]
    successor = to_jsonl(tmp_path).open(context(2))
    successor.recover({"s": 4})
    successor.forget({"s": 5})
    assert manifests(tmp_path) == []
    assert visible(tmp_path) == [1, 2, 3, 4]


def test_manifests_of_a_task_that_is_no_more_are_forgotten_by_its_heir_only(tmp_path: Path) -> None:
    commit(to_jsonl(tmp_path).open(context(task=3, tasks=4)), 1)
    heir, other = (to_jsonl(tmp_path).open(context(2, task, 2, first_epoch=2)) for task in (1, 0))
    for writer in (heir, other):
        writer.recover({})
    other.forget({"s": 9})
    assert len(manifests(tmp_path)) == 1
    heir.forget({"s": 9})
    assert manifests(tmp_path) == []


def test_a_fenced_writer_says_so(tmp_path: Path) -> None:
    zombie = to_jsonl(tmp_path).open(context(1))
    to_jsonl(tmp_path).open(context(2)).recover({})
    with pytest.raises(
        Fenced, match=r"a higher epoch has taken over: task=0 epoch=1 found=00000-e2 directory=.*dead\?"
    ):
        commit(zombie, 1)
    with pytest.raises(Fenced, match="a higher epoch has taken over: task=0 epoch=1"):
        to_jsonl(tmp_path).open(context(1))
    with pytest.raises(Fenced, match=r"epoch has been used before: task=0 epoch=2 .* was a worker started twice\?"):
        to_jsonl(tmp_path).open(context(2))
    assert visible(tmp_path) == []


def test_a_fence_outlives_its_writer(tmp_path: Path) -> None:
    writer = to_jsonl(tmp_path).open(context(5))
    writer.recover({})
    writer.close()
    with pytest.raises(Fenced, match="epoch=4 found=00000-e5"):
        to_jsonl(tmp_path).open(context(4))


def test_a_task_that_is_no_more_stays_fenced(tmp_path: Path) -> None:
    to_jsonl(tmp_path).open(context(7, task=1, tasks=2)).recover({})
    to_jsonl(tmp_path).open(context(8, task=0, tasks=1, first_epoch=8)).recover({})
    for epoch in (6, 7):
        with pytest.raises(Fenced, match=rf"epoch={epoch} found=00001-e7.fenced-by-00000-e8"):
            to_jsonl(tmp_path).open(context(epoch, task=1, tasks=2))
    commit(to_jsonl(tmp_path).open(context(9, task=1, tasks=2, first_epoch=9)), 1)
    assert visible(tmp_path) == [1]


def test_the_first_task_to_recover_fences_all_tasks_of_earlier_runs(tmp_path: Path) -> None:
    """With another number of tasks a row may come to any of them: one that recovers must know all that will count."""
    zombie = to_jsonl(tmp_path).open(context(1, task=0, tasks=1))
    zombie.recover({})
    new = to_jsonl(tmp_path).open(context(4, task=1, tasks=2, first_epoch=3))
    assert offsets(new.recover({})) == []
    with pytest.raises(
        Fenced, match=r"a higher epoch has taken over: task=0 epoch=1 found=00000-e1\.fenced-by-00001-e4"
    ):
        commit(zombie, 1)
    commit(new, 1)
    other = to_jsonl(tmp_path).open(context(3, task=0, tasks=2, first_epoch=3))
    assert offsets(other.recover({})) == [1]
    commit(other, 2)
    commit(new, 3)
    assert visible(tmp_path) == [1, 2, 3]


def test_a_worker_of_an_earlier_run_that_opens_late_is_refused(tmp_path: Path) -> None:
    """Though its own task of the new run is not there yet."""
    to_jsonl(tmp_path).open(context(4, task=1, tasks=2, first_epoch=3)).recover({})
    with pytest.raises(Fenced, match="a higher epoch has taken over: task=0 epoch=2 found=run-e3"):
        to_jsonl(tmp_path).open(context(2, task=0, tasks=1))


def test_marks_of_earlier_runs_are_deleted(tmp_path: Path) -> None:
    for epoch in (3, 5, 7):
        to_jsonl(tmp_path).open(context(epoch, first_epoch=epoch)).recover({})
    names = sorted(path.name for path in tmp_path.glob("_tailrace/*/staging/*"))
    assert names == ["00000-e7", "run-e7"]


def test_what_an_earlier_run_had_committed_is_finished_by_the_heir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task has fenced the dead writer by then."""
    dead = to_jsonl(tmp_path).open(context(1, task=0, tasks=1))

    def dies(directory: Path) -> None:
        if directory.name == "manifests":
            raise OSError(errno.EIO, "Input/output error", str(directory))

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_directory", dies)
        with pytest.raises(OSError, match="Input/output error"):
            commit(dead, 1)
    assert offsets(to_jsonl(tmp_path).open(context(4, task=1, tasks=2, first_epoch=3)).recover({})) == [1]
    assert visible(tmp_path) == []
    assert offsets(to_jsonl(tmp_path).open(context(3, task=0, tasks=2, first_epoch=3)).recover({})) == [1]
    assert visible(tmp_path) == [1]


def test_other_tasks_are_left_alone(tmp_path: Path) -> None:
    others = [to_jsonl(tmp_path).open(context(1, task, 3)) for task in (1, 2)]
    to_jsonl(tmp_path).open(context(9, 0, 3)).recover({})
    for number, writer in enumerate(others):
        commit(writer, number)
    assert visible(tmp_path) == [0, 1]


def test_old_staging_directories_are_deleted(tmp_path: Path) -> None:
    for epoch in range(1, 5):
        writer = to_jsonl(tmp_path).open(context(epoch))
        writer.recover({})
        commit(writer, epoch)
    assert [path.name for path in tmp_path.glob("_tailrace/*/staging/*")] == ["00000-e4"]


def test_a_fence_takes_manifests_away_but_keeps_data(tmp_path: Path) -> None:
    """A rename that is under way in the kernel must not find the manifest any more; the data may be committed."""
    Staging(tmp_path, 0, 1, 1).enter()
    for name in ("00000-e1-000000.manifest", "part-x"):
        (tmp_path / "00000-e1" / name).write_text("")
    successor = Staging(tmp_path, 0, 1, 2)
    successor.enter()
    (place,) = successor.shut_out()
    assert place.path.name == "00000-e1.fenced-by-00000-e2"
    assert [file.name for file in place.path.iterdir()] == ["part-x"]


def test_a_listing_that_misses_a_directory_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Staging(tmp_path, 0, 1, 1).enter()
    successor = Staging(tmp_path, 0, 1, 2)
    successor.enter()
    whole = successor.places
    listings = iter([whole()[1:]])
    monkeypatch.setattr(successor, "places", lambda: next(listings, None) or whole())
    assert [place.epoch for place in successor.shut_out()] == [1]


def test_a_damaged_manifest_stops_the_recovery(tmp_path: Path) -> None:
    commit(to_jsonl(tmp_path).open(context()), 1)
    (file,) = tmp_path.glob("_tailrace/*/manifests/*")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(TailraceError, match=f"manifest is damaged: file={re.escape(str(file))} bytes="):
        to_jsonl(tmp_path).open(context(2)).recover({})


def test_files_that_a_reader_deletes_stay_committed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = to_jsonl(tmp_path).open(context())
    for offset in range(3):
        commit(writer, offset)
    first, second, _ = sorted(tmp_path.glob("part-*"))
    first.unlink()
    second.unlink()
    for epoch in (2, 3):  # a recovery writes nothing a second time, and neither does that after it
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert offsets(to_jsonl(tmp_path).open(context(epoch)).recover({})) == [0, 1, 2]
        assert visible(tmp_path) == [2]
        assert [record.getMessage() for record in caplog.records] == [
            f"committed files are gone: directory={tmp_path} files=2 first={first.name}: their rows do not come again; "
            "has a reader moved or deleted them, such as one with clean=True?"
        ]


def test_a_file_that_a_successor_has_finished_and_a_reader_deleted_does_not_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer stands still between the two renames of a commit, while all that happens."""
    slow = to_jsonl(tmp_path).open(context(1))
    sync = files.sync_directory

    def stand_still(directory: Path) -> None:
        sync(directory)
        if directory.name == "manifests":
            monkeypatch.setattr(files, "sync_directory", sync)
            assert offsets(to_jsonl(tmp_path).open(context(2)).recover({})) == [1]
            (part,) = tmp_path.glob("part-*")
            part.unlink()

    monkeypatch.setattr(files, "sync_directory", stand_still)
    with pytest.raises(Fenced, match="a higher epoch has taken over"):
        commit(slow, 1)
    assert offsets(to_jsonl(tmp_path).open(context(3)).recover({})) == [1]
    assert visible(tmp_path) == []


def test_jobs_and_operators_do_not_meet_in_one_directory(tmp_path: Path) -> None:
    places = [{"operator": "a/b"}, {"operator": "a_b"}, {"job_id": "wordcount-1"}, {"job_id": "wordcount-2"}, {}]
    for number, place in enumerate(places):
        writer = to_jsonl(tmp_path).open(context(**place))  # type: ignore[arg-type]
        assert list(writer.recover({})) == []
        commit(writer, number)
    assert visible(tmp_path) == [0, 1, 2, 3, 4]


def test_ids_with_the_same_first_letters_are_told_apart(tmp_path: Path) -> None:
    commit(to_jsonl(tmp_path).open(context()), 1)
    with pytest.raises(
        TailraceError, match=r"directory holds the output of another job: .* job=0123456789abcdef ours="
    ):
        to_jsonl(tmp_path).open(context(2, job_id="01234567ff")).recover({})


def test_a_full_disk_is_named_and_breaks_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = to_jsonl(tmp_path).open(context())

    def no_space(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", no_space)
        with pytest.raises(OSError, match=r"No space left on device: '.*/staging/00000-e1/part-out-.*\.jsonl'"):
            commit(writer, 1)
    with pytest.raises(TailraceError, match="writer is broken by a failed commit: directory="):
        commit(writer, 2)
    assert visible(tmp_path) == []


def test_closing_after_a_failure_keeps_what_may_be_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = to_jsonl(tmp_path).open(context())

    def broken_disk(directory: Path) -> None:
        if directory.name == "manifests":
            raise OSError(errno.EIO, "Input/output error", str(directory))

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_directory", broken_disk)
        with pytest.raises(OSError, match="Input/output error"):
            commit(writer, 1)
    writer.close()
    assert visible(tmp_path) == []
    assert offsets(to_jsonl(tmp_path).open(context(2)).recover({})) == [1]
    assert visible(tmp_path) == [1]


def test_a_manifest_that_another_task_forgets_meanwhile_is_passed_over(tmp_path: Path) -> None:
    commit(to_jsonl(tmp_path).open(context()), 1)
    (file,) = tmp_path.glob("_tailrace/*/manifests/*")
    file.with_name("00001-e1-000000.manifest").symlink_to("gone")  # listed, but not there when it is read
    assert offsets(to_jsonl(tmp_path).open(context(2)).recover({})) == [1]


def test_the_data_of_a_writer_that_is_alive_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of one task lists the manifests late, while task 1 of a newer run is in the middle of a commit."""
    late = to_jsonl(tmp_path).open(context(1, task=0, tasks=1))
    sync = files.sync_directory

    def recover_between_the_renames(directory: Path) -> None:
        sync(directory)
        if directory.name == "manifests":
            assert offsets(late.recover({})) == [1]

    def fence_before_the_other_opens() -> list[Any]:
        return []

    monkeypatch.setattr(late._files._staging, "shut_out", fence_before_the_other_opens)
    alive = to_jsonl(tmp_path).open(context(2, task=1, tasks=2))
    monkeypatch.setattr(files, "sync_directory", recover_between_the_renames)
    commit(alive, 1)
    assert visible(tmp_path) == [1]


def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(OSError, match="out"):
        to_jsonl(tmp_path / "out").open(context())


def test_a_row_that_is_not_json_leaves_no_trace(tmp_path: Path) -> None:
    writer = to_jsonl(tmp_path).open(context())
    loop: list[Any] = []
    loop.append(loop)
    for bad in ({"a": {1, 2}}, loop, "\ud800"):
        with pytest.raises(TypeError, match=rf"row cannot be written as json: type={type(bad).__name__} fault=.*a map"):
            writer.write(bad)
    commit(writer, 1)
    assert visible(tmp_path) == [1]


def test_a_writer_is_full_by_bytes(tmp_path: Path) -> None:
    writer = to_jsonl(tmp_path, roll_bytes=10, roll_seconds=0.5).open(context())
    assert writer.commit_every_ns == 500_000_000
    writer.write("12345")
    assert not writer.full
    writer.write("1")
    assert writer.full
    writer.commit([Entry("s", n, n) for n in range(2)])
    assert not writer.full


@pytest.mark.parametrize("bad", [float("nan"), {"a": [float("inf")]}, -float("inf")])
def test_numbers_that_json_does_not_have_are_refused(tmp_path: Path, bad: Any) -> None:
    writer = to_jsonl(tmp_path).open(context())
    with pytest.raises(TypeError, match=r"row cannot be written as json: type=.* fault=Out of range float values"):
        writer.write(bad)
    commit(writer, 1)
    assert visible(tmp_path) == [1]


@pytest.mark.parametrize("path", [None, 5, b"out", ""])
def test_a_folder_is_named_by_text(path: Any) -> None:
    for sink in (to_jsonl, to_parquet):
        with pytest.raises(OptionError, match=r"not a folder: path=.* type=.*, did you mean a string like 'out'\?"):
            sink(path)


def test_a_uri_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It became a folder of that name in the working directory."""
    monkeypatch.chdir(tmp_path)
    for sink in (to_jsonl, to_parquet):
        for path in ("s3://bucket/out", "file:///out", Path("hdfs://name/out")):
            with pytest.raises(OptionError, match=r"^not a folder but a URI: path=.*: could it be a path, on a disk"):
                sink(path)
    assert to_jsonl("a:b/out").path == tmp_path / "a:b" / "out"
    assert to_jsonl("./s3:/out").path == tmp_path / "s3:" / "out"


@pytest.mark.parametrize("option", [{"roll_seconds": "1"}, {"roll_seconds": None}, {"roll_bytes": True}])
def test_options_are_numbers(option: dict[str, Any]) -> None:
    ((name, value),) = option.items()
    with pytest.raises(
        OptionError, match=rf"option is not a number: {name}={value!r} type=.*, did you mean to leave it"
    ):
        to_jsonl("out", **option)


NFS = """\
/dev/root / ext4 rw,relatime 0 0
server:/a /data nfs4 rw,vers=4.2,hard 0 0
server:/b /data/safe nfs4 rw,noac,vers=4.2 0 0
server:/c /data/with\\040space nfs rw,lookupcache=all 0 0
tmpfs /data/local tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/out", None),
        ("/data/out", "/data"),
        ("/database", None),
        ("/data/safe/out", None),
        ("/data/with space/out", "/data/with space"),
        ("/data/local/out", None),
    ],
)
def test_a_mount_whose_clients_keep_names_is_known(path: str, mount: str | None) -> None:
    assert mount_with_cached_names(Path(path), NFS) == (None if mount is None else Path(mount))


def test_a_sink_on_such_a_mount_warns_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mounts").write_text(f"server:/a {tmp_path} nfs4 rw,hard 0 0\n")
    monkeypatch.setattr(mounts, "_MOUNTS", tmp_path / "mounts")
    for task in range(2):
        to_jsonl(tmp_path / "out").open(context(task=task, tasks=2))
    (record,) = caplog.records
    assert (
        f"names that are gone: directory={tmp_path / 'out'} mount={tmp_path}, is it mounted with noac?"
        in record.message
    )


@pytest.mark.parametrize("option", [{"roll_seconds": 0}, {"roll_bytes": -1}])
def test_sizes_must_be_positive(option: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"option must be positive: roll_\w+=(0|-1), did you mean to leave it out"):
        to_jsonl("out", **option)


def test_the_path_is_that_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert to_jsonl("out").path == tmp_path / "out"


LOOP = """
import sys
from tailrace.connector import Entry, SinkContext
from tailrace.runtime.connectors import to_jsonl, to_parquet
sink = {"jsonl": to_jsonl, "parquet": to_parquet}[sys.argv[1]](sys.argv[2])
epoch = int(sys.argv[3])
writer = sink.open(SinkContext("out", 0, 1, epoch, "0123456789abcdef", lambda *_: None))
number = max((entry.offset for entry in writer.recover({})), default=-1) + 1
while True:
    for offset in range(number, number + 3):
        writer.write({"n": offset})
    writer.commit([Entry("s", offset, offset) for offset in range(number, number + 3)])
    number += 3
    print(number, flush=True)
"""


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_killed_while_committing(tmp_path: Path, kind: str) -> None:
    """Each process goes on where the one before was killed; nothing is missing, nothing is doubled."""
    import pyarrow.dataset as ds

    acknowledged = 0
    for epoch in range(1, 7):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, kind, str(tmp_path), str(epoch)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(epoch * 3):
            line = process.stdout.readline()
            assert line, "process died by itself"
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split("\n")[:-1]
        process.wait()
        process.stdout.close()
        acknowledged = int([line, *rest][-1])
    writer = to_jsonl(tmp_path).open(context(99))
    recovered = offsets(writer.recover({}))
    if kind == "parquet":
        rows = ds.dataset(tmp_path, format="parquet").to_table().column("n").to_pylist()
    else:
        rows = [row["n"] for part in tmp_path.glob("part-*") for row in map(json.loads, part.read_text().splitlines())]
    assert Counter(rows) == Counter(recovered) == Counter(range(len(recovered)))
    assert len(recovered) in (acknowledged, acknowledged + 3)
