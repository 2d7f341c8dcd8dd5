"""A streaming DataFrame as a source: each row once, with its types, none held up by another, whichever side dies."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from kit.data_sources import assert_once
from kit.runs import durable, finish, kill, read_parquet, stop
from kit.spark import running_on
from kit.streams import AVAILABLE, Input, WaitsFor, files_in, n_of, of
from tailrace.errors import TailraceError
from tailrace.spark.connectors.handover.batch_writer import SMALL_ROWS
from tailrace.spark.connectors.handover.query_feed import in_a_line
from tailrace.testing.processes import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_batches_small_and_large_come_through_each_row_once(
    spark: SparkSession, numbers: Input, tmp_path: Path
) -> None:
    """The executors write the first batch, and those that prove large; the driver the others."""
    numbers.add(30)
    numbers.add(20, files=2)
    numbers.add(2 * SMALL_ROWS)
    numbers.add(10, files=2)
    numbers.add(1500)
    source = tr.from_stream(numbers.stream, folder=tmp_path / "handover", trigger=AVAILABLE)
    out = tr.to_list()
    progress = finish(of(source, out).run(spark, workers=2), 120)
    assert_once(n_of(out.values), numbers.rows)
    query = progress["queries"]["rows"]
    assert query["name"] == "streamed/rows" and query["batchId"] == 6 and query["waitingRows"] == 0
    assert source.query is not None and not source.query.isActive
    assert {"durationMs", "inputRowsPerSecond", "sources"} < query.keys() and json.dumps(query)
    assert files_in(tmp_path / "handover", "rows/*") == [], "what is durable is deleted"
    assert files_in(tmp_path / "handover", "batches/batch-*") == ["batch-000000000006.json"]
    source.delete()
    assert not (tmp_path / "handover").exists()


CONF = {
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.preserveCharVarcharTypeInfo": "true",  # else both are strings for Spark, too
}


def test_rows_keep_their_types(spark: SparkSession, numbers: Input, tmp_path: Path) -> None:
    """In a batch that the executors write, and in one that the driver does."""
    numbers.add(1)
    numbers.add(1)
    before = {key: spark.conf.get(key) for key in CONF}
    try:
        for key, value in CONF.items():
            spark.conf.set(key, value)
        frame = numbers.stream.selectExpr(
            *("n", "timestamp_seconds(n) at", "timestamp_ntz'2020-01-02 03:04:05' local", "interval '5' second took"),
            *("array(timestamp_seconds(n)) ats", "map('a', n) by", "named_struct('at', timestamp_seconds(n)) part"),
            *("cast(n as decimal(5, 2)) price", "unhex('00ff') raw", "date_add(date'2020-02-28', cast(n as int)) day"),
            *("cast('ab' as char(4)) fixed", "cast('ab' as varchar(4)) short", "if(n < 0, n, null) nothing"),
            "map(n, map('ats', array(named_struct('at', timestamp_seconds(n), 'raw', unhex('80'))))) deep",
            "map(cast('k' as varchar(4)), named_struct('texts', array(cast('v' as char(2))))) `short.map`",
        )
        kinds = dict(frame.dtypes)
        assert (kinds["fixed"], kinds["short"]) == ("char(4)", "varchar(4)")
        out = tr.to_list()
        topology = tr.Topology("types")
        source = tr.from_stream(frame, folder=tmp_path / "handover", trigger=AVAILABLE)
        topology.source("rows", source).sink("out", out)
        finish(topology.run(workers=1), 120)
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)
    for row in out.values:
        n = row["n"]
        at = datetime.fromtimestamp(n, UTC)
        assert row == {
            "n": n,
            "at": at,
            "local": datetime(2020, 1, 2, 3, 4, 5),
            "ats": [at],
            "by": {"a": n},
            "took": timedelta(seconds=5),
            "part": {"at": at},
            "price": n,
            "raw": b"\x00\xff",
            "day": date(2020, 2, 28) + timedelta(days=n),
            "deep": {n: {"ats": [{"at": at, "raw": b"\x80"}]}},
            "fixed": "ab  ",
            "short": "ab",
            "nothing": None,
            "short.map": {"k": {"texts": ["v "]}},
        }
        assert row["at"].tzinfo is not None and row["part"]["at"].tzinfo is not None
    assert len(out.values) == 2


def test_a_slow_row_holds_up_no_batch_behind_it(spark: SparkSession, numbers: Input, tmp_path: Path) -> None:
    numbers.add(5)
    out = tr.to_list()
    topology = tr.Topology("slow-row")
    source = tr.from_stream(numbers.stream, folder=tmp_path / "handover", name="slow rows")
    rows = topology.source("rows", source, tasks=2)
    rows.map("slow", WaitsFor(tmp_path / "go"), tasks=4, grouping=tr.pull(), kind="blocking").sink("out", out)
    with running_on(spark, topology, workers=2) as run:
        for _ in range(3):
            numbers.add(20)
            # A few may have been given to its task before the call was known to be long.
            wait_until(lambda: len(out.values) >= numbers.rows - 5, 60, "the rows of all batches but a few")
        assert 0 not in n_of(out.values)
        (tmp_path / "go").touch()
        assert source.query is not None and source.query.name == "slow rows"
        stop(run)
    assert_once(n_of(out.values), numbers.rows)


def test_a_worker_is_killed(spark: SparkSession, numbers: Input, tmp_path: Path) -> None:
    numbers.add(100)
    out = tr.to_list()
    source = tr.from_stream(numbers.stream, folder=tmp_path / "handover")
    with running_on(spark, of(source, out), workers=2) as run:
        for worker in (0, 1):
            before = durable(run)
            wait_until(lambda before=before: durable(run) > before, 60, "rows")
            numbers.add(100, files=3)
            kill(run, worker)
        assert source.query is not None
        source.query.processAllAvailable()
        run.processAllAvailable(60)
        assert_once(n_of(out.values), numbers.rows)
        stop(run)


def test_runs_go_on_where_both_sides_stopped(spark: SparkSession, numbers: Input, tmp_path: Path) -> None:
    """Drained, given up in the middle, and to the end: nothing is lost or doubled."""

    def started() -> Any:
        source = tr.from_stream(numbers.stream, folder=tmp_path / "handover", splits=3)
        sink = tr.to_parquet(tmp_path / "out", schema="n long", roll_seconds=0.1)
        return running_on(spark, of(source, sink), workers=2, checkpoint=tmp_path / "checkpoint")

    for timeout in (None, 0, None):
        numbers.add(200, files=4)
        with started() as run:
            wait_until(lambda: durable(run) > 100, 60, "rows")
            run.stop(timeout=timeout)
            assert timeout == 0 or run.exception() is None
    with started() as run:
        run.processAllAvailable(60)
        wait_until(lambda: len(read_parquet(tmp_path / "out")) >= numbers.rows, 60, "the rest")
        stop(run)
    assert_once(read_parquet(tmp_path / "out"), numbers.rows)
    # Another run would begin at rows that are gone.
    with pytest.raises(tr.NotRepeatable, match=r"rows have been read and deleted: .* did you forget checkpoint=…\?"):
        of(tr.from_stream(numbers.stream, folder=tmp_path / "handover", splits=3), tr.to_list()).run(workers=1)


def test_a_batch_that_spark_runs_again_is_handed_over_once(spark: SparkSession, numbers: Input, tmp_path: Path) -> None:
    """Killed between the handover and Spark's own log. The aggregate's state needs the batch, and rows do not."""

    def counted() -> tr.Topology:
        moments = numbers.stream.select(F.expr("timestamp_seconds(n) at")).withWatermark("at", "0 seconds")
        counts = moments.groupBy(F.window("at", "10 seconds")).count()
        frame = counts.select(F.expr("cast(window.start as long) n"), "count").repartition(1)
        topology = tr.Topology("counted")
        source = tr.from_stream(frame, folder=tmp_path / "handover", trigger=AVAILABLE)
        topology.source("rows", source).sink("out", out)
        return topology

    out = tr.to_list()
    shuffled = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        for again in (False, True):
            numbers.add(40, files=2)
            if again:
                commits = sorted(
                    (tmp_path / "handover" / "query" / "commits").glob("[0-9]*"), key=lambda path: int(path.name)
                )
                for name in (commits[-1].name, f".{commits[-1].name}.crc"):
                    (commits[-1].parent / name).unlink()
            finish(counted().run(workers=1, checkpoint=tmp_path / "checkpoint"), 120)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", shuffled)
    # The last windows are still open.
    found = sorted((row["n"], row["count"]) for row in out.values)
    assert found == [(start, 10) for start in range(0, len(found) * 10, 10)] and len(found) >= 14


def test_queries_that_cannot_start(spark: SparkSession, numbers: Input, tmp_path: Path) -> None:
    counts = numbers.stream.groupBy("n").count()
    topology = of(tr.from_stream(counts, folder=tmp_path / "handover"), tr.to_list())
    with pytest.raises(TailraceError) as caught:
        topology.run(workers=1)
    assert str(caught.value).startswith(
        "the streaming query cannot start: source=rows query=streamed/rows cause=[STREAMING_OUTPUT_MODE"
    )
    assert str(caught.value).endswith("; does it aggregate without a watermark, or is its name taken?")
    with running_on(spark, of(tr.from_stream(numbers.stream, folder=tmp_path / "a"), tr.to_list()), workers=2) as run:
        busy = of(tr.from_stream(numbers.stream, folder=tmp_path / "a"), tr.to_list(), "other")
        with pytest.raises(tr.OptionError, match=r"folder is in use: folder=.*/a, does another run still go on"):
            busy.run(workers=1)
        with pytest.raises(TailraceError, match=r"the streaming query cannot start: .* is its name taken\?"):
            of(tr.from_stream(numbers.stream, folder=tmp_path / "b"), tr.to_list()).run(workers=1)
        with pytest.raises(tr.OptionError) as refused:
            topology = of(tr.from_stream(numbers.stream, folder=tmp_path / "c", name="free"), tr.to_list())
            topology.run(spark, workers=1)
        assert str(refused.value) == (
            "too few slots: local[4,8] has 0 free slots (runs hold 4 of 4), and a streaming query needs one: "
            "source=rows query=free; could the session have more cores, or the run fewer workers?"
        )
        stop(run)


def test_arguments_that_are_refused(spark: SparkSession, numbers: Input, tmp_path: Path) -> None:
    stream, folder = numbers.stream, tmp_path / "handover"

    def refusal(frame: Any = stream, **options: Any) -> str:
        with pytest.raises(tr.OptionError) as caught:
            tr.from_stream(frame, **{"folder": folder, **options})
        return str(caught.value)

    assert refusal([1]) == "not a DataFrame: from_stream=[1] type=list, did you mean spark.readStream.….load()?"
    assert refusal(spark.range(3)) == (
        "DataFrame is not streaming: from_stream takes streaming ones, did you mean from_dataframe?"
    )
    for nothing in (None, ""):
        assert refusal(folder=nothing).startswith(f"folder is missing: from_stream folder={nothing!r}, did you forget")
    assert refusal(folder=5) == "not a folder: path=5 type=int, did you mean a string like 'out'?"
    for splits in (0, True, 2.5, 5000):
        assert refusal(splits=splits) == (
            f"splits must be a whole number from 1 to 1024: splits={splits}, did you mean to leave it out?"
        )
    assert refusal(max_waiting=0) == (
        "option must be a positive whole number: max_waiting=0, did you mean to leave it out?"
    )
    assert refusal(name=" ") == "not a name of a query: name=' ', did you mean to leave it out?"
    for trigger in ("1 second", {}, {"once": True, "availableNow": True}):
        assert refusal(trigger=trigger).endswith("did you mean a dict such as {'processingTime': '1 second'}?")
    assert refusal(trigger={"continuous": "1 second"}) == (
        "a handover takes micro-batches only: trigger=continuous='1 second', did you mean processingTime=…?"
    )
    assert refusal(trigger={"procesingTime": "1 second"}) == (
        "unknown trigger: 'procesingTime'=…: did you mean processingTime=…?"
    )
    assert refusal(trigger={"processingTime": "soon"}) == (
        "not a trigger: processingTime='soon', did you mean processingTime='1 second'?"
    )
    assert refusal(trigger={"availableNow": False}) == (
        "not a trigger: availableNow=False, did you mean availableNow=True?"
    )
    assert "no Python value stands for this type: from_stream column=v type=void" in refusal(
        stream.select("n", F.lit(None).alias("v"))
    )
    (tmp_path / "precious.txt").touch()
    assert refusal(folder=tmp_path).startswith(f"folder holds something else: folder={tmp_path} found=['in'")
    assert not folder.exists(), "nothing is made before a run"
    finish(of(tr.from_stream(stream, folder=folder, trigger=AVAILABLE), tr.to_list()).run(workers=1))
    assert refusal(stream.withColumnRenamed("n", "m")) == (
        f"folder holds other columns: folder={folder} found=['n bigint'] columns=['m bigint'], "
        "has the DataFrame changed? Then it needs a new folder"
    )
    assert refusal(splits=5) == (
        f"folder has another number of splits: folder={folder} found=4 splits=5, did you mean splits=4?"
    )


def test_a_source_without_its_query_travels_to_workers(numbers: Input, tmp_path: Path) -> None:
    source = tr.from_stream(numbers.stream, folder=tmp_path / "handover")
    assert repr(source) == f"from_stream(folder='{tmp_path}/handover', splits=4)"
    assert pickle.loads(pickle.dumps(source)) == source.in_workers


def test_errors_of_spark_in_a_line() -> None:
    assert in_a_line(Exception("[STREAM_FAILED] Query [id = 1] terminated with exception: [GONE] a file\nmore")) == (
        "[GONE] a file"
    )
    text = "Traceback (most recent call last):\n  File x\n    line\nKeyError: 'a'\n SQLSTATE: 39000"
    assert in_a_line(Exception(f"it failed\n{text}\n=== Streaming Query ===\nplan")) == "KeyError: 'a'"
