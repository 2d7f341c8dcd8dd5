"""The Spark jobs of one run: one for each epoch of a worker, in a job group of its own, by which it can be found.

A job can be over before its task is: a cancelled job ends for the driver at once, while its task still runs completion
listeners on the executor. A session that is stopped at that moment logs a stack trace; ``tasks_left`` prevents that.
"""

from __future__ import annotations

import threading
from typing import Any


class Jobs:
    """Tracks the job groups that may still have tasks. A session that has been stopped has none."""

    def __init__(self, context: Any, run: str) -> None:
        self._context = context
        self._run = run
        self._places: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    def begin(self, worker: int, epoch: int, description: str) -> None:
        """Assign jobs that the calling thread submits from now on to the group of this epoch."""
        with self._lock:
            self._places.add((worker, epoch))
        self._context.setJobGroup(self.group(worker, epoch), description)

    def group(self, worker: int, epoch: int) -> str:
        return f"tailrace-{self._run}-{worker}-{epoch}"

    def cancel(self, worker: int, epoch: int) -> None:
        try:
            self._context.cancelJobGroup(self.group(worker, epoch))
        except Exception:
            pass  # the session has been stopped, which ended all its jobs

    def tasks_left(self) -> bool:
        """Whether an executor still runs a task of these jobs."""
        with self._lock:
            places = set(self._places)
        over = {place for place in places if self._is_over(self.group(*place))}
        with self._lock:
            self._places -= over
        return over != places

    def ids(self) -> set[int]:
        """Spark's ids of the jobs that may not be over."""
        with self._lock:
            places = set(self._places)
        tracker = self._context.statusTracker()
        return {job for place in places for job in tracker.getJobIdsForGroup(self.group(*place))}

    def _is_over(self, group: str) -> bool:
        """Whether a group has neither jobs nor tasks left.

        Spark's status tracker may miss tasks of a running job, but not of one that has ended: hence both are checked.
        """
        try:
            tracker = self._context.statusTracker()
            jobs = [job for number in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(number))]
            stages = [tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds]
        except Exception:
            return True
        running = any(job.status == "RUNNING" for job in jobs)
        return not running and not any(stage.numActiveTasks for stage in stages if stage)
