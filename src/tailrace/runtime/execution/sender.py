"""Sending: what a task has left in its lanes and ack folds goes to the tasks beside it, or over links to others.

Where a send scheduler is on, what is in lanes for other workers goes into the task's outgoing queue instead, encoded,
and the worker's send loop has the links.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Protocol, cast

from tailrace.clock import system_clock
from tailrace.core.protocol.acks import AckFold
from tailrace.core.protocol.messages import Member
from tailrace.core.queues.shared import divided, portions
from tailrace.core.routing.router import NOTE, Bundle, FeedbackLane, Lane, Origin, urgent
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.source import SourceTask
from tailrace.errors import ProtocolError
from tailrace.policy.groupings.feedback import Message
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.frames import (
    ACKS,
    BUNDLES,
    CANCELS,
    NOTES,
    encode,
    encode_folds,
    encode_notes,
    encode_numbers,
)
from tailrace.runtime.links.link import OutLink
from tailrace.runtime.links.out_links import OutLinks
from tailrace.runtime.shared_queues.node_queue import NodeQueue
from tailrace.runtime.shared_queues.pool import tuples_in

if TYPE_CHECKING:
    from tailrace.runtime.execution.runner import Runner
    from tailrace.runtime.execution.task_host import TaskHost
    from tailrace.runtime.send_order.send_loop import Outgoing

LANE_BUNDLES = 256
"""Bundles that may wait to leave a task on one lane. Beyond, the task is held back."""

LANE_BYTES = 1 << 20
"""The same in bytes, as far as the size of a bundle can be told from those before it."""

FIRST_GUESS = 64 << 10
"""Bytes in a bundle, while none has been seen: few large tuples are worse than a slow first millisecond."""

PARCEL_BYTES = 4 << 10
"""About what a parcel may hold, unless one bundle is more: while it leaves nobody else sends."""

WEIGH_EVERY = 64
"""Of so many frames with feedback in them one has it weighed; to tell it from the tuples costs a second encoding."""


class Neighbours(Protocol):
    """What a sender needs to know of its worker."""

    def host_of(self, task: int) -> TaskHost | None:
        """The host of a task's unit, if it lives in this worker."""
        ...

    def home_of(self, task: int) -> int: ...

    def queue_for(self, task: int) -> NodeQueue | None:
        """The queue that a task of this node draws from together with those of other workers."""
        ...

    def member(self, worker: int) -> Member | None: ...

    def connect(self, link: OutLink, member: Member, done: Callable[[Channel | None], None]) -> None:
        """Make a channel in the background."""
        ...

    def lost_link(self, worker: int, epoch: int) -> None:
        """A link with this epoch of a worker has broken."""
        ...

    def others(self) -> Sequence[int]:
        """A task of every other worker."""
        ...

    def cancel(self, emissions: Sequence[int]) -> None:
        """Have nothing more of these emissions run in this worker."""
        ...

    def renew(self) -> None:
        """Have the halves of load-aware groupings begin anew: one of them has been told of what will not happen."""
        ...


class Sender:
    """Sends for one unit. Used by the thread that runs it."""

    def __init__(self, task: Task, neighbours: Neighbours, post: Callable[[Callable[[], None]], None]) -> None:
        self._task = task
        self._near = neighbours
        self._post = post  # to the thread that runs the unit
        self._links = OutLinks(neighbours, post)
        self._through: Outgoing | None = None  # who sends bundles for other workers, if not this
        self._wanted: Outgoing | None = None  # who shall
        self._returning = False  # links are on their way back
        self._runner: Runner | None = None
        self._new_id = SystemRandom().getrandbits  # for the parts of a bundle, which is rarely divided
        self._bundle_bytes = FIRST_GUESS
        self._message_bytes = 0  # of what is attached to tuples or stands between them, on average
        self._weighed = 0  # frames since it was last looked at
        self._unput: dict[Lane, tuple[NodeQueue, bytes]] = {}  # what a node's queue had no room for
        self._untold: dict[int, list[int]] = {}  # cancelled emissions, by a task of the worker that is to hear of them

    @property
    def limit(self) -> int:
        """How many bundles may wait on one lane."""
        return max(1, min(LANE_BUNDLES, LANE_BYTES // self._bundle_bytes))

    def moved_to(self, runner: Runner | None) -> None:
        self._links.moved_to(runner)
        self._runner = runner

    def flush(self) -> bool:
        """Send what can be sent. True if so much is left that the task must wait."""
        held_back = False
        if self._wanted is not self._through:
            self._reroute()
        if self._unput:
            self._put_again()
        for lane in self._task.lanes:
            if lane.bundles:
                self._flush_lane(lane)
                held_back = held_back or len(lane.bundles) >= self.limit
        if self._through is not None:
            held_back = held_back or self._through.holds_back()
        for owner, fold in self._task.acks.items():
            if fold:
                self._flush_acks(owner, fold)
        if self._task.receiving is not None and self._task.receiving.notes:
            self.flush_notes()
        if self._task.cancels or self._untold:
            self._flush_cancels()
        return held_back or (bool(self._task.lines) and self._task.line_full)

    @property
    def waits_for_connection(self) -> bool:
        """Whether something cannot leave for want of a connection, or of room in the queue of this node.

        What waits for a socket is woken by it.
        """
        if self._unput:
            return True
        return any(not link.open for link in self._links) and (
            any(lane.bundles for lane in self._task.lanes)
            or any(self._task.acks.values())
            or (self._task.receiving is not None and bool(self._task.receiving.notes))
        )

    # -- bundles

    def _flush_lane(self, lane: Lane) -> None:
        queue = self._near.queue_for(lane.target)
        if queue is not None:
            self._flush_to_node(queue, lane)
            return
        self._flush_to_task(lane)

    def _flush_to_task(self, lane: Lane) -> None:
        near = self._near.host_of(lane.target)
        if near is not None:
            self._hand_over(near, lane)
            return
        if self._through is not None:
            self._fill(self._through, lane)
            return
        link = self._links.link("bundles", lane.target)
        if link.member is None and isinstance(lane, FeedbackLane):
            lane.drop_notes()
        while link.ready and lane.bundles:
            limit = self.limit
            bundles = lane.take() if len(lane.bundles) <= limit else lane.take_first(limit)
            self._send_bundles(link, lane, bundles)

    def _hand_over(self, near: TaskHost, lane: Lane) -> None:
        while lane.bundles:
            rounds = near.rounds
            room = rounds.room(lane)
            if not room:
                assert self._runner is not None
                near.waiting.add(self._runner)
                room = rounds.room(lane)
                if not room:  # still: it will wake us. If not, it may have looked before we were on its list.
                    return
            self._bundle_bytes = near.bundle_bytes = (self._bundle_bytes + _weigh(lane.bundles[-1])) // 2 + 1
            bundles = lane.take() if room >= len(lane.bundles) else lane.take_first(room)
            if rounds.behind:
                rounds.put(lane, len(bundles))
            near.task.receive(bundles)
            pool = near.pool  # which it may leave at any time
            if pool is not None:
                pool.wake(near, tuples_in(bundles))
            elif near.runner is not self._runner:
                near.wake()

    def _flush_to_node(self, queue: NodeQueue, lane: Lane) -> None:
        """Whichever task was chosen: those of the node that are free run it."""
        if lane in self._unput:
            return
        bundles = lane.take()
        if queue.pool is not None:
            bundles = queue.pool.hand(bundles, self._runner)
        waiting = deque(portions(bundles, queue.portion, queue.new_id))
        while waiting and lane not in self._unput and not lane.bundles:
            payload, part = self._encoded(lane, waiting.popleft())
            if len(payload) <= queue.largest:
                if part and not queue.put(payload):
                    self._unput[lane] = (queue, payload)
            elif tuples_in(part) > 1:
                waiting.extendleft(reversed(portions(part, tuples_in(part) // 2, queue.new_id)))
            else:  # a queue is not made for it
                lane.bundles[:0] = part
                self._flush_to_task(lane)
        lane.bundles.extend(bundle for part in waiting for bundle in part)

    def _put_again(self) -> None:
        """What there was no room for. A queue that is gone, with all that was in it, takes it too."""
        for lane, (queue, payload) in tuple(self._unput.items()):
            if queue.put(payload):
                del self._unput[lane]

    def _encoded(self, lane: Lane, bundles: list[Bundle]) -> tuple[bytes, list[Bundle]]:
        """The payload of a frame, and what is in it: less than there was if some cannot be pickled, or nothing."""
        try:
            payload = encode(bundles)
        except Exception as error:
            bundles = self._sendable(lane, bundles, error)
            if not bundles:
                return b"", bundles
            payload = encode(bundles)
        self._bundle_bytes = (self._bundle_bytes + len(payload) // len(bundles)) // 2 + 1
        return payload, bundles

    def _send_bundles(self, link: OutLink | None, lane: Lane, bundles: list[Bundle]) -> None:
        """Over this link, or into the outgoing queue."""
        payload, bundles = self._encoded(lane, bundles)
        if not bundles:
            return
        if isinstance(lane, FeedbackLane):
            self._count_feedback(bundles)
        try:
            if link is not None:
                link.send(BUNDLES, payload)
            else:
                assert self._through is not None
                self._through.put(lane.target, payload, tuples_in(bundles))
        except ProtocolError as error:
            self._send_in_halves(link, lane, bundles, error)

    def _sendable(self, lane: Lane, bundles: list[Bundle], error: Exception) -> list[Bundle]:
        """What is left without the tuples that cannot be pickled; the operator's ``on_error`` decides about those."""
        kept: list[Bundle] = []
        whole = 0
        for bundle in bundles:
            if len(bundle) == NOTE:
                kept.append(bundle)
                whole += 1
                continue
            emission, split, offset, ack, lineages, values, *tracks = cast("tuple[Any, ...]", bundle)
            causes = [_why_not(value) for value in values]
            if not any(causes):
                kept.append(bundle)
                whole += 1
                continue
            for position, cause in enumerate(causes):
                if cause is not None:
                    self._report_unsendable(lane, bundle, position, cause)
            good = [position for position, cause in enumerate(causes) if cause is None]
            if good:
                named = None if lineages is None else [lineages[position] for position in good]
                some = (emission, split, offset, ack, named, [values[position] for position in good])
                kept.append(some if not tracks else _tracked(some, good, *tracks))
            else:
                self._task.acknowledge(emission, split, ack)
        if isinstance(lane, FeedbackLane):
            self._near.renew()
        if whole == len(bundles):  # each can be sent, but not together: nothing that we could explain
            raise error
        return kept

    def _send_in_halves(self, link: OutLink | None, lane: Lane, bundles: list[Bundle], error: ProtocolError) -> None:
        """They are too large for a frame together. One tuple that is by itself is up to ``on_error``."""
        if len(bundles) == 1 and len(bundles[0][5]) > 1:
            bundles = list(divided(bundles[0], len(bundles[0][5]) // 2, self._new_id(64)))
        if len(bundles) > 1:
            half = len(bundles) // 2
            lane.bundles = bundles[half:] + lane.bundles
            self._send_bundles(link, lane, bundles[:half])
            return
        emission, split, _, ack, _, _ = bundles[0][:6]
        self._report_unsendable(lane, bundles[0], 0, error)
        self._task.acknowledge(emission, split, ack)
        if isinstance(lane, FeedbackLane):
            self._near.renew()

    def _report_unsendable(self, lane: Lane, bundle: Bundle, position: int, error: Exception) -> None:
        """Once for a tuple: of those that an edge broadcasts, the first lane that leaves the worker reports."""
        if self._task.plan.edges[lane.edge].grouping.name == "broadcast":
            away = (one for one in self._task.lanes if one.edge == lane.edge and self._near.host_of(one.target) is None)
            if next(away, lane) is not lane:
                return
        self._task.unsendable(lane.edge, bundle, position, error)

    # -- acks

    def _flush_acks(self, owner: int, fold: AckFold) -> None:
        near = self._near.host_of(owner)
        if near is None:
            link = self._links.link("acks", owner)
            if link.ready:
                link.send(ACKS, encode_folds(fold.take(), system_clock()))
        elif near.runner is self._runner:
            near.apply(fold.take(), system_clock())
        else:
            near.take_acks(fold.take(), system_clock())

    # -- feedback

    def flush_notes(self) -> None:
        """Feedback to senders. What cannot leave yet stays; what nobody is there for is of no use later either."""
        assert self._task.receiving is not None
        waiting = self._task.receiving.notes
        for target in tuple(waiting):
            near = self._near.host_of(target)
            if near is not None:
                near.take_notes(waiting.pop(target), system_clock())
                continue
            link = self._links.link(self._kind_of_notes(target), target)
            if link.ready:
                began_ns = system_clock()
                notes = waiting.pop(target)
                payload = encode_notes(notes, began_ns)
                self._task.wirings[0].counters.feedback_bytes += len(payload)
                self._task.spent_on_feedback(began_ns)
                link.send(NOTES, payload, urgent(notes))
            elif link.member is None:
                del waiting[target]

    def _kind_of_notes(self, target: int) -> str:
        """Beside the acks where both go to one task: there is one wake-up then instead of two."""
        return "acks" if target in self._task.acks else "feedback"

    def _count_feedback(self, items: Sequence[Any]) -> None:
        messages = [item[3] for item in items if len(item) == NOTE]
        for item in items:
            if len(item) > NOTE and item[7] is not None:
                messages += [message for message in item[7] if message is not None]
        if messages:
            self._weighed -= 1
            if self._weighed < 0:
                self._weighed = WEIGH_EVERY
                self._message_bytes = len(encode(messages)) // len(messages)
            self._task.counters[0].feedback_bytes += self._message_bytes * len(messages)

    # -- cancels

    def _flush_cancels(self) -> None:
        """Tell all workers. One that cannot hear it now and is there runs some tuples in vain; no harm is done."""
        cancels = self._task.cancels
        self._near.cancel(cancels)
        for target in self._near.others():
            self._untold.setdefault(target, []).extend(cancels)
        cancels.clear()
        for target in tuple(self._untold):
            link = self._links.link("cancels", target)
            if link.ready:
                link.send(CANCELS, encode_numbers(self._untold.pop(target)))
            elif link.member is None:
                del self._untold[target]

    # -- links

    def relink(self, workers: frozenset[int]) -> None:
        """These workers have been replaced: drop links with them, and connect before the first tuple needs it."""
        self._links.close(workers)
        targets: list[tuple[str, int]] = []
        if self._through is None:
            targets += [("bundles", lane.target) for lane in self._task.lanes]
        if not isinstance(self._task, SourceTask) or self._task.sinks:
            targets += [("acks", owner) for owner in self._task.acks]
        if self._task.receiving is not None:
            targets += [(self._kind_of_notes(sender), sender) for sender in self._task.receiving.senders]
        for kind, target in targets:
            if self._near.host_of(target) is None:
                self._links.link(kind, target)

    # -- through the worker's send loop

    def route(self, outgoing: Outgoing | None) -> None:
        """Have bundles for other workers sent by the loop from now on, or by the task itself."""
        self._wanted = outgoing
        if self._wanted is not self._through:
            self._reroute()

    def _reroute(self) -> None:
        """Change over, as soon as nothing can be overtaken."""
        if self._through is None:
            assert self._wanted is not None
            self._through = self._wanted
            self._links.give("bundles", self._through.links)
        elif not self._returning and self._through.is_empty():
            self._returning = True
            theirs, ours = self._through.links, self._links
            theirs.post(lambda: theirs.give("bundles", ours))
            theirs.post(lambda: self._post(self._returned))

    def _returned(self) -> None:
        self._through, self._returning = None, False
        if self._wanted is not None:
            self._reroute()

    def _fill(self, through: Outgoing, lane: Lane) -> None:
        """Put what is in a lane into the outgoing queue, as far as there is room and the links are to stay there."""
        queue = through.queue
        while lane.bundles and queue.room and through is self._wanted and not self._returning:
            some = _first(lane.bundles, max(1, PARCEL_BYTES // self._bundle_bytes), queue.room)
            bundles = lane.take_first(some)
            self._send_bundles(None, lane, bundles)

    @property
    def backlog(self) -> tuple[int, int]:
        """Tuples in the outgoing queue, now and at most since the task began."""
        return (0, 0) if self._through is None else (self._through.queue.backlog, self._through.queue.largest)


def _first(bundles: Sequence[Bundle], most: int, tuples: int) -> int:
    """How many bundles to take: so many at most, and no more once there are so many tuples in them."""
    for taken, bundle in enumerate(bundles[:most]):
        if tuples <= 0:
            return taken
        tuples -= tuples_in([bundle])
    return min(most, len(bundles))


def _weigh(bundle: Bundle) -> int:
    """About how many bytes a bundle holds, looking no deeper than its values. A note is small."""
    return sum(map(sys.getsizeof, bundle[5])) if len(bundle) > NOTE else 0


def _tracked(bundle: Bundle, good: list[int], origin: Origin, said: Sequence[Message | None] | None) -> Any:
    """A bundle on a load-aware edge of which only some tuples can be sent."""
    return (*bundle, origin, None if said is None else [said[position] for position in good])


def _why_not(value: object) -> Exception | None:
    """Why a value cannot be sent; None if it can."""
    try:
        encode(value)
    except Exception as error:
        return error
    return None
