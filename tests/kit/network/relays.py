"""Somebody between two processes: passes on what they say, writes it down, and may add something."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType

Address = tuple[str, int]


class Relay:
    """A context. While it lasts, what connects to ``address`` is connected with ``target``."""

    def __init__(self, target: Address, address: Address = ("127.0.0.1", 0)) -> None:
        self.target = target
        self._listener = socket.create_server(address, backlog=128)
        self.address: Address = self._listener.getsockname()[:2]
        self._seen: list[bytes] = []
        self._ways: list[tuple[socket.socket, socket.socket]] = []  # (who dialed, whom it reached)
        self._lock = threading.Lock()

    @property
    def seen(self) -> bytes:
        """All bytes so far, of all connections, in either direction."""
        return b"".join(self._seen)

    @property
    def connections(self) -> int:
        return len(self._ways)

    def add(self, data: bytes) -> None:
        """Say this to everybody who was dialed, as if whoever dialed had said it."""
        for _, reached in tuple(self._ways):
            with suppress(OSError):
                reached.sendall(data)

    def add_back(self, data: bytes) -> None:
        """Say this to everybody who dialed, as if whoever was reached had said it."""
        for dialer, _ in tuple(self._ways):
            with suppress(OSError):
                dialer.sendall(data)

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in [self._listener, *(end for way in self._ways for end in way)]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                dialer, _ = self._listener.accept()
            except OSError:
                return
            try:
                reached = socket.create_connection(self.target)
            except OSError:
                dialer.close()
                continue
            self._ways.append((dialer, reached))
            for source, target in ((dialer, reached), (reached, dialer)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        """Until one of them ends; then both do, as they would without a relay."""
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    self._seen.append(data)
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
