"""Child processes of a benchmark: all of them end, one way or another, before the call returns."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError

ALARM_SLACK_S = 5  # a child outlives a parent that was killed by no more than this
OUTPUT_TAIL = 2_000  # characters of a failed child's output that go into the error


def run_children(
    module: str, options: Sequence[dict[str, Any]], workdir: Path, timeout_s: float, pass_fds: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Run ``python -m module`` once per entry of ``options``, all at once, and return what each reported.

    A child is written with ``child_options`` and ``report``. Raises as soon as one child fails, and at the timeout.
    """
    deadline = time.monotonic() + timeout_s
    children: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        for index, entry in enumerate(options):
            output = stack.enter_context(_output(workdir, index).open("wb"))
            given = {**entry, "result": str(_result(workdir, index)), "alarm_s": int(timeout_s) + ALARM_SLACK_S}
            command = [sys.executable, "-m", module, json.dumps(given)]
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, pass_fds=tuple(pass_fds)
            )
            stack.callback(_end, child)
            children.append(child)
        _wait(module, children, workdir, deadline)
    return [json.loads(_result(workdir, index).read_text("utf-8")) for index in range(len(options))]


def child_options() -> dict[str, Any]:
    """In a child: what ``run_children`` gave it. Also sets the alarm that ends a child whose parent is gone."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    signal.alarm(options["alarm_s"])
    return options


def report(options: dict[str, Any], result: dict[str, Any]) -> None:
    """In a child: what ``run_children`` shall return."""
    Path(options["result"]).write_text(json.dumps(result), "utf-8")


def _wait(module: str, children: Sequence[subprocess.Popen[bytes]], workdir: Path, deadline: float) -> None:
    waiting = dict(enumerate(children))
    while waiting:
        for index, child in list(waiting.items()):
            code = child.poll()
            if code is None:
                continue
            del waiting[index]
            if code != 0 or not _result(workdir, index).exists():
                raise TailraceError(f"benchmark process failed: {_story(module, index, code, workdir)}")
        if waiting and time.monotonic() > deadline:
            index = min(waiting)
            raise TailraceError(f"benchmark process too slow: {_story(module, index, None, workdir)}")
        time.sleep(0.01)


def _story(module: str, index: int, code: int | None, workdir: Path) -> str:
    tail = _output(workdir, index).read_text("utf-8", "replace")[-OUTPUT_TAIL:].strip()
    return f"module={module} process={index} exit_code={code}\n{tail}"


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.wait()


def _output(workdir: Path, index: int) -> Path:
    return workdir / f"process-{index}.txt"


def _result(workdir: Path, index: int) -> Path:
    return workdir / f"process-{index}.json"
