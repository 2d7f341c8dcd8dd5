"""Exit handling for active runs: a script that ends must not abandon its runs silently.

When the interpreter exits, it waits for every active run, as if ``awaitTermination`` were the script's last line. A run
with endless sources therefore continues until Ctrl-C or SIGTERM drains it. After an uncaught exception, and at the end
of an interactive session, runs are drained instead. If a run failed and the script never looked at the error, the error
is printed and the exit code is 1.

This happens before Python joins its threads. After that no thread can be started, and restarting a worker needs one.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from tailrace.signals import INTERRUPTED

logger = logging.getLogger("tailrace")

AFTER_AN_ERROR_S = 5.0
"""How long a run may drain after the script has failed: enough for tuples in flight, without delaying the exit much."""

_FAILED = 1
_lock = threading.Lock()
_runs: dict[int, ExitingRun] = {}
_registered = False


class ExitingRun(Protocol):
    """The part of a run handle that exit handling needs."""

    name: str

    @property
    def isActive(self) -> bool: ...

    @property
    def _unseen_error(self) -> Exception | None: ...

    def awaitTermination(self, timeout: float | None = None) -> bool: ...

    def stop(self, timeout: float | None = None) -> None: ...


def remember(run: ExitingRun) -> None:
    """Register a run to be awaited, drained or reported when the interpreter exits."""
    global _registered
    with _lock:
        _runs[id(run)] = run
        if not _registered:
            _registered = True
            _call_at_exit(handle_all)


def forget(run: ExitingRun) -> None:
    """Unregister a run that has ended and whose outcome the user has seen."""
    with _lock:
        _runs.pop(id(run), None)


def _call_at_exit(function: Callable[[], None]) -> None:
    """Register a function to be called before threads are joined. ``concurrent.futures`` uses the same private hook."""
    register = getattr(threading, "_register_atexit", atexit.register)
    pid = os.getpid()

    def call() -> None:
        if os.getpid() == pid:  # a forked child has none of the threads that could end the run
            function()

    register(call)


def handle_all() -> None:
    """Await, drain or report every registered run, and set the process's exit code."""
    with _lock:
        runs = list(_runs.values())
    codes = [handle_exit(run) for run in runs]
    code = next(filter(None, codes), 0)
    if code and not _has_failed():
        atexit.register(_exit_with, code)  # registered last, so called first once threads are joined


def handle_exit(run: ExitingRun) -> int:
    """Await, drain or report one run. Returns the exit code that the process should have because of it."""
    interactive = hasattr(sys, "ps1") or bool(sys.flags.interactive)
    try:
        if run.isActive:
            if interactive:
                logger.warning("the session ends and its run goes on: run=%s: draining it; Ctrl-C gives up", run.name)
                run.stop()
            elif _has_failed():
                logger.warning(
                    "the script has failed and its run goes on: run=%s: draining it for %g s at most",
                    run.name,
                    AFTER_AN_ERROR_S,
                )
                run.stop(AFTER_AN_ERROR_S)
            else:
                logger.warning(
                    "the script has ended and its run goes on: run=%s: waiting for its end; Ctrl-C drains it; "
                    "did you forget run.awaitTermination()?",
                    run.name,
                )
                run.awaitTermination()
        error = run._unseen_error
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else _FAILED
    except Exception as raised:
        error = raised
    if error is None or interactive:
        return 0
    sys.excepthook(type(error), error.with_traceback(None), None)  # frames of Tailrace would not help the user
    return _FAILED


def _has_failed() -> bool:
    """Whether the script ends with an uncaught exception. Python stores it in ``sys.last_value`` before printing it."""
    return getattr(sys, "last_value", None) is not None


def _exit_with(code: int) -> None:
    """Run the remaining exit functions, then exit with this code: Python has no regular way to set it this late."""
    atexit.unregister(_exit_with)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # the stream is closed, or its reader has gone
    os._exit(code)
