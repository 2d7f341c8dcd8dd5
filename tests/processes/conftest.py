"""Every test here starts real processes, and must leave none behind."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator

import pytest
from kit import MARK

from tailrace.testing.processes import processes_with, wait_until

LEAVE_S = 12.0
"""A worker whose driver is gone leaves at once, or when its lease of 8 s ends."""


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The mark of this test's processes. At the end none of them may be left."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARK, value)
    yield value
    try:
        wait_until(lambda: not processes_with(MARK, value), LEAVE_S, "the test's processes to leave")
    except AssertionError:
        left = processes_with(MARK, value)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        pytest.fail(f"processes are left behind: pids={left}")
