"""A script that ends must not take its runs with it in silence.

When the interpreter exits, a run that still goes on is awaited, as if ``awaitTermination`` were the script's last line.
Whether its sources ever end is known only when they have: an endless run goes on until Ctrl-C or SIGTERM drains it.
After an uncaught exception, and at the end of an interactive session, it is drained instead. An error that the script
has not looked at is printed, and the exit code is 1.

All of this happens before Python joins its threads: later it can start none, and a worker that comes back needs one.
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
"""How long a run may drain after the script has failed: long enough for what is on its way, short enough to wait."""

_FAILED = 1
_lock = threading.Lock()
_runs: dict[int, Leavable] = {}
_watching = False


class Leavable(Protocol):
    """What can be left behind: the handle of a run."""

    name: str

    @property
    def isActive(self) -> bool: ...

    @property
    def _unseen_error(self) -> Exception | None: ...

    def awaitTermination(self, timeout: float | None = None) -> bool: ...

    def stop(self, timeout: float | None = None) -> None: ...


def remember(run: Leavable) -> None:
    """Look after this run when the interpreter exits."""
    global _watching
    with _lock:
        _runs[id(run)] = run
        if not _watching:
            _watching = True
            _call_at_exit(look_after_all)


def forget(run: Leavable) -> None:
    """It has ended, and its user knows how."""
    with _lock:
        _runs.pop(id(run), None)


def _call_at_exit(function: Callable[[], None]) -> None:
    """Before threads are joined, which is what concurrent.futures does too, for the same reason."""
    register = getattr(threading, "_register_atexit", atexit.register)
    pid = os.getpid()

    def call() -> None:
        if os.getpid() == pid:  # a forked child has no threads that could end the run
            function()

    register(call)


def look_after_all() -> None:
    """Await, drain or report every run that is left. The last thing but Python's own that happens in a process."""
    with _lock:
        runs = list(_runs.values())
    codes = [look_after(run) for run in runs]
    code = next(filter(None, codes), 0)
    if code and not _has_failed():
        atexit.register(_exit_with, code)  # the first to be called, once threads are joined


def look_after(run: Leavable) -> int:
    """Returns the exit code that the process should have for it."""
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
    sys.excepthook(type(error), error.with_traceback(None), None)  # our own frames tell nothing
    return _FAILED


def _has_failed() -> bool:
    """Whether an uncaught exception ends the script. Python keeps it here before it prints it."""
    return getattr(sys, "last_value", None) is not None


def _exit_with(code: int) -> None:
    """Exit with this code, which Python has no way to say this late, after all other functions have been called."""
    atexit.unregister(_exit_with)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # nobody reads it any more
    os._exit(code)
