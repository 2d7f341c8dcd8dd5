"""Commits that take time: another thread carries them out while the task goes on taking tuples.

The process may die at any moment in between. The commit has then taken effect or not, and its task never learns which.
"""

from __future__ import annotations

from functools import partial
from random import Random

from tailrace.clock import MILLISECOND_NS
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.commit_sink import CommitSinkStage
from tailrace.sim.faults.interfaces import AnyProcess

MS = MILLISECOND_NS


class SlowCommits:
    """How long commits take, drawn from a generator of its own."""

    def __init__(self, seed: int | None) -> None:
        """``seed``: ``None`` if commits take no time."""
        self._rng = Random(f"{seed} commits")
        self._share: float = 0 if seed is None else self._rng.choice([0, 0, 0.3, 1])
        self.count = 0

    def commit(self, process: AnyProcess, task: Task) -> None:
        for sink in task.sinks:
            if sink.deadline_ns is None or self._rng.random() >= self._share:
                process.on_task(task, partial(commit_and_prune, sink))
            else:
                self.count += 1
                self._commit_apart(process, task, sink)

    def _commit_apart(self, process: AnyProcess, task: Task, sink: CommitSinkStage) -> None:
        after = process.cluster.engine.after
        took_ns = self._rng.choice([1, 5, 20, 60]) * MS
        done_ns = self._rng.randrange(took_ns)
        carry_out = sink.begin_commit()

        def end() -> None:
            process.on_task(task, partial(_end_and_prune, sink))
            process.wake(task)

        def carry_out_and_tell() -> None:
            process.on_task(task, carry_out)
            after(took_ns - done_ns, process.guarded(lambda: process.do(task.number, end)))

        after(done_ns, process.guarded(carry_out_and_tell))


def commit_and_prune(sink: CommitSinkStage) -> None:
    """Commit, then prune the log at once instead of when it has doubled, to show if it forgets too much."""
    sink.commit()
    sink.log._prune()


def _end_and_prune(sink: CommitSinkStage) -> None:
    sink.end_commit()
    sink.log._prune()
