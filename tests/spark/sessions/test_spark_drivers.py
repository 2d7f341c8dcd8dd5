"""The driver in a process of its own: killed and started again, interrupted, and what it leaves behind: nothing."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from kit.runs import MARK, Script, assert_prefixes, assert_same_rows, read_jsonl
from kit.spark import DRIVER, seconds_until_gone
from tailrace.testing.processes import listening_ports, processes_with, wait_until

GONE_S = 15.0
"""After its driver. A worker leaves when its connection ends, the JVM when its standard input does."""

SCRIPT = (
    DRIVER
    + """
import json
from tailrace.testing.processes import wait_until
out, checkpoint, rows, until = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
topology = tr.Topology("driven")
numbers = topology.source("numbers", tr.from_iterable(range(rows)), tasks=2)
numbers.map("slow", slowly, tasks=2).map("row", row).sink("out", tr.to_jsonl(out, roll_seconds=0.1))
spark = local_session(3)
run = topology.run(spark, workers=2, checkpoint=checkpoint, max_pending=500)
run.awaitRunning(60)
print("pids", json.dumps(list(run.workerPids().values())))
try:
    if until:
        wait_until(lambda: durable(run) >= until, 60)
        print("reached")
    run.awaitTermination()
    print("done", run.lastProgress["durable"])
except KeyboardInterrupt:
    run.stop()
    progress = run.lastProgress
    print("drained", json.dumps([progress["status"], [worker["restarts"] for worker in progress["workers"]]]))
spark.stop()
"""
)


pytestmark = pytest.mark.usefixtures("mark")


def rows_in(folder: Path) -> list[int]:
    return [found["n"] for found in read_jsonl(folder)]


@pytest.mark.slow
def test_killed_and_started_again(mark: str, tmp_path: Path) -> None:
    """However late the kill comes there is more to read; the last run ends somewhat beyond what the others wrote."""
    out, checkpoint = tmp_path / "out", str(tmp_path / "checkpoint")
    for attempt in range(1, 3):
        with Script(tmp_path, SCRIPT, str(out), checkpoint, "10000000", "500") as driver:
            pids = json.loads(driver.line_with("pids").partition(" ")[2])
            driver.line_with("reached")
            all_of_them = processes_with(MARK, mark)
            assert not set(pids).isdisjoint(all_of_them)
            assert any(listening_ports(pid) for pid in all_of_them)
            driver.kill()
            took = seconds_until_gone(all_of_them, GONE_S)
            print(f"attempt {attempt}: all gone {took:.1f} s after kill -9 of the driver")
        assert not processes_with(MARK, mark)
        found = rows_in(out)
        assert len(found) == len(set(found)), "a row is there twice"
    rows = max(found) + 500
    with Script(tmp_path, SCRIPT, str(out), checkpoint, str(rows), "0") as driver:
        driver.line_with("done")
        driver.end()
    assert_same_rows(rows_in(out), range(rows))
    seconds_until_gone(processes_with(MARK, mark), GONE_S)


@pytest.mark.slow
@pytest.mark.soak
def test_ctrl_c_drains(mark: str, tmp_path: Path) -> None:
    """The signal goes to all processes of the terminal. No worker may die of it."""
    out = tmp_path / "out"
    with Script(tmp_path, SCRIPT, str(out), str(tmp_path / "checkpoint"), "10000000", "300") as driver:
        driver.line_with("reached")
        everybody = processes_with(MARK, mark)
        for pid in everybody:
            os.kill(pid, signal.SIGINT)
        status, restarts = json.loads(driver.line_with("drained").partition(" ")[2])
        driver.end()
    assert driver.process.returncode == 0
    assert status == "finished" and restarts == [0, 0]
    assert_prefixes(rows_in(out), 2, 300)
    seconds_until_gone(everybody, GONE_S)
    wait_until(lambda: not processes_with(MARK, mark), GONE_S, "all to leave")


def test_a_local_session_is_quiet(mark: str, tmp_path: Path) -> None:
    """A worker that is killed is told of in one line, and nothing else is."""
    source = DRIVER + (
        "import os, signal\n"
        "spark = local_session()\n"
        "assert local_session(7) is spark\n"
        "assert spark.sparkContext.master == f'local[{max(os.cpu_count(), 4)},8]'\n"
        "topology = tr.Topology('quiet')\n"
        "topology.source('numbers', tr.at_rate(range(10**6), 100)).map('row', row).sink('out', tr.to_list())\n"
        "run = topology.run(spark, workers=2)\n"
        "run.awaitRunning(60)\n"
        "os.kill(run.workerPids()[0], signal.SIGKILL)\n"
        "while not recoveries(run):\n"
        "    time.sleep(0.05)\n"
        "run.stop()\n"
        "spark.stop()\n"
        "print('over')\n"
    )
    with Script(tmp_path, source) as driver:
        output = driver.end(90)
    lines = [line for line in output.splitlines() if "incubator modules" not in line]
    assert len(lines) == 2, output
    assert lines[0].startswith("worker 0 is gone: ") and lines[1] == "over"
    seconds_until_gone(processes_with(MARK, mark), GONE_S)


def test_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    source = (
        "import sys\n"
        "from tailrace.spark.session import local_session\n"
        "try:\n"
        "    local_session()\n"
        "except ValueError as error:\n"
        "    print(error)\n"
    )
    with Script(tmp_path, source) as driver:
        output = driver.end(30)
    where = "JAVA_HOME= and none on PATH"
    assert output == f"no Java found: {where}; Spark needs Java 17 or later, is a JRE installed?\n"
