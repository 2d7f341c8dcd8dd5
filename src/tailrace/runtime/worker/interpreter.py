"""What a worker asks of the interpreter and the system for its process, before anything else."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import resource
import signal
import sys

SWITCH_S = 0.0005
"""How long a thread may keep the interpreter from another: the default of 5 ms would be in every tuple's latency."""

SET_TIMER_SLACK = 29  # what prctl calls it
SLACK_NS = 1
"""How late a wait may end, so that others can end with it: the default of 50 us would be in every latency too."""

STANDARD_ERROR = 2  # not sys.stderr, which is captured and has no number


def prepare_process() -> None:
    """Threads that are started afterwards have it too."""
    sys.setswitchinterval(SWITCH_S)
    _end_waits_in_time()
    raise_file_limit()
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C may reach the whole terminal; the driver drains


def set_aside() -> None:
    """Have the collector of garbage leave alone all that there is by now, until it is told otherwise.

    Modules, the plan and tasks stay as long as the worker does. A collection that goes through them takes 12 ms with
    pyarrow among them, and nothing else runs meanwhile.
    """
    gc.collect()
    gc.freeze()


def arm_watchdog(seconds: float) -> None:
    """End this process unless it is armed again, or disarmed, within so many seconds.

    The thread that waits is faulthandler's, which needs no interpreter: it ends a process whose call holds that for
    ever, and writes where each thread is.
    """
    faulthandler.dump_traceback_later(seconds, exit=True, file=STANDARD_ERROR)


def disarm_watchdog() -> None:
    faulthandler.cancel_dump_traceback_later()


def _end_waits_in_time() -> None:
    """Where there is no such thing, waits end when they do."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(SET_TIMER_SLACK, ctypes.c_ulong(SLACK_NS))


def raise_file_limit() -> None:
    """Links are files, and so are connections of strangers: allow as many as the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
