"""The driver is killed while a stream is handed over, workers and executors in between: each row once."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from kit.runs import Script, assert_none_left, assert_same_rows, read_parquet
from kit.spark import DRIVER

FILES, ROWS = 600, 50
"""Of the stream, and of a file, which is a batch. There is always another, so that each kill comes in some batch."""

SCRIPT = (
    DRIVER
    + """
import os, random, signal, threading
from pathlib import Path
from pyspark.sql import SparkSession
from kit.spark import executor_of

base, master, victim, seed, life = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
dice = random.Random(seed)
if master == "local":
    spark = local_session(4)
else:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
stream = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(base / "in"))
source = tr.from_stream(stream, folder=base / "handover")
topology = tr.Topology("killed")
sink = tr.to_parquet(base / "out", schema="n long", roll_seconds=0.1)
topology.source("rows", source, tasks=2).map("row", lambda row: {"n": row["n"]}, tasks=2).sink("out", sink)
run = topology.run(spark, workers=2, checkpoint=base / "checkpoint")
print("running")

def kill_one():
    run.awaitRunning(90)
    time.sleep(dice.uniform(0, 1.5))
    for _ in range(1000):
        try:
            pid = dice.choice(list(run.workerPids().values()))
            os.kill(executor_of(pid) if victim == "executor" else pid, signal.SIGKILL)
            break
        except (AssertionError, IndexError, ProcessLookupError):  # it is just being started again
            time.sleep(0.05)
    else:
        raise AssertionError(f"nobody to kill: workers={run.workerPids()}")
    with (base / "kills").open("a") as kills:
        print(victim, file=kills)

def files():
    return len(list((base / "out").glob("part-*"))) if (base / "out").exists() else 0

killing = threading.Thread(target=kill_one, daemon=True)
killing.start()
if life != "short":
    killing.join(150)
before = files()
while run.isActive and files() < before + 10:
    time.sleep(0.05)
print("grown")
if life == "last":
    run.stop()
    print("stopped", run.exception())
else:
    run.awaitTermination()
spark.stop()
"""
)


def make_input(folder: Path) -> None:
    folder.mkdir()
    for number in range(FILES):
        path = folder / f"{number:05d}.json"
        path.write_text("".join(f'{{"n": {n}}}\n' for n in range(number * ROWS, number * ROWS + ROWS)))
        os.utime(path, (number, number))  # Spark takes them in this order


CLUSTER = "local-cluster[2,2,1024]"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("master", "victims", "lives"),
    [
        ("local", ["worker"], 5),
        (CLUSTER, ["executor", "worker"], 1),
        pytest.param(CLUSTER, ["executor", "worker"], 5, marks=pytest.mark.soak),
    ],
)
def test_each_row_comes_once_whoever_is_killed(
    mark: str, tmp_path: Path, master: str, victims: list[str], lives: int
) -> None:
    """Every other driver, and the last one, goes on until the kill of its life is over and rows have come since."""
    seed = random.randrange(10**6)
    print(f"seed={seed}")  # of the moments, which are not all that decides
    dice = random.Random(seed)
    make_input(tmp_path / "in")
    rows: list[int] = []

    def driver_of(life: int, kind: str) -> Script:
        victim = victims[-1 if kind == "last" else life // 2 % len(victims)]
        return Script(tmp_path, SCRIPT, str(tmp_path), master, victim, str(seed + life), kind)

    for life in range(lives):
        with driver_of(life, "short" if life % 2 else "long") as driver:
            driver.line_with("running" if life % 2 else "grown")
            time.sleep(dice.uniform(0, 3))
            driver.kill()  # its successor comes at once, and may find processes of its own behind it
        found = read_parquet(tmp_path / "out")
        assert len(found) == len(set(found)), "a row is there twice"
        rows.append(len(found))
    with driver_of(lives, "last") as driver:
        assert driver.line_with("stopped") == "stopped None\n"
        driver.end()
    batches = [int(path.stem.removeprefix("batch-")) for path in (tmp_path / "handover" / "batches").glob("batch-*")]
    found, kills = read_parquet(tmp_path / "out"), (tmp_path / "kills").read_text().split()
    print(f"killed besides drivers: {kills}, rows after each driver: {rows}, at the end: {len(found)}")
    assert len(kills) >= (lives + 1) // 2 + 1 and set(kills) == set(victims), "each life was to have its kill"
    assert_same_rows(found, range((max(batches) + 1) * ROWS))
    assert len(found) > rows[-1], "each life has moved on"
    assert not list((tmp_path / "handover" / "rows").iterdir()), "what is durable is deleted, whoever has died"
    assert_none_left(mark)
