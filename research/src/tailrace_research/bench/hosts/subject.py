"""A run that something is done to: a driver in a process of its own, in the box or on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from tailrace.errors import TailraceError
from tailrace_research.bench.hosts.gaps import Stamp, read_stamps

MODULE = "tailrace_research.bench.hosts.driver"
START_S = 300.0
END_S = 200.0
STEADY_S = 3.0
"""How long it runs before anything is done to it."""

Start = Callable[..., "subprocess.Popen[Any]"]


class Subject:
    """A context in which a topology runs on three workers. ``start`` is like ``Popen``; ``conf`` is that of a Spark."""

    def __init__(self, start: Start, conf: dict[str, str] | None, per_s: float) -> None:
        self._start, self._conf, self._per_s = start, conf, per_s
        self._said: dict[str, Any] = {}
        self._lines: deque[str] = deque(maxlen=30)
        self._undo = ExitStack()

    def __enter__(self) -> Subject:
        self.folder = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-hosts-")))
        options = {"conf": self._conf, "folder": str(self.folder), "per_s": self._per_s}
        command: Sequence[str] = [sys.executable, "-u", "-m", MODULE, json.dumps(options)]
        self._process = self._start(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._undo.callback(self._end)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        try:
            self._await(lambda: bool(self._said.get("pids")), START_S)
        except BaseException:
            self._undo.close()
            raise
        time.sleep(STEADY_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    @property
    def pids(self) -> dict[int, int]:
        """Process ids by worker, as of now."""
        return {int(worker): pid for worker, pid in self._said["pids"].items()}

    @property
    def restarts(self) -> int:
        """How often workers were started again, all together."""
        return sum(self._said["restarts"])

    def check(self) -> None:
        """Raises if the run has ended."""
        if self._process.poll() is not None:
            self._thread.join(5)
            raise TailraceError(f"the driver has ended: code={self._process.returncode}\n{''.join(self._lines)}")

    def finish(self) -> list[Stamp]:
        """Drain the run. Returns when each row came."""
        self.check()
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()
        self._await(lambda: self._process.poll() is not None, END_S, ended=True)
        if self._process.returncode:
            self.check()
        return read_stamps(self.folder)

    def _await(self, condition: Callable[[], bool], timeout_s: float, ended: bool = False) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if not ended:
                self.check()
            if time.monotonic() > deadline_s:
                raise TailraceError(f"the driver takes too long: timeout_s={timeout_s:g}\n{''.join(self._lines)}")
            time.sleep(0.02)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._said = json.loads(line)
            else:
                self._lines.append(line)

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout):
            if file is not None:
                file.close()
