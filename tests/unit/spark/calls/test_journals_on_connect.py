"""On Spark Connect the folder of a journal is the same for all tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailrace as tr
from tailrace.spark.calls.driver import task_calls


class Session:
    """A session of Spark Connect."""

    __module__ = "pyspark.sql.connect.session"


def test_a_relative_folder_is_refused_on_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session()
    with pytest.raises(tr.OptionError) as caught:
        task_calls(session, len, "score", tr.Calls(journal="answers", journal_key="id"), b"step")
    assert str(caught.value) == (
        "a relative path means another folder to each task of Spark Connect: journal=answers: "
        f"did you mean {tmp_path}/answers, and do all executors see it?"
    )
    calls = task_calls(session, len, "score", tr.Calls(journal=tmp_path, journal_key="id"), b"step")
    assert (calls.journal, calls.step) == (tmp_path, b"step")
