"""A driver whose disk is slow, or which stands still for a while, loses no worker."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import tailrace as tr
from kit.runs import Script, assert_same_rows, finish, restarts, same

IMPATIENT_S = 0.6

DISK_S = 0.2
"""Two of these are a write. Three sources have something to write 40 times a second each."""


def _held_up(checkpoint: Path | None = None) -> tuple[dict[str, object], list[int]]:
    """The last progress of a run, and its rows."""
    out: tr.ListSink[int] = tr.to_list()
    topology = tr.Topology("held_up")
    source = topology.source("numbers", tr.at_rate(range(900), 300), tasks=3)
    source.map("same", same, stateful=True).sink("out", out)
    run = topology.run(workers=2, checkpoint=checkpoint, heartbeat_timeout_s=IMPATIENT_S)
    return finish(run), sorted(out.values)


def test_a_slow_disk_under_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def slow(number: int) -> None:
        time.sleep(DISK_S)
        sync(number)

    monkeypatch.setattr(os, "fsync", slow)
    progress, rows = _held_up(tmp_path / "checkpoint")
    assert_same_rows(rows, range(900))
    assert restarts(progress) == [0, 0] and progress["stateLost"] == []


DRIVER = """
import time
import tailrace as tr

def same(value):
    return value

if __name__ == "__main__":
    out = tr.to_list()
    topology = tr.Topology("paused")
    topology.source("numbers", tr.at_rate(range(3000), 500)).map("same", same, stateful=True).sink("out", out)
    run = topology.run(workers=2, heartbeat_timeout_s=1)
    run.awaitRunning(60)
    print("up", flush=True)
    time.sleep(0.5)
    sum(range(90_000_000))  # one call that holds the interpreter
    run.awaitTermination(60)
    progress = run.lastProgress
    print("rows", len(out.values), "restarts", [w["restarts"] for w in progress["workers"]], progress["stateLost"])
"""


def test_a_driver_that_is_paused_and_busy(tmp_path: Path) -> None:
    """For longer than the heartbeat timeout: as after Ctrl-Z and fg, or in a debugger; with a long call besides."""
    with Script(tmp_path, DRIVER) as script:
        script.line_with("up")
        os.kill(script.process.pid, signal.SIGSTOP)
        time.sleep(4)
        os.kill(script.process.pid, signal.SIGCONT)
        assert "rows 3000 restarts [0, 0] []" in script.end()
