"""The driver of an apply is killed and resumed, workers and executors in between: the rows are those of mapInPandas."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from kit.runs import Script, assert_none_left, read_parquet
from kit.spark import DRIVER
from tailrace.testing.processes import is_alive, wait_until

ROWS = 6000
PENDING = 100
WORKERS = 2

KILLED = (
    DRIVER
    + f"""
import os, signal, threading
from pathlib import Path
from pyspark.sql import SparkSession
from kit.runs import assert_same_rows
from kit.spark import command_of, executor_of
from tailrace.testing.processes import is_alive, wait_until

base, master, life = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
home, seen, dead = base / "home", base / "seen" / life, base / "dead"
seen.mkdir(parents=True)
dead.mkdir(exist_ok=True)
if master == "local":
    spark = local_session(4)
else:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")

def score(row):
    return {{"kind": row["id"] % 10, "score": row["id"] % 35 / 4}}  # many rows are alike

def score_slowly(row):
    (seen / str(os.getpid())).touch()
    time.sleep(0.002)
    return score(row)

def score_frames(batches):
    import pandas as pd
    for batch in batches:
        yield pd.DataFrame([score(row) for row in batch.to_dict("records")])

def files():
    return len(list(home.glob("output/part-*")))

def kill_one(before):
    wait_until(lambda: files() > before + 1, 120, "some rows of this life")
    pid = next(int(path.name) for path in seen.iterdir() if is_alive(int(path.name)))
    victim = pid if master == "local" else executor_of(pid)
    assert master == "local" or b"CoarseGrainedExecutorBackend" in command_of(victim)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: not is_alive(victim), 30, "the victim's death")
    (dead / life).write_text(str(victim))

frame = spark.range({ROWS}, numPartitions=3).selectExpr("id", "concat('user ', id) AS name")
topology = tr.Topology("killed")
topology.input("rows", tasks=2).map("score", score_slowly, tasks=4).output("scored", tasks=2)
threading.Thread(target=kill_one, args=(files(),), daemon=True).start()
out = topology.apply(
    frame, "kind int, score double", workers={WORKERS}, checkpoint=home, max_pending={PENDING}
)
expected = frame.mapInPandas(score_frames, "kind int, score double")
assert_same_rows(map(tuple, out.collect()), map(tuple, expected.collect()))
print("same", out.count())
spark.stop()
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("master", ["local", pytest.param("local-cluster[2,2,1024]", marks=pytest.mark.soak)])
def test_the_rows_are_those_of_map_in_pandas(mark: str, tmp_path: Path, master: str) -> None:
    """In each of its lives the driver loses a worker, or an executor with all workers there. Then it is killed too."""
    home = tmp_path / "home"

    def has_recovered(life: str) -> bool:
        """Another process has taken a dead worker's place."""
        return (tmp_path / "dead" / life).exists() and len(list((tmp_path / f"seen/{life}").iterdir())) > WORKERS

    with Script(tmp_path, KILLED, str(tmp_path), master, "first") as driver:
        wait_until(lambda: has_recovered("first") or driver.process.poll() is not None, 200, "the recovery")
        driver.kill()
        assert driver.process.returncode == -signal.SIGKILL, driver.end()
    assert 0 < len(read_parquet(home / "output", "kind")) < ROWS
    with Script(tmp_path, KILLED, str(tmp_path), master, "last") as driver:
        assert driver.line_with("same") == f"same {ROWS}\n"
        driver.end()
    assert has_recovered("last")
    assert not any(is_alive(int(path.read_text())) for path in (tmp_path / "dead").iterdir())
    assert sorted(path.name for path in home.iterdir()) == ["about.json", "lock", "output"]
    assert_none_left(mark)
