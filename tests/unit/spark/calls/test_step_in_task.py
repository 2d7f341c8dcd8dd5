"""What is decided where a task opens its step, without a Spark that runs."""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import cloudpickle
import pyspark
import pytest
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

import tailrace as tr
from tailrace.calls.journal_keys import journal_key
from tailrace.runtime.calls.figures import Figures
from tailrace.runtime.calls.journal_files import open_journal
from tailrace.runtime.calls.outcome import Outcome
from tailrace.spark.calls.bodies import qualified_name_of
from tailrace.spark.calls.caller import TaskCalls, step_key
from tailrace.spark.calls.failures import misfit
from tailrace.spark.calls.observed import observation_name
from tailrace.spark.calls.options import check_journal_key

KEPT = tr.Calls(journal="folder", journal_key="id")


def test_null_identifies_no_call(tmp_path: Path) -> None:
    """Rows whose key is null would all be given the answer to the first one."""
    calls = TaskCalls(len, "paid", KEPT, journal=tmp_path, step=b"step")
    key_of = calls.key_of(lambda column: lambda args: args[0][column])
    assert key_of is not None
    assert key_of(({"id": None},)) is None
    assert key_of(({"id": 0},)) == journal_key(b"step", 0) != key_of(({"id": 1},))


STRING = StringType()


def upper(name: str) -> str:
    return f"UPPER {name}"


def asked(folder: Path, body: Any, form: str = "udf", schema: DataType = STRING, key: str = "id") -> tuple[Any, int]:
    """What one call is answered, and how many answers of it were found in the journal."""
    options = tr.Calls(journal=folder, journal_key=key)
    calls = TaskCalls(body, "paid", options, journal=folder, step=step_key(form, body, schema, options))
    key_of = calls.key_of(lambda column: lambda args: args[0])
    assert key_of is not None

    async def ask() -> Any:
        opened = await calls.open()
        try:
            return (await opened.call(("ada",), key_of(("ada",)))).value
        finally:
            await opened.close()

    return asyncio.run(ask()), calls.ended().found


def test_a_step_finds_its_own_results_only(tmp_path: Path) -> None:
    """They may have one folder, if their functions have one name. A row is no answer for a column."""

    def other(name: str) -> str:
        return f"other {name}"

    columns = StructType([StructField("name", STRING)])
    assert asked(tmp_path, upper) == ("UPPER ada", 0)
    assert asked(tmp_path, upper) == ("UPPER ada", 1)
    assert asked(tmp_path, other) == ("other ada", 0)
    assert asked(tmp_path, upper, schema=LongType()) == ("UPPER ada", 0)
    assert asked(tmp_path, upper, schema=columns) == ("UPPER ada", 0)
    assert asked(tmp_path, upper, "map_rows", columns) == ("UPPER ada", 0)
    assert asked(tmp_path, upper, "map_rows", columns) == ("UPPER ada", 1)
    assert asked(tmp_path, upper, "map_rows", StructType([StructField("name", STRING, False)])) == ("UPPER ada", 0)
    assert asked(tmp_path, upper, key="email") == ("UPPER ada", 0)


def test_an_edited_function_finds_what_it_has_paid_for_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def edited(name: str) -> str:
        return f"LOWER {name}"

    edited.__qualname__ = upper.__qualname__
    monkeypatch.setattr(logging.getLogger("tailrace"), "hasHandlers", lambda: False)
    asked(tmp_path, upper)
    assert asked(tmp_path, edited) == ("UPPER ada", 1)
    assert capsys.readouterr().err.splitlines()[1].startswith("tailrace: calls of paid: calls=1 found=1 ")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (upper, f"{__name__}.upper"),
        (partial(upper, name="x"), f"{__name__}.upper"),
        (Path.exists, "pathlib.Path.exists"),
        (partial(Path), "pathlib.Path"),
        (itemgetter(1), "operator.itemgetter"),
        (len, "builtins.len"),
    ],
)
def test_names_of_functions_in_a_journal(body: Any, name: str) -> None:
    assert qualified_name_of(body) == name


def test_an_answer_that_does_not_fit_says_if_it_is_from_the_journal(tmp_path: Path) -> None:
    calls = TaskCalls(len, "paid", KEPT, journal=tmp_path)
    said = [str(misfit("paid", 3, "value=1", calls.found_in(Outcome(1, found=found)))) for found in (False, True)]
    assert said == [
        "result does not fit: value=1; function=paid row=3: does the function return what its schema says?",
        f"result does not fit: value=1; function=paid row=3 journal={tmp_path}: did the function return this before it "
        "was mended? Then use another folder, or delete this one",
    ]


def test_results_that_were_kept_without_their_step_are_not_found(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, "paid-0-0", owner="function paid")
    journal.keep(journal_key("ada"), "old")
    journal.close()
    assert asked(tmp_path, upper) == ("UPPER ada", 0)


def test_a_journal_key_is_one_of_the_columns() -> None:
    check_journal_key("paid", KEPT, ["id", "text"])
    check_journal_key("paid", tr.Calls(), [])
    with pytest.raises(tr.OptionError) as caught:
        check_journal_key("paid", KEPT, ["user", "text"])
    assert str(caught.value) == (
        "journal_key is no column: function=paid journal_key=id: did you mean one of user, text?"
    )


def test_a_task_says_one_line_of_its_calls(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no logging is set up, as in Spark's Python processes, an info line of a logger is shown nowhere."""
    monkeypatch.setattr(logging.getLogger("tailrace"), "hasHandlers", lambda: False)
    TaskCalls(len, "enrich", tr.Calls(), figures=Figures(calls=3, attempts=4, retries=1)).ended()
    TaskCalls(len, "enrich", tr.Calls()).ended()  # has made none
    assert capsys.readouterr().err == (
        "tailrace: calls of enrich: calls=3 attempts=4 retries=1 p50_ms=0.0 p99_ms=0.0\n"
    )


def test_the_line_is_logged_where_logging_is_set_up(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tailrace"):
        TaskCalls(len, "enrich", tr.Calls(), figures=Figures(calls=1, attempts=1)).ended()
    assert caplog.messages == ["calls of enrich: calls=1 attempts=1 p50_ms=0.0 p99_ms=0.0"]


class Session:
    """Stands for one of Spark."""


def test_each_step_of_a_session_is_observed_under_its_own_name() -> None:
    one: Any = Session()
    other: Any = Session()
    assert [observation_name(one, "enrich", None) for _ in range(3)] == ["enrich", "enrich_2", "enrich_3"]
    assert observation_name(one, "enrich_2", None) == "enrich_2_2"
    assert observation_name(one, "enrich", "enrich") == "enrich"
    assert observation_name(other, "enrich", None) == "enrich"
    assert observation_name(other, "lookup", "score") == "score"
    assert [observation_name(other, "score", None) for _ in range(2)] == ["score_2", "score_3"]


def test_a_column_function_that_was_used_can_be_pickled() -> None:
    """What PySpark made of it has a handle of the JVM."""
    column = tr.udf("long")(lambda number: number + 1)
    column._made["application"] = (logging.getLogger("tailrace").handlers, (n for n in ()))
    copy = cloudpickle.loads(cloudpickle.dumps(column))
    assert (copy._made, copy(1), copy.func(2), repr(copy)) == ({}, 2, 3, "Udf(lambda)")
    assert column._made


def test_an_older_pyspark_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.2")
    for name in [name for name in sys.modules if name.startswith("tailrace.spark.calls")]:
        monkeypatch.delitem(sys.modules, name)
    for function in (tr.udf, tr.map_rows):
        with pytest.raises(tr.SparkMissing) as caught:
            function(len, "id long")  # type: ignore[call-arg]
        assert str(caught.value) == (
            "PySpark is too old for tr.udf and tr.map_rows: pyspark=4.0.2 needed=4.1: "
            "did you forget pip install -U 'tailrace[spark]'?"
        )
