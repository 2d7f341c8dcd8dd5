"""The driver of a streamed run is killed at random moments, and workers in between: each row is written once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from kit.runs import MARK, Script, assert_same_rows, read_jsonl
from kit.spark import DRIVER, seconds_until_gone
from tailrace.testing.processes import processes_with, wait_until

GONE_S = 20.0
"""After its driver: the JVM leaves when its standard input ends."""

SCRIPT = (
    DRIVER
    + """
import os, random, signal, threading
folder, master, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
if master == "local":
    spark = local_session(5)
else:
    from pyspark.sql import SparkSession
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
frame = spark.readStream.format("rate").option("rowsPerSecond", 200).option("numPartitions", 2).load()
source = tr.from_stream(frame, folder=folder + "/stream")
def work(row):
    time.sleep(0.3 if row["value"] % 100 == 7 else 0.002)
    return {"n": row["value"]}
topology = tr.Topology("streamed")
stream = topology.source("rows", source, tasks=2)
stream.map("work", work, tasks=4, kind="blocking").sink("out", tr.to_jsonl(folder + "/out", roll_seconds=0.1), tasks=2)
run = topology.run(spark, workers=2, checkpoint=folder + "/checkpoint")
run.awaitRunning(120)
print("running", flush=True)
def kill_a_worker():
    pids = list(run.workerPids().values())
    if pids:
        os.kill(random.choice(pids), signal.SIGKILL)
if rows:
    while durable(run) < rows:
        time.sleep(0.05)
    print("reached", flush=True)
    if len(sys.argv) > 4:
        kill_a_worker()
        print("killed", flush=True)
    run.awaitTermination()
else:
    while not durable(run):
        time.sleep(0.05)
    run.stop()
    print("done", run.lastProgress["queries"]["rows"]["waitingRows"], flush=True)
spark.stop()
"""
)


def killed_five_times(mark: str, folder: Path, master: str, seed: int) -> list[int]:
    rng = random.Random(seed)
    for attempt in range(5):
        arguments = [str(folder), master, str(rng.choice([1, 100, 300])), *(["kill"] if attempt % 2 else [])]
        with Script(folder, SCRIPT, *arguments) as driver:
            driver.line_with("killed" if attempt % 2 else "reached")
            time.sleep(rng.uniform(0, 1.0))
            driver.kill()
        seconds_until_gone(processes_with(MARK, mark), GONE_S)
        found = [row["n"] for row in read_jsonl(folder / "out")]
        assert len(found) == len(set(found)), "a row is there twice"
    with Script(folder, SCRIPT, str(folder), master, "0") as driver:
        assert driver.line_with("done").split() == ["done", "0"]
        driver.end()
    wait_until(lambda: not processes_with(MARK, mark), GONE_S, "processes to leave")
    return [row["n"] for row in read_jsonl(folder / "out")]


@pytest.mark.slow
def test_every_row_once_though_the_driver_is_killed_five_times(mark: str, tmp_path: Path) -> None:
    found = killed_five_times(mark, tmp_path, "local", 1)
    assert_same_rows(found, range(len(found)))
    assert len(found) > 300


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3])
def test_every_row_once_on_a_cluster(mark: str, tmp_path: Path, seed: int) -> None:
    found = killed_five_times(mark, tmp_path, "local-cluster[2,3,1024]", seed)
    assert_same_rows(found, range(len(found)))
