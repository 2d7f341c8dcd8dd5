"""A source with a driver side: stopped first and drained whole, ended by itself, failed, refused.

The feed of these tests hands batches over as a streaming query does, and is a thread of this process.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tailrace as tr
from kit.runs import Script, assert_same_rows, coordinator, durable, finish, kill, running, stop
from tailrace.connector import FeedContext, SplitStart
from tailrace.errors import TailraceError
from tailrace.spark.connectors.handover.folder import About, HandoverFolder
from tailrace.spark.connectors.handover.keeper import Keeper
from tailrace.spark.connectors.handover.reader import HandoverSource
from tailrace.spark.connectors.handover.row_files import write_rows
from tailrace.spark.connectors.staged_rows import RowReader
from tailrace.testing.processes import wait_until

ABOUT = About(2, (("n", "bigint"),))
ROWS = 10  # of a batch


class Fed:
    """A source of integers. ``batches``: after how many it ends or fails by itself; None: never."""

    replayable = True

    def __init__(self, folder: Path, batches: int | None = None, fault: Exception | None = None) -> None:
        self.folder, self.batches, self.fault = HandoverFolder(folder), batches, fault
        self.feeds: list[Numbers] = []
        self.in_workers = HandoverSource(folder, ABOUT.splits, RowReader(pa.schema([("n", pa.int64())])))

    def splits(self, tasks: int) -> Any:
        return self.in_workers.splits(tasks)

    def open(self, start: SplitStart) -> Any:
        raise AssertionError("only workers open it")

    def feed(self, context: FeedContext) -> Numbers:
        self.feeds.append(Numbers(self, context))
        return self.feeds[-1]

    def __reduce__(self) -> Any:
        return HandoverSource, (self.folder.path, ABOUT.splits, self.in_workers.reader)


class Numbers:
    """Its feed."""

    def __init__(self, source: Fed, context: FeedContext) -> None:
        self.source, self.context = source, context
        self.keeper = Keeper(source.folder, ABOUT, context.job_id, context.starts)
        self.stopped, self.thread = threading.Event(), threading.Thread(target=self.bring, daemon=True)
        self.brought = (self.keeper.newest + 1) * ROWS
        self.log: list[str] = []

    @property
    def progress(self) -> dict[str, Any] | None:
        return {"brought": self.brought} if self.brought else None

    def start(self) -> None:
        self.log.append("start")
        self.thread.start()

    def bring(self) -> None:
        while not self.stopped.wait(0.02):
            number = self.keeper.newest + 1
            if self.source.batches is not None and number >= self.source.batches:
                if self.source.fault is None:
                    self.keeper.end()
                self.context.ended(self.source.fault)
                return
            rows = pa.RecordBatch.from_pydict({"n": pa.array(range(number * ROWS, number * ROWS + ROWS), pa.int64())})
            written = write_rows(self.source.folder.rows, number, 0, [rows])
            self.keeper.hand_over(number, [] if written is None else [written])
            self.brought += ROWS

    def stop(self) -> None:
        self.log.append("stop")
        self.stopped.set()
        self.thread.join()
        self.keeper.end()

    def close(self) -> None:
        self.log.append("close")
        self.stopped.set()
        if self.thread.ident is not None:
            self.thread.join()
        self.keeper.clean(self.context.durable())
        self.keeper.close()


def slow_n(row: dict[str, int]) -> int:
    time.sleep(0.01)
    return row["n"]


def of(source: Any, out: Any) -> tr.Topology:
    topology = tr.Topology("fed")
    topology.source("rows", source, tasks=2).map("n", slow_n, tasks=2).sink("out", out)
    return topology


def test_stop_ends_the_feed_and_drains_all_that_it_has_brought(tmp_path: Path) -> None:
    """It brings 500 rows a second, and 200 are processed: much is left to do."""
    source, out = Fed(tmp_path / "handover"), tr.to_list()
    with running(of(source, out), workers=2) as run:
        wait_until(lambda: len(out.values) > 20, 30, "rows")
        wait_until(lambda: run.lastProgress and run.lastProgress["queries"]["rows"], 30, "progress of the feed")
        (feed,) = source.feeds
        assert feed.brought - len(out.values) > 50, "nothing waits, so this test shows nothing"
        stopping = threading.Thread(target=run.stop)
        stopping.start()
        wait_until(lambda: "stop" in feed.log, 10, "the feed to be stopped")
        wait_until(lambda: run.lastProgress["status"] == "draining" or not run.isActive, 30, "the status")
        assert not run.isActive or (repr(run).startswith("<Run fed draining") and run.status["message"] == "draining")
        stopping.join(60)
        assert not run.isActive and run.exception() is None
    assert feed.log == ["start", "stop", "close"]
    assert_same_rows(out.values, range(feed.brought))
    assert run.lastProgress["queries"] == {"rows": {"brought": feed.brought}}


def test_a_run_ends_when_its_feed_does(tmp_path: Path) -> None:
    out = tr.to_list()
    run = of(Fed(tmp_path / "handover", batches=7), out).run(workers=2)
    finish(run)
    assert_same_rows(out.values, range(7 * ROWS))


def test_other_sources_are_drained_when_the_feed_is(tmp_path: Path) -> None:
    source, out, others = Fed(tmp_path / "handover"), tr.to_list(), tr.to_list()
    topology = of(source, out)
    topology.source("endless", tr.at_rate(range(10**9), 100)).sink("others", others)
    with running(topology, workers=2) as run:
        wait_until(lambda: out.values and others.values, 30, "rows of both")
        stop(run)
    assert_same_rows(out.values, range(source.feeds[0].brought))
    assert_same_rows(others.values, range(len(others.values)))
    assert run.lastProgress["queries"] == {"rows": {"brought": source.feeds[0].brought}}


def test_a_worker_that_is_killed_reads_again(tmp_path: Path) -> None:
    source, out = Fed(tmp_path / "handover"), tr.to_list()
    with running(of(source, out), workers=2) as run:
        for worker in (0, 1):
            before = durable(run)
            wait_until(lambda before=before: durable(run) > before + 20, 30, "rows")
            kill(run, worker)
        stop(run)
    assert_same_rows(out.values, range(source.feeds[0].brought))


def test_runs_with_a_checkpoint_go_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    source, out = Fed(tmp_path / "handover"), tr.to_list()
    for rows in (30, 60):
        with running(of(source, out), workers=2, checkpoint=tmp_path / "checkpoint") as run:
            wait_until(lambda rows=rows: len(out.values) > rows, 30, "rows")
            run.stop(timeout=0)  # gives up what waits
    assert len(out.values) < source.feeds[-1].brought
    with running(of(source, out), workers=2, checkpoint=tmp_path / "checkpoint") as run:
        stop(run)
    assert_same_rows(out.values, range(source.feeds[-1].brought))
    assert not list(source.folder.rows.iterdir())


def test_a_feed_that_fails_ends_the_run(tmp_path: Path) -> None:
    fault = TailraceError("the stream has dried up: source=rows; who closed the tap?")
    run = of(Fed(tmp_path / "handover", 3, fault), tr.to_list()).run(workers=2)
    with pytest.raises(TailraceError, match="the stream has dried up"):
        run.awaitTermination(60)
    assert repr(run).startswith("<Run fed failed: the stream has dried up")
    fault = TailraceError("nothing at all: source=rows; is it on?")
    run = of(Fed(tmp_path / "other", 0, fault), tr.to_list()).run(workers=2)
    with pytest.raises(TailraceError, match="nothing at all"):
        run.awaitTermination(60)


class Refusing(Fed):
    """Its feed fails at one of its steps."""

    def __init__(self, folder: Path, step: str) -> None:
        super().__init__(folder)
        self.step = step

    def feed(self, context: FeedContext) -> Numbers:
        if self.step == "feed":
            raise tr.OptionError("no feed: source=rows; is it plugged in?")
        feed = super().feed(context)

        def refuse() -> None:
            raise tr.OptionError(f"no {self.step}: source=rows; is it plugged in?")

        setattr(feed, self.step, refuse)
        return feed


@pytest.mark.parametrize("step", ["feed", "start"])
def test_a_feed_that_refuses_leaves_nothing_behind(tmp_path: Path, step: str) -> None:
    first = Fed(tmp_path / "first")
    topology = of(first, tr.to_list())
    topology.source("second", Refusing(tmp_path / "second", step)).sink("seconds", tr.to_list())
    before = threading.active_count()
    for _ in range(2):  # the locks of folders and checkpoint are free again
        with pytest.raises(tr.OptionError, match=f"no {step}: source=rows"):
            topology.run(workers=2, checkpoint=tmp_path / "checkpoint")
    assert first.feeds[0].log == (["start", "close"] if step == "start" else ["close"])
    wait_until(lambda: threading.active_count() <= before, 10, "the threads to end")


def test_a_feed_that_cannot_be_stopped_ends_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    topology = of(Refusing(tmp_path / "handover", "stop"), tr.to_list())
    with running(topology, workers=2) as run, caplog.at_level(logging.WARNING):
        run.stop(timeout=60)
    assert str(run.exception()).startswith("a feed did not stop: source=rows cause=OptionError('no stop: ")
    assert "a feed did not stop: source=rows" in caplog.text


def test_a_stop_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    held = threading.Event()

    class Holding(Fed):
        def feed(self, context: FeedContext) -> Numbers:
            feed = super().feed(context)
            whole: Callable[[], None] = feed.stop

            def stop_later() -> None:
                held.wait(20)
                whole()

            feed.stop = stop_later  # type: ignore[method-assign]
            return feed

    with running(of(Holding(tmp_path / "handover"), tr.to_list()), workers=2) as run:
        run.stop(timeout=0.2)
        assert not run.isActive
        assert str(run.exception()) == "stopped before all was drained: timeout=0.2"
        held.set()


def test_a_run_that_is_stopped_before_its_workers_are_up_drains_all_the_same(tmp_path: Path) -> None:
    source, out = Fed(tmp_path / "handover"), tr.to_list()
    run = of(source, out).run(workers=2)
    wait_until(lambda: source.feeds[0].brought >= 20, 30, "the first batches")
    run.stop()
    assert run.exception() is None
    assert_same_rows(out.values, range(source.feeds[0].brought))


SCRIPT = f"""\
import sys
sys.path[:0] = [{str(Path(__file__).parents[2])!r}, {str(Path(__file__).parent)!r}]
from pathlib import Path
import test_feeds as feeds
import tailrace as tr
from kit.runs import read_jsonl
source = feeds.Fed(Path(sys.argv[1]))
topology = tr.Topology("fed")
topology.source("rows", source, tasks=2).sink("out", tr.to_jsonl(sys.argv[2], roll_seconds=0.1))
run = topology.run(workers=2)
run.awaitRunning(60)
print("running")
try:
    run.awaitTermination()
except KeyboardInterrupt:
    print("drained", len(read_jsonl(Path(sys.argv[2]))), source.feeds[0].brought)
"""


def test_ctrl_c_stops_the_feed_and_drains(tmp_path: Path) -> None:
    with Script(tmp_path, SCRIPT, str(tmp_path / "handover"), str(tmp_path / "out")) as driver:
        driver.line_with("running")
        wait_until(lambda: any((tmp_path / "out").glob("part-*")), 30, "rows")
        os.kill(driver.process.pid, signal.SIGINT)
        _, rows, brought = driver.line_with("drained").split()
        driver.end()
    assert rows == brought and int(rows) > 0


def test_all_is_processed_that_was_brought_before_it_was_asked(tmp_path: Path) -> None:
    source, out = Fed(tmp_path / "handover"), tr.to_list()
    with running(of(source, out), workers=2) as run:
        source.feeds[0].stopped.set()
        source.feeds[0].thread.join()
        run.processAllAvailable(60)
        assert_same_rows(out.values, range(source.feeds[0].brought))
        assert coordinator(run).phase.value == "running"
        stop(run)
