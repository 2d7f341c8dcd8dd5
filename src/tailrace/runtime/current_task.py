"""The task that a thread or coroutine is running, with which its printed lines and log records are labelled."""

from __future__ import annotations

import threading
from contextvars import ContextVar


class _Running(threading.local):
    label = ""


running = _Running()
"""``running.label`` is ``operator/task`` while this thread runs that task's code, and empty otherwise."""

running_call: ContextVar[str] = ContextVar("running_call", default="")
"""The label of the task that a coroutine works for. Many coroutines share a thread, so ``running`` cannot tell."""


def current_label() -> str:
    """``operator/task`` of the task whose code is running here; empty if there is none."""
    return running_call.get() or running.label
