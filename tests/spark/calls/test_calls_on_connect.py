"""Columns and steps on a real Spark Connect server, and in a pipeline. Both have processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kit.spark import SPARK_HOME

pytestmark = pytest.mark.skipif(find_spec("grpc") is None, reason="pip install 'pyspark[connect]'")

CLIENT = """
import asyncio, os
from pyspark.sql import Observation, SparkSession
import tailrace as tr

builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()

@tr.udf("label string, score double", calls=tr.Calls(on_error="column", limit=tr.limit("connected", per_s=500)))
async def classify(text):
    if not text:
        raise ValueError("empty")
    return ("long" if len(text) > 5 else "short"), len(text) / 10

async def enrich(row):
    await asyncio.sleep(0.001)
    return [(row.id, word) for word in row.text.split()]

df = spark.createDataFrame([(1, "so it goes"), (2, ""), (3, "on")], "id long, text string")
c = classify("text").alias("c")
print("column", [tuple(row) for row in df.select("id", c).select("id", "c.value.label", "c.error").collect()])
observation = Observation("enrich")
calls = tr.Calls(concurrency=2)
step = tr.map_rows(enrich, "id long, word string", calls=calls, ordered=True, observation=observation)
print("rows", [tuple(row) for row in df.coalesce(1).transform(step).collect()])
print("calls", observation.get["calls"])
print("plain", [tuple(row) for row in df.transform(tr.map_rows(lambda row: (row.id + 1,), "id long")).collect()])
topology = tr.Topology("numbers")
sink = tr.to_parquet("numbers", schema="n long")
topology.source("numbers", tr.from_iterable(range(3))).map("row", lambda n: {"n": n}).sink("out", sink)
run = topology.run(workers=1)
run.awaitTermination()
print("table", sorted(row.n for row in run.table().collect()))
stream = tr.read_stream(spark, sink, clean=True).writeStream.format("memory").queryName("stream")
stream.trigger(availableNow=True).start().awaitTermination()
print("stream", sorted(row.n for row in spark.table("stream").collect()))
kept = tr.Calls(journal=os.path.abspath("journal"), journal_key="idd")
unknown = tr.map_rows(enrich, "id long, word string", calls=kept)
try:
    df.transform(unknown).collect()
except Exception as error:
    print("journal_key is no column: function=enrich journal_key=idd: did you mean id?" in str(error))
for refused in (classify.figures, lambda: topology.run(spark)):
    try:
        refused()
    except tr.TailraceError as error:
        print(error)
spark.stop()
"""

EXPECTED = """\
column [(1, 'long', None), (2, None, 'ValueError: empty'), (3, 'short', None)]
rows [(1, 'so'), (1, 'it'), (1, 'goes'), (3, 'on')]
calls 3
plain [(2,), (3,), (4,)]
table [0, 1, 2]
stream [0, 1, 2]
True
figures of a column are not known on Spark Connect: function=classify: could it be tr.map_rows, whose figures Spark \
observes?
Spark Connect cannot host workers: it has no way to reach executors; could you use a classic SparkSession, or tr.udf \
and tr.map_rows, which run in Spark's own tasks?
"""


def environment() -> dict[str, str]:
    """Spark's own, so that the server has this interpreter and what is tested."""
    paths = [path for path in sys.path if path]
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.mark.slow
@pytest.mark.usefixtures("mark")
def test_a_column_and_a_step_on_connect(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(CLIENT)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, env=environment(), cwd=tmp_path
    )
    assert done.stdout == EXPECTED, done.stderr[-3000:]


DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F
import tailrace as tr

spark = SparkSession.active()

@tr.udf("long", calls=tr.Calls(concurrency=4))
async def squared(number):
    return number * number

@tr.udf("array<long>", calls=tr.Calls(on_error="skip"))
async def factors(number):
    return [one for one in range(2, number) if number % one == 0]

def mapped(row):
    return row

step = tr.map_rows(mapped, "id long")

@dp.materialized_view
def squares():
    return spark.range(10).select("id", squared("id").alias("square"))

@dp.materialized_view
def divisors():
    table = spark.read.table("squares")
    for make in (lambda: table.transform(step), lambda: tr.map_rows(mapped, "id long")(table)):
        try:
            make()
        except tr.OptionError as error:
            print(error)
    return table.select("id", "square", F.explode(factors("square")).alias("factor"))
"""

SPECIFICATION = """
name: calls
storage: file://{folder}/storage
configuration:
  spark.sql.shuffle.partitions: "2"
libraries:
  - glob:
      include: definitions/**
"""


@pytest.mark.slow
@pytest.mark.usefixtures("mark")
def test_columns_in_a_pipeline_and_why_there_are_no_steps(tmp_path: Path) -> None:
    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions" / "squares.py").write_text(DEFINITIONS)
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(folder=tmp_path))
    command = [str(SPARK_HOME / "bin" / "spark-pipelines"), "--remote", "local[2]"]
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["run", "--spec", str(tmp_path / "spark-pipeline.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment(), cwd=tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    import pyarrow.parquet as pq

    rows = pq.read_table(next((tmp_path / "warehouse").rglob("divisors"))).to_pylist()
    assert sorted((row["square"], row["factor"]) for row in rows) == [
        (number * number, factor)
        for number in range(10)
        for factor in range(2, number * number)
        if number * number % factor == 0
    ]
    assert "could it be explode(…) of a tr.udf that returns an array?" in done.stdout
    assert (
        "Spark parses no types inside the query function of a pipeline: map_rows=mapped schema='id long': "
        in done.stdout
    )
