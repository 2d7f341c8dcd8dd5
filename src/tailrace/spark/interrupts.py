"""Ctrl-C and workers. PySpark's own handler cancels all jobs of the context, and a worker is one.

Then workers would die, and be started again, under a run that is just about to drain. So, as long as a run goes on,
``cancelAllJobs`` of its context spares workers. It is the method that is replaced, not the handler: that can be done,
and undone at the run's end, from any thread, and whatever else a user runs is still cancelled.
"""

from __future__ import annotations

import threading
from typing import Any

from tailrace.spark.jobs import Jobs

_METHOD = "cancelAllJobs"
_lock = threading.Lock()


class CancelOthers:
    """Cancels all jobs of a context but those of runs."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.runs: list[Jobs] = []

    def __call__(self) -> None:
        active = set(self._context.statusTracker().getActiveJobsIds())  # before ours: whoever is in here has a group
        for job in sorted(active.difference(*(jobs.ids() for jobs in tuple(self.runs)))):
            self._context._jsc.sc().cancelJob(job)


def spare(context: Any, jobs: Jobs) -> None:
    """From now on, whoever cancels all jobs of this context does not mean these."""
    with _lock:
        stand_in = vars(context).setdefault(_METHOD, CancelOthers(context))
        stand_in.runs.append(jobs)


def spare_no_more(context: Any, jobs: Jobs) -> None:
    with _lock:
        stand_in = vars(context)[_METHOD]
        stand_in.runs.remove(jobs)
        if not stand_in.runs:
            delattr(context, _METHOD)
