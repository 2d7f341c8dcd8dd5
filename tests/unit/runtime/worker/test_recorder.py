"""The writing side of a recording: keys, a full disk, a folder that is taken."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tailrace as tr
from tailrace.clock import system_clock
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import Root
from tailrace.core.tasks.stages import Lineages
from tailrace.errors import OptionError
from tailrace.metrics.recording import file_name, read_recorded
from tailrace.policy.hashing import stable_hash
from tailrace.runtime.worker.recorder import (
    Recorder,
    StampedQueue,
    _RecordedStage,
    check_folder,
    content_hash,
    describe,
    key_hash,
)
from tailrace.testing import ManualClock


def plan() -> Plan:
    topology = tr.Topology("numbers")
    topology.source("numbers", tr.from_iterable(range(3))).sink("out", tr.to_list())
    return make_plan(topology, 1, name_all=True)


def recorder(folder: Path, complaints: list[str]) -> Recorder:
    header = describe(plan(), "job", 0, 1, system_clock)
    return Recorder(str(folder), header, plan(), system_clock, complaints.append)


def root(offset: int) -> Root:
    return Root(0, offset, None, 10 * offset)


@pytest.mark.parametrize("value", [0, -7, 2.5, True, None, "word", b"bytes", ("user", 3)])
def test_small_content_has_a_hash(value: Any) -> None:
    assert content_hash(value) == stable_hash(value) != 0


@pytest.mark.parametrize("value", ["x" * 1000, {"a": 1}, [1], object(), (1, [2]), (1,) * 100])
def test_what_is_large_or_has_no_stable_hash_has_none(value: Any) -> None:
    assert content_hash(value) == 0


def test_the_key_counts_where_there_is_one() -> None:
    key = key_hash(lambda row: row["user"])
    assert key({"user": "ada", "n": 1}) == key({"user": "ada", "n": 2}) == stable_hash("ada")
    assert key({"n": 1}) == 0


def test_a_queue_knows_when_what_it_gives_was_put_in() -> None:
    times = iter([5, 8])
    queue = StampedQueue(lambda: next(times))
    bundles: list[Any] = [("first",), ("second",), ("third",)]
    queue.extend(bundles[:2])
    queue.append(bundles[2])
    taken = [(queue.popleft(), queue.received_ns) for _ in range(3)]
    assert taken == [(("first",), 5), (("second",), 5), (("third",), 8)]
    assert not queue


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_recording_that_cannot_be_written_any_more_ends_and_says_so_once(tmp_path: Path) -> None:
    complaints: list[str] = []
    one = recorder(tmp_path, complaints)
    completed = one.roots(0)
    completed(root(0), 77)
    one.write()
    file = tmp_path / file_name(0, 1)
    with files_up_to(file.stat().st_size + 20):
        completed(root(1), 78)
        one.write()
        completed(root(2), 79)
        one.close()
    assert complaints == ["the recording ends here: [Errno 27] File too large; the run goes on"]
    found = read_recorded(file)
    assert list(found.roots["emission"]) == [77] and found.torn_bytes and not found.ended


def test_a_folder_that_holds_a_recording_is_not_mixed_with_another(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")
    recorder(tmp_path, []).close()
    with pytest.raises(OptionError, match=r"^there is a recording already: record=.*; could this run have a folder of"):
        check_folder(tmp_path)
    with pytest.raises(OptionError, match=r"^nothing can be recorded here: .*File exists"):
        recorder(tmp_path, [])


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"^not a folder: record="):
        check_folder(tmp_path / "file")


@pytest.mark.parametrize("values", [["a"], ["a", "b"]])
def test_what_a_sink_holds_during_a_commit_is_logged_all_the_same(values: list[str]) -> None:
    """It has not been measured when the stage returns."""

    class Holds:
        def run(self, emission: int, split: int, offset: int, values: list[Any], lineages: Lineages) -> int:
            return 7

    logged: list[Any] = []
    log = SimpleNamespace(add=logged.append)
    stage = _RecordedStage(Holds(), [99], ManualClock(5), None, len, cast(Any, log))
    lineages = list(range(len(values)))
    assert stage.run(1, 0, 0, values, lineages) == 7
    assert logged == [(1, lineage, 1, 0, 5, 0) for lineage in lineages]
