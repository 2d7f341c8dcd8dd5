"""Options of calls are checked where they are declared, and the error says what was probably meant."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"concurrency": 0}, "concurrency is not a positive integer: concurrency=0"),
        ({"concurrency": True}, "concurrency is not a positive integer: concurrency=True"),
        ({"timeout_s": -1}, "not a time: timeout_s=-1"),
        ({"timeout_s": float("nan")}, "not a time: timeout_s=nan"),
        ({"retries": 1.5}, "not a count: retries=1.5"),
        ({"backoff_s": "1"}, "not a time: backoff_s='1'"),
        ({"max_backoff_s": -1}, "not a time: max_backoff_s=-1"),
        ({"retry_on": int}, "not exception types: retry_on=<class 'int'>"),
        ({"retry_on": (OSError, 5)}, "not exception types"),
        ({"retry_on": "OSError"}, "not exception types: retry_on='OSError'"),
        ({"hedge": 1}, "hedge is neither True nor False: hedge=1"),
        ({"limit": 50}, "not a limit: limit=50: did you mean tr.limit('name', per_s=…)?"),
        ({"journal": ""}, "not a folder: journal=''"),
        (
            {"journal": "s3://bucket/answers"},
            "not a folder but a URI: journal='s3://bucket/answers': could it be a path",
        ),
        ({"journal": Path("gs://bucket/answers")}, "system that all workers see? Object stores have no locks"),
        ({"journal_key": "id"}, "journal_key without a journal: did you forget journal='folder'?"),
        ({"keep": True}, "keep without a journal"),
        ({"journal": "j", "journal_key": 3}, "not a column name: journal_key=3"),
        ({"on_error": "colum"}, "unknown on_error: on_error='colum': did you mean 'column'?"),
    ],
)
def test_a_wrong_option_is_an_error_at_once(given: dict[str, Any], text: str) -> None:
    with pytest.raises(tr.OptionError) as caught:
        tr.Calls(**given)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("a b", {"per_s": 1}, "not a valid limit name: name='a b'"),
        ("api", {}, "a limit of nothing: limit=api: did you forget per_s=…"),
        ("api", {"per_s": 0}, "not a rate: limit=api per_s=0"),
        ("api", {"per_minute": float("inf")}, "not a rate: limit=api per_minute=inf"),
        ("api", {"concurrency": 0.5}, "concurrency is not a positive integer: limit=api concurrency=0.5"),
        ("api", {"concurrency": 5, "cost": len}, "cost without a rate: limit=api"),
        ("api", {"per_s": 5, "tasks": 0}, "tasks is not a positive integer: limit=api tasks=0: is it how"),
        ("api", {"per_s": 5, "cost": 7}, "cost is not a function: limit=api cost=7"),
        ("api", {"per_s": 5, "settle": len}, "settle without cost: limit=api"),
    ],
)
def test_a_wrong_limit_is_an_error_at_once(name: str, given: dict[str, Any], text: str) -> None:
    with pytest.raises(tr.OptionError) as caught:
        tr.limit(name, **given)
    assert text in str(caught.value)


def test_options_are_values_that_can_be_shipped() -> None:
    calls = tr.Calls(timeout_s=1, retries=2, limit=tr.limit("api", per_s=5, cost=len), journal="j", keep=True)
    assert pickle.loads(pickle.dumps(calls)) == calls
    with pytest.raises(AttributeError):
        calls.retries = 5  # type: ignore[misc]


def test_retry_after_keeps_its_time_and_reason() -> None:
    error = pickle.loads(pickle.dumps(tr.RetryAfter(1.5, "busy")))
    assert (error.seconds, error.reason) == (1.5, "busy")
    assert str(error) == "refused for now: retry_after_s=1.5 reason='busy'"
    with pytest.raises(tr.OptionError, match="not a time: seconds='Wed, 21 Oct"):
        tr.RetryAfter("Wed, 21 Oct 2026 07:28:00 GMT")  # type: ignore[arg-type]
