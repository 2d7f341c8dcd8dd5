"""What is decided where a task opens its step, without a Spark that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace as tr
from tailrace.calls.journal_keys import journal_key
from tailrace.spark.calls.caller import TaskCalls
from tailrace.spark.calls.options import check_journal_key

KEPT = tr.Calls(journal="folder", journal_key="id")


def test_null_identifies_no_call(tmp_path: Path) -> None:
    """Rows whose key is null would all be given the answer to the first one."""
    calls = TaskCalls(len, "paid", KEPT, journal=tmp_path)
    key_of = calls.key_of(lambda column: lambda args: args[0][column])
    assert key_of is not None
    assert key_of(({"id": None},)) is None
    assert key_of(({"id": 0},)) == journal_key(0) != key_of(({"id": 1},))


def test_a_journal_key_is_one_of_the_columns() -> None:
    check_journal_key("paid", KEPT, ["id", "text"])
    check_journal_key("paid", tr.Calls(), [])
    with pytest.raises(tr.OptionError) as caught:
        check_journal_key("paid", KEPT, ["user", "text"])
    assert str(caught.value) == (
        "journal_key is no column: function=paid journal_key=id: did you mean one of user, text?"
    )
