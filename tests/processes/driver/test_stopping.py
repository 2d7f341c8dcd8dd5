"""Stop drains; a checkpoint goes on where the last run left off, however that ended."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import tailrace as tr
from kit.runs import (
    MARK,
    Script,
    assert_prefixes,
    assert_same_rows,
    await_recovery,
    coordinator,
    durable,
    finish,
    homes,
    kill,
    progress_now,
    read_jsonl,
    received,
    restarts,
    row,
    running,
    same,
    slowly,
    stop,
)
from tailrace.connector import Record, SplitStart
from tailrace.errors import TailraceError
from tailrace.testing.processes import is_alive, listening_ports, processes_with, wait_until


def _backlog(rows: int, sink: object) -> tr.Topology:
    """A source that is far ahead of what comes after it."""
    topology = tr.Topology("backlog")
    numbers = topology.source("numbers", tr.from_iterable(range(rows)), tasks=2)
    numbers.map("slow", slowly, tasks=2).map("row", row, tasks=2).sink("out", sink, tasks=2)
    return topology


def _numbers(folder: Path) -> list[int]:
    return [found["n"] for found in read_jsonl(folder)]


def test_progress_can_be_had_at_once() -> None:
    topology = tr.Topology("at-once")
    topology.source("numbers", tr.from_iterable(range(10))).sink("out", tr.to_list())
    run = topology.run(workers=2)
    assert [worker["state"] for worker in progress_now(run)["workers"]] == ["starting", "starting"]
    run.awaitTermination(60)


def test_stop_makes_everything_durable_that_was_read(tmp_path: Path) -> None:
    with running(_backlog(10_000_000, tr.to_jsonl(tmp_path, roll_seconds=600)), workers=3, max_pending=2000) as run:
        wait_until(lambda: received(run, "out") > 300, 30, "rows at the sink")
        pids = list(run.workerPids().values())
        assert progress_now(run)["pending"] > 500, "there is no backlog, so this test shows nothing"
        progress = stop(run)
        assert not any(is_alive(pid) for pid in pids)
    assert_prefixes(_numbers(tmp_path), 2, 1000)
    assert progress["pending"] == 0 and progress["status"] == "finished"
    assert progress["durable"] == sum(source["received"] for source in progress["operators"][:1])
    assert len(_numbers(tmp_path)) == progress["durable"]


def test_stop_is_prompt_after_the_source_was_replaced() -> None:
    topology = tr.Topology("prompt")
    numbers = topology.source("numbers", tr.at_rate(range(10_000_000), 1000))
    numbers.map("row", row).sink("out", tr.to_list())
    (worker,) = homes(topology, 2, "numbers")
    with running(topology, workers=2) as run:
        wait_until(lambda: received(run, "out") > 100, 30, "rows at the sink")
        kill(run, worker)
        await_recovery(run)
        least = received(run, "out") + 500
        wait_until(lambda: received(run, "out") >= least, 30, "the run to go on")
        run.stop(timeout=8)
        assert run.exception() is None, "65,536 roots at 1000 a second are 65 s"


class FitfulReader:
    """Every other poll is empty, and after each that is not it wants to be asked later."""

    done = False

    def __init__(self, start: SplitStart) -> None:
        self._next = start.offset
        self._polls = 0
        self.ready_ns = 0

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        self._polls += 1
        if self._polls % 2 or now_ns < self.ready_ns:
            return []
        self.ready_ns = now_ns + 5_000_000
        first, self._next = self._next, self._next + min(limit, 20)
        return [Record(7 * number, 0, number) for number in range(first, self._next)]

    def close(self) -> None: ...


class Fitful:
    replayable = True

    def splits(self, tasks: int) -> Sequence[str]:
        return ["only"]

    def open(self, start: SplitStart) -> FitfulReader:
        return FitfulReader(SplitStart(start.split, -(-start.offset // 7)))


def hold_up_one(number: int) -> int:
    """So that the prefix stays, while rows behind it are shown."""
    if number == 50:
        time.sleep(1.5)
    return number


def test_a_drain_reads_as_far_as_a_source_that_died_though_polls_are_empty() -> None:
    out = tr.to_list()
    topology = tr.Topology("fitful")
    topology.source("s", Fitful()).map("m", hold_up_one, tasks=2, kind="blocking").sink("out", out)
    (worker,) = homes(topology, 3, "s")
    with running(topology, workers=3, max_pending=5000) as run:
        wait_until(lambda: received(run, "out") > 300, 30, "rows at the sink")
        kill(run, worker)
        run.stop(timeout=60)
        assert run.exception() is None
    assert sorted(out.values) == list(range(max(out.values) + 1)) and len(out.values) > 300


def test_stop_and_go_on_from_the_checkpoint(tmp_path: Path) -> None:
    rows = 6000
    out, checkpoint = tmp_path / "out", str(tmp_path / "checkpoint")
    ids, lengths = set(), []
    for _ in range(2):
        topology = _backlog(rows, tr.to_jsonl(out, roll_seconds=0.1))
        with running(topology, workers=2, checkpoint=checkpoint, max_pending=500) as run:
            wait_until(lambda run=run: received(run, "out") > 300, 30, "rows at the sink")
            stop(run)
            ids.add(run.id)
        lengths.append(len(_numbers(out)))
        assert_prefixes(_numbers(out), 2)
    with running(_backlog(rows, tr.to_jsonl(out)), workers=3, checkpoint=checkpoint) as run:
        finish(run)
        ids.add(run.id)
    assert_same_rows(_numbers(out), range(rows))
    assert 0 < lengths[0] < lengths[1] < rows and len(ids) == 1
    with running(_backlog(rows, tr.to_jsonl(out)), workers=3, checkpoint=checkpoint) as run:
        finish(run)  # there is nothing left to do
    assert_same_rows(_numbers(out), range(rows))


def test_stop_that_gives_up_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    """Some rows are there, some are not, and nobody knows which: the next run finds out."""
    rows = 5000
    out, checkpoint = tmp_path / "out", str(tmp_path / "checkpoint")
    with running(_backlog(rows, tr.to_jsonl(out, roll_seconds=0.1)), workers=2, checkpoint=checkpoint) as run:
        wait_until(lambda: received(run, "out") > 300, 30, "rows at the sink")
        run.stop(timeout=0.01)
        assert isinstance(run.exception(), TailraceError)
        assert "stopped before all was drained: timeout=0.01" in str(run.exception())
    assert 0 < len(_numbers(out)) < rows
    with running(_backlog(rows, tr.to_jsonl(out)), workers=2, checkpoint=checkpoint) as run:
        finish(run)
    assert_same_rows(_numbers(out), range(rows))


@pytest.mark.parametrize("victim", ["slow", "numbers"])
def test_a_worker_dies_while_the_run_drains(victim: str, tmp_path: Path) -> None:
    """Nothing may be missing in between: what was read is there, or, if its reader died, comes with the next run."""
    rows = 3000
    out, checkpoint = tmp_path / "out", str(tmp_path / "checkpoint")
    topology = tr.Topology("drain")
    numbers = topology.source("numbers", tr.from_iterable(range(rows)))
    numbers.map("slow", slowly).map("row", row).sink("out", tr.to_jsonl(out, roll_seconds=0.1))
    worker = homes(topology, 3, victim)[0]
    with running(topology, workers=3, checkpoint=checkpoint, max_pending=1500) as run:
        wait_until(lambda: received(run, "out") > 300, 30, "rows at the sink")
        coordinator(run).drain()
        kill(run, worker)
        progress = finish(run)
    assert restarts(progress)[worker] == 1
    assert max(Counter(_numbers(out)).values()) == 1
    if victim == "slow":
        assert_prefixes(_numbers(out), 1, 300)
    again = tr.Topology("drain")
    numbers = again.source("numbers", tr.from_iterable(range(rows)))
    numbers.map("slow", slowly).map("row", row).sink("out", tr.to_jsonl(out, roll_seconds=0.1))
    with running(again, workers=3, checkpoint=checkpoint) as run:
        finish(run)
    assert_same_rows(_numbers(out), range(rows))


def test_two_runs_cannot_share_a_checkpoint(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    topology = _backlog(10_000_000, tr.to_jsonl(tmp_path / "out"))
    with running(topology, workers=1, checkpoint=checkpoint, max_pending=100) as run:
        with pytest.raises(tr.OptionError, match=r"checkpoint is in use: checkpoint=.*; does another run still go on"):
            _backlog(10, tr.to_list()).run(workers=1, checkpoint=checkpoint)
        stop(run)
    with running(_backlog(10_000_000, tr.to_list()), workers=1, checkpoint=checkpoint, max_pending=100) as run:
        stop(run)


def test_a_checkpoint_of_another_topology_is_refused(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    with running(_backlog(10, tr.to_list()), workers=1, checkpoint=checkpoint) as run:
        finish(run)
    other = tr.Topology("other")
    other.source("numbers", tr.from_iterable(range(10))).sink("out", tr.to_list())
    with pytest.raises(tr.OptionError, match=r"belongs to another topology: .* topology=other found=backlog"):
        other.run(workers=1, checkpoint=checkpoint)


DRIVER = """
import sys, time
import tailrace as tr

def slowly(number):
    time.sleep(0.0005)
    return {"n": number}

out, checkpoint, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
if __name__ == "__main__":
    topology = tr.Topology("driver")
    numbers = topology.source("numbers", tr.from_iterable(range(rows)), tasks=2)
    numbers.map("slow", slowly, tasks=2).sink("out", tr.to_jsonl(out, roll_seconds=0.2), tasks=2)
    run = topology.run(workers=3, checkpoint=checkpoint, max_pending=1000)
    run.awaitRunning(60)
    print("pids", *run.workerPids().values(), flush=True)
    run.awaitTermination(100)
    print("done", run.lastProgress["status"], flush=True)
"""


def test_the_driver_is_killed_three_times(tmp_path: Path, mark: str) -> None:
    rows = 8000
    out = tmp_path / "out"
    arguments = (str(out), str(tmp_path / "checkpoint"), str(rows))
    for _ in range(3):
        with Script(tmp_path, DRIVER, *arguments) as driver:
            driver.line_with("pids")
            before = len(list(out.glob("part-*")))
            wait_until(lambda before=before: len(list(out.glob("part-*"))) >= before + 3, 30, "some files")
            driver.kill()  # the next one starts at once, while the workers of this one may still be there
    with Script(tmp_path, DRIVER, *arguments) as driver:
        assert "done finished" in driver.end()
    assert_same_rows(_numbers(out), range(rows))
    epochs = {int(file.name.rsplit("-e", 1)[1].split("-")[0]) for file in out.glob("part-*")}
    assert len(epochs) >= 4, "every driver has got something done"


def test_nothing_stays_when_the_driver_dies(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    arguments = (str(out), str(tmp_path / "checkpoint"), "4000")
    with Script(tmp_path, DRIVER, *arguments) as driver:
        pids = [int(word) for word in driver.line_with("pids").split()[1:]]
        ports = [port for pid in [*pids, driver.process.pid] for port in listening_ports(pid)]
        assert len(pids) == 3 and len(ports) == 4
        wait_until(lambda: len(list(out.glob("part-*"))) >= 2, 30, "some files")
        driver.kill()
        killed_at = time.monotonic()
        wait_until(lambda: not processes_with(MARK, mark), 10, "the workers to leave")
        assert time.monotonic() - killed_at < 10
    assert not _listening(ports)
    stray = [path for path in tmp_path.rglob("*") if path.is_file() and not _expected(path, tmp_path)]
    assert stray == []
    with Script(tmp_path, DRIVER, *arguments) as driver:
        assert "done" in driver.end()
    assert_same_rows(_numbers(out), range(4000))
    staged = [path for path in (out / "_tailrace").rglob("*") if path.is_file() and "staging" in path.parts]
    assert staged == [], "the next run cleans up what the dead one had begun"


def _listening(ports: list[int]) -> list[int]:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    open_ports = {int(line.split()[1].split(":")[1], 16) for line in lines if line.split()[3] == "0A"}
    return [port for port in ports if port in open_ports]


def _expected(path: Path, home: Path) -> bool:
    inner = path.relative_to(home).parts
    return inner[0] in ("driver.py", "checkpoint") or inner[:2] == ("out", "_tailrace") or path.suffix == ".jsonl"


def test_the_checkpoint_is_one_small_file(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    with running(_backlog(1000, tr.to_list()), workers=2, checkpoint=str(folder)) as run:
        wait_until(lambda: durable(run) > 0, 30, "progress")
        finish(run)
    stored = json.loads((folder / "checkpoint.json").read_text())
    assert {key: position["offset"] for key, position in stored["positions"].items()} == {
        "numbers/0/2": 500,
        "numbers/1/2": 500,
    }
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.json", "lock"]


def test_all_that_is_available_is_processed() -> None:
    out = tr.to_list()
    topology = tr.Topology("available")
    topology.source("numbers", tr.at_rate(range(10_000_000), 500), tasks=2).map("m", same, tasks=2).sink("out", out)
    with running(topology, workers=2) as run:
        for _ in range(2):
            time.sleep(0.5)
            due = received(run, "numbers")
            run.processAllAvailable(timeout=30)
            assert len(out.values) >= due > 0
        kill(run, 0)
        run.processAllAvailable(timeout=60)
        stop(run)
    assert_prefixes(out.values, 2)


def test_a_source_that_never_runs_dry_is_not_waited_for_for_ever() -> None:
    topology = tr.Topology("endless")
    topology.source("numbers", tr.from_iterable(lambda split, splits: itertools.count())).sink("out", tr.to_call(same))
    with running(topology, workers=1) as run:
        with pytest.raises(TimeoutError, match=r"still busy: run=endless timeout=0.5; does a source never run dry?"):
            run.processAllAvailable(timeout=0.5)
        stop(run)


HOLDS_THE_INTERPRETER = """
import re, time
import tailrace as tr

def stuck(number):
    if number == 50:
        print("holds", flush=True)
        time.sleep(1)  # until it is heard of
        re.match(r"(a+)+$", "a" * 60 + "b")
    return number

if __name__ == "__main__":
    topology = tr.Topology("holds")
    topology.source("numbers", tr.at_rate(range(10_000), 200)).map("stuck", stuck).sink("out", tr.to_list())
    run = topology.run(workers=2)
    run.awaitRunning(60)
    time.sleep(600)
"""


def test_a_worker_leaves_a_dead_driver_even_if_a_call_holds_the_interpreter(tmp_path: Path, mark: str) -> None:
    with Script(tmp_path, HOLDS_THE_INTERPRETER) as driver:
        driver.line_with("holds")
        time.sleep(2)
        driver.kill()
        time.sleep(1.5)
        assert processes_with(MARK, mark), "no call holds the interpreter, so this test shows nothing"
        wait_until(lambda: not processes_with(MARK, mark), 30, "the workers to leave")
