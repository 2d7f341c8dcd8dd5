"""A channel is what a link's bytes travel through: a TCP connection, or a ring in shared memory beside one.

The dialer offers a ring along with its hello; an acceptor that can map it is on the same machine, and takes it. Both
names, of the segment and of its bell, are gone from the file system before the first frame. The connection stays: its
end is the peer's end, and a byte on it tells a waiting producer that there is room again. A waiting consumer is told by
the bell, a pipe, since an event loop waits for many things at once and only files can be waited for together; waking
through a pipe takes as long as through a futex, and half as long as through TCP.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tailrace.errors import SegmentError
from tailrace.ring import layout, why_unavailable
from tailrace.ring.segment import FOLDER, Segment, naming
from tailrace.runtime.encryption.connection import Connection
from tailrace.runtime.links.frames import check_size, frame
from tailrace.runtime.links.seals import Seal, Seals

RING_BYTES = {"bundles": 256 << 10, "acks": 64 << 10, "feedback": 64 << 10, "queue": 1 << 20}
"""The size of a ring, by kind of link. A receiver that keeps up needs little, and bytes that wait there are latency.
The queue of a node is larger: it is the only queue that its tasks have."""

SHAPES = {"queue": layout.SHARED}
"""Kinds with many writers and many readers."""

BELL = ".bell"
MORE = 0x100  # a flag beside a frame's kind: the frame goes on in the next record
KIND_MASK = 0xFF
RING_A_BELL = b"\0"


@dataclass(frozen=True)
class RingPart:
    """A mapped ring and its bell, at either end."""

    segment: Segment
    bell: int  # a file number

    @property
    def piece(self) -> int:
        """Bytes of a frame that go into one record. Four fit, so that writing and reading overlap."""
        return self.segment.capacity // 4 - layout.RECORD_BYTES

    def withdraw(self) -> None:
        """Remove its names: no further process can map it."""
        self.segment.unlink()
        Path(f"{self.segment.path}{BELL}").unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self.bell)
        self.segment.close()


def offer_ring(run: str, kind: str) -> RingPart:
    """Make a ring for a link of this kind. Raises SegmentError where there is no shared memory."""
    why_not = why_unavailable()
    if why_not is not None:
        raise SegmentError(why_not)
    with naming:
        segment = Segment.create(run, SHAPES.get(kind, layout.PAIR), RING_BYTES[kind])
        path = f"{segment.path}{BELL}"
        try:
            os.mkfifo(path, 0o600)
            return RingPart(segment, os.open(path, os.O_RDWR | os.O_NONBLOCK))
        except OSError as error:
            segment.unlink()
            segment.close()
            raise SegmentError(f"cannot make a pipe beside a segment: {error}") from error


def take_ring(name: object, nonce: object, kind: str = "bundles") -> RingPart:
    """Map the ring that a peer offers. Raises SegmentError if that is impossible, as on another machine."""
    why_not = why_unavailable()
    if why_not is not None:
        raise SegmentError(why_not)
    if not isinstance(name, str) or not isinstance(nonce, str) or name != Path(name).name:
        raise SegmentError(f"not an offer of a ring: name={name!r}; are versions mixed?")
    segment = Segment.attach(FOLDER / name, SHAPES.get(kind, layout.PAIR), bytes.fromhex(nonce))
    try:
        return RingPart(segment, os.open(f"{segment.path}{BELL}", os.O_RDWR | os.O_NONBLOCK))
    except OSError as error:
        segment.close()
        raise SegmentError(f"no pipe beside a segment: {error}") from error


@dataclass(frozen=True)
class Channel:
    """An authenticated connection, and the ring if both sides have one."""

    connection: Connection
    ring: RingPart | None = None
    seals: Seals | None = None  # for frames that go through the connection

    def close(self) -> None:
        self.connection.close()
        if self.ring is not None:
            self.ring.close()


class ChannelWriter(Protocol):
    """The sending end. An OSError from any method means that the peer is gone."""

    connection: Connection
    pending: bool  # something written has not left yet
    wants_writable: bool  # it leaves when the connection can take more

    def write(self, kind: int, payload: bytes, urgent: bool = False) -> None:
        """Send a frame, or begin to. Nothing may be pending. Urgent: signal the reader even if it did not ask."""
        ...

    def push(self) -> None:
        """Go on with what is pending."""
        ...

    def on_readable(self) -> None:
        """The connection has something to read."""
        ...

    def close(self) -> None: ...


def writer_of(channel: Channel) -> ChannelWriter:
    """The writer for the sending end of a channel: through its ring if it has one."""
    channel.connection.setblocking(False)
    if channel.ring is not None:
        return RingWriter(channel.connection, channel.ring)
    return SocketWriter(channel.connection, None if channel.seals is None else channel.seals.sending)


class SocketWriter:
    """Frames through the connection itself."""

    def __init__(self, connection: Connection, seal: Seal | None) -> None:
        self.connection = connection
        self.pending = self.wants_writable = False
        self._seal = seal
        self._number = 0
        self._unsent = memoryview(b"")

    def write(self, kind: int, payload: bytes, urgent: bool = False) -> None:
        self._unsent = memoryview(frame(kind, self._number + 1, payload, self._seal))
        self._number += 1
        self.push()

    def push(self) -> None:
        try:
            self._unsent = self._unsent[self.connection.send(self._unsent) :]
        except BlockingIOError:
            pass
        self.pending = self.wants_writable = bool(self._unsent)

    def on_readable(self) -> None:
        raise ConnectionResetError  # peers never send in this direction: it is the end

    def close(self) -> None:
        self.connection.close()


class RingWriter:
    """Frames through a ring."""

    wants_writable = False

    def __init__(self, connection: Connection, ring: RingPart) -> None:
        from tailrace.ring._ring import Pair

        self.connection = connection
        self.pending = False
        self._ring = ring
        self._piece = ring.piece
        self._core = Pair(ring.segment.memory)
        self._kind = 0
        self._urgent = False
        self._unsent = memoryview(b"")

    def write(self, kind: int, payload: bytes, urgent: bool = False) -> None:
        if len(payload) <= self._piece:
            result = self._core.write(kind, payload)
            if result == layout.DONE and not urgent:
                return
            if result > 0:
                os.write(self._ring.bell, RING_A_BELL)
                return
        check_size(payload)
        self._kind, self._urgent = kind, urgent
        self._unsent = memoryview(payload)
        self.pending = True
        self.push()

    def push(self) -> None:
        while self.pending:
            piece = self._unsent[: self._piece]
            last = len(piece) == len(self._unsent)
            result = self._core.write(self._kind if last else self._kind | MORE, piece)
            if result == layout.NONE:
                if self._core.want_room(len(piece), layout.MODE_BELL):
                    return  # a byte on the connection will tell
                continue
            if result < 0:
                raise OSError(errno.EPIPE, "the ring is closed")
            if result == layout.BELL or (last and self._urgent):
                os.write(self._ring.bell, RING_A_BELL)
            self._unsent = self._unsent[len(piece) :]
            self.pending = not last

    def on_readable(self) -> None:
        try:
            if not self.connection.recv(512):
                raise ConnectionResetError
        except BlockingIOError:
            return
        self.push()

    def close(self) -> None:
        self.connection.close()
        self._unsent = memoryview(b"")
        del self._core
        self._ring.close()
