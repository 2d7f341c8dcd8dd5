"""A topology as one step of a Spark job: rows come out as from Spark's own functions, whoever dies."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import tailrace as tr
from kit.runs import assert_same_rows, read_jsonl
from tailrace.spark.slots import HELD

SCHEMA = "id long, score double, words array<string>"
LEFT = "tailrace-apply-*"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the applies of a test have their temporary folders: nobody else has any there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def users(spark: SparkSession, rows: int = 3000) -> DataFrame:
    return spark.range(rows, numPartitions=3).selectExpr("id", "concat('user ', id) AS name", "id % 7 AS slow")


def score(user: dict[str, Any]) -> dict[str, Any]:
    if user["slow"] == 0:
        time.sleep(0.001)
    return {"id": user["id"], "score": user["id"] / 4, "words": user["name"].split()}


def in_pandas(batches: Iterator[Any]) -> Iterator[Any]:
    import pandas as pd

    for batch in batches:
        yield pd.DataFrame([score(user) for user in batch.to_dict("records")])


def counted(frame: DataFrame) -> Counter[str]:
    return Counter(repr(sorted(row.asDict(True).items())) for row in frame.collect())


def scores(tasks: int = 4, **options: Any) -> tr.Topology:
    topology = tr.Topology("scores")
    topology.input("users").map("score", score, tasks=tasks, **options).output("scored")
    return topology


def test_the_rows_are_those_of_a_function_in_pandas(spark: SparkSession, places: Path) -> None:
    frame, topology = users(spark), scores()
    out = topology.apply(frame, SCHEMA, workers=2)
    assert isinstance(out, DataFrame)
    assert out.schema.simpleString() == "struct<id:bigint,score:double,words:array<string>>"
    assert counted(out) == counted(frame.mapInPandas(in_pandas, SCHEMA))
    again = topology.apply(frame.where("id < 10"), SCHEMA, workers=1, folder=places / "given", splits=2)
    assert sorted(row.id for row in again.collect()) == list(range(10)), "it may be applied to another DataFrame"
    assert out.count() == 3000, "a result stays as long as the driver"
    homes = [*places.glob(f"{LEFT}/*/"), *places.glob(f"given/{LEFT}/*/")]
    assert [sorted(path.name for path in home.iterdir()) for home in homes] == [["about.json", "output"]] * 2
    about = json.loads((homes[0] / "about.json").read_text())
    assert (about["topology"], about["complete"]) == ("scores", True)
    assert HELD.count(spark.sparkContext.applicationId) == 0


def die_once(user: dict[str, Any]) -> dict[str, Any]:
    """Three workers die, each on another row."""
    if user["id"] in (500, 1500, 2500):
        try:
            os.close(os.open(Path(user["marks"]) / str(user["id"]), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return score(user)


def test_workers_that_die_lose_and_double_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frame = users(spark).selectExpr("*", f"'{tmp_path}' AS marks")
    topology = tr.Topology("scores")
    topology.input("users", tasks=2).map("score", die_once, tasks=4).output("scored", tasks=2)
    out = topology.apply(frame, SCHEMA, workers=2, max_pending=200)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1500", "2500", "500"]
    assert counted(out) == counted(frame.mapInPandas(in_pandas, SCHEMA))


def test_an_empty_dataframe(spark: SparkSession) -> None:
    for empty in (users(spark).where("id < 0"), spark.createDataFrame([], "id long, name string, slow long")):
        out = scores().apply(empty, SCHEMA, workers=1)
        assert out.collect() == []
        assert out.schema.simpleString() == "struct<id:bigint,score:double,words:array<string>>"


class Scorer:
    def open(self, context: tr.Context) -> None:
        self.offset = 0.5

    def process(self, user: dict[str, Any]) -> tuple[int, float]:
        return user["id"], user["id"] + self.offset


async def later(user: dict[str, Any]) -> Row:
    await asyncio.sleep(0.001)
    return Row(score=user["id"] + 0.5, id=user["id"])


def called(user: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.001)
    return {"id": user["id"], "score": user["id"] + 0.5}


def in_batches(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [called(user) for user in batch]


def test_all_forms_of_operators_and_of_rows(spark: SparkSession) -> None:
    frame = users(spark, 100)
    expected = [(number, number + 0.5) for number in range(100)]
    topology = tr.Topology("forms")
    rows = topology.input("users")
    kinds = [
        rows.filter("class_rows", lambda user: user["id"] % 4 == 0).map("class", Scorer, tasks=2).map("dict", as_dict),
        rows.filter("async_rows", lambda user: user["id"] % 4 == 1).map("async", later).map("of_a_row", as_dict),
        rows.filter("called_rows", lambda user: user["id"] % 4 == 2).map("called", called, calls=tr.Calls(timeout_s=9)),
        rows.filter("batched_rows", lambda user: user["id"] % 4 == 3).map_batch("batches", in_batches),
    ]
    tr.union(*kinds).output("scored")
    assert sorted(map(tuple, topology.apply(frame, "id long, score double", workers=2).collect())) == expected
    for form in (Scorer, later):
        topology = tr.Topology("one_form")
        topology.input("users").map("score", form, tasks=2).output("scored")
        assert sorted(map(tuple, topology.apply(frame, "id long, score double", workers=1).collect())) == expected


def as_dict(row: Any) -> dict[str, Any]:
    return row.asDict() if hasattr(row, "asDict") else {"id": row[0], "score": row[1]}


def doubtful(user: dict[str, Any]) -> dict[str, Any]:
    if user["id"] % 10 == 3:
        raise ValueError("no threes")
    return {"id": user["id"], "score": "high" if user["id"] % 10 == 4 else 0.5, "words": None}


def no_threes(user: dict[str, Any]) -> dict[str, Any]:
    return doubtful(user) | {"score": 0.5}


def test_what_fails_goes_to_another_sink(spark: SparkSession, tmp_path: Path) -> None:
    topology = tr.Topology("doubtful")
    scored = topology.input("users").map("score", doubtful, tasks=2, on_error="dead_letter")
    scored.output("scored", on_error="dead_letter")
    letters = tr.union(scored.dead_letters, topology.stream("scored").dead_letters)
    letters.map("line", lambda letter: {"operator": letter["operator"], "error": letter["error"]}).sink(
        "letters", tr.to_jsonl(tmp_path / "letters")
    )
    out = topology.apply(users(spark, 100), SCHEMA, workers=2)
    assert_same_rows((row.id for row in out.collect()), (n for n in range(100) if n % 10 not in (3, 4)))
    errors = Counter(letter["operator"] for letter in read_jsonl(tmp_path / "letters"))
    assert errors == {"score": 10, "scored": 10}
    unfit = next(letter for letter in read_jsonl(tmp_path / "letters") if letter["operator"] == "scored")
    assert unfit["error"].startswith(
        "TypeError: row does not fit the column: column=score type=double value='high' row="
    )
    assert unfit["error"].endswith(", did you forget to convert it?")


def test_an_error_ends_it(spark: SparkSession, places: Path) -> None:
    topology = tr.Topology("doubtful")
    topology.input("users").map("score", no_threes, tasks=2).output("scored")
    with pytest.raises(tr.TaskError, match="ValueError: no threes"):
        topology.apply(users(spark, 100), SCHEMA, workers=2)
    assert not list(places.glob(f"{LEFT}/*/")), "neither rows nor half a result is left"
    assert HELD.count(spark.sparkContext.applicationId) == 0


def test_as_many_workers_as_there_are_slots_and_no_more_than_tasks(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = tr.Topology("seen")
    seen.input("users").map("worker", Where, tasks=8).output("where")
    found = seen.apply(users(spark, 400), "worker int", watch=True).distinct().collect()
    assert sorted(row.worker for row in found) == [0, 1, 2, 3], "local[4] has four slots"
    assert "seen finished" in capsys.readouterr().out
    few = tr.Topology("few")
    few.input("users").map("worker", Where).output("where")
    assert [row.worker for row in few.apply(users(spark, 40), "worker int").distinct().collect()] == [1]


class Where:
    def open(self, context: tr.Context) -> None:
        self.worker = context.worker

    def process(self, user: dict[str, Any]) -> tuple[int]:
        time.sleep(0.002)
        return (self.worker,)


# --- a checkpoint


def note(user: dict[str, Any]) -> dict[str, Any]:
    with (Path(user["notes"]) / str(os.getpid())).open("a") as file:
        print(user["id"], file=file)
    return score(user)


def test_a_checkpoint_that_is_complete_returns_at_once(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "notes").mkdir()
    frame = users(spark, 300).selectExpr("*", f"'{tmp_path / 'notes'}' AS notes")
    topology, home = tr.Topology("scores"), tmp_path / "home"
    topology.input("users").map("score", note, tasks=2).output("scored")
    first = topology.apply(frame, SCHEMA, workers=2, checkpoint=home)
    assert sorted(path.name for path in home.iterdir()) == ["about.json", "lock", "output"]
    again = topology.apply(frame, SCHEMA, workers=2, checkpoint=str(home))
    assert counted(again) == counted(first) == counted(frame.mapInPandas(in_pandas, SCHEMA))
    assert f"the result is there already, and is returned as it is: checkpoint={home}" in caplog.text
    calls = [line for file in (tmp_path / "notes").iterdir() for line in file.read_text().split()]
    assert_same_rows(map(int, calls), range(300))
    assert json.loads((home / "about.json").read_text()) == {
        "kind": "tailrace apply",
        "version": 1,
        "topology": "scores",
        "columns": {"id": "bigint", "name": "string", "slow": "bigint", "notes": "string"},
        "schema": {"id": "bigint", "score": "double", "words": "array<string>"},
        "complete": True,
    }


def test_a_checkpoint_of_the_session_is_not_for_apply(spark: SparkSession, tmp_path: Path) -> None:
    """Each call would return the result of the first."""
    spark.conf.set("spark.tailrace.checkpoint", str(tmp_path / "of the session"))
    try:
        for rows in (10, 20):
            assert scores().apply(users(spark, rows), SCHEMA, workers=1).count() == rows
    finally:
        spark.conf.unset("spark.tailrace.checkpoint")
    assert not list(tmp_path.iterdir())


def test_a_result_can_be_deleted_before_the_driver_ends(spark: SparkSession, tmp_path: Path) -> None:
    """As the guide says: a checkpoint that is deleted, once what was made of the result is written."""
    for rows in (10, 20):
        out = scores().apply(users(spark, rows), SCHEMA, workers=1, checkpoint=tmp_path / "day")
        out.write.mode("overwrite").parquet(str(tmp_path / "table"))
        shutil.rmtree(tmp_path / "day")
        assert spark.read.parquet(str(tmp_path / "table")).count() == rows


def test_a_complete_result_needs_no_slots(spark: SparkSession, tmp_path: Path) -> None:
    scores().apply(users(spark, 10), SCHEMA, workers=1, checkpoint=tmp_path / "home")
    context = spark.sparkContext
    HELD.take(context.applicationId, 4, 4, context.master)
    try:
        assert scores().apply(users(spark, 10), SCHEMA, checkpoint=tmp_path / "home").count() == 10
    finally:
        HELD.give_back(context.applicationId, 4)


def test_a_checkpoint_of_something_else_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame, home = users(spark, 10), tmp_path / "home"
    scores().apply(frame, SCHEMA, workers=1, checkpoint=home)

    def text_of(topology: tr.Topology, frame: DataFrame, schema: str, folder: Path) -> str:
        with pytest.raises(tr.OptionError) as caught:
            topology.apply(frame, schema, workers=1, checkpoint=folder)
        return str(caught.value)

    assert text_of(scores(), frame, SCHEMA.replace("double", "float"), home) == (
        f"checkpoint belongs to another schema: checkpoint={home} schema={{'id': 'bigint', 'score': 'float', 'words': "
        "'array<string>'} found={'id': 'bigint', 'score': 'double', 'words': 'array<string>'}: "
        "did you mean another folder?"
    )
    assert text_of(scores(), frame.drop("slow"), SCHEMA, home) == (
        f"checkpoint belongs to another DataFrame: checkpoint={home} columns={{'id': 'bigint', 'name': 'string'}} "
        "found={'id': 'bigint', 'name': 'string', 'slow': 'bigint'}: did you mean another folder?"
    )
    other = tr.Topology("other")
    other.input("users").output("copies")
    assert text_of(other, frame, SCHEMA, home) == (
        f"checkpoint belongs to another topology: checkpoint={home} topology='other' found='scores': "
        "did you mean another folder?"
    )
    (tmp_path / "precious.txt").touch()
    assert text_of(scores(), frame, SCHEMA, tmp_path) == (
        f"folder holds something else: checkpoint={tmp_path} found=['home', 'precious.txt']: "
        "did you mean a new folder in it?"
    )
    assert text_of(scores(), frame, SCHEMA, tmp_path / "precious.txt").startswith(
        f"not a folder to write to: checkpoint={tmp_path / 'precious.txt'} cause="
    )


def test_what_failed_can_be_resumed(spark: SparkSession, tmp_path: Path) -> None:
    """The rows stay in a checkpoint, and the DataFrame is not computed again."""
    frame, home = users(spark, 300), tmp_path / "home"
    failing = tr.Topology("scores")
    failing.input("users").map("score", no_threes, tasks=2).output("scored")
    with pytest.raises(tr.TaskError, match="ValueError: no threes"):
        failing.apply(frame, SCHEMA, workers=1, checkpoint=home)
    assert (home / "rows").is_dir()
    out = scores().apply(frame.where("id < 0"), SCHEMA, workers=1, checkpoint=home)
    assert counted(out) == counted(frame.mapInPandas(in_pandas, SCHEMA))
    assert sorted(path.name for path in home.iterdir()) == ["about.json", "lock", "output"]
