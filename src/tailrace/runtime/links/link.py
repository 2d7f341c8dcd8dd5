"""A link carries frames from one task to a task in another worker, through a channel of its own.

Bundles, acks and feedback travel on separate links, so that an ack never waits behind bulk data, and a link to a slow
task holds back no other. An outgoing link takes bundles only when its channel has taken everything before; what piles
up meanwhile goes out as one frame. A receiver that keeps up therefore gets every tuple at once, and a slow one gets
larger and larger frames, without a timer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from tailrace.core.protocol.link_peer import LinkPeer
from tailrace.core.protocol.membership import ACCEPT, LinkSequence
from tailrace.core.protocol.messages import Member
from tailrace.errors import ProtocolError
from tailrace.ring import layout
from tailrace.runtime.links.channels import KIND_MASK, MORE, RING_A_BELL, Channel, ChannelWriter, RingPart, writer_of
from tailrace.runtime.links.event_loop import EventLoop, Post
from tailrace.runtime.links.frames import MAX_FRAME, FrameReader

RECEIVE_BYTES = 256 << 10
FRAMES_AT_ONCE = 64
"""Frames read from one ring before other files of the event loop get their turn."""

OnFrame = Callable[[int, memoryview], Any]


class LinkOwner(Protocol):
    """The object that opens, watches and closes outgoing links."""

    post: Post

    def connected(self, link: OutLink, member: Member, channel: Channel | None) -> None:
        """A dial for this link has ended."""
        ...


class OutLink(LinkPeer):
    """The sending end, from a task here to a task elsewhere. Used by one thread, that of its owner."""

    def __init__(self, kind: str, target: int, worker: int, on_lost: Callable[[int], None]) -> None:
        super().__init__()
        self.kind = kind  # "bundles", "acks", "feedback" or "cancels"
        self.target = target  # task number
        self.worker = worker  # where it lives
        self.owner: LinkOwner | None = None
        self._channel: ChannelWriter | None = None
        self._writing = False  # waiting for the connection to take more
        self._on_lost = on_lost  # gets the epoch of the peer
        self._loop: EventLoop | None = None

    @property
    def ready(self) -> bool:
        """Whether it is connected, and everything sent so far has left."""
        return self._channel is not None and not self._channel.pending

    def attach(self, channel: Channel, loop: EventLoop) -> None:
        self._channel, self.open = writer_of(channel), True
        self.watch(loop)

    def watch(self, loop: EventLoop) -> None:
        """Be served by this loop from now on."""
        self._loop = loop
        if self._channel is not None:
            self._writing = self._channel.wants_writable
            loop.watch(self._channel.connection, self._on_event, reading=True, writing=self._writing)

    def unwatch(self) -> None:
        if self._channel is not None and self._loop is not None:
            self._loop.unwatch(self._channel.connection)

    def send(self, kind: int, payload: bytes, urgent: bool = False) -> None:
        """Send a frame, as far as the channel takes it. The link must be ready. Urgent: wake a deferred reader too."""
        channel = self._channel
        assert channel is not None
        try:
            channel.write(kind, payload, urgent)
        except OSError:
            self._lose()
            return
        if channel.wants_writable != self._writing:
            self._rewatch(channel)

    def _rewatch(self, channel: ChannelWriter) -> None:
        self._writing = channel.wants_writable
        if self._loop is not None:
            self._loop.rewatch(channel.connection, reading=True, writing=self._writing)

    def _on_event(self, readable: bool, writable: bool) -> None:
        channel = self._channel
        assert channel is not None
        try:
            if readable:
                channel.on_readable()
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
        """Close the connection. Frames under way on it are lost; recovery emits their roots again."""
        if self._channel is not None:
            self.unwatch()
            self._channel.close()
            self._channel = None
        self.forget()


def _always() -> bool:
    return True


class InLink:
    """The receiving end of a connection. Used by the thread of its owner."""

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
        self.unadmitted: list[Any] = []  # bundles that it has brought and its owner has not taken yet
        self.deferred = False  # its owner reads it when it works: no signal for each frame
        self.counts: Callable[[], bool] = _always  # False once its peer has been replaced
        self.on_frame = on_frame
        self.on_lost = on_lost
        self._reader = FrameReader(seal=None if channel.seals is None else channel.seals.receiving)
        self._sequence = LinkSequence()
        self._loop: EventLoop | None = None

    def watch(self, loop: EventLoop) -> None:
        self._loop = loop
        if not self.paused:
            loop.watch(self.socket, self._on_event, reading=True, writing=False)

    def unwatch(self) -> None:
        if self._loop is not None and not self.paused:
            self._loop.unwatch(self.socket)

    def pause(self) -> None:
        """Stop reading: the kernel's buffers fill, and the sender is held back."""
        if not self.paused:
            self.unwatch()
            self.paused = True

    def resume(self) -> None:
        if self.paused and self._loop is not None:
            self.paused = False
            self.watch(self._loop)

    def read(self) -> None:
        """Process frames that came without a signal. A connection has none: the kernel signals all."""

    def ask_for_signal(self) -> bool:
        """Have the next frame signalled. False if one is there already."""
        return True

    def _on_event(self, readable: bool, writable: bool) -> None:
        try:
            data = self.socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("closed by the peer")
            if not self.counts():
                return  # its peer has been replaced, and its owner was too busy to close it yet
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
    """The receiving end of a ring. It reads when the bell rings, and asks for the bell when the ring is empty.

    A deferred link asks for the bell only in ``ask_for_signal``.
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
        self._parts: list[bytes] = []  # the records so far of a frame that takes several
        self._parts_bytes = 0
        self._closed = False

    def watch(self, loop: EventLoop) -> None:
        self._loop = loop
        loop.watch(self.socket, self._on_event, reading=True, writing=False)
        loop.watch(self._ring.bell, self._on_bell, reading=True, writing=False)
        self._ring_own_bell()  # something may have come while no loop watched

    def unwatch(self) -> None:
        if self._loop is not None:
            self._loop.unwatch(self.socket)
            self._loop.unwatch(self._ring.bell)

    def pause(self) -> None:
        """Stop reading: the ring fills, and the sender is held back."""
        self.paused = True

    def resume(self) -> None:
        if self.paused and not self._closed:
            self.paused = False
            self._ring_own_bell()

    def _ring_own_bell(self) -> None:
        os.write(self._ring.bell, RING_A_BELL)

    def ask_for_signal(self) -> bool:
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
        """The connection has ended: peers never send on it. Frames in the ring came before the end, and count."""
        try:
            while self._drain():
                pass
        except (OSError, ProtocolError):
            pass
        if not self._closed:
            self._lose(ConnectionResetError("closed by the peer"))

    def _drain(self) -> bool:
        """Process frames, up to a limit. True if there may be more."""
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
                    view.release()  # decoding has copied what it needs
                if core.release() == layout.BELL:
                    self._signal_room()
            elif self.deferred:
                return False
            if not (self.paused or self.deferred) and core.want_data(layout.MODE_BELL):
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

    def _signal_room(self) -> None:
        try:
            self.socket.send(RING_A_BELL)
        except BlockingIOError:
            pass  # enough signals wait there unread

    def close(self) -> None:
        if not self._closed:
            self._closed = self.paused = True
            self.unwatch()
            self.socket.close()
            del self._core
            self._ring.close()
