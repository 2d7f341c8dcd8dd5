"""Sessions for the tests of this folder. All tests of a module share one; nothing may be left when all are done."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kit.runs import MARK
from kit.spark import MASTER, Sessions, end_gateway
from tailrace.testing.processes import processes_with, wait_until

LEAVE_S = 15.0


@pytest.fixture(scope="session")
def sessions() -> Iterator[Sessions]:
    """Whatever is started by the sessions' JVM carries the mark, and must be gone at the end."""
    mark = os.environ[MARK] = uuid.uuid4().hex
    sessions = Sessions()
    yield sessions
    sessions.stop()
    end_gateway()
    del os.environ[MARK]
    try:
        wait_until(lambda: not processes_with(MARK, mark), LEAVE_S, "Spark's processes to leave")
    except AssertionError:
        left = processes_with(MARK, mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        pytest.fail(f"processes are left behind: pids={left}")


@pytest.fixture(scope="module")
def spark(sessions: Sessions) -> SparkSession:
    """On this machine, with four slots."""
    return sessions.get(MASTER)


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The mark of this test's processes, for tests whose driver is a script."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARK, value)
    yield value
    for pid in processes_with(MARK, value):
        os.kill(pid, signal.SIGKILL)
