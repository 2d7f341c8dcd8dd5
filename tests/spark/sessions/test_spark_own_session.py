"""A plain script with a session of the user's own: Ctrl-C, and a session that is stopped under its run."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from kit.runs import MARK, Script, assert_prefixes, assert_same_rows, read_jsonl
from kit.spark import OWN_SESSION, seconds_until_gone
from tailrace.spark.session import interrupts_held
from tailrace.testing.processes import processes_with, wait_until

pytestmark = pytest.mark.usefixtures("mark")

GONE_S = 15.0
STOPPED = "the Spark session was stopped before the run; was spark.stop() called before run.stop()?"

TOPOLOGY = """
def slower(number):
    time.sleep(0.002)
    return number
topology = tr.Topology("own")
numbers = topology.source("numbers", tr.from_iterable(range(int(sys.argv[2]))), tasks=2)
numbers.map("slower", slower, tasks=2).map("row", row).sink("out", tr.to_jsonl(sys.argv[1], roll_seconds=0.2))
"""

INTERRUPTED = (
    OWN_SESSION
    + TOPOLOGY
    + """
import json
def forever(batches):
    import time
    time.sleep(1000)
    yield from batches
def job():
    try:
        spark.range(0, 1, 1, 1).mapInArrow(forever, "id long").collect()
    except Exception as error:
        print("job", "cancelled" in str(error))
def start_job():
    active = spark.sparkContext.statusTracker().getActiveJobsIds
    before = len(active())
    thread = threading.Thread(target=job)
    thread.start()
    while len(active()) == before:
        time.sleep(0.05)
    return thread
run = topology.run(spark, workers=2, max_pending=3000)
run.awaitRunning(60)
other = start_job()
try:
    print("running")
    run.awaitTermination()
except KeyboardInterrupt:
    progress = run.lastProgress
    restarts = [worker["restarts"] for worker in progress["workers"]]
    print("interrupted", json.dumps([run.isActive, progress["status"], restarts]))
other.join()
other = start_job()
try:
    print("alone")
    threading.Event().wait()
except KeyboardInterrupt:
    other.join()
spark.stop()
"""
)


@pytest.mark.slow
def test_ctrl_c_drains_the_run_and_cancels_other_jobs(mark: str, tmp_path: Path) -> None:
    """PySpark cancels all jobs: the workers may not be among them. After the run it is as it was before.

    A cancelled worker lives on for a moment: there is more to drain than it could do in that time.
    """
    out = tmp_path / "out"
    with Script(tmp_path, INTERRUPTED, str(out), "10000000") as driver:
        driver.line_with("running")
        wait_until(lambda: len(rows_in(out)) > 300, 60, "rows")
        everybody = processes_with(MARK, mark)
        for pid in everybody:
            os.kill(pid, signal.SIGINT)
        told = driver.lines_to("alone")
        assert "job True\n" in told
        os.kill(driver.process.pid, signal.SIGINT)
        assert driver.end() == "job True\n"
    (answer,) = [line.partition(" ")[2] for line in told if line.startswith("interrupted")]
    assert json.loads(answer) == [False, "finished", [0, 0]]
    assert_prefixes(rows_in(out), 2, 300)
    seconds_until_gone(everybody, GONE_S)


def rows_in(folder: Path) -> list[int]:
    return [found["n"] for found in read_jsonl(folder)]


ENDED = (
    OWN_SESSION
    + TOPOLOGY
    + """
import atexit
atexit.register(print, "tidied up")
run = topology.run(spark, workers=2)
if len(sys.argv) > 3:
    raise RuntimeError("a slip")
"""
)


def test_a_script_that_ends_waits_for_its_run(mark: str, tmp_path: Path) -> None:
    """Before Spark is shut down, and the JVM goes with the script."""
    out = tmp_path / "out"
    with Script(tmp_path, ENDED, str(out), "500") as driver:
        output = driver.end()
    assert driver.process.returncode == 0, output
    assert "the script has ended and its run goes on: run=own: waiting for its end" in output
    assert output.rstrip().endswith("tidied up")
    assert_same_rows(rows_in(out), range(500))
    seconds_until_gone(processes_with(MARK, mark), GONE_S)


def test_a_script_that_fails_does_not_hang_on_its_run(mark: str, tmp_path: Path) -> None:
    with Script(tmp_path, ENDED, str(tmp_path / "out"), "10000000", "fail") as driver:
        output = driver.end()
    assert driver.process.returncode == 1, output
    assert "the script has failed and its run goes on: run=own: draining it for 5 s at most" in output
    seconds_until_gone(processes_with(MARK, mark), GONE_S)


STOPPED_EARLY = (
    OWN_SESSION
    + TOPOLOGY
    + """
import json
from tailrace.testing.processes import is_alive, listening_ports
before = listening_ports(os.getpid())
run = topology.run(spark, workers=2, checkpoint=sys.argv[3], max_pending=500)
run.awaitRunning(60)
pids = list(run.workerPids().values())
during = listening_ports(os.getpid())
while durable(run) < 100:
    time.sleep(0.05)
spark.stop()
try:
    run.awaitTermination(60)
except tr.TailraceError as error:
    assert error is run.exception()
    print("ended", error)
while any(map(is_alive, pids)):
    time.sleep(0.05)
after = listening_ports(os.getpid())
print("ports", json.dumps([len(set(during) - set(before)), len(set(after) - set(before))]))
topology.run(workers=1, checkpoint=sys.argv[3]).awaitTermination()
print("resumed")
"""
)


@pytest.mark.soak
def test_a_session_that_is_stopped_under_its_run(mark: str, tmp_path: Path) -> None:
    """One sentence, and another run goes on from the checkpoint."""
    out = tmp_path / "out"
    with Script(tmp_path, STOPPED_EARLY, str(out), "3000", str(tmp_path / "checkpoint")) as driver:
        assert driver.line_with("ended the") == f"ended {STOPPED}\n"
        opened, left = json.loads(driver.line_with("ports").partition(" ")[2])
        assert (opened, left) == (1, 0)
        driver.line_with("resumed")
        driver.end()
    assert_same_rows(rows_in(out), range(3000))
    wait_until(lambda: not processes_with(MARK, mark), GONE_S, "all to leave")


def test_ctrl_c_while_spark_starts_waits_until_it_has_and_a_second_one_does_not() -> None:
    """Otherwise PySpark leaves a JVM behind that waits for nobody."""
    done = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("started")
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        done.append("started after all")
    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is before
