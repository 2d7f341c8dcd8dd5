"""SIGTERM, which is how containers and service managers stop a process, ends a run as Ctrl-C does: it drains."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM has ended, as shells report it."""

INTERRUPTED = 128 + signal.SIGINT


class Terminated(KeyboardInterrupt):
    """SIGTERM has come. Code that handles Ctrl-C handles it in the same way."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Of a process that this has ended."""
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


@contextmanager
def terminable() -> Iterator[None]:
    """Meanwhile SIGTERM raises ``Terminated`` in the main thread, which leaves this block as ``SystemExit``.

    Nothing changes in other threads, which may not set handlers, nor where somebody has set one already.
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


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated
