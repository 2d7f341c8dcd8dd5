"""How worker processes are started."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tailrace.runtime.driver.host import SubprocessHost
from tailrace.runtime.links.control import Bootstrap


class Process:
    """Nothing is started."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self.environment: dict[str, str] = options["env"]
        self.stdin = io.BytesIO()
        Process.last = self

    last: Process

    def kill(self) -> None:
        self.killed = True

    killed = False

    def wait(self) -> int:
        return 0


def test_nothing_is_left_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(OSError, match="can't start new thread"):
        SubprocessHost().start(Bootstrap(("127.0.0.1", 1), b"secret", 0, 1), lambda *_: None)
    assert Process.last.killed


def test_a_process_that_is_given_up_without_a_thread_to_wait_is_killed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    host, process = SubprocessHost(), Process([], env={})
    host._processes[0, 1] = process  # type: ignore[assignment]
    monkeypatch.setattr(threading.Thread, "start", fail)
    host.abandon(0, 1)
    assert process.killed


def test_a_search_path_may_hold_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [tmp_path / "mine", "", "/usr/lib"])
    monkeypatch.setattr(subprocess, "Popen", Process)
    SubprocessHost().start(Bootstrap(("127.0.0.1", 1), b"secret", 0, 1), lambda *_: None)
    expected = os.pathsep.join([str(tmp_path / "mine"), str(Path.cwd()), "/usr/lib"])
    assert Process.last.environment["PYTHONPATH"] == expected
