"""Commits of simulated sinks that take time: another thread carries them out while the task takes what comes.

The process may die at any moment between. Then the commit has taken place or not, and nobody here has heard of it.
"""

from __future__ import annotations

from functools import partial
from random import Random

from tailrace.clock import MILLISECOND_NS
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.stages import CommitSinkStage
from tailrace.sim.faults.interfaces import AnyProcess

MS = MILLISECOND_NS


class SlowCommits:
    """What a seed decides about how long commits take, from a generator of its own."""

    def __init__(self, seed: int | None) -> None:
        """None: they take no time."""
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
    """A log prunes itself when it has doubled. Here it does so at once, so that what it must not forget shows."""
    sink.commit()
    sink.log._prune()


def _end_and_prune(sink: CommitSinkStage) -> None:
    sink.end_commit()
    sink.log._prune()
