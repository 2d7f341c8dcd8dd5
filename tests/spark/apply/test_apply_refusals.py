"""What cannot be applied is refused with a sentence, before Spark or a worker has done anything."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import tailrace as tr
from kit.runs import slowly
from tailrace.errors import TopologyError
from tailrace.metrics.recording import SUFFIX
from tailrace.runtime.calls.journal_folder import prepare_journal
from tailrace.runtime.driver.folder_lock import lock_folder
from tailrace.runtime.listening import Place
from tailrace.spark.connectors.dataframe import from_dataframe
from tailrace.spark.run import place_of

LONG = "n long"
NO_VALUE = "no Python value stands for this type: "
ONE_NAME = "names differ in case only, or not at all: "
OTHER_NAME = ": could one of them have another name?"
NO_SCHEMA = ": did you mean names and types, such as 'id long, name string'?"
TO_JSON = ": could it be text, by to_json(…)?"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def copying() -> tr.Topology:
    topology = tr.Topology("copy")
    topology.input("rows").output("copies")
    return topology


def refused(places: Path, topology: tr.Topology, frame: Any, schema: Any, **options: Any) -> str:
    with pytest.raises((tr.OptionError, TopologyError)) as caught:
        topology.apply(frame, schema, **options)
    assert not list(places.iterdir()), "nothing has begun"
    return str(caught.value)


def test_what_is_no_dataframe(spark: SparkSession, places: Path) -> None:
    assert refused(places, copying(), [1], LONG) == "not a DataFrame: apply=[1] type=list: is it a table?"
    streaming = spark.readStream.format("rate").load()
    assert refused(places, copying(), streaming, LONG) == (
        "DataFrame is streaming: apply takes bounded ones: did you mean topology.source(…, tr.from_stream(df, …))?"
    )


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("", f"not a schema: schema=struct<>{NO_SCHEMA}"),
        ("long", f"not a schema: schema=bigint{NO_SCHEMA}"),
        (7, f"not a schema: schema=7{NO_SCHEMA}"),
        ("n long, N int", f"{ONE_NAME}schema columns=n,N{OTHER_NAME}"),
        (StructType([StructField("n", LongType())] * 2), f"{ONE_NAME}schema columns=n,n{OTHER_NAME}"),
        ("n long, v variant", f"{NO_VALUE}schema column=v type=variant{TO_JSON}"),
        (
            "n varchar(3)",
            "files have strings of any length only: schema column=n type=varchar(3): did you mean string?",
        ),
        (
            "n struct<months: interval year to month>",
            f"{NO_VALUE}schema column=n.months type=interval year to month: "
            "could it be text, by cast('string'), or a number of months?",
        ),
    ],
)
def test_schemas(spark: SparkSession, places: Path, schema: Any, text: str) -> None:
    assert refused(places, copying(), spark.range(3), schema) == text


def test_a_schema_that_spark_cannot_read(spark: SparkSession, places: Path) -> None:
    text = refused(places, copying(), spark.range(3), "n lnog")
    assert text.startswith("schema cannot be read: schema='n lnog' cause=[")
    assert text.endswith(": is it written like 'id long, name string'?")


@pytest.mark.parametrize(
    ("select", "text"),
    [
        ("parse_json('1') AS v", f"{NO_VALUE}{{df}} column=v type=variant{TO_JSON}"),
        ("NULL AS v", f"{NO_VALUE}{{df}} column=v type=void: could it have a type, by cast('string')?"),
        ("1 AS v, 2 AS V", f"{ONE_NAME}{{df}} columns=v,V{OTHER_NAME}"),
        (
            "map(array(1), 2) AS v",
            "keys of a dict cannot be dicts or lists: {df} column=v type=map<array<int>,int>: "
            "could it be an array, by map_entries(…)?",
        ),
    ],
)
def test_types_of_the_dataframe(spark: SparkSession, places: Path, select: str, text: str) -> None:
    frame = spark.sql(f"SELECT {select}")
    assert refused(places, copying(), frame, LONG) == text.format(df="apply=df")
    with pytest.raises(tr.OptionError) as caught:
        from_dataframe(frame, folder=places / "rows")
    assert str(caught.value) == text.format(df="from_dataframe=df")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"chekpoint": "x"}, "unknown option: chekpoint=…: did you mean checkpoint=…?"),
        (
            {"workers": 5},
            "too few slots: local[4,8] has 4 free slots, 5 workers wanted; "
            "could the session have more cores, or the run fewer workers?",
        ),
        ({"workers": 0}, "option must be a positive number: workers=0; did you mix two up?"),
        ({"splits": 0}, "option must be a positive number: splits=0, did you mean to leave it out?"),
        ({"watch": "yes"}, "watch is neither True nor False: watch='yes': did you mix two up?"),
        ({"folder": 7}, "not a folder: path=7 type=int, did you mean a string like 'out'?"),
        (
            {"checkpoint": "s3://b/x"},
            "not a folder but a URI: path='s3://b/x': could it be a path, on a disk or on a network file system that "
            "all workers see? Object stores have no locks and renames",
        ),
        (
            {"folder": "a", "checkpoint": "b"},
            "rows cannot be in two places: folder='a' checkpoint='b': "
            "should they last, in checkpoint=, or be deleted when the driver ends, in folder=?",
        ),
        (
            {"tail": tr.Tail(shared_queues="node"), "ring": False},
            "a node's queue is in shared memory: shared_queues='node' ring=False: did you mean 'worker'?",
        ),
    ],
)
def test_options(spark: SparkSession, places: Path, options: dict[str, Any], text: str) -> None:
    assert refused(places, copying(), spark.range(3), LONG, **options) == text


def test_a_topology_that_could_not_run(spark: SparkSession, places: Path) -> None:
    topology = tr.Topology("local")
    rows = topology.input("rows", tasks=2).map("slow", slowly, grouping=tr.local(), tasks=2, kind="cpu")
    rows.map("again", slowly, grouping=tr.local(), kind="cpu").output("copies")
    tail = tr.Tail(shared_queues="worker")
    text = refused(places, topology, spark.range(3), LONG, workers=2, tail=tail)
    assert text.startswith("no operator's tasks may draw from one queue: shared_queues='worker': slow: ")


def test_what_the_run_would_refuse(spark: SparkSession, places: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Rows may take an hour to be staged: whether a run can start at all is known before."""
    folder = tmp_path_factory.mktemp("other")
    (folder / f"old{SUFFIX}").touch()
    assert refused(places, copying(), spark.range(3), LONG, record=folder) == (
        f"there is a recording already: record={folder}; could this run have a folder of its own?"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = refused(places, copying(), spark.range(3), LONG, port=port)
        assert text.startswith(f"no port is free: address=127.0.0.1 port={port}; every process of a run ")
    topology = tr.Topology("journal")
    called = topology.input("rows").map("call", slowly, calls=tr.Calls(journal=folder / "journal"))
    called.output("copies")
    prepare_journal(folder / "journal", "topology other")
    assert refused(places, topology, spark.range(3), LONG) == (
        f"journal belongs to something else: journal={folder / 'journal'} owner='topology journal' "
        "found='topology other': could this one have a folder of its own?"
    )


def test_a_driver_that_cannot_be_reached(spark: SparkSession, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(master: str, conf: object) -> Place:
        return place_of("spark://somewhere:7077", {"spark.driver.bindAddress": "192.0.2.1"})

    monkeypatch.setattr("tailrace.spark.apply.apply.place_of", nowhere)
    text = refused(places, copying(), spark.range(3), LONG)
    assert text.startswith("the driver cannot listen: spark.driver.bindAddress=192.0.2.1 cause=")


def test_a_folder_that_is_a_file(spark: SparkSession, places: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("other") / "file"
    file.touch()
    text = refused(places, copying(), spark.range(3), LONG, folder=file)
    assert text.startswith(f"not a folder to write to: folder={file} cause=")


def test_all_slots_are_taken(spark: SparkSession, places: Path) -> None:
    busy = tr.Topology("busy")
    busy.source("numbers", tr.at_rate(range(10**6), 10)).sink("out", tr.to_call(id))
    run = busy.run(spark, workers=4)
    try:
        assert refused(places, copying(), spark.range(3), LONG) == (
            "too few slots: local[4,8] has 0 free slots (other runs hold 4 of 4), 1 worker wanted; "
            "could the session have more cores, or the run fewer workers?"
        )
    finally:
        run.stop(0)


def test_a_checkpoint_that_another_driver_uses(
    spark: SparkSession, places: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    with lock_folder(home, "busy"):
        assert refused(places, copying(), spark.range(3), LONG, checkpoint=home) == (
            f"checkpoint is in use: checkpoint={home}; does another apply still go on?"
        )
    (home / "about.json").write_text("{}")
    assert refused(places, copying(), spark.range(3), LONG, checkpoint=home) == (
        f"checkpoint cannot be read: file={home / 'about.json'} found={{}}: is it one of ours?"
    )
