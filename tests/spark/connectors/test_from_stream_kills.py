"""The driver is killed five times while a stream is handed over, workers and executors in between: each row once."""

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

base, master, victim, seed = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
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

def kill_some():
    run.awaitRunning(60)
    time.sleep(dice.uniform(0, 1.5))
    pid = dice.choice(list(run.workerPids().values()))
    os.kill(executor_of(pid) if victim == "executor" and dice.random() < 0.7 else pid, signal.SIGKILL)

threading.Thread(target=kill_some, daemon=True).start()
before = len(list((base / "out").glob("part-*"))) if (base / "out").exists() else 0
while run.isActive and len(list((base / "out").glob("part-*"))) < before + 10:
    time.sleep(0.05)
print("grown")
if seed < 0:
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


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("master", "victim"),
    [("local", "worker"), pytest.param("local-cluster[2,2,1024]", "executor", marks=pytest.mark.soak)],
)
def test_each_row_comes_once_whoever_is_killed(mark: str, tmp_path: Path, master: str, victim: str) -> None:
    seed = random.randrange(10**6)
    print(f"seed={seed}")  # of the moments, which are not all that decides
    dice = random.Random(seed)
    make_input(tmp_path / "in")
    rows: list[int] = []
    for life in range(5):
        with Script(tmp_path, SCRIPT, str(tmp_path), master, victim, str(seed + life)) as driver:
            driver.line_with("grown" if life % 2 else "running")
            time.sleep(dice.uniform(0, 3))
            driver.kill()  # its successor comes at once, and may find processes of its own behind it
        found = read_parquet(tmp_path / "out")
        assert len(found) == len(set(found)), "a row is there twice"
        rows.append(len(found))
    with Script(tmp_path, SCRIPT, str(tmp_path), master, victim, "-1") as driver:
        assert driver.line_with("stopped") == "stopped None\n"
        driver.end()
    batches = [int(path.stem.removeprefix("batch-")) for path in (tmp_path / "handover" / "batches").glob("batch-*")]
    found = read_parquet(tmp_path / "out")
    print(f"rows after each kill: {rows}, at the end: {len(found)}")
    assert_same_rows(found, range((max(batches) + 1) * ROWS))
    assert len(found) > rows[-1], "each life has moved on"
    assert not list((tmp_path / "handover" / "rows").iterdir()), "what is durable is deleted, whoever has died"
    assert_none_left(mark)
