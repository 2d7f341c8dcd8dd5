"""State is in memory only: a run that goes on without it is refused, or says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace as tr
from kit.runs import finish, progress_now
from tailrace.testing.processes import wait_until


class Count:
    def __init__(self) -> None:
        self.seen = 0

    def process(self, number: int) -> int:
        self.seen += 1
        return self.seen


def _topology(folder: Path) -> tr.Topology:
    topology = tr.Topology("counted")
    numbers = topology.source("numbers", tr.from_iterable(range(20)))
    numbers.map("count", Count, stateful=True).sink("out", tr.to_jsonl(folder / "out"))
    return topology


def test_a_checkpoint_without_the_state(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    assert finish(_topology(tmp_path).run(workers=1, checkpoint=checkpoint))["stateLost"] == []
    with pytest.raises(tr.OptionError, match=r"^a checkpoint holds no state: .* stateful=count; .*state='restart'$"):
        _topology(tmp_path).run(workers=1, checkpoint=checkpoint)
    run = _topology(tmp_path).run(workers=1, checkpoint=checkpoint, state="restart")
    assert finish(run)["stateLost"] == ["count"]
    assert run.status["message"] == "finished; state lost: count"


def test_an_open_that_does_not_return_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    marker = tmp_path / "marker"

    class Opened:
        def open(self, context: object) -> None:
            wait_until(marker.exists, 60, "the test to go on")

        def process(self, number: int) -> int:
            return number

    out: tr.ListSink[int] = tr.to_list()
    topology = tr.Topology("slow")
    topology.source("numbers", tr.from_iterable(range(20))).map("model", Opened).sink("out", out)
    run = topology.run(workers=1)
    try:
        wait_until(lambda: "a task does not get open: task=model/0 worker=0 seconds=" in caplog.text, 60, "a word")
        wait_until(lambda: "worker 0 has been opening model/0 for " in progress_now(run)["status"], 60, "status")
    finally:
        marker.touch()
    assert "opening" not in finish(run)["status"] and len(out.values) == 20
