"""A query that deletes what it has read is killed with its JVM, and so are the workers that write: each row once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import tailrace as tr
from kit.runs import Script, assert_prefixes, coordinator, kill, received, row, running, stop
from kit.spark import DRIVER
from tailrace.testing.processes import is_alive, wait_until

SPLITS = 2

QUERY = (
    DRIVER
    + """
import json
from pathlib import Path

folder, home = sys.argv[1:]
spark = local_session(2)
print("jvm", spark.sparkContext._gateway.proc.pid)
stream = tr.read_stream(spark, tr.to_parquet(folder, schema="n long"), clean=True)
writer = stream.writeStream.format("parquet").option("path", home + "/rows")
writer = writer.option("checkpointLocation", home + "/checkpoint").trigger(processingTime="50 milliseconds")
query = writer.start()
begun, far = None, False
while not Path(home, "finish").exists():
    if query.awaitTermination(0.02):  # raises what it has failed with
        sys.exit("the query has ended")
    if query.lastProgress is not None and not far:
        begun = query.lastProgress["batchId"] if begun is None else begun
        far = query.lastProgress["batchId"] >= begun + 5
        print("far" if far else "on its way")
query.processAllAvailable()
query.stop()
print("rows", json.dumps([found.n for found in spark.read.parquet(home + "/rows").collect()]))
spark.stop()
"""
)


def kill_in_a_batch(query: Script) -> None:
    """The driver and its JVM, once the query has read some more."""
    jvm = int(query.line_with("jvm").split()[1])
    query.line_with("far")
    os.kill(jvm, signal.SIGKILL)
    query.kill()
    wait_until(lambda: not is_alive(jvm), 10, "the JVM to go")


@pytest.mark.slow
@pytest.mark.usefixtures("mark")
@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.soak)])
def test_each_row_is_read_once(kills: int, tmp_path: Path) -> None:
    out, home = tmp_path / "out", tmp_path / "query"
    home.mkdir()
    topology = tr.Topology("read")
    numbers = topology.source("numbers", tr.at_rate(range(10_000_000), 200), tasks=SPLITS)
    numbers.map("row", row, tasks=2).sink("out", tr.to_parquet(out, schema="n long", roll_seconds=0.3), tasks=2)
    with running(topology, workers=2, max_pending=1000) as run:
        for number in range(kills):
            with Script(tmp_path, QUERY, str(out), str(home)) as query:
                kill(run, number % 2)
                kill_in_a_batch(query)
        with Script(tmp_path, QUERY, str(out), str(home)) as query:
            query.line_with("far")
            kill(run, 1)
            least = received(run, "out") + 100
            wait_until(lambda: received(run, "out") >= least, 30, "rows after the last kill")
            stop(run)
            written = sum(position.offset for position in coordinator(run).positions.values())
            (home / "finish").touch()
            rows = json.loads(query.line_with("rows").partition(" ")[2])
    assert len(rows) == written
    assert_prefixes(rows, SPLITS, 300)
    assert len(list(out.glob("part-*"))) < 300, "files that were read pile up"
