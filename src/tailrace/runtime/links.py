"""A link carries frames from one task to another in another worker, over one TCP connection.

Bundles and acks travel on links of their own, so that an ack never waits behind bulk data, and a link to a task that
is behind holds back nobody else. An outgoing link takes bundles only when its socket has taken everything before:
what piles up meanwhile goes out as one frame. So a receiver that keeps up gets every tuple at once, and one that
does not gets larger and larger bundles, without a timer.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.core.membership import ACCEPT, LinkSequence
from tailrace.core.messages import Member
from tailrace.errors import ProtocolError
from tailrace.runtime.wire import FrameReader, frame

if TYPE_CHECKING:
    from tailrace.runtime.runner import Runner

RECEIVE_BYTES = 256 << 10


class OutLink:
    """One direction, from a task here to a task elsewhere. Used by the thread that runs the sending task."""

    def __init__(self, kind: str, target: int, worker: int, on_lost: Callable[[], None]) -> None:
        self.kind = kind  # "bundles" or "acks"
        self.target = target  # task number
        self.worker = worker  # where it lives
        self.member: Member | None = None  # whom the connection is with, or is being made with
        self._socket: socket.socket | None = None
        self._unsent = memoryview(b"")
        self._writing = False  # waiting for the socket to take more
        self._number = 0
        self._on_lost = on_lost
        self._runner: Runner | None = None

    @property
    def open(self) -> bool:
        return self._socket is not None

    @property
    def ready(self) -> bool:
        """Connected, and everything given so far has left for the kernel."""
        return self._socket is not None and not self._unsent

    def attach(self, connection: socket.socket, runner: Runner) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._number = 0
        self._unsent = memoryview(b"")
        self.watch(runner)

    def watch(self, runner: Runner) -> None:
        """Be looked after by this runner from now on."""
        self._runner = runner
        if self._socket is not None:
            self._writing = bool(self._unsent)
            runner.watch(self._socket, self._on_event, reading=True, writing=self._writing)

    def unwatch(self) -> None:
        if self._socket is not None and self._runner is not None:
            self._runner.unwatch(self._socket)

    def send(self, kind: int, payload: bytes) -> None:
        """Give a frame to the kernel, as far as it takes it. The link must be ready."""
        self._unsent = memoryview(frame(kind, self._number + 1, payload))
        self._number += 1
        self._push()

    def _push(self) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lose()
            return
        self._unsent = self._unsent[sent:]
        if bool(self._unsent) != self._writing and self._runner is not None:
            self._writing = not self._writing
            self._runner.rewatch(self._socket, reading=True, writing=self._writing)

    def _on_event(self, readable: bool, writable: bool) -> None:
        if readable:  # nobody ever sends on this direction: it is the end
            self._lose()
        elif writable and self._unsent:
            self._push()

    def _lose(self) -> None:
        self.close()
        self._on_lost()

    def close(self) -> None:
        """Forget the connection; what was under way on it comes back only as a new incarnation."""
        if self._socket is not None:
            self.unwatch()
            self._socket.close()
            self._socket = None
        self._unsent = memoryview(b"")
        self.member = None


class InLink:
    """The receiving end. Used by the thread that runs the receiving task."""

    def __init__(
        self,
        connection: socket.socket,
        worker: int,
        epoch: int,
        on_frame: Callable[[int, memoryview], Any],
        on_lost: Callable[[InLink, Exception | None], None],
    ) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.worker = worker
        self.epoch = epoch
        self.paused = False
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._reader = FrameReader()
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

    def _on_event(self, readable: bool, writable: bool) -> None:
        try:
            data = self.socket.recv(RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("closed by the peer")
            for kind, number, payload in self._reader.feed(data):
                if self._sequence.check(number) != ACCEPT:  # TCP neither copies nor skips: this is no peer of ours
                    raise ProtocolError(f"frame out of sequence: number={number}; was the stream tampered with?")
                self._on_frame(kind, payload)
        except BlockingIOError:
            return
        except (OSError, ProtocolError) as error:
            self.close()
            self._on_lost(self, error)

    def close(self) -> None:
        self.unwatch()
        self.paused = True
        self.socket.close()
