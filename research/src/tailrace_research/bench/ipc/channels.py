"""Ways to hand bytes from one Python process to another, each as a competent user would write it.

A channel is made in one process, which then forks a sender and a receiver; each of them opens its end. They differ in
how much they read at once, as their users do: a ring gives up to 64 records or 256 KiB a call, a socket up to 256 KiB
(a large message of ``bare`` more), a queue and ZeroMQ one message; ZeroMQ's own thread reads and writes several.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import secrets
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.errors import TailraceError
from tailrace.ring import layout
from tailrace.ring import why_unavailable as why_no_ring
from tailrace.ring.segment import Segment
from tailrace.runtime.links.frames import BUNDLES, FrameReader, frame
from tailrace.runtime.links.link import RECEIVE_BYTES
from tailrace_research.bench.engine.bare_hops import connected_pair

if TYPE_CHECKING:
    from tailrace.ring.pair import PairRing
    from tailrace.ring.shared import SharedRing

RECORDS_AT_ONCE = 64
TIMEOUT_S = 20.0
NAP_NS = 1_000_000_000
QUEUED = 1_000  # messages at most in a queue, ZeroMQ's own default
QUEUED_BYTES = 4 << 20  # if they are large

_LENGTH = struct.Struct("<I")

Send = Callable[[bytes], object]
Receive = Callable[[], Sequence[bytes | memoryview]]


class Channel(Protocol):
    """Law: what was sent is received once, whole and in order, in memory of the receiver's own."""

    def sender(self) -> Send:
        """In the sending process, once the receiver is there: what takes a message, and waits for room."""

    def receiver(self) -> Receive:
        """In the receiving process: what waits for a message, and returns all that came with it."""

    def close(self) -> None:
        """In the process that made it."""


class Rings:
    """A ring, read by copying. The loops are the engine's: they ask the core first, and wait only if they must."""

    def __init__(self, kind: int, message_bytes: int, capacity: int) -> None:
        self._segment = Segment.create("bench", kind, capacity)
        # Many large copies at once cost several times as much: the allocator gives their memory back to the system,
        # and page faults bring it in again.
        self._at_once = max(1, min(RECORDS_AT_ONCE, RECEIVE_BYTES // message_bytes))

    def _attach(self) -> PairRing | SharedRing:
        from tailrace.ring.pair import PairRing
        from tailrace.ring.shared import SharedRing

        cls = PairRing if self._segment.kind == layout.PAIR else SharedRing
        return cls.attach(self._segment.path, self._segment.nonce)

    def sender(self) -> Send:
        ring = self._attach()
        write = ring.core.write

        def send(payload: bytes) -> None:
            if write(0, payload) <= 0 and not ring.put(payload, TIMEOUT_S):
                raise TailraceError(f"no room in the ring for so long: seconds={TIMEOUT_S:g}")

        return send

    def receiver(self) -> Receive:
        core = self._attach().core
        read, release, limit = core.read, core.release, self._at_once

        def receive() -> list[bytes]:
            while not (records := read(limit)):
                if core.want_data(layout.MODE_SLEEP):
                    core.sleep(0, NAP_NS)
            release()
            return [payload for _, payload in records]

        return receive

    def close(self) -> None:
        self._segment.unlink()
        self._segment.close()


class Sockets:
    """A connection with the frames of the engine's own links, which the ring replaces."""

    def __init__(self, connect: Callable[[ExitStack], tuple[socket.socket, socket.socket]]) -> None:
        self._stack = ExitStack()
        self._out, self._in = connect(self._stack)

    def sender(self) -> Send:
        sendall, numbers = self._out.sendall, count(1)
        return lambda payload: sendall(frame(BUNDLES, next(numbers), payload))

    def receiver(self) -> Receive:
        recv, feed = self._in.recv, FrameReader().feed
        self._out.close()  # or the sender's end would go unnoticed

        def receive() -> list[memoryview]:
            while data := recv(RECEIVE_BYTES):
                if payloads := [payload for _, _, payload in feed(data)]:
                    return payloads
            raise TailraceError("the sender is gone")

        return receive

    def close(self) -> None:
        self._stack.close()


class BareSockets(Sockets):
    """TCP as one would write it for large messages: no copy to put a head before a message, none to cut it out."""

    def sender(self) -> Send:
        out, head = self._out, _LENGTH.pack

        def send(payload: bytes) -> None:
            parts = (head(len(payload)), payload)
            sent = out.sendmsg(parts)
            if sent < _LENGTH.size + len(payload):
                out.sendall(
                    b"".join(parts)[sent:] if sent < _LENGTH.size else memoryview(payload)[sent - _LENGTH.size :]
                )

        return send

    def receiver(self) -> Receive:
        read = self._in.makefile("rb", buffering=RECEIVE_BYTES).read
        self._out.close()

        def receive() -> tuple[bytes]:
            (length,) = _LENGTH.unpack(read(_LENGTH.size))
            return (read(length),)

        return receive


def _unix_pair(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    out, into = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return stack.enter_context(out), stack.enter_context(into)


class Queue:
    """``multiprocessing.Queue``, bounded: an endless one would only tell how fast memory fills."""

    def __init__(self, limit: int) -> None:
        self._queue: multiprocessing.Queue[bytes] = multiprocessing.get_context("fork").Queue(limit)

    def sender(self) -> Send:
        return self._queue.put

    def receiver(self) -> Receive:
        get = self._queue.get
        return lambda: (get(),)

    def close(self) -> None:
        self._queue.close()


class ZeroMQ:
    """PUSH and PULL over ``ipc://``. The library sends in a thread of its own, several messages at a time."""

    def __init__(self, limit: int) -> None:
        self._address = f"ipc://@tailrace-bench-{secrets.token_hex(8)}"
        self._limit = limit

    def sender(self) -> Send:
        import zmq

        pushing: Any = zmq.Context.instance().socket(zmq.PUSH)  # typed only where it is installed
        pushing.set_hwm(self._limit)
        pushing.connect(self._address)
        send: Send = pushing.send
        return send

    def receiver(self) -> Receive:
        import zmq

        pulling: Any = zmq.Context.instance().socket(zmq.PULL)
        pulling.set_hwm(self._limit)
        pulling.bind(self._address)
        recv = pulling.recv
        return lambda: (recv(),)

    def close(self) -> None:
        pass  # the address has no file


CONTESTANTS = ("ring", "shared", "tcp", "bare", "unix", "queue", "zmq")


def open_channel(name: str, message_bytes: int, capacity: int) -> Channel:
    """A new channel; the capacity is a ring's."""
    limit = max(1, min(QUEUED, QUEUED_BYTES // message_bytes))
    match name:
        case "ring":
            return Rings(layout.PAIR, message_bytes, capacity)
        case "shared":
            return Rings(layout.SHARED, message_bytes, capacity)
        case "tcp":
            return Sockets(connected_pair)
        case "bare":
            return BareSockets(connected_pair)
        case "unix":
            return Sockets(_unix_pair)
        case "queue":
            return Queue(limit)
        case "zmq":
            return ZeroMQ(limit)
    raise TailraceError(f"no such contestant: name={name} known={', '.join(CONTESTANTS)}")


def why_left_out() -> dict[tuple[str, ...], str]:
    """Contestants that cannot run here, and a sentence on why."""
    reasons: dict[tuple[str, ...], str] = {}
    missing = why_no_ring()
    if missing is not None:
        reasons["ring", "shared"] = f"the rings are left out: {missing}"
    if importlib.util.find_spec("zmq") is None:
        reasons["zmq",] = "ZeroMQ is left out: pyzmq is not installed (`pip install 'tailrace-research[bench]'`)"
    return reasons
