"""A node's queue: a ring in shared memory that the workers of a machine put tuples into, and their tasks draw from.

A record holds the time when it was put, and a portion: as many tuples as a task runs at once, encoded together. The
consumers publish the size of a portion in a spare word of the ring.

Consumers that find nothing sleep. All of them listen to one bell, a pipe, which wakes one of them. The ring counts the
sleepers: while there are any, every put rings the bell, and so does every draw that leaves records behind. If a process
dies that was woken, the others sleep on until their next look, 100 ms later at most.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from tailrace.clock import MILLISECOND_NS, system_clock
from tailrace.core.plan.node_groups import NodeGroup
from tailrace.errors import RingError
from tailrace.ring import layout
from tailrace.runtime.links.channels import RING_A_BELL, RingPart
from tailrace.runtime.links.event_loop import EventLoop

if TYPE_CHECKING:
    from tailrace.ring._ring import Shared

Decode = Callable[[memoryview], Sequence[Any]]

HandOver = Callable[[list[Any], EventLoop | None], list[Any]]
"""Gives bundles to tasks that could begin at once. Returns the rest."""

LOOK_AGAIN_NS = 100 * MILLISECOND_NS
"""After so long an empty queue is looked at again, even if no bell has rung."""

TRIES = 3
BUSY_S = 0.00005
"""How long to leave the ring alone after several tries found others using it. They use it for microseconds."""

MOST = 4096
"""Tuples in a record. In practice the size of the ring is the tighter limit."""

_CAME = struct.Struct("<Q")
_PORTION = struct.Struct("<I")


class NodeQueue:
    """One process's end of the queue. Any thread may put and take.

    Law: every record is taken once, or is lost together with the node group that the queue belongs to.
    """

    def __init__(self, part: RingPart, group: NodeGroup, batch: int = 0) -> None:
        from tailrace.ring.shared import SharedRing

        self.group = group
        self.part = part
        self.hand_over: HandOver = _hand_over_none  # gives bundles to tasks of this worker that could begin at once
        self.new_id = Random(os.urandom(16)).getrandbits
        self.largest = part.piece
        self.portion = batch or 1  # tuples in a record, as published by the consumers
        self._ring: SharedRing | None = SharedRing(part.segment)
        self._core: Shared | None = self._ring.core  # None once the queue has ended
        self._lock = threading.Lock()  # an end of the ring is for one thread at a time, except ``worth_drawing``
        self._looked_ns = 0  # when it was last found empty
        self._batch = batch  # tuples that tasks take at once, if that is fixed; 0: as published
        self.decode: Decode | None = None

    # -- putting

    def put(self, payload: bytes) -> bool:
        """False if there is no room. A queue that has ended accepts everything and drops it, as all it had."""
        with self._lock:
            if self._core is None:
                return True
            result = self._core.write(0, _CAME.pack(system_clock()) + payload)
            if result == layout.BELL:
                self._ring_bell()
            if not self._batch:
                said = int(_PORTION.unpack_from(self.part.segment.memory, layout.SPARE)[0])
                self.portion = min(max(1, said), MOST)
        if result < 0:
            raise self._broken(f"code={result}")
        return result != layout.NONE

    # -- taking

    def __bool__(self) -> bool:
        """Whether it is worth drawing: a record has been put since it was empty, or the bell has rung."""
        core = self._core
        if core is None:
            return False
        if core.worth_drawing():
            return True
        if system_clock() - self._looked_ns < LOOK_AGAIN_NS:
            return False
        self._looked_ns = system_clock()
        core.heard()  # a record that was being written then may be complete now, without a signal
        return core.worth_drawing()

    def take(self, most: int) -> tuple[int, Sequence[Any]]:
        """When the next record was put, and its bundles; no bundles if there is no record, or others use the ring."""
        for _ in range(TRIES):
            record, result = self._draw(most)
            if record is not None:
                assert self.decode is not None
                return _CAME.unpack_from(record)[0], self.decode(memoryview(record)[_CAME.size :])
            if result == layout.NONE:
                self._looked_ns = system_clock()
                return 0, ()
            time.sleep(BUSY_S)
        return 0, ()

    def _draw(self, most: int) -> tuple[bytes | None, int]:
        with self._lock:
            if self._core is None:
                return None, layout.NONE
            try:
                record, result = self._core.draw()
            except ValueError as error:
                raise self._broken(str(error)) from None
            if result == layout.BELL:
                self._ring_bell()  # there are more records, for another consumer
            if most != self.portion and not self._batch:
                self.portion = min(most, MOST)
                _PORTION.pack_into(self.part.segment.memory, layout.SPARE, self.portion)
        return record, result

    def _broken(self, how: str) -> RingError:
        path = self.part.segment.path
        return RingError(f"a node's queue is broken: {how} path={path}; did something else write there?")

    # -- the bell

    def pass_on(self) -> None:
        """Wake a consumer that sleeps, in place of one that was woken and does not draw."""
        with self._lock:
            if self._core is not None and self._core.sleepers():
                self._ring_bell()

    def _ring_bell(self) -> None:
        try:
            os.write(self.part.bell, RING_A_BELL)
        except BlockingIOError:
            pass  # the pipe is full: it has been rung often enough

    def bell(self) -> int | None:
        """A file number of the bell, which the caller must close. None if the queue has ended."""
        with self._lock:
            return None if self._ring is None else os.dup(self.part.bell)

    def bell_rang(self) -> None:
        """The bell has rung, or may have."""
        with self._lock:
            if self._core is not None:
                self._core.heard()

    def prepare_sleep(self) -> bool:
        """Count a consumer that is about to sleep until the bell rings. False if it must not: there is a record."""
        with self._lock:
            core = self._core
            try:
                if core is None or core.prepare_sleep():
                    return True
            except ValueError as error:
                raise self._broken(str(error)) from None
        if not core.worth_drawing():  # others use the ring, so it is unknown whether there is one
            time.sleep(BUSY_S)
        return False

    def awake(self) -> None:
        """A consumer that was counted is awake again."""
        with self._lock:
            if self._core is not None:
                self._core.awake()

    # -- looking in, and the end

    @property
    def queued(self) -> int:
        """Records in it, estimated from their mean size."""
        with self._lock:
            if self._ring is None:
                return 0
            found = self._ring.statistics()
        if not found.held:
            return 0
        mean = found.bytes / max(1, found.records) + layout.RECORD_BYTES + layout.UNIT / 2
        return max(1, round(found.held / mean))

    def close(self) -> None:
        """End this process's use of the queue. Others may go on with theirs."""
        with self._lock:
            ring, self._ring, self._core = self._ring, None, None
            if ring is not None:
                os.close(self.part.bell)
                ring.detach()


class BellListener:
    """Has an event loop listen to the bell of a queue, for a consumer. Used by the loop's thread.

    ``on_bell`` is called when it rings. A task needs none: once awake, it draws by itself.
    """

    def __init__(
        self, queue: NodeQueue, loop: EventLoop, bell: int, on_bell: Callable[[], None] = lambda: None
    ) -> None:
        self.queue = queue
        self._loop = loop
        self._bell = bell  # a number of its own, as a loop knows files by their number
        self._on_bell = on_bell
        self._listening = False
        self._counted = False  # the ring counts it as a sleeper
        loop.sleep_hooks.append(self)
        self.listen(True)

    def listen(self, wanted: bool) -> None:
        """A task that could not run what it drew must not listen, so that the bell wakes another."""
        if wanted != self._listening:
            self._listening = wanted
            if wanted:
                self._loop.watch(self._bell, self._on_readable, reading=True, writing=False, alone=True)
            else:
                self._loop.unwatch(self._bell)

    def prepare_sleep(self) -> bool:
        if self._listening:
            self._counted = self.queue.prepare_sleep()
            if not self._counted:
                self._on_bell()
        return self._counted or not self._listening

    def awake(self) -> None:
        if self._counted:
            self._counted = False
            self.queue.awake()

    def _on_readable(self, readable: bool, writable: bool) -> None:
        try:
            os.read(self._bell, 1 << 16)
        except BlockingIOError:
            pass  # another listener was faster
        self.queue.bell_rang()
        self._on_bell()

    def close(self) -> None:
        self.listen(False)
        self.awake()
        self._loop.sleep_hooks.remove(self)
        os.close(self._bell)


def _hand_over_none(bundles: list[Any], loop: EventLoop | None) -> list[Any]:
    """No task of this worker draws from the queue."""
    return bundles
