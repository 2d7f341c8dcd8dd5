"""A link carries frames from one task to another in another worker, through a channel of its own.

Bundles, acks and feedback travel on links of their own, so that an ack never waits behind bulk data, and a link to a
task that is behind holds back nobody else. An outgoing link takes bundles only when its channel has taken everything
before: what piles up meanwhile goes out as one frame. So a receiver that keeps up gets every tuple at once, and one
that does not gets larger and larger bundles, without a timer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.core.protocol.link_peer import LinkPeer
from tailrace.core.protocol.membership import ACCEPT, LinkSequence
from tailrace.errors import ProtocolError
from tailrace.ring import layout
from tailrace.runtime.links.channels import KIND_MASK, MORE, RING_A_BELL, Channel, Outgoing, RingPart, outgoing
from tailrace.runtime.links.frames import MAX_FRAME, FrameReader

if TYPE_CHECKING:
    from tailrace.runtime.execution.runner import Runner
    from tailrace.runtime.links.out_links import OutLinks

RECEIVE_BYTES = 256 << 10
FRAMES_AT_ONCE = 64
"""Read from one ring before others on the runner get their turn."""

OnFrame = Callable[[int, memoryview], Any]


class OutLink(LinkPeer):
    """One direction, from a task here to a task elsewhere. Used by one thread, that of its keeper."""

    def __init__(self, kind: str, target: int, worker: int, on_lost: Callable[[int], None]) -> None:
        super().__init__()
        self.kind = kind  # "bundles", "acks", "feedback" or "cancels"
        self.target = target  # task number
        self.worker = worker  # where it lives
        self.keeper: OutLinks | None = None  # who looks after it
        self._channel: Outgoing | None = None
        self._writing = False  # waiting for the connection to take more
        self._on_lost = on_lost  # told the epoch that it was with
        self._runner: Runner | None = None

    @property
    def ready(self) -> bool:
        """Connected, and everything given so far has left."""
        return self._channel is not None and not self._channel.pending

    def attach(self, channel: Channel, runner: Runner) -> None:
        self._channel, self.open = outgoing(channel), True
        self.watch(runner)

    def watch(self, runner: Runner) -> None:
        """Be looked after by this runner from now on."""
        self._runner = runner
        if self._channel is not None:
            self._writing = self._channel.wants_writable
            runner.watch(self._channel.connection, self._on_event, reading=True, writing=self._writing)

    def unwatch(self) -> None:
        if self._channel is not None and self._runner is not None:
            self._runner.unwatch(self._channel.connection)

    def send(self, kind: int, payload: bytes, urgent: bool = False) -> None:
        """Send a frame, as far as the channel takes it. The link must be ready. Urgent: a patient reader is woken."""
        channel = self._channel
        assert channel is not None
        try:
            channel.write(kind, payload, urgent)
        except OSError:
            self._lose()
            return
        if channel.wants_writable != self._writing:
            self._rewatch(channel)

    def _rewatch(self, channel: Outgoing) -> None:
        self._writing = channel.wants_writable
        if self._runner is not None:
            self._runner.rewatch(channel.connection, reading=True, writing=self._writing)

    def _on_event(self, readable: bool, writable: bool) -> None:
        channel = self._channel
        assert channel is not None
        try:
            if readable:
                channel.heard()
            elif channel.pending:
                channel.push()
        except OSError:
            self._lose()
            return
        if channel.wants_writable != self._writing:
            self._rewatch(channel)

    def _lose(self) -> None:
        epoch = 0 if self.member is None else self.member.epoch
        self.close()
        self._on_lost(epoch)

    def close(self) -> None:
        """Forget the connection; what was under way on it comes back only as a new incarnation."""
        if self._channel is not None:
            self.unwatch()
            self._channel.close()
            self._channel = None
        self.forget()


def _always() -> bool:
    return True


class InLink:
    """The receiving end, of a connection. Used by the thread that runs the receiving task."""

    def __init__(
        self,
        channel: Channel,
        worker: int,
        epoch: int,
        on_frame: OnFrame,
        on_lost: Callable[[InLink, Exception | None], None],
    ) -> None:
        channel.connection.setblocking(False)
        self.socket = channel.connection
        self.worker = worker
        self.epoch = epoch
        self.paused = False
        self.left: list[Any] = []  # what it has brought and its keeper has not taken yet
        self.patient = False  # it need not be read before its keeper does so
        self.counts: Callable[[], bool] = _always  # whether what comes on it is to be taken
        self.on_frame = on_frame
        self.on_lost = on_lost
        self._reader = FrameReader(seal=None if channel.seals is None else channel.seals.receiving)
        self._sequence = LinkSequence()
        self._runner: Runner | None = None

    def watch(self, runner: Runner) -> None:
        self._runner = runner
        if not self.paused:
            runner.watch(self.socket, self._on_event, reading=True, writing=False)

    def unwatch(self) -> None:
        if self._runner is not None and not self.paused:
            self._runner.unwatch(self.socket)

    def pause(self) -> None:
        """Read no more for now: the kernel's buffers fill, and the sender is held back."""
        if not self.paused:
            self.unwatch()
            self.paused = True

    def resume(self) -> None:
        if self.paused and self._runner is not None:
            self.paused = False
            self.watch(self._runner)

    def read(self) -> None:
        """What is there and nobody has told of. Of a connection the kernel tells."""

    def ask(self) -> bool:
        """To be told of what comes next. False if something is there."""
        return True

    def _on_event(self, readable: bool, writable: bool) -> None:
        try:
            data = self.socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("closed by the peer")
            if not self.counts():
                return  # its peer has been replaced, and its keeper, who was busy, has not heard yet
            for kind, number, payload in self._reader.feed(data):
                if self._sequence.check(number) != ACCEPT:  # TCP neither copies nor skips: this is no peer of ours
                    raise ProtocolError(f"frame out of sequence: number={number}; was the stream tampered with?")
                self.on_frame(kind, payload)
        except BlockingIOError:
            return
        except (OSError, ProtocolError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        self.close()
        self.on_lost(self, error)

    def close(self) -> None:
        self.unwatch()
        self.paused = True
        self.socket.close()


class RingInLink(InLink):
    """The receiving end of a ring. It reads whenever the bell rings, and asks for it whenever the ring is empty.

    One that is patient asks for it only when it is told to.
    """

    def __init__(
        self,
        channel: Channel,
        worker: int,
        epoch: int,
        on_frame: OnFrame,
        on_lost: Callable[[InLink, Exception | None], None],
    ) -> None:
        from tailrace.ring._ring import Pair

        super().__init__(channel, worker, epoch, on_frame, on_lost)
        assert channel.ring is not None
        self._ring: RingPart = channel.ring
        self._core = Pair(channel.ring.segment.memory)
        self._parts: list[bytes] = []  # of a frame that takes several records
        self._parts_bytes = 0
        self._closed = False

    def watch(self, runner: Runner) -> None:
        self._runner = runner
        runner.watch(self.socket, self._on_event, reading=True, writing=False)
        runner.watch(self._ring.bell, self._on_bell, reading=True, writing=False)
        self._ring_own_bell()  # something may have come while nobody watched

    def unwatch(self) -> None:
        if self._runner is not None:
            self._runner.unwatch(self.socket)
            self._runner.unwatch(self._ring.bell)

    def pause(self) -> None:
        """Read no more for now: the ring fills, and the sender is held back."""
        self.paused = True

    def resume(self) -> None:
        if self.paused and not self._closed:
            self.paused = False
            self._ring_own_bell()

    def _ring_own_bell(self) -> None:
        os.write(self._ring.bell, RING_A_BELL)

    def ask(self) -> bool:
        return self._core.want_data(layout.MODE_BELL)

    def _on_bell(self, readable: bool, writable: bool) -> None:
        os.read(self._ring.bell, 512)
        self.read()

    def read(self) -> None:
        try:
            if self._drain():
                self._ring_own_bell()
        except (OSError, ProtocolError) as error:
            self._lose(error)

    def _on_event(self, readable: bool, writable: bool) -> None:
        """Nobody ever sends on the connection: it is the end. What is in the ring came before."""
        try:
            while self._drain():
                pass
        except (OSError, ProtocolError):
            pass
        if not self._closed:
            self._lose(ConnectionResetError("closed by the peer"))

    def _drain(self) -> bool:
        """Take what is there, up to a limit. Whether there may be more."""
        if not self.counts():
            return False
        core = self._core
        for _ in range(FRAMES_AT_ONCE):
            if self.paused:
                return False
            try:
                records = core.look(1)
            except ValueError as error:
                raise ProtocolError(f"{error}: worker={self.worker}; did something else write to the ring?") from None
            if records:
                kind, view = records[0]
                try:
                    self._take(kind, view)
                finally:
                    view.release()  # what was decoded owns its bytes
                if core.release() == layout.BELL:
                    self._tell_room()
            elif self.patient:
                return False
            if not (self.paused or self.patient) and core.want_data(layout.MODE_BELL):
                return False
        return True

    def _take(self, kind: int, view: memoryview) -> None:
        if not kind & MORE and not self._parts:
            self.on_frame(kind, view)
            return
        self._parts.append(bytes(view))
        self._parts_bytes += len(view)
        if self._parts_bytes > MAX_FRAME:
            raise ProtocolError(f"frame of impossible size: bytes={self._parts_bytes} limit={MAX_FRAME}")
        if not kind & MORE:
            whole = b"".join(self._parts)
            self._parts, self._parts_bytes = [], 0
            self.on_frame(kind & KIND_MASK, memoryview(whole))

    def _tell_room(self) -> None:
        try:
            self.socket.send(RING_A_BELL)
        except BlockingIOError:
            pass  # it has been told often enough, and does not listen

    def close(self) -> None:
        if not self._closed:
            self._closed = self.paused = True
            self.unwatch()
            self.socket.close()
            del self._core
            self._ring.close()
