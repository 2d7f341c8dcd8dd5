from __future__ import annotations

import json
import logging
import os
import pickle
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.calls.journal_keys import Place, journal_key, tuple_key
from tailrace.errors import OptionError, TailraceError
from tailrace.runtime.calls import journal_files
from tailrace.runtime.calls.journal_files import FileJournal, open_journal
from tailrace.runtime.calls.journal_folder import JournalHold, prepare_journal

OWNER = "function geocode"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FileJournal]:
    journal = open_journal(tmp_path, "geocode-0-e1", owner=OWNER)
    yield journal
    journal.close()


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.results"))


# -- folders


def test_a_folder_is_made_and_its_absolute_path_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert prepare_journal("a/b", OWNER) == tmp_path / "a" / "b"
    assert json.loads((tmp_path / "a/b/journal.json").read_text())["owner"] == OWNER


def test_a_file_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OptionError, match=r"^not a folder to write to: journal=.*/file cause=.*: is it a file, or"):
        prepare_journal(tmp_path / "file", OWNER)


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^not a folder to write to: journal=/proc/journal cause="):
        prepare_journal("/proc/journal", OWNER)
    if os.getuid() != 0:
        tmp_path.chmod(0o500)
        with pytest.raises(OptionError, match=r"permission denied"):
            prepare_journal(tmp_path, OWNER)


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    prepare_journal(tmp_path, OWNER)
    with pytest.raises(
        OptionError,
        match=r"^journal belongs to something else: journal=\S+ owner='topology words' found='function geocode': could",
    ):
        open_journal(tmp_path, "score-0-e1", owner="topology words")


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("{", "Expecting"),
        ("[]", "it says nothing of a journal"),
        ('{"format": "tailrace-journal", "version": 2, "owner": "x"}', "version=2 known=1"),
        ('{"format": "tailrace-journal", "version": 1}', "'owner'"),
    ],
)
def test_a_journal_that_cannot_be_read_is_named(tmp_path: Path, content: str, cause: str) -> None:
    (tmp_path / "journal.json").write_text(content)
    with pytest.raises(OptionError, match=rf"^journal cannot be read: file=\S+/journal.json cause={cause}.*: is it"):
        prepare_journal(tmp_path, OWNER)


def test_of_many_that_claim_a_folder_at_once_one_gets_it(tmp_path: Path) -> None:
    refused: list[str] = []
    barrier = threading.Barrier(8)

    def claim(owner: str) -> None:
        barrier.wait(30)
        try:
            prepare_journal(tmp_path / "journal", owner)
        except OptionError:
            refused.append(owner)

    threads = [threading.Thread(target=claim, args=(f"function {number % 4}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(refused) == 6
    assert [path.name for path in (tmp_path / "journal").iterdir()] == ["journal.json"]


def test_two_runs_that_drop_results_cannot_share_a_folder(tmp_path: Path) -> None:
    hold = JournalHold(prepare_journal(tmp_path, OWNER))
    with pytest.raises(OptionError, match=r"^journal is in use: journal=\S+: does another run still go on\? Two"):
        JournalHold(tmp_path)
    hold.release(remove=False)
    JournalHold(tmp_path).release(remove=False)


def test_a_folder_that_is_removed_keeps_what_is_not_of_the_journal(tmp_path: Path) -> None:
    for name in ("clean", "mixed"):
        folder = prepare_journal(tmp_path / name, OWNER)
        journal = open_journal(folder, "geocode-0", owner=OWNER)
        journal.keep(journal_key(1), "one")
        journal.close()
    (tmp_path / "mixed" / "notes.txt").write_text("mine")
    for name in ("clean", "mixed"):
        JournalHold(tmp_path / name).release(remove=True)
    assert not (tmp_path / "clean").exists()
    assert [path.name for path in (tmp_path / "mixed").iterdir()] == ["notes.txt"]


# -- results


@pytest.mark.parametrize("result", [None, 0, "text", {"a": [1, None]}, b"x" * (3 << 20), Place(1, 2)])
def test_a_result_is_found_by_another_task_at_once(journal: FileJournal, tmp_path: Path, result: Any) -> None:
    other = open_journal(tmp_path, "geocode-1-e1", owner=OWNER)
    assert other.find(journal_key("a")) is None
    journal.keep(journal_key("a"), result)
    assert other.find(journal_key("a")) == (result,)
    other.close()


def test_a_task_without_results_leaves_no_file(journal: FileJournal, tmp_path: Path) -> None:
    assert journal.find(journal_key("a")) is None
    assert files_in(tmp_path) == []


def test_a_result_that_cannot_be_pickled_names_writer_and_value(journal: FileJournal) -> None:
    lock = threading.Lock()
    with pytest.raises(
        TailraceError,
        match=r"^a result cannot be kept, and its call has been made: journal=\S+ writer=geocode-0-e1 "
        r"result=\[<unlocked .*\] cause=TypeError: .*: could the function return plain values\?$",
    ):
        journal.keep(journal_key("a"), [lock])
    assert journal.find(journal_key("a")) is None


def test_a_result_that_is_too_large_is_refused(journal: FileJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_files, "LARGEST_RESULT", 100)
    with pytest.raises(TailraceError, match=r"result='x+…?.* cause=bytes=\d+ limit=100: could it be stored elsewhere"):
        journal.keep(journal_key("a"), "x" * 200)


def test_a_full_disk_fails_and_leaves_nothing_that_is_torn(journal: FileJournal, tmp_path: Path) -> None:
    journal.keep(journal_key("a"), "one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(TailraceError, match=r"writer=geocode-0-e1 bytes=\d+ cause=.*: is the disk full, or"):
            journal.keep(journal_key("b"), b"x" * 50_000)
        with pytest.raises(TailraceError, match=r"is the disk full"):
            journal.keep(journal_key("b"), b"x" * 50_000)  # in a new file
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    journal.keep(journal_key("c"), "three")
    assert journal.find(journal_key("a")) == ("one",)
    assert journal.find(journal_key("b")) is None
    assert journal.find(journal_key("c")) == ("three",)
    assert not list(tmp_path.glob("*.new"))


class Gone:
    pass


def test_a_result_whose_class_is_gone_is_an_error(journal: FileJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.keep(journal_key("a"), Gone())
    monkeypatch.delitem(globals(), "Gone")
    with pytest.raises(TailraceError, match=r"^a result that was kept cannot be read: .*: was its class moved or"):
        journal.find(journal_key("a"))


def test_names_of_writers_need_not_be_names_of_files(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, "../<lambda>/" + "é" * 300, owner=OWNER)
    journal.keep(journal_key("a"), 1)
    assert len(files_in(tmp_path)) == 1
    journal.close()


def test_a_damaged_file_is_named_and_the_rest_of_it_not_used(
    tmp_path: Path, journal: FileJournal, caplog: pytest.LogCaptureFixture
) -> None:
    dying = open_journal(tmp_path, "geocode-1-e1", owner=OWNER)
    for number in range(3):
        dying.keep(journal_key(number), str(number))
    dying._end_file()
    (path,) = files_in(tmp_path)
    data = bytearray(path.read_bytes())
    second = data.index(journal_key(1))
    data[second] ^= 1
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert [journal.find(journal_key(number)) for number in range(3)] == [("0",), None, None]
        journal._index.drop_below({})
    assert "a file of a journal is damaged, and its other results will be computed again: file=" in caplog.text
    assert str(path) in caplog.text


def test_a_result_that_was_damaged_is_not_given(tmp_path: Path, journal: FileJournal) -> None:
    journal.keep(journal_key("a"), "the result")
    (path,) = files_in(tmp_path)
    data = path.read_bytes()
    assert journal.find(journal_key("a")) == ("the result",)
    path.write_bytes(data.replace(b"the result", b"The result"))
    assert pickle.loads(data[data.index(b"\x80\x05") :]) == "the result"
    assert journal.find(journal_key("a")) is None


def test_a_foreign_file_with_our_suffix_is_named_and_left_alone(
    tmp_path: Path, journal: FileJournal, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other.results").write_bytes(b"something else" * 20)
    (tmp_path / "folder.results").mkdir()
    os.mkfifo(tmp_path / "pipe.results")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert journal.find(journal_key("a")) is None
    assert caplog.text.count("not a file of a journal: file=") == 3
    assert "other.results: does something else write to the folder?" in caplog.text
    assert (tmp_path / "other.results").exists()


# -- calls under way


def test_of_two_tasks_one_makes_a_call_and_the_other_finds_its_result(journal: FileJournal, tmp_path: Path) -> None:
    other = open_journal(tmp_path, "geocode-1-e1", owner=OWNER)
    key = journal_key("a")
    assert journal.begin(key)
    assert not other.begin(key)
    assert not journal.begin(key)
    assert other.begin(journal_key("b"))
    journal.give_up(key)
    assert other.begin(key)
    assert not journal.begin(key)
    other.keep(key, "result")
    assert journal.find(key) == ("result",)
    other.close()


def test_a_call_under_way_outlasts_the_file_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_files, "SEGMENT_BYTES", 100)
    one, other = (open_journal(tmp_path, f"score-{task}", owner=OWNER, keep=False) for task in range(2))
    long = tuple_key("score", Place(5, 0), 1, "x")
    assert one.begin(long)
    for offset in range(1, 20):
        one.keep(tuple_key("score", Place(5, offset), 1, "x"), "result")
    one.drop_below({5: 100})
    other._index._looked_s = 0.0
    assert not other.begin(long)
    one._end_file()  # as when its process ends
    other._index._looked_s = 0.0
    assert other.begin(long)
    one.close()
    other.close()


# -- dropping


def test_files_are_dropped_when_all_their_results_are_below_the_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_files, "SEGMENT_BYTES", 500)
    journal = open_journal(tmp_path, "score-0-e1", owner=OWNER, keep=False)
    keys = [tuple_key("score", Place(5, offset), 1, "x") for offset in range(100)]
    for key in keys:
        journal.keep(key, "result")
    before = len(files_in(tmp_path))
    journal.drop_below({5: 70, 6: 99})
    assert 0 < len(files_in(tmp_path)) <= before / 2
    assert all(journal.find(key) == ("result",) for key in keys[70:])
    assert journal.find(keys[0]) is None
    assert journal.is_durable(Place(5, 69))
    assert not journal.is_durable(Place(5, 70))
    assert len(journal._index._where) < 100  # and its memory is given back
    journal.drop_below({5: 100})
    journal.close()
    assert files_in(tmp_path) == []


def test_a_run_that_begins_below_an_earlier_one_in_the_same_process_drops_nothing_that_it_needs(tmp_path: Path) -> None:
    key = tuple_key("score", Place(5, 3), 1, "x")
    earlier = open_journal(tmp_path, "score-0-e1", owner=OWNER, keep=False)
    earlier.drop_below({5: 100})
    earlier.close()
    later = open_journal(tmp_path, "score-0-e2", owner=OWNER, keep=False)
    assert not later.is_durable(Place(5, 3)), "its tuple would be lost"
    later.keep(key, "result")
    later.close()
    assert open_journal(tmp_path, "score-0-e3", owner=OWNER, keep=False).find(key) == ("result",)


def test_what_is_kept_for_good_is_never_dropped(tmp_path: Path) -> None:
    keeping = open_journal(tmp_path, "geocode-0", owner=OWNER)
    keeping.keep(tuple_key("score", Place(5, 1), 1, "x"), "for good")
    keeping.drop_below({5: 100, 0: 100})
    dropping = open_journal(tmp_path, "rank-0", owner=OWNER, keep=False)
    keeping.close()
    dropping.drop_below({5: 100, 0: 100})
    dropping.close()
    journal = open_journal(tmp_path, "geocode-1", owner=OWNER)
    assert journal.find(tuple_key("score", Place(5, 1), 1, "x")) == ("for good",)
    journal.close()


def test_a_result_without_a_place_is_not_dropped_with_others(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, "score-0-e1", owner=OWNER, keep=False)
    journal.keep(journal_key("a"), "no place")
    journal._end_file()
    journal.drop_below({0: 100, 5: 100})
    assert journal.find(journal_key("a")) == ("no place",)
    journal.close()


# -- many in one process


def test_tasks_of_a_process_share_one_index_and_keep_it_for_the_next(tmp_path: Path) -> None:
    one, two = (open_journal(tmp_path, f"geocode-{task}", owner=OWNER) for task in range(2))
    assert one._index is two._index
    one.close()
    one.close()
    two.close()
    assert open_journal(tmp_path, "geocode-2", owner=OWNER)._index is two._index


def test_a_folder_that_was_made_again_is_another_journal(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    old = open_journal(folder, "geocode-0", owner=OWNER)
    old.keep(journal_key("a"), "old")
    folder.rename(tmp_path / "moved")
    new = open_journal(folder, "geocode-1", owner=OWNER)
    assert new.find(journal_key("a")) is None
    old.close()
    new.close()


def test_a_process_keeps_few_idle_indexes_and_few_open_files(tmp_path: Path) -> None:
    for number in range(12):
        journal = open_journal(tmp_path / str(number), "geocode-0", owner=OWNER)
        journal.keep(journal_key("a"), number)
        assert journal.find(journal_key("a")) == (number,)
        journal.close()
    ours = [folder for folder in journal_files._indexes if folder.parent == tmp_path]
    assert len(ours) <= journal_files.IDLE_INDEXES
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [path for path in opened if str(tmp_path) in path]
