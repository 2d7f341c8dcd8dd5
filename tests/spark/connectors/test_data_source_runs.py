"""Whole runs from one data source to another, on plain processes: killed, given up and resumed, each row once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSource

import tailrace as tr
from kit.data_sources import Counter2, Folder, Simple, Table, assert_once, copy, numbers, table_rows
from kit.runs import finish, homes, kill, received, running
from tailrace.errors import TailraceError
from tailrace.spark.connectors.data_sink import to_data_source
from tailrace.spark.connectors.data_source import from_data_source
from tailrace.testing.processes import wait_until

ROWS = 6000


@pytest.mark.parametrize("victim", ["rows", "out"])
@pytest.mark.parametrize("kind", [Counter2, Simple])
def test_a_worker_is_killed(kind: type[DataSource], victim: str, tmp_path: Path) -> None:
    options = {"rows": str(ROWS), "step": "50", "pause": "0.01"}
    source = from_data_source(kind, options, log=tmp_path / "in", available_now=True)
    target = tmp_path / "out"
    sink = to_data_source(Table, {"path": str(target)}, schema="n long", log=tmp_path / "log", roll_seconds=0.05)
    topology = copy(source, sink)
    (worker,) = homes(topology, 2, victim)
    with running(topology, workers=2, max_pending=300) as run:
        for least in (500, 2000):
            wait_until(lambda least=least: received(run, "out") > least, 30, "rows at the sink")
            kill(run, worker)
        finish(run)
    assert_once(table_rows(target), ROWS)


def test_both_ends_are_killed_with_several_tasks(tmp_path: Path) -> None:
    options = {"rows": str(ROWS), "step": "50", "pause": "0.01"}
    source = from_data_source(Counter2, options, log=tmp_path / "in", available_now=True)
    out = tmp_path / "out"
    sink = to_data_source(
        Folder, {"path": str(out)}, schema="n long", log=tmp_path / "log", roll_seconds=0.05, max_tasks=2
    )
    with running(copy(source, sink, tasks=2, sinks=2), workers=2, max_pending=300) as run:
        for worker in (0, 1):
            least = received(run, "out") + 800
            wait_until(lambda least=least: received(run, "out") > least, 30, "rows at the sink")
            kill(run, worker)
        finish(run)
    assert_once(numbers(out), ROWS)


def test_runs_that_resume_a_checkpoint(tmp_path: Path) -> None:
    """The first is given up in the middle, the second reads to the end, the third finds what was added."""
    upto, target, note = tmp_path / "upto", tmp_path / "table", tmp_path / "committed"
    upto.write_text("3000")
    options = {"upto": str(upto), "step": "50", "pause": "0.01", "committed": str(note)}

    def start() -> tr.Run:
        source = from_data_source(Counter2, options, log=tmp_path / "in", available_now=True)
        sink = to_data_source(Table, {"path": str(target)}, schema="n long", log=tmp_path / "log", roll_seconds=0.05)
        return copy(source, sink).run(workers=2, checkpoint=tmp_path / "checkpoint", max_pending=300)

    run = start()
    wait_until(lambda: received(run, "out") > 1000, 30, "rows at the sink")
    run.stop(timeout=0)
    assert len(table_rows(target)) < 3000
    finish(start())
    assert_once(table_rows(target), 3000)
    upto.write_text("3500")
    finish(start())
    assert_once(table_rows(target), 3500)
    committed = [json.loads(line)["n"] for line in note.read_text().splitlines()]
    assert committed == sorted(committed)
    assert committed[-1] >= 2900, "the data source is told what is durable, if not at once"


def test_a_run_without_its_checkpoint_is_refused(tmp_path: Path) -> None:
    def start() -> tr.Run:
        source = from_data_source(Counter2, {"rows": "10"}, log=tmp_path / "in", available_now=True)
        sink = to_data_source(Table, {"path": str(tmp_path / "t")}, schema="n long", log=tmp_path / "log")
        return copy(source, sink).run(workers=2)

    finish(start())
    with pytest.raises(TailraceError, match=r"log belongs to another sink.*did you forget the checkpoint"):
        start().awaitTermination(60)
