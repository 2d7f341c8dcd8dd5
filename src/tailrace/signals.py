"""Handles SIGTERM, by which containers and service managers stop a process, like Ctrl-C: the run is drained."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that was ended by SIGTERM, as shells report it."""

INTERRUPTED = 128 + signal.SIGINT

NOTICED_S = 0.25
"""How late a signal may be noticed that came just before the main thread fell asleep."""


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM. Code that handles Ctrl-C handles it in the same way."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """The exit code of a process that this interrupt ends."""
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


@contextmanager
def terminable() -> Iterator[None]:
    """Within the block, SIGTERM raises ``Terminated`` in the main thread, which leaves the block as ``SystemExit``.

    Does nothing in other threads, which cannot set handlers, or if there is a handler already.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    except Terminated:
        raise SystemExit(TERMINATED) from None
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def wait_for(event: threading.Event, timeout_s: float | None) -> bool:
    """``event.wait(timeout_s)``, in which no signal stays unnoticed.

    Python calls the handler of a signal when the main thread next runs Python code. A signal that comes after the
    thread has last looked for one, and before it sleeps, does not wake it: ``event.wait()`` could last for ever.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = NOTICED_S if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        if event.wait(min(left_s, NOTICED_S)):
            return True
        if left_s <= NOTICED_S and deadline_s is not None:
            return False


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated
