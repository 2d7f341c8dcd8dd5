"""The driver of an apply: killed and started again, interrupted, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from kit.runs import Script, assert_none_left, assert_same_rows, read_parquet
from kit.spark import DRIVER
from tailrace.spark.apply.home import temporary_home
from tailrace.testing.processes import wait_until

pytestmark = pytest.mark.usefixtures("mark")

ROWS = 2000
PENDING = 100

RESUMED = (
    DRIVER
    + f"""
import os
home, notes = sys.argv[1:3]
def note(row):
    with open(os.path.join(notes, str(os.getpid())), "a") as file:
        print(row["id"], file=file)
    time.sleep(0.002)
    return row
topology = tr.Topology("noted")
topology.input("rows").map("note", note, tasks=2).output("noted")
spark = local_session(3)
frame = spark.range({ROWS}, numPartitions=3).selectExpr("id AS n", "id AS id")
print("begins")
out = topology.apply(frame, "n long, id long", workers=2, checkpoint=home, max_pending={PENDING})
print("done", out.count())
spark.stop()
"""
)


@pytest.mark.slow
def test_a_driver_that_was_killed_goes_on(mark: str, tmp_path: Path) -> None:
    home, notes = tmp_path / "home", tmp_path / "notes"
    notes.mkdir()
    kills = [
        lambda: (home / "rows").is_dir(),  # while Spark writes the rows
        lambda: len(list(home.glob("output/part-*"))) >= 4,
    ]
    for reached in kills:
        with Script(tmp_path, RESUMED, str(home), str(notes)) as driver:
            driver.line_with("begins")
            wait_until(reached, 120, "the moment of the kill")
            driver.kill()
        assert_none_left(mark)
    before = read_parquet(home / "output")
    assert 0 < len(before) < ROWS
    assert len(set(before)) == len(before)
    with Script(tmp_path, RESUMED, str(home), str(notes)) as driver:
        assert driver.line_with("done") == f"done {ROWS}\n"
        driver.end()
    assert_same_rows(read_parquet(home / "output"), range(ROWS))
    calls = [int(line) for file in notes.iterdir() for line in file.read_text().split()]
    assert set(calls) == set(range(ROWS))
    assert len(calls) <= ROWS + 3 * PENDING, "what was in the result was called again"
    assert sorted(path.name for path in home.iterdir()) == ["about.json", "lock", "output"]


INTERRUPTED = (
    DRIVER
    + """
import os
from pathlib import Path
marks = Path(sys.argv[1])
def slowly(batches):
    for batch in batches:
        (marks / "staging").touch()
        time.sleep(60)
        yield batch
def wait(row):
    (marks / "calling").touch()
    time.sleep(0.01)
    return row
topology = tr.Topology("slow")
topology.input("rows").map("wait", wait, tasks=2).output("rows_again")
spark = local_session(3)
frame = spark.range(100_000, numPartitions=2)
for what in (frame.mapInPandas(slowly, "id long"), frame):
    try:
        topology.apply(what, "id long", workers=2)
    except KeyboardInterrupt:
        print("interrupted", spark.range(3).count(), spark.sparkContext.statusTracker().getActiveJobsIds(), flush=True)
(marks / "calling").unlink()
topology.apply(frame, "id long", workers=2)
"""
)


@pytest.mark.slow
def test_a_driver_that_is_interrupted_cleans_up(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While Spark writes, its job is cancelled; while the topology runs, it is drained. kill -9 leaves a folder."""
    marks, places = tmp_path / "marks", tmp_path / "places"
    marks.mkdir()
    places.mkdir()
    monkeypatch.setenv("TMPDIR", str(places))
    with Script(tmp_path, INTERRUPTED, str(marks)) as driver:
        for moment in ("staging", "calling"):
            wait_until((marks / moment).exists, 120, moment)
            begun = time.monotonic()
            os.kill(driver.process.pid, signal.SIGINT)
            line = driver.line_with("interrupted")
            assert line == "interrupted 3 []\n", "Spark works on, and has nothing to do"
            assert time.monotonic() - begun < 30
            assert not list(places.glob("tailrace-apply-*/*/")), "the rows are gone"
        wait_until((marks / "calling").exists, 120, "the last call")
        driver.kill()
    assert_none_left(mark)
    (left,) = places.glob("tailrace-apply-*")
    assert list(left.glob("*/rows/part-*"))
    home = temporary_home(places, "next", {}, {})
    assert not left.exists(), "the next driver sweeps it"
    home.give_up()
    assert home.path.parent.is_dir(), "but not its own"
