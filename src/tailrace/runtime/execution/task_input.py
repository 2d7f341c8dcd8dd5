"""The links into one task: bundles, which rounds of admission hold back, and acks and feedback, which nothing does."""

from __future__ import annotations

from functools import partial
from typing import Any

from tailrace.clock import system_clock
from tailrace.core.failures import traceback_of
from tailrace.core.queues.rounds import Rounds, bundle_limit
from tailrace.core.tasks.base import Task
from tailrace.errors import ProtocolError, TaskError
from tailrace.runtime.execution.ports import Mailbox, WorkerServices
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.event_loop import EventLoop
from tailrace.runtime.links.frames import ACKS, BUNDLES, FEEDBACK, decode_bundles, decode_feedback, decode_folds
from tailrace.runtime.links.in_links import BundleLinks, DeferredLinks, InLinks


class TaskInput:
    """Used by the thread that runs the task, but for ``read_bundles`` and ``decode``."""

    def __init__(self, mailbox: Mailbox, services: WorkerServices) -> None:
        task = mailbox.task
        self.rounds = Rounds(lambda: len(task.queue), lambda: bundle_limit(mailbox.bundle_bytes))
        self.deferred: DeferredLinks | None = None  # only a source has them: it gets acks from all tasks
        if task.owns_roots:
            self.deferred = DeferredLinks(services, lambda: task.needs_acks_now)
        self.bundle_links = BundleLinks(services, self.rounds, self.read_bundles, partial(Task.receive, task))
        self._other_links: InLinks = InLinks(services) if self.deferred is None else self.deferred
        self._mailbox = mailbox
        self._services = services
        self._task = task
        self._waiting = mailbox.waiting

    # -- links

    def moved_to(self, loop: EventLoop | None) -> None:
        self._other_links.moved_to(loop)
        self.bundle_links.moved_to(loop)

    def take_link(self, channel: Channel, kind: str, worker: int, epoch: int) -> None:
        """Read this link, which a peer has opened."""
        if kind == "bundles":
            self.bundle_links.take(channel, worker, epoch)
        else:
            self._other_links.take(channel, worker, epoch, partial(self._on_frame, channel.ring is not None))

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: close the links from their former epochs."""
        self._other_links.relink(workers)
        self.bundle_links.relink(workers)

    # -- bundles

    def read_bundles(self, kind: int, payload: memoryview) -> list[Any]:
        """The bundles in a frame. By the thread that reads the link."""
        if kind != BUNDLES:
            raise ProtocolError(f"frame of another kind: kind={kind} expected={BUNDLES}; are versions mixed?")
        bundles = self.decode(payload)
        mailbox = self._mailbox
        mailbox.bundle_bytes = (mailbox.bundle_bytes + len(payload) // len(bundles)) // 2 + 1
        return bundles

    def decode(self, payload: memoryview) -> list[Any]:
        """Decode the bundles in a payload. From any thread."""
        try:
            bundles = decode_bundles(payload)
        except ProtocolError:
            raise
        except Exception as error:  # raised by the user's class, which would refuse it a second time too
            operator, task = self._task.label.rsplit("/", 1)
            raise TaskError(operator, int(task), "(while reading it)", traceback_of(error)) from None
        self._services.sightings.came(bundles)
        return bundles

    def make_room(self) -> bool:
        """The task has taken bundles: let senders in that wait for room.

        Returns True if links have been resumed: they should be read before the task goes on.
        """
        rounds = self.rounds
        if not (rounds.behind or self._waiting) or not rounds.due:
            return False
        resumed = rounds.begin(system_clock()) and self.bundle_links.admit()
        self.wake_waiting()
        return resumed

    def wake_waiting(self) -> None:
        """Have senders try again that found the queue full. From any thread."""
        waiting = self._waiting
        while waiting:
            try:
                loop = waiting.pop()
            except KeyError:
                return  # the thread of another task that shares the queue was faster
            loop.wake()

    # -- acks and feedback

    def _on_frame(self, same_machine: bool, kind: int, payload: memoryview) -> None:
        task = self._task
        if kind == FEEDBACK and task.feedback_edges:
            self._on_feedback(same_machine, payload)
        elif kind == ACKS and task.owns_roots:
            folds, sent_ns = decode_folds(payload)
            task.apply(*folds, sent_ns if same_machine else system_clock())
        else:
            raise ProtocolError(f"frame of another kind: kind={kind} task={task.label}; are versions mixed?")

    def _on_feedback(self, same_machine: bool, payload: memoryview) -> None:
        began_ns = system_clock()
        messages, sent_ns = decode_feedback(payload)
        self._task.spent_on_feedback(began_ns)
        self._task.hear(messages, sent_ns if same_machine else None)
