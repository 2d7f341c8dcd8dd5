"""Settings of the interpreter and the operating system for a worker process."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import resource
import signal
import sys

SWITCH_S = 0.0005
"""The interpreter's switch interval. The default of 5 ms would add to the latency of every tuple."""

SET_TIMER_SLACK = 29  # PR_SET_TIMERSLACK

SLACK_NS = 1
"""Timer slack: how late the kernel may end a wait. The default of 50 us would add to the latency of every tuple."""

STANDARD_ERROR = 2  # a file descriptor, because sys.stderr may have none


def prepare_process() -> None:
    """Apply all settings. Call it before starting threads, which inherit some of them."""
    sys.setswitchinterval(SWITCH_S)
    _end_waits_in_time()
    raise_file_limit()
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C may reach all processes of a terminal; the driver handles it


def set_aside() -> None:
    """Exempt all present objects from garbage collection.

    Modules, the plan and tasks live as long as the worker. A collection that traverses them takes 12 ms if pyarrow is
    loaded, and stops all threads meanwhile.
    """
    gc.collect()
    gc.freeze()


def arm_watchdog(seconds: float) -> None:
    """End this process unless the watchdog is armed again or disarmed within ``seconds``.

    It uses a thread of ``faulthandler``, which works without the interpreter lock. It can therefore end a process in
    which a call never releases that lock, and dumps the stack of each thread first.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=STANDARD_ERROR)


def disarm_watchdog() -> None:
    """Stop the watchdog that ends a worker whose interpreter does not run."""
    faulthandler.cancel_dump_traceback_later()


def _end_waits_in_time() -> None:
    """Set the timer slack. Does nothing on systems without prctl."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(SET_TIMER_SLACK, ctypes.c_ulong(SLACK_NS))


def raise_file_limit() -> None:
    """Raise the limit of open files to the maximum: each link takes some, and so do connections of strangers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
