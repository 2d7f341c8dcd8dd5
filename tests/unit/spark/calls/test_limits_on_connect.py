"""On Spark Connect a limit is divided among the tasks that may run at once."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

import tailrace as tr
from tailrace.spark.calls import driver
from tailrace.spark.calls.driver import task_calls
from tailrace.spark.slots import most_slots

GROWING = {"spark.dynamicAllocation.enabled": "true"}
MOST = {"spark.dynamicAllocation.maxExecutors": "10"}
YARN = {"spark.master": "yarn", **GROWING}
STANDALONE = {"spark.master": "spark://host:7077"}


class Session:
    """What is asked of a session of Spark Connect."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, settings: dict[str, str], host: str = "server") -> None:
        self.conf = SimpleNamespace(get=settings.get)
        self.client = SimpleNamespace(host=host)


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_divided", set())


def tasks(settings: dict[str, str], host: str = "server", **limit: Any) -> int:
    calls = tr.Calls(limit=tr.limit("api", **{"per_s": 50, **limit}))
    return task_calls(Session(settings, host), len, "score", calls, b"step").tasks


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"spark.master": "local[2]"}, 2),
        ({**STANDALONE, "spark.cores.max": "8"}, 8),
        ({**YARN, **MOST}, 10),
        ({**YARN, **MOST, "spark.executor.cores": "4"}, 40),
        ({**YARN, **MOST, "spark.executor.cores": "5", "spark.task.cpus": "2"}, 20),
    ],
)
def test_a_limit_is_divided_among_the_slots_that_there_may_be(settings: dict[str, str], expected: int) -> None:
    assert tasks(settings) == expected


@pytest.mark.parametrize(
    "settings",
    [
        *({}, STANDALONE, {"spark.master": "local[*]"}, YARN, {**YARN, "spark.executor.cores": "4"}),
        {**YARN, "spark.dynamicAllocation.maxExecutors": "2147483647"},
        {**STANDALONE, **GROWING, **MOST},
        {**STANDALONE, "spark.default.parallelism": "8"},
    ],
)
def test_a_limit_that_cannot_be_divided_is_refused_unless_one_says_among_how_many(settings: dict[str, str]) -> None:
    master = settings.get("spark.master")
    with pytest.raises(tr.OptionError) as caught:
        tasks(settings)
    assert str(caught.value) == (
        "a limit cannot be divided among tasks, as Spark does not tell how many run at once: "
        f"limit=api master={master}: could you say tr.limit(…, tasks=N), where N is the cores of all executors "
        "together?"
    )
    assert tasks(settings, tasks=12) == 12


def test_all_processors_are_those_of_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert tasks({"spark.master": "local[*]"}, "localhost") == 6


def test_what_was_said_goes_before_what_is_known() -> None:
    assert tasks({"spark.master": "local[2]"}, tasks=6) == 6


def test_the_user_is_told_once_that_a_limit_is_divided(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tailrace"):
        for _ in range(2):
            tasks({"spark.master": "local[2]"})
        tasks({"spark.master": "local[2]"}, tasks=6)
    assert caplog.messages == [
        "a limit is not shared on Spark Connect, each task keeps its part of it: limit=api tasks=2: do several steps "
        "or queries use it at once? Then say the tasks of all, tr.limit(…, tasks=N)"
    ]


def test_permits_that_are_fewer_than_tasks_cannot_be_divided() -> None:
    settings = {"spark.master": "local[4]"}
    assert tasks(settings, concurrency=4) == 4
    text = r"tasks, which cannot share it .*: limit=api concurrency=3 tasks=4: could fewer tasks call, as with df.coal"
    with pytest.raises(tr.OptionError, match=text):
        tasks(settings, concurrency=3)


def test_slots_of_a_local_session_do_not_depend_on_allocation() -> None:
    assert most_slots("local[2]", {**GROWING, **MOST}, None) == 2
