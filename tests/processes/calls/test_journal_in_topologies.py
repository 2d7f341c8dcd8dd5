"""What a journal does in a run: results for good, sources that were edited, results that cannot be kept."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from paid_calls import paid_service

import tailrace as tr
from kit.runs import finish, operator_now


def scoring(port: int) -> Callable[[Any], Any]:
    def score(number: Any) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{number}", timeout=60) as answer:
            return json.load(answer)

    return score


def scored(source: Iterable[Any], port: int, calls: tr.Calls, **options: Any) -> tuple[list[Any], int]:
    """The scores of a whole run, and how many of them were found in the journal."""
    topology = tr.Topology("scores")
    sink = tr.to_list()
    topology.source("numbers", tr.from_iterable(source)).map("score", scoring(port), calls=calls, tasks=2).sink(
        "out", sink
    )
    run = topology.run(workers=2, **options)
    finish(run)
    return sorted(row["n"] for row in sink.values), operator_now(run, "score")["calls"]["found"]


def test_a_second_run_finds_what_was_kept_for_good(tmp_path: Path) -> None:
    calls = tr.Calls(journal=tmp_path / "journal", keep=True, concurrency=4)
    with paid_service(0.001) as service:
        assert scored(range(50), service.port, calls) == (list(range(50)), 0)
        assert scored(range(60), service.port, calls) == (list(range(60)), 50)
        assert service.calls == 60


def test_of_a_source_that_was_edited_only_what_is_new_is_called(tmp_path: Path) -> None:
    calls = tr.Calls(journal=tmp_path / "journal", keep=True, concurrency=4)
    with paid_service(0.001) as service:
        scored(range(20), service.port, calls)
        edited = [*range(10), 1000, *range(11, 20)]
        assert scored(edited, service.port, calls) == (sorted(edited), 19)
        shifted = [1001, *range(19)]
        assert scored(shifted, service.port, calls) == (sorted(shifted), 0)


def test_a_run_that_has_finished_leaves_no_journal_and_one_that_failed_leaves_it(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    calls = tr.Calls(journal=folder, concurrency=1)
    with paid_service(0.001) as service:
        with pytest.raises(tr.TaskError, match="RemoteDisconnected"):
            scored([*range(20), "x"], service.port, calls)
        assert (folder / "journal.json").exists()
        before = service.calls
        rows, found = scored(range(20), service.port, calls)
        assert rows == list(range(20))
        assert service.calls - before == 20 - found
    assert not folder.exists()


def test_a_result_that_cannot_be_kept_fails_the_run_whatever_on_error_says(tmp_path: Path) -> None:
    topology = tr.Topology("locks")
    numbers = topology.source("numbers", tr.from_iterable(range(5)))
    locks = numbers.map("lock", lambda number: threading.Lock(), calls=tr.Calls(journal=tmp_path, on_error="skip"))
    locks.sink("out", tr.to_call(print))
    run = topology.run(workers=1)
    with pytest.raises(
        tr.TailraceError,
        match=r"a result cannot be kept, and its call has been made: journal=\S+ writer=lock-0-e1 result=<unlocked",
    ):
        run.awaitTermination(60)


def test_a_journal_of_another_topology_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "journal.json").write_text('{"format": "tailrace-journal", "version": 1, "owner": "topology other"}')
    with pytest.raises(tr.OptionError, match=r"owner='topology scores' found='topology other'"):
        scored(range(5), 1, tr.Calls(journal=tmp_path))
