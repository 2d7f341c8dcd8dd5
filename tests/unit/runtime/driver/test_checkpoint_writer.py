"""A checkpoint is written by a thread of its own: nobody waits for it, and it stays locked while it is written."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.messages import Persist, Position
from tailrace.errors import OptionError, TailraceError
from tailrace.runtime.connectors import from_iterable, to_list
from tailrace.runtime.driver import checkpoint_writer as module
from tailrace.runtime.driver.checkpoint import Checkpoint
from tailrace.runtime.driver.checkpoint_writer import CheckpointWriter
from tailrace.testing.processes import wait_until
from tailrace.topology import Topology


@pytest.fixture
def plan() -> Plan:
    topology = Topology("t")
    topology.source("s", from_iterable(range(10))).sink("out", to_list())
    return make_plan(topology, 1)


class Disk:
    """``os.fsync`` waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self._wait)

    def _wait(self, number: int) -> None:
        self.free.wait(30)
        self._sync(number)


def test_an_order_returns_before_it_is_written(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint(tmp_path, plan)
    disk = Disk(monkeypatch)
    done: list[Exception | None] = []
    storer = CheckpointWriter(checkpoint, done.append)
    storer.start()
    storer.order(Persist({0: Position(3, None)}, 7))
    assert done == []
    disk.free.set()
    wait_until(lambda: done == [None], 10, "the write")
    storer.close()
    again = Checkpoint(tmp_path, plan)
    assert (again.positions()[0].offset, again.next_epoch) == (3, 7)
    again.close()


@pytest.mark.parametrize(
    ("cause", "kind", "text"),
    [
        (OSError(28, "no space"), OptionError, r"\[Errno 28\] no space: .*; is its folder there, and is there space\?"),
        (ValueError("odd"), TailraceError, r"ValueError\('odd'\)"),
    ],
)
def test_what_went_wrong_is_told(
    tmp_path: Path,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    cause: Exception,
    kind: type[Exception],
    text: str,
) -> None:
    checkpoint = Checkpoint(tmp_path, plan)
    done: list[Exception | None] = []
    storer = CheckpointWriter(checkpoint, done.append)
    storer.start()

    def fail(number: int) -> None:
        raise cause

    monkeypatch.setattr(os, "fsync", fail)
    storer.order(Persist({0: Position(3, None)}, 7))
    wait_until(lambda: bool(done), 10, "the answer")
    storer.close()
    (error,) = done
    assert type(error) is kind and re.fullmatch(f"checkpoint cannot be written: {text}", str(error))


def test_a_checkpoint_is_locked_until_the_last_write_is_done(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint(tmp_path, plan)
    disk = Disk(monkeypatch)
    monkeypatch.setattr(module, "CLOSE_S", 0.05)
    done: list[Exception | None] = []
    storer = CheckpointWriter(checkpoint, done.append)
    storer.start()
    storer.order(Persist({0: Position(3, None)}, 7))
    storer.close()
    with pytest.raises(OptionError, match="checkpoint is in use"):
        Checkpoint(tmp_path, plan)
    disk.free.set()
    wait_until(lambda: not storer._thread.is_alive(), 10, "the end of the write")
    again = Checkpoint(tmp_path, plan)
    assert again.positions()[0].offset == 3
    again.close()
