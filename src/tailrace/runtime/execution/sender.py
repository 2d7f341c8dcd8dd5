"""A sender empties a task's lanes and ack folds: into tasks of the same worker, or over links into others.

While a send scheduler is on, bundles for other workers go encoded into the task's output queue instead, and the
worker's send loop owns the links for them.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

from tailrace.clock import system_clock
from tailrace.core.bundles import (
    ATTACHED,
    MESSAGE,
    VALUES,
    Bundle,
    any_urgent,
    is_feedback,
    tuples_in,
)
from tailrace.core.protocol.acks import AckFold
from tailrace.core.queues.shared import portions
from tailrace.core.routing.router import FeedbackLane, Lane
from tailrace.core.tasks.base import Task
from tailrace.errors import ProtocolError
from tailrace.runtime.execution.ports import Mailbox, NodeQueuePort, OutputQueue, WorkerServices
from tailrace.runtime.execution.unsendable import Unsendable
from tailrace.runtime.links.event_loop import EventLoop, Post
from tailrace.runtime.links.frames import (
    ACKS,
    BUNDLES,
    CANCELS,
    FEEDBACK,
    encode,
    encode_feedback,
    encode_folds,
    encode_numbers,
)
from tailrace.runtime.links.link import OutLink
from tailrace.runtime.links.out_links import OutLinks

LANE_BUNDLES = 256
"""Bundles that may wait to leave a task on one lane. Beyond, the task is held back."""

LANE_BYTES = 1 << 20
"""Bytes that may wait on one lane, estimated from earlier bundles."""

FIRST_GUESS = 64 << 10
"""Bytes in a bundle while none has been seen. Too high costs a slow first millisecond; too low costs memory."""

PARCEL_BYTES = 4 << 10
"""About what a parcel for the send loop may hold, unless one bundle is more: no other task sends while it leaves."""

MEASURE_EVERY = 64
"""How many frames share one measurement of the feedback in them, which costs a second encoding."""


class Sender:
    """Sends for one unit. Used by the thread that runs it; ``post`` leads to that thread."""

    def __init__(self, task: Task, services: WorkerServices, post: Post) -> None:
        self._task = task
        self._services = services
        self._post = post
        self._links = OutLinks(services, post)
        self._unsendable = Unsendable(task, services)
        self._output: OutputQueue | None = None  # takes the bundles for other workers; None: the sender's own links
        self._wanted_output: OutputQueue | None = None  # the one that shall take them; it differs during a change
        self._returning = False  # the links are on their way back from the send loop
        self._loop: EventLoop | None = None
        self._bundle_bytes = FIRST_GUESS
        self._message_bytes = 0  # the average size of a feedback message that travels with tuples
        self._unmeasured = 0  # frames until the next measurement of it
        self._unput: dict[Lane, tuple[NodeQueuePort, bytes]] = {}  # payloads that a node's queue had no room for
        self._uncancelled: dict[int, list[int]] = {}  # cancelled emissions, by a task of the worker to be told

    @property
    def limit(self) -> int:
        """How many bundles may wait on one lane."""
        return max(1, min(LANE_BUNDLES, LANE_BYTES // self._bundle_bytes))

    def moved_to(self, loop: EventLoop | None) -> None:
        self._links.moved_to(loop)
        self._loop = loop

    def flush(self) -> bool:
        """Send what can be sent. True if so much is left that the task must wait."""
        held_back = False
        if self._wanted_output is not self._output:
            self._change_output()
        if self._unput:
            self._put_again()
        for lane in self._task.lanes:
            if lane.bundles:
                self._flush_lane(lane)
                held_back = held_back or len(lane.bundles) >= self.limit
        if self._output is not None:
            held_back = held_back or self._output.holds_back()
        for owner, fold in self._task.acks.items():
            if fold:
                self._flush_acks(owner, fold)
        if self._task.feedback_receiver is not None and self._task.feedback_receiver.outbox:
            self.flush_feedback()
        if self._task.cancels or self._uncancelled:
            self._flush_cancels()
        return held_back or (bool(self._task.feedback_edges) and self._task.held_full)

    @property
    def waits_for_connection(self) -> bool:
        """Whether output waits for a connection, or for room in the queue of this node: nothing signals either.

        A link that is connected and full signals when it takes more.
        """
        if self._unput:
            return True
        return any(not link.open for link in self._links) and (
            any(lane.bundles for lane in self._task.lanes)
            or any(self._task.acks.values())
            or (self._task.feedback_receiver is not None and bool(self._task.feedback_receiver.outbox))
        )

    # -- bundles

    def _flush_lane(self, lane: Lane) -> None:
        queue = self._services.node_queue_for(lane.target)
        if queue is not None:
            self._flush_to_node(queue, lane)
            return
        self._flush_to_task(lane)

    def _flush_to_task(self, lane: Lane) -> None:
        mailbox = self._services.mailbox_of(lane.target)
        if mailbox is not None:
            self._hand_over(mailbox, lane)
            return
        if self._output is not None:
            self._fill(self._output, lane)
            return
        link = self._links.link("bundles", lane.target)
        if link.member is None and isinstance(lane, FeedbackLane):
            lane.drop_feedback()
        while link.ready and lane.bundles:
            limit = self.limit
            bundles = lane.take() if len(lane.bundles) <= limit else lane.take_first(limit)
            self._send_bundles(link, lane, bundles)

    def _hand_over(self, mailbox: Mailbox, lane: Lane) -> None:
        while lane.bundles:
            rounds = mailbox.rounds
            room = rounds.room(lane)
            if not room:
                assert self._loop is not None
                mailbox.waiting.add(self._loop)
                room = rounds.room(lane)
                if not room:  # asked again: the task may have looked at its list before we were on it
                    return
            self._bundle_bytes = mailbox.bundle_bytes = (self._bundle_bytes + _weigh(lane.bundles[-1])) // 2 + 1
            bundles = lane.take() if room >= len(lane.bundles) else lane.take_first(room)
            if rounds.behind:
                rounds.put(lane, len(bundles))
            mailbox.task.receive(bundles)
            shared = mailbox.shared_input  # read once: the task may leave it at any time
            if shared is not None:
                shared.wake(tuples_in(bundles))
            elif mailbox.runner is not self._loop:
                mailbox.wake()

    def _flush_to_node(self, queue: NodeQueuePort, lane: Lane) -> None:
        """Put bundles into the node's queue: whichever task was chosen, one that is free runs them."""
        if lane in self._unput:
            return
        bundles = queue.hand_over(lane.take(), self._loop)
        waiting = deque(portions(bundles, queue.portion, queue.new_id))
        while waiting and lane not in self._unput and not lane.bundles:
            payload, part = self._encoded(lane, waiting.popleft())
            if len(payload) <= queue.largest:
                if part and not queue.put(payload):
                    self._unput[lane] = (queue, payload)
            elif tuples_in(part) > 1:
                waiting.extendleft(reversed(portions(part, tuples_in(part) // 2, queue.new_id)))
            else:  # one tuple is too large for the queue
                lane.bundles[:0] = part
                self._flush_to_task(lane)
        lane.bundles.extend(bundle for part in waiting for bundle in part)

    def _put_again(self) -> None:
        """Put what there was no room for. A queue whose group is over takes it, and drops it with all its content."""
        for lane, (queue, payload) in tuple(self._unput.items()):
            if queue.put(payload):
                del self._unput[lane]

    def _encoded(self, lane: Lane, bundles: list[Bundle]) -> tuple[bytes, list[Bundle]]:
        """The payload of a frame, and the bundles in it: without tuples that cannot be pickled, perhaps none."""
        try:
            payload = encode(bundles)
        except Exception as error:
            bundles = self._unsendable.without(lane, bundles, error)
            if not bundles:
                return b"", bundles
            payload = encode(bundles)
        self._bundle_bytes = (self._bundle_bytes + len(payload) // len(bundles)) // 2 + 1
        return payload, bundles

    def _send_bundles(self, link: OutLink | None, lane: Lane, bundles: list[Bundle]) -> None:
        """Send over this link; without one, put into the output queue."""
        payload, bundles = self._encoded(lane, bundles)
        if not bundles:
            return
        if isinstance(lane, FeedbackLane):
            self._count_feedback(bundles)
        try:
            if link is not None:
                link.send(BUNDLES, payload)
            else:
                assert self._output is not None
                self._output.put(lane.target, payload, tuples_in(bundles))
        except ProtocolError as error:
            some = self._unsendable.halve(lane, bundles, error)
            if some:
                self._send_bundles(link, lane, some)

    # -- acks

    def _flush_acks(self, owner: int, fold: AckFold) -> None:
        mailbox = self._services.mailbox_of(owner)
        if mailbox is None:
            link = self._links.link("acks", owner)
            if link.ready:
                link.send(ACKS, encode_folds(fold.take(), system_clock()))
        elif mailbox.runner is self._loop:
            mailbox.apply(fold.take(), system_clock())
        else:
            mailbox.receive_acks(fold.take(), system_clock())

    # -- feedback

    def flush_feedback(self) -> None:
        """Send feedback messages. Those for a worker that is gone are dropped: they are of no use to its successor."""
        assert self._task.feedback_receiver is not None
        waiting = self._task.feedback_receiver.outbox
        for target in tuple(waiting):
            mailbox = self._services.mailbox_of(target)
            if mailbox is not None:
                mailbox.receive_feedback(waiting.pop(target), system_clock())
                continue
            link = self._links.link(self._feedback_kind(target), target)
            if link.ready:
                began_ns = system_clock()
                messages = waiting.pop(target)
                payload = encode_feedback(messages, began_ns)
                self._task.wirings[0].counters.feedback_bytes += len(payload)
                self._task.spent_on_feedback(began_ns)
                link.send(FEEDBACK, payload, any_urgent(messages))
            elif link.member is None:
                del waiting[target]

    def _feedback_kind(self, target: int) -> str:
        """The link for feedback. A task that gets acks too gets both on one link: one wake-up instead of two."""
        return "acks" if target in self._task.acks else "feedback"

    def _count_feedback(self, items: Sequence[Any]) -> None:
        messages = []
        for item in items:
            if is_feedback(item):
                messages.append(item[MESSAGE])
            elif item[ATTACHED] is not None:
                messages += [message for message in item[ATTACHED] if message is not None]
        if messages:
            self._unmeasured -= 1
            if self._unmeasured < 0:
                self._unmeasured = MEASURE_EVERY
                self._message_bytes = len(encode(messages)) // len(messages)
            self._task.counters[0].feedback_bytes += self._message_bytes * len(messages)

    # -- cancels

    def _flush_cancels(self) -> None:
        """Tell all workers. One that cannot be told now runs some tuples in vain, which does no harm."""
        cancels = self._task.cancels
        self._services.cancel(cancels)
        for target in self._services.others():
            self._uncancelled.setdefault(target, []).extend(cancels)
        cancels.clear()
        for target in tuple(self._uncancelled):
            link = self._links.link("cancels", target)
            if link.ready:
                link.send(CANCELS, encode_numbers(self._uncancelled.pop(target)))
            elif link.member is None:
                del self._uncancelled[target]

    # -- links

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: close links with them, and connect before the first tuple needs it."""
        self._links.close(workers)
        targets: list[tuple[str, int]] = []
        if self._output is None:
            targets += [("bundles", lane.target) for lane in self._task.lanes]
        if not self._task.owns_roots or self._task.sinks:
            targets += [("acks", owner) for owner in self._task.acks]
        if self._task.feedback_receiver is not None:
            targets += [(self._feedback_kind(sender), sender) for sender in self._task.feedback_receiver.senders]
        for kind, target in targets:
            if self._services.mailbox_of(target) is None:
                self._links.link(kind, target)

    # -- through the worker's send loop

    def send_through(self, output: OutputQueue | None) -> None:
        """Have the send loop send bundles for other workers from now on, or the task itself if None."""
        self._wanted_output = output
        if self._wanted_output is not self._output:
            self._change_output()

    def _change_output(self) -> None:
        """Change over, as soon as no bundle can be overtaken."""
        if self._output is None:
            assert self._wanted_output is not None
            self._output = self._wanted_output
            self._links.give("bundles", self._output.links)
        elif not self._returning and self._output.is_empty():
            self._returning = True
            theirs, ours = self._output.links, self._links
            theirs.post(lambda: theirs.give("bundles", ours))
            theirs.post(lambda: self._post(self._returned))

    def _returned(self) -> None:
        self._output, self._returning = None, False
        if self._wanted_output is not None:
            self._change_output()

    def _fill(self, output: OutputQueue, lane: Lane) -> None:
        """Put a lane's bundles into the output queue, as long as there is room and the send loop keeps the links."""
        queue = output.queue
        while lane.bundles and queue.room and output is self._wanted_output and not self._returning:
            some = _first(lane.bundles, max(1, PARCEL_BYTES // self._bundle_bytes), queue.room)
            bundles = lane.take_first(some)
            self._send_bundles(None, lane, bundles)

    @property
    def backlog(self) -> tuple[int, int]:
        """Tuples in the output queue, now and at most since the task began."""
        return (0, 0) if self._output is None else (self._output.queue.backlog, self._output.queue.largest)


def _first(bundles: Sequence[Bundle], most: int, tuples: int) -> int:
    """How many bundles to take: ``most`` at most, and no more once they hold ``tuples`` tuples."""
    for taken, bundle in enumerate(bundles[:most]):
        if tuples <= 0:
            return taken
        tuples -= tuples_in([bundle])
    return min(most, len(bundles))


def _weigh(bundle: Bundle) -> int:
    """About how many bytes a bundle holds, looking no deeper than its values. Feedback is small."""
    return 0 if is_feedback(bundle) else sum(map(sys.getsizeof, bundle[VALUES]))
