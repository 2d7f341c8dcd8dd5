"""A node's queue: a ring in shared memory that the workers of a machine put tuples into, and their tasks draw from.

A record is a portion: as many tuples as a task runs at once, encoded once, after the time when it was put. Whoever
draws says how many that is, in a spare word of the ring.

Tasks that find nothing sleep, and all of them listen to one bell, a pipe, which wakes one of them. Those who sleep are
counted in the ring: while there are any, whoever puts something in rings the bell, and so does whoever draws and
leaves something behind. A process that is woken and dies leaves the others asleep until they look by themselves.
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

if TYPE_CHECKING:
    from tailrace.ring._ring import Shared
    from tailrace.runtime.execution.runner import Runner
    from tailrace.runtime.shared_queues.pool import Pool

Decode = Callable[[memoryview], Sequence[Any]]

LOOK_AGAIN_NS = 100 * MILLISECOND_NS
"""After so long a queue in which nothing was ready is worth another look, though no bell has rung."""

TRIES = 3
BUSY_S = 0.00005
"""How long to leave the ring alone when others are at it each time. A turn takes microseconds."""

MOST = 4096
"""Tuples in a record. What comes close to it has outgrown the ring before."""

_CAME = struct.Struct("<Q")
_PORTION = struct.Struct("<I")


class NodeQueue:
    """One process's end. Any thread may put and take.

    Law: what was put is taken once, or is lost together with the node group that the queue belongs to.
    """

    def __init__(self, part: RingPart, group: NodeGroup, batch: int = 0) -> None:
        from tailrace.ring.shared import SharedRing

        self.group = group
        self.part = part
        self.pool: Pool | None = None  # of this worker's tasks that draw from it
        self.new_id = Random(os.urandom(16)).getrandbits
        self.largest = part.piece
        self.portion = batch or 1  # tuples in a record, as those who draw have it
        self._ring: SharedRing | None = SharedRing(part.segment)
        self._core: Shared | None = self._ring.core  # None if the queue has ended
        self._lock = threading.Lock()  # an end is for one thread at a time, but for a look
        self._looked_ns = 0  # when there was nothing
        self._batch = batch  # tuples that tasks take at once, whatever they say; 0: as they say
        self.decode: Decode | None = None

    # -- putting

    def put(self, payload: bytes) -> bool:
        """False if there is no room. What is put into a queue that has ended is lost, as all that was in it."""
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
        """Whether it is worth asking: something was put in since there was nothing, or the bell has rung."""
        core = self._core
        if core is None:
            return False
        if core.worth_drawing():
            return True
        if system_clock() - self._looked_ns < LOOK_AGAIN_NS:
            return False
        self._looked_ns = system_clock()
        core.heard()  # what was being written then may be there now, and nobody slept who was to be told
        return core.worth_drawing()

    def take(self, most: int) -> tuple[int, Sequence[Any]]:
        """When the next record was put, and the bundles in it; none if there is none, or others are at it."""
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
                self._ring_bell()  # there is more, for another
            if most != self.portion and not self._batch:
                self.portion = min(most, MOST)
                _PORTION.pack_into(self.part.segment.memory, layout.SPARE, self.portion)
        return record, result

    def _broken(self, how: str) -> RingError:
        path = self.part.segment.path
        return RingError(f"a node's queue is broken: {how} path={path}; did something else write there?")

    # -- the bell

    def pass_on(self) -> None:
        """Wake one who sleeps, in the place of one who was woken and does not draw."""
        with self._lock:
            if self._core is not None and self._core.resting():
                self._ring_bell()

    def _ring_bell(self) -> None:
        try:
            os.write(self.part.bell, RING_A_BELL)
        except BlockingIOError:
            pass  # it has been rung often enough

    def bell(self) -> int | None:
        """A number of the bell's file for who would listen, to be closed by them. None if the queue has ended."""
        with self._lock:
            return None if self._ring is None else os.dup(self.part.bell)

    def heard(self) -> None:
        """The bell has rung, or may have."""
        with self._lock:
            if self._core is not None:
                self._core.heard()

    def rest(self) -> bool:
        """A thread is about to sleep until the bell rings. False, and it is not counted: there is something to draw."""
        with self._lock:
            core = self._core
            try:
                if core is None or core.rest():
                    return True
            except ValueError as error:
                raise self._broken(str(error)) from None
        if not core.worth_drawing():  # others are at it, and it cannot be told
            time.sleep(BUSY_S)
        return False

    def rise(self) -> None:
        """It is awake again."""
        with self._lock:
            if self._core is not None:
                self._core.rise()

    # -- looking in, and the end

    @property
    def queued(self) -> int:
        """Records in it, as far as their mean size tells."""
        with self._lock:
            if self._ring is None:
                return 0
            found = self._ring.statistics()
        if not found.held:
            return 0
        mean = found.bytes / max(1, found.records) + layout.RECORD_BYTES + layout.UNIT / 2
        return max(1, round(found.held / mean))

    def close(self) -> None:
        """The node group is over. What others still do with the queue is up to them."""
        with self._lock:
            ring, self._ring, self._core = self._ring, None, None
            if ring is not None:
                os.close(self.part.bell)
                ring.detach()


class Ear:
    """A runner that listens to the bell of a queue, for who would draw. Used by the runner's thread."""

    def __init__(self, queue: NodeQueue, runner: Runner, bell: int, then: Callable[[], None] = lambda: None) -> None:
        self.queue = queue
        self._runner = runner
        self._bell = bell  # its own, as a runner knows files by their number
        self._then = then  # what follows if it rings; a host that is awake draws by itself
        self._open = False
        self._resting = False
        runner.sleepers.append(self)
        self.listen(True)

    def listen(self, wanted: bool) -> None:
        """A host that could not run what it drew does not listen, so that another is woken."""
        if wanted != self._open:
            self._open = wanted
            if wanted:
                self._runner.watch(self._bell, self._on_bell, reading=True, writing=False, alone=True)
            else:
                self._runner.unwatch(self._bell)

    def rest(self) -> bool:
        """The runner is about to sleep. False if there is something to draw."""
        if self._open:
            self._resting = self.queue.rest()
            if not self._resting:
                self._then()
        return self._resting or not self._open

    def rise(self) -> None:
        if self._resting:
            self._resting = False
            self.queue.rise()

    def _on_bell(self, readable: bool, writable: bool) -> None:
        try:
            os.read(self._bell, 1 << 16)
        except BlockingIOError:
            pass  # another was faster
        self.queue.heard()
        self._then()

    def close(self) -> None:
        self.listen(False)
        self.rise()
        self._runner.sleepers.remove(self)
        os.close(self._bell)
