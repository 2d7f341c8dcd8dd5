"""The doctor on a cluster of three executors with a slot each: it looks at every one, whatever ails the others."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from kit.spark import Sessions
from tailrace.spark.doctor import examine
from tailrace.spark.probes import StatusStore
from tailrace.testing.processes import wait_until

CLUSTER = "local-cluster[3,1,1024]"

FAILS_ON_ONE = """\
#!/bin/sh
case "$PWD" in */app-*/{executor}) echo "no Python today" >&2; exit 3;; esac
exec {python} "$@"
"""
"""Executors of a standalone cluster work in folders that are named after them."""


@pytest.fixture
def cluster(sessions: Sessions) -> SparkSession:
    return sessions.get(CLUSTER)


@pytest.fixture
def executors(cluster: SparkSession) -> list[str]:
    """Their names. They are 0, 1 and 2 only where no earlier test of this session killed one."""
    store = StatusStore(cluster.sparkContext)
    wait_until(lambda: len(store.executors()) == 3, 60, "three executors")
    return sorted(store.executors(), key=int)


def test_every_executor_is_examined(cluster: SparkSession, executors: list[str]) -> None:
    found = examine(cluster)
    assert found.ok, found
    assert [(one["id"], one["slots"], one["tailrace"]) for one in found.to_json()["executors"]] == [
        (name, 1, tr.__version__) for name in executors
    ]
    assert [line.what.partition(" on ")[0] for line in found][-3:] == [f"executor {name}" for name in executors]


@pytest.mark.usefixtures("executors")
def test_a_busy_executor_is_said_to_be_busy(cluster: SparkSession) -> None:
    context, store = cluster.sparkContext, StatusStore(cluster.sparkContext)

    def stay(batches: Any) -> Iterator[Any]:  # in here, it is pickled by value
        time.sleep(600)
        yield from batches

    def hold() -> None:
        context.setJobGroup("held", "a task that stays", interruptOnCancel=True)
        with pytest.raises(Exception, match="cancel"):
            cluster.range(0, 1, 1, 1).mapInArrow(stay, "id long").collect()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        wait_until(lambda: store.tasks("held"), 60, "the task to be placed")
        (held,) = {task.executor for task in store.tasks("held")}
        problems = {one.probed.executor.id: one.problems for one in examine(cluster).executors}
    finally:
        context.cancelJobGroup("held")
        holder.join()
    assert problems.pop(held) == ["it could not be probed: none of its slots was free; is it busy?"]
    assert list(problems.values()) == [[], []]


def test_an_executor_without_python_does_not_hide_the_others(
    cluster: SparkSession, executors: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, ill = tmp_path / "python", executors[1]
    python.write_text(FAILS_ON_ONE.format(executor=ill, python=sys.executable))
    python.chmod(0o755)
    monkeypatch.setattr(cluster.sparkContext, "pythonExec", str(python))
    found = examine(cluster)
    problems = {one.probed.executor.id: one.problems for one in found.executors}
    assert problems.pop(ill) == ["Python does not start there: no Python today"]
    assert list(problems.values()) == [[], []]
