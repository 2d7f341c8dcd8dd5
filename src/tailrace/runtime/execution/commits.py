"""The commits of the sinks in one task: when one is due, and in which thread it is carried out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Thread

from tailrace.clock import MILLISECOND_NS, system_clock
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.commit_sink import CommitSinkStage
from tailrace.runtime.current_task import running
from tailrace.runtime.links.event_loop import Post

LONG_COMMIT_NS = 2 * MILLISECOND_NS
SHORT_COMMITS = 16
"""A task whose last 16 commits were all shorter than 2 ms carries them out itself. Any other uses a thread for them,
which costs less than a tenth of that, so that no tuple waits for a disk."""


class Commits:
    """Used by the thread that runs the task.

    ``call`` calls what may take long, on behalf of the task; ``post`` leads to the task's thread.
    """

    def __init__(self, task: Task, label: str, call: Callable[..., None], post: Post) -> None:
        self._task = task
        self._label = label
        self._call = call
        self._post = post
        self._short_commits = 0  # in a row

    def begin_due(self, now_ns: int) -> bool:
        """Begin the commits that are due. True if so many tuples came meanwhile that the task must wait for the end."""
        sinks = self._task.sinks
        for sink in sinks:
            deadline_ns = sink.deadline_ns
            if deadline_ns is None or deadline_ns > now_ns:
                continue
            if self.in_threads:
                carry_out = sink.begin_commit()
                name = f"{self._label} commit"
                Thread(target=self._carry_out, args=(sink, carry_out), name=name, daemon=True).start()
            else:
                self._call(sink.commit)
                self._count(system_clock() - now_ns)
        return any(sink.overfull for sink in sinks)

    @property
    def in_threads(self) -> bool:
        """Whether commits are carried out in threads of their own."""
        return self._short_commits < SHORT_COMMITS

    def commit_soon(self) -> None:
        """Make all commits due. Only where they run in threads: the task's own thread would wait for each."""
        for sink in self._task.sinks:
            sink.commit_soon()

    def _carry_out(self, sink: CommitSinkStage, carry_out: Callable[[], None]) -> None:
        """Runs in a thread of its own. The task's thread deals with the outcome, also with an error."""
        running.label = self._label
        began_ns = system_clock()
        try:
            carry_out()
        except BaseException as error:
            self._post(partial(_raise, error))
        else:
            self._post(partial(self._carried_out, sink, system_clock() - began_ns))

    def _carried_out(self, sink: CommitSinkStage, took_ns: int) -> None:
        self._call(sink.end_commit)
        self._count(took_ns)

    def _count(self, took_ns: int) -> None:
        self._short_commits = 0 if took_ns > LONG_COMMIT_NS else self._short_commits + 1


def _raise(error: BaseException) -> None:
    raise error
