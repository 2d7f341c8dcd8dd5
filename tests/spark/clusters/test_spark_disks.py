"""Two machines, one of which has a disk of its own at a path of the driver: what would scatter rows is refused."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from kit.runs import assert_same_rows, finish, read_parquet, row
from kit.spark import Sessions, running_on, standalone_cluster
from tailrace.spark.shared_folder import hosts_of
from tailrace.testing.processes import wait_until

NO_MOUNTS = os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(NO_MOUNTS), reason="it takes root and the right to mount"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds ``shared``, and ``own``, which is another disk for one of the machines."""
    folder = tmp_path_factory.mktemp("disks")
    for name in ("own", "shared"):
        (folder / name).mkdir()
    return folder


@pytest.fixture(scope="module")
def spark(sessions: Sessions, folder: Path) -> Iterator[SparkSession]:
    apart = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', str(folder / "own")]
    with standalone_cluster(sessions, folder, "127.0.0.1", {"127.0.0.1": [], "127.0.0.2": apart}) as (url, _):
        spark = sessions.get(url, spark_executor_memory="512m", spark_executor_cores="2")
        wait_until(lambda: hosts_of(spark) == ["127.0.0.1", "127.0.0.2"], 30, "both executors")
        yield spark


def sentence(what: str, folder: Path) -> str:
    return (
        rf"machines do not share a folder: {what} folder={folder} filesystem=\w+ hosts=2: .* does not see there what "
    )


def costly(spark: SparkSession) -> DataFrame:
    """It fails if it is computed."""
    return spark.range(10).selectExpr("CAST(assert_true(id < 0) AS string) AS n")


def test_a_dataframe_is_refused_before_it_is_computed(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = folder / "own"
    with pytest.raises(tr.OptionError, match=sentence("from_dataframe", own / "new" / "rows")):
        tr.from_dataframe(costly(spark), folder=own / "new" / "rows")
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    with pytest.raises(tr.OptionError, match=sentence("from_dataframe", own)):
        tr.from_dataframe(costly(spark))
    assert list(own.iterdir()) == []
    source = tr.from_dataframe(spark.range(10), folder=folder / "shared" / "rows", splits=2)
    assert len(source.splits(1)) == 2


def test_an_apply_is_refused_before_the_rows_are_computed(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = folder / "own"
    topology = tr.Topology("copy")
    topology.input("rows").output("copies")
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    for what, options, place in (
        ("folder", {"folder": own / "rows"}, own / "rows"),
        ("checkpoint", {"checkpoint": own / "checkpoint" / "copy"}, own / "checkpoint" / "copy"),
        ("folder", {}, own),
    ):
        with pytest.raises(tr.OptionError, match=sentence(what, place)):
            topology.apply(costly(spark), "n string", workers=2, **options)
        assert list(own.iterdir()) == []
    frame = spark.range(10).selectExpr("id AS n")
    out = topology.apply(frame, "n long", workers=2, folder=folder / "shared" / "rows")
    assert_same_rows([row.n for row in out.collect()], range(10))


def test_a_streaming_source_is_refused(spark: SparkSession, folder: Path) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(tr.OptionError, match=sentence("from_stream", folder / "own" / "new" / "handover")):
        tr.from_stream(stream, folder=folder / "own" / "new" / "handover")
    assert list((folder / "own").iterdir()) == []
    tr.from_stream(stream, folder=folder / "shared" / "handover")


def test_a_stream_is_refused(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(tr.OptionError, match=sentence("read_stream", folder / "own" / "out")):
        tr.read_stream(spark, tr.to_parquet(folder / "own" / "out", schema="n long"))
    assert tr.read_stream(spark, tr.to_parquet(folder / "shared" / "none", schema="n long")).isStreaming


def test_a_run_with_a_file_sink_fails_before_it_reads(spark: SparkSession, folder: Path) -> None:
    for place, fine in (("own", False), ("shared", True)):
        out = folder / place / "out"
        topology = tr.Topology("disks")
        numbers = topology.source("numbers", tr.from_iterable(range(100)))
        numbers.map("row", row).sink("out", tr.to_parquet(out, schema="n long"), tasks=3)
        if fine:
            with running_on(spark, topology, workers=3) as run:
                finish(run)
            assert_same_rows([found.n for found in run.table().collect()], range(100))
        else:
            with pytest.raises(tr.TaskError, match=sentence("sink=out", out)):
                topology.run(spark, workers=3).awaitTermination(60)
            assert read_parquet(out) == []
