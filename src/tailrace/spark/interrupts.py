"""Protects workers from Ctrl-C: PySpark's handler cancels all jobs of the context, and each worker is one.

Without this, workers would die and be restarted while their run is about to drain. As long as a run is active,
``cancelAllJobs`` of its context is therefore replaced by a method that leaves its jobs out. Other jobs of the user are
still cancelled. A method, unlike a signal handler, can be replaced and restored from any thread.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

_METHOD = "cancelAllJobs"
_lock = threading.Lock()


class OwnJobs(Protocol):
    """Jobs of ours that may not be over."""

    def ids(self) -> set[int]: ...


class CancelOthers:
    """Replaces ``cancelAllJobs``: cancels all jobs of a context but those of runs and of their streaming queries."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.runs: list[OwnJobs] = []

    def __call__(self) -> None:
        # Read before the jobs of runs: a job that is active by now has been registered with its run.
        active = set(self._context.statusTracker().getActiveJobsIds())
        for job in sorted(active.difference(*(jobs.ids() for jobs in tuple(self.runs)))):
            self._context._jsc.sc().cancelJob(job)


def protect(context: Any, jobs: OwnJobs) -> None:
    """Exempt these jobs from ``cancelAllJobs`` of the context until ``unprotect``."""
    with _lock:
        replacement = vars(context).setdefault(_METHOD, CancelOthers(context))
        replacement.runs.append(jobs)


def unprotect(context: Any, jobs: OwnJobs) -> None:
    with _lock:
        replacement = vars(context)[_METHOD]
        replacement.runs.remove(jobs)
        if not replacement.runs:
            delattr(context, _METHOD)
