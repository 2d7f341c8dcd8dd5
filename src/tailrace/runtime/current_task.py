"""Which task a thread, or a coroutine, is working for: what it prints is labelled with it."""

from __future__ import annotations

import threading
from contextvars import ContextVar


class _Running(threading.local):
    label = ""


running = _Running()
"""``running.label`` is ``operator/task`` while that task's code runs in this thread, else empty."""

running_call: ContextVar[str] = ContextVar("running_call", default="")
"""The same for coroutines, many of which share a thread."""


def current_label() -> str:
    return running_call.get() or running.label
