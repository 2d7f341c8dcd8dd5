"""The folder of a handover: what is handed over, read and deleted, whoever dies on the way, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.connector import SplitStart
from tailrace.errors import NotRepeatable, OptionError, TailraceError
from tailrace.runtime.connectors.fingerprint import fingerprint
from tailrace.spark.connectors.handover.folder import About, HandoverFolder
from tailrace.spark.connectors.handover.keeper import Keeper
from tailrace.spark.connectors.handover.manifests import ROW_BITS, Manifest, Manifests, names_of
from tailrace.spark.connectors.handover.reader import LIST_NS, POLL_NS, HandoverReader, HandoverSource
from tailrace.spark.connectors.handover.row_files import write_rows
from tailrace.spark.connectors.staged_rows import RowReader
from tailrace.testing.connectors import Crash, CrashAt, check_source, steps

SPLITS = 3
ABOUT = About(SPLITS, (("n", "bigint"),))
BATCHES: Sequence[Sequence[Sequence[int]]] = [[[0, 1], [2], [3, 4]], [], [[5, 6, 7]], [[8], [9]], [[10, 11]]]
"""The rows of each file of each batch: of several, of none, and of fewer files than splits."""
READER = RowReader(pa.schema([("n", pa.int64())]))


def written(folder: HandoverFolder, number: int, *files: Sequence[int]) -> list[tuple[str, int]]:
    """What tasks of Spark do: each writes a file."""
    batches = [pa.RecordBatch.from_pydict({"n": pa.array(rows, pa.int64())}) for rows in files]
    found = [write_rows(folder.rows, number, part, [batch]) for part, batch in enumerate(batches)]
    return [one for one in found if one is not None]


def hand_over(keeper: Keeper, folder: HandoverFolder, numbers: Sequence[int]) -> None:
    """What the query does, in every run: batches that were handed over are skipped."""
    for number in numbers:
        if keeper.wants(number):
            keeper.hand_over(number, written(folder, number, *BATCHES[number]))


def none_durable() -> dict[str, int]:
    return dict.fromkeys(names_of(SPLITS), 0)


def begun(path: Path, job: str = "job", starts: Mapping[str, int] | None = None) -> tuple[HandoverFolder, Keeper]:
    folder = HandoverFolder(path)
    return folder, Keeper(folder, ABOUT, job, none_durable() if starts is None else starts)


def rest_of(
    folder: HandoverFolder, split: str, offset: int = 0, last: bytes | None = None
) -> Iterator[tuple[int, int]]:
    """(offset, row) of what is there of a split, from an offset on."""
    reader = HandoverReader(folder, SPLITS, READER, SplitStart(split, offset, last))
    while records := reader.poll(2, 0):
        yield from ((record.offset, record.value["n"]) for record in records)
    reader.close()


def everything(folder: HandoverFolder, starts: Mapping[str, int]) -> list[int]:
    return sorted(row for split, offset in starts.items() for _, row in rest_of(folder, split, offset))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- what is read


def test_the_law_of_readers(tmp_path: Path) -> None:
    folder, keeper = begun(tmp_path / "handover")
    hand_over(keeper, folder, range(5))
    keeper.end()
    records = check_source(HandoverSource(folder.path, SPLITS, READER), tasks=2)
    assert sorted(record.value["n"] for record in records) == list(range(12))
    keeper.close()


def test_the_place_of_a_row_never_changes(tmp_path: Path) -> None:
    """Checkpoints know rows by it: file ``i`` of batch ``N`` is of split ``(N + i) % splits``."""
    folder, keeper = begun(tmp_path / "handover")
    hand_over(keeper, folder, range(5))
    manifest = Manifests(folder.batches).read(0)
    assert manifest is not None and [rows for _, rows in manifest.files] == [2, 1, 2]
    found = {split: list(rest_of(folder, split)) for split in names_of(SPLITS)}
    assert found == {
        "0": [(0, 0), (1, 1), (3 << 32, 8)],
        "1": [(0, 2), (3 << 32, 9), (4 << 32, 10), ((4 << 32) + 1, 11)],
        "2": [(0, 3), (1, 4), (2 << 32, 5), ((2 << 32) + 1, 6), ((2 << 32) + 2, 7)],
    }


def test_a_reader_waits_for_batches_until_it_is_told_the_end(tmp_path: Path) -> None:
    folder, keeper = begun(tmp_path / "handover")
    reader = HandoverReader(folder, SPLITS, READER, SplitStart("0"))
    assert reader.poll(10, 1000) == [] and not reader.done and not reader.may_follow
    assert reader.ready_ns == 1000 + 10_000_000
    hand_over(keeper, folder, [0])
    assert reader.may_follow
    assert [record.value for record in reader.poll(10, 0)] == [{"n": 0}, {"n": 1}]
    assert reader.poll(10, 0) == [] and not reader.done
    hand_over(keeper, folder, [1])
    keeper.end()
    assert reader.poll(10, LIST_NS + 1000) == [] and reader.done and not reader.may_follow
    keeper.close()
    # The next run goes on, and what the last one said of its end is forgotten.
    folder, keeper = begun(tmp_path / "handover")
    reader = HandoverReader(folder, SPLITS, READER, SplitStart("0", 2))
    assert reader.poll(10, 0) == [] and not reader.done


def test_a_reader_that_waits_seldom_lists_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing costs more the more batches wait, and four splits that looked 100 times a second kept a disk busy."""
    folder, keeper = begun(tmp_path / "handover")
    reader = HandoverReader(folder, SPLITS, READER, SplitStart("0"))
    looks: list[int] = []
    now_ns = 0
    look = Manifests.look

    def counted(manifests: Manifests) -> Any:
        looks.append(now_ns)
        return look(manifests)

    monkeypatch.setattr(Manifests, "look", counted)
    for _ in range(100):  # a second
        assert reader.poll(10, now_ns) == [] and reader.ready_ns == now_ns + POLL_NS
        now_ns = reader.ready_ns
    assert looks == [0, LIST_NS, 2 * LIST_NS, 3 * LIST_NS]
    hand_over(keeper, folder, [0])
    assert reader.poll(10, now_ns), "a batch is found by its name, as soon as before"
    assert len(looks) == 4


def test_a_reader_passes_batches_that_were_read_and_deleted_before_it_came(tmp_path: Path) -> None:
    """Batch 2 has rows of one split only. Once they are durable it goes, and the others may not have looked at it."""
    folder, keeper = begun(tmp_path / "handover")
    readers = {split: HandoverReader(folder, SPLITS, READER, SplitStart(split)) for split in names_of(SPLITS)}
    hand_over(keeper, folder, [0, 1])
    for reader in readers.values():
        assert reader.poll(10, 0)
    hand_over(keeper, folder, [2, 3])
    keeper.clean({"0": 2, "1": 1, "2": (2 << ROW_BITS) + 3})
    assert names_in(folder.batches) == ["batch-000000000003.json"]
    assert [record.value["n"] for record in readers["0"].poll(10, 0)] == [8]
    assert [record.value["n"] for record in readers["1"].poll(10, 0)] == [9]


# --- what is deleted


def test_batches_that_are_durable_as_a_whole_are_deleted_from_the_lowest_on(tmp_path: Path) -> None:
    folder, keeper = begun(tmp_path / "handover")
    hand_over(keeper, folder, range(5))
    assert keeper.waiting(none_durable()) == 12
    assert keeper.waiting({"0": 2, "1": (3 << ROW_BITS), "2": 1}) == 12 - 2 - 1 - 1
    keeper.clean({"0": 1, "1": (4 << ROW_BITS) + 2, "2": (2 << ROW_BITS) + 3})
    assert len(names_in(folder.rows)) == 7, "a row of batch 0 is not durable"
    keeper.clean({"0": 2, "1": (3 << ROW_BITS), "2": (2 << ROW_BITS) + 1})
    assert names_in(folder.batches) == [f"batch-{number:012d}.json" for number in (2, 3, 4)]
    assert [name[:12] for name in names_in(folder.rows)] == [f"{number:012d}" for number in (2, 3, 3, 4)]
    ends = {"0": (3 << ROW_BITS) + 1, "1": (4 << ROW_BITS) + 2, "2": (2 << ROW_BITS) + 3}
    keeper.clean(ends)
    assert names_in(folder.rows) == []
    assert names_in(folder.batches) == ["batch-000000000004.json"], "the newest says which batch is the next"
    assert keeper.waiting(ends) == 0
    job = folder.path / "job.json"
    job.rename(tmp_path / "job.json")
    keeper.clean(ends)
    assert not job.exists(), "while nothing can be deleted, nothing is written"
    (tmp_path / "job.json").rename(job)
    keeper.close()
    # The next run of the job goes on behind it.
    folder, keeper = begun(tmp_path / "handover", starts=ends)
    assert [list(rest_of(folder, split, offset)) for split, offset in ends.items()] == [[], [], []]
    assert not keeper.wants(4) and keeper.wants(5)


def test_what_was_not_handed_over_is_swept(tmp_path: Path) -> None:
    folder, keeper = begun(tmp_path / "handover")
    hand_over(keeper, folder, [0])
    written(folder, 1, [77])
    (folder.batches / ".batch-000000000001.json.abc").touch()
    (folder.rows / "something-else.txt").touch()
    keeper.close()
    folder, keeper = begun(tmp_path / "handover")
    assert names_in(folder.batches) == ["batch-000000000000.json"]
    assert len(names_in(folder.rows)) == 3 + 1
    assert "something-else.txt" in names_in(folder.rows)
    assert everything(folder, none_durable()) == [0, 1, 2, 3, 4]


# --- crashes


class Story:
    """The driver hands batches over and deletes some, and may die at any step. A run then goes on where it was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.starts = none_durable()  # the checkpoint of the run
        self.read: list[int] = []  # rows that are durable
        self.spark = 0  # the batch that Spark runs next

    def run(self) -> None:
        folder, keeper = begun(self.path, starts=dict(self.starts))
        try:
            for number in range(self.spark, len(BATCHES)):
                self.spark = number
                hand_over(keeper, folder, [number])
                if number % 2:
                    with steps(None):
                        self.process(folder, "0" if number == 1 else "2")
                    keeper.clean(self.starts)
            self.spark = len(BATCHES)
            keeper.end()
        finally:
            keeper.close()

    def process(self, folder: HandoverFolder, split: str) -> None:
        """The run reads what is there of a split, and it becomes durable."""
        for offset, row in rest_of(folder, split, self.starts[split]):
            self.starts[split] = offset + 1
            self.read.append(row)

    def finish(self) -> None:
        with steps(None):
            self.run()
            folder = HandoverFolder(self.path)
            for split in names_of(SPLITS):
                self.process(folder, split)
        assert sorted(self.read) == list(range(12))


def died(story: Story, at: int) -> bool:
    """Whether the driver died, at this step of it."""
    hook = CrashAt(at)
    with steps(hook), suppress(Crash):
        story.run()
    return hook.taken > at


def test_a_driver_that_dies_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    at, died_in_all = 0, 0
    while True:
        story = Story(tmp_path / str(at))
        if not died(story, at):
            break
        again = 0
        while died(story, again):  # its successors too, each a few steps later
            again += 7
            died_in_all += 1
        story.finish()
        at += 1
    assert at > 60 and died_in_all > at, "steps of the file system are met"


# --- what is refused


def test_another_job_is_refused_once_rows_are_deleted(tmp_path: Path) -> None:
    folder, keeper = begun(tmp_path / "handover")
    hand_over(keeper, folder, [0, 1])
    keeper.close()
    folder, keeper = begun(tmp_path / "handover", "other")  # nothing is gone yet
    keeper.clean({"0": 2, "1": 1, "2": 2})
    keeper.close()
    with pytest.raises(NotRepeatable) as caught:
        begun(tmp_path / "handover", "third")
    assert str(caught.value) == (
        f"rows have been read and deleted: folder={folder.path} job=other ours=third, "
        "is it of an earlier job whose checkpoint is gone, or did you forget checkpoint=…?"
    )
    with pytest.raises(OptionError) as refused:
        begun(tmp_path / "handover", "third", {"0": 2, "1": 1, "2": 2})
    assert str(refused.value) == (
        f"checkpoint belongs to another folder: folder={folder.path} job=third found=other, "
        "is this the folder that the job began with?"
    )
    with pytest.raises(OptionError, match=r"checkpoint belongs to another folder: .* found=None"):
        begun(tmp_path / "new", "third", {"0": 2, "1": 1, "2": 2})
    for reader in ("0", "1", "2"):
        with pytest.raises(NotRepeatable, match=r"rows have been deleted: .* deleted=\d, is it an earlier job"):
            HandoverReader(folder, SPLITS, READER, SplitStart(reader))


def test_old_copies_are_refused(tmp_path: Path) -> None:
    folder, keeper = begun(tmp_path / "handover")
    hand_over(keeper, folder, range(3))
    keeper.clean({"0": 2, "1": 1, "2": 2})
    keeper.close()
    with pytest.raises(NotRepeatable) as caught:
        begun(tmp_path / "handover", starts={"0": 1, "1": 1, "2": 2})
    assert str(caught.value) == (
        f"rows have been deleted that the checkpoint has not read: folder={folder.path} split=0 offset=1 deleted=2, "
        "is it an old copy of the checkpoint?"
    )
    with pytest.raises(NotRepeatable) as caught:
        begun(tmp_path / "handover", starts={"0": (3 << ROW_BITS) + 1, "1": 1, "2": 2})
    assert str(caught.value) == (
        f"the checkpoint has read more than the folder holds: folder={folder.path} split=0 "
        f"offset={(3 << ROW_BITS) + 1} newest=2, is it an old copy of the folder?"
    )
    with pytest.raises(
        NotRepeatable, match=r"batch has fewer rows than were read: .* end=8589934595, is it the folder"
    ):
        HandoverReader(folder, SPLITS, READER, SplitStart("2", (2 << ROW_BITS) + 4))
    with pytest.raises(NotRepeatable, match=r"there is no such batch: .*, is it the folder that the job began with\?"):
        HandoverReader(folder, SPLITS, READER, SplitStart("2", (7 << ROW_BITS) + 4))


def test_a_row_that_changed_is_found(tmp_path: Path) -> None:
    folder, keeper = begun(tmp_path / "handover")
    hand_over(keeper, folder, [0])
    assert list(rest_of(folder, "0", 1, fingerprint({"n": 0}))) == [(1, 1)]
    assert list(rest_of(folder, "0", 2, fingerprint({"n": 1}))) == []
    for offset in (1, 2):
        with pytest.raises(NotRepeatable, match=r"file has another row than before: .* before=\{'n': 99\}"):
            list(rest_of(folder, "0", offset, fingerprint({"n": 99})))


def test_a_query_that_begins_elsewhere_is_refused(tmp_path: Path) -> None:
    """Its checkpoint was deleted, and it would go unnoticed that it reads all anew; or batches are missing."""
    folder, keeper = begun(tmp_path / "handover")
    hand_over(keeper, folder, [0, 1])
    for number in (0, 3):
        with pytest.raises(TailraceError) as caught:
            keeper.wants(number)
        assert str(caught.value) == (
            f"the streaming query and its batches do not fit together: folder={folder.path} batch={number} newest=1, "
            "was a part of the folder deleted or copied?"
        )
    with pytest.raises(TailraceError) as caught:
        keeper.hand_over(2, [("000000000002-00000-beef.parquet", 1)])
    assert str(caught.value) == (
        f"rows are not where the driver can read them: folder={folder.path} files=1 missing=1, "
        "is the folder on a disk that the driver and all executors share?"
    )
    keeper.end()
    with pytest.raises(TailraceError, match=r"the handover has ended: .* batch=2, is it stopped"):
        keeper.hand_over(2, [])


def test_a_driver_that_gave_the_folder_back_changes_nothing_in_it(tmp_path: Path) -> None:
    """Its query may still be in a batch, if Spark could not end it, and the next run may have begun."""
    folder, keeper = begun(tmp_path / "handover")
    hand_over(keeper, folder, [0, 1])
    late = written(folder, 2, [5])
    keeper.close()
    folder, other = begun(tmp_path / "handover")
    before = names_in(folder.batches), (folder.path / "job.json").read_bytes()
    with pytest.raises(TailraceError, match=r"the handover has ended: .* batch=2, is it stopped"):
        keeper.hand_over(2, late)
    keeper.end()
    keeper.clean({"0": 2, "1": 1, "2": 2})
    assert (names_in(folder.batches), (folder.path / "job.json").read_bytes()) == before
    assert len(names_in(folder.rows)) == 3
    other.close()


def test_the_first_of_two_drivers_wins(tmp_path: Path) -> None:
    """On a file system without locks."""
    folder, keeper = begun(tmp_path / "handover")
    with pytest.raises(OptionError) as caught:
        begun(tmp_path / "handover")
    assert str(caught.value) == (
        f"folder is in use: folder={folder.path}, does another run still go on, or have two sources this folder?"
    )
    with pytest.raises(OptionError, match="folder is in use"):
        folder.delete()
    (folder.path / "lock").unlink()
    _, other = begun(tmp_path / "handover")
    theirs, ours = written(folder, 0, [1]), written(folder, 0, [1])
    other.hand_over(0, theirs)
    keeper.hand_over(0, ours)
    assert everything(folder, none_durable()) == [1]
    assert Manifests(folder.batches).read(0) == Manifest(0, tuple(theirs))


def test_folders_that_are_something_else(tmp_path: Path) -> None:
    folder = HandoverFolder(tmp_path / "new")
    folder.check(ABOUT)
    assert not folder.path.exists(), "a check makes nothing"
    folder.delete()
    (tmp_path / "precious.txt").touch()
    for check in (HandoverFolder(tmp_path).check, HandoverFolder(tmp_path).claim):
        with pytest.raises(OptionError) as caught:
            check(ABOUT)
        assert str(caught.value).startswith(f"folder holds something else: folder={tmp_path} found=")
        assert str(caught.value).endswith(", did you mean a new folder in it?")
    HandoverFolder(tmp_path).delete()
    assert (tmp_path / "precious.txt").exists()
    with pytest.raises(OptionError, match=r"not a folder but a file: folder=.*precious.txt, did you mean another path"):
        HandoverFolder(tmp_path / "precious.txt").check(ABOUT)


@pytest.mark.parametrize(
    ("about", "fault"),
    [
        (About(5, ABOUT.columns), "folder has another number of splits: * found=3 splits=5, did you mean splits=3?"),
        (
            About(3, (("n", "string"),)),
            "folder holds other columns: * found=['n bigint'] columns=['n string'], "
            "has the DataFrame changed? Then it needs a new folder",
        ),
        (
            About(3, (*ABOUT.columns, ("m", "int"))),
            "folder holds other columns: * found=[] columns=['m int'], has the DataFrame changed? "
            "Then it needs a new folder",
        ),
    ],
)
def test_a_folder_of_another_description(tmp_path: Path, about: About, fault: str) -> None:
    folder, keeper = begun(tmp_path / "handover")
    keeper.close()
    with pytest.raises(OptionError) as caught:
        HandoverFolder(folder.path).check(about)
    assert str(caught.value) == fault.replace("*", f"folder={folder.path}")
    folder.delete()
    assert not folder.path.exists()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "tailrace-handover", "version": 2}'])
def test_descriptions_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    folder, keeper = begun(tmp_path / "handover")
    keeper.close()
    (folder.path / "job.json").write_text(text)
    with pytest.raises(OptionError, match=r"handover cannot be read: file=.*job.json cause=.*, is it one of ours"):
        folder.job()
    (folder.path / "about.json").write_text(text)
    with pytest.raises(OptionError, match=r"handover cannot be read: file=.*about.json cause=.*, is it one of ours"):
        folder.check(ABOUT)


def test_a_worker_that_does_not_reach_the_folder(tmp_path: Path) -> None:
    with pytest.raises(TailraceError) as caught:
        HandoverReader(HandoverFolder(tmp_path), SPLITS, READER, SplitStart("0"))
    assert str(caught.value) == f"folder is not there: folder={tmp_path}, is it reachable by this worker?"


def test_manifests_that_are_damaged(tmp_path: Path) -> None:
    folder, keeper = begun(tmp_path / "handover")
    hand_over(keeper, folder, [0])
    for text in ("", "{}", json.dumps({"files": [["a"]]}), json.dumps({"files": 5})):
        (folder.batches / "batch-000000000000.json").write_text(text)
        with pytest.raises(TailraceError, match=r"log is damaged: file=.*, did something else write to it\?"):
            Manifests(folder.batches).read(0)


# --- what tasks of Spark write


def test_rows_of_a_task_keep_their_types(tmp_path: Path) -> None:
    moments = pa.array([0], pa.timestamp("us", tz="Asia/Tokyo"))
    columns: dict[str, Any] = {
        "at": moments,
        "local": pa.array([0], pa.timestamp("us")),
        "took": pa.array([5], pa.duration("us")),
        "ats": pa.ListArray.from_arrays([0, 1], moments),
        "part": pa.StructArray.from_arrays([moments, pa.array(["x"])], names=["at", "name"]),
        "by": pa.MapArray.from_arrays([0, 1], pa.array(["x"]), moments),
    }
    whole = pa.RecordBatch.from_pydict(columns)
    written = write_rows(tmp_path, 3, 7, [whole.slice(0, 0), whole, whole])
    assert written is not None and written[1] == 2 and written[0].startswith("000000000003-00007-")
    table = pq.read_table(tmp_path / written[0])
    utc = pa.timestamp("us", tz="UTC")
    assert [table.schema.field(name).type for name in columns] == [
        *(utc, pa.timestamp("us"), pa.duration("us"), pa.list_(utc)),
        *(pa.struct([("at", utc), ("name", pa.string())]), pa.map_(pa.string(), utc)),
    ]
    assert write_rows(tmp_path, 3, 7, []) is None


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1]})

    def broken() -> Iterator[Any]:
        yield batch
        raise RuntimeError("it ends here")

    with pytest.raises(RuntimeError):
        write_rows(tmp_path, 3, 7, broken())
    assert names_in(tmp_path) == []
