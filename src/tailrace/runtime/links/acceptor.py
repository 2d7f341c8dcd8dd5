"""Takes in connections for as long as its listener is open, whatever happens to some of them.

Strangers may connect: to say nothing, to say it slowly, or so often that there are no files or threads left. So a
handshake has a deadline as a whole; only so many are under way at once, of which the oldest has to go when another one
comes; and a moment without files or threads passes.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from tailrace.runtime.links.auth import TIMEOUT_S, close_listener

MOST = 256
"""Handshakes under way. One takes milliseconds; as many workers may start at once, or links be dialed."""

BREATH_S = 0.05
"""How long to wait when there are no files or threads left."""

LOOK_S = 0.5
"""How often to look for handshakes that take too long."""

Serve = Callable[[], None]
"""What comes after a handshake."""


class Acceptor:
    """``greet`` does the handshake, in a thread of its own. It returns what is to be done afterwards in that thread, or
    None, and closes the connection if it is of no use."""

    def __init__(self, listener: socket.socket, greet: Callable[[socket.socket], Serve | None], name: str) -> None:
        self._listener = listener
        self._greet = greet
        self._name = name
        self._closed = False
        self._lock = threading.Lock()
        self._under_way: dict[socket.socket, float] = {}  # since when; the oldest is first

    def start(self) -> None:
        threading.Thread(target=self._accept, name=f"{self._name}-accept", daemon=True).start()

    def close(self) -> None:
        self._closed = True
        close_listener(self._listener)

    def _accept(self) -> None:
        while not self._closed:
            try:
                self._listener.settimeout(LOOK_S)
                connection, _ = self._listener.accept()
            except TimeoutError:
                self._hang_up(MOST)
            except OSError:  # no files left, or a peer that has left already
                time.sleep(BREATH_S)
            else:
                self._hang_up(MOST - 1)
                self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        with self._lock:
            self._under_way[connection] = time.monotonic()
        try:
            threading.Thread(target=self._welcome, args=(connection,), name=self._name, daemon=True).start()
        except RuntimeError:  # no threads left
            self._done(connection)
            connection.close()
            time.sleep(BREATH_S)

    def _welcome(self, connection: socket.socket) -> None:
        try:
            serve = self._greet(connection)
        finally:
            self._done(connection)
        if serve is not None:
            serve()

    def _done(self, connection: socket.socket) -> None:
        with self._lock:
            self._under_way.pop(connection, None)

    def _hang_up(self, most: int) -> None:
        """On those that take too long, and the oldest of those that are too many. Their threads then close them."""
        with self._lock:
            for connection, since_s in list(self._under_way.items()):
                if len(self._under_way) <= most and time.monotonic() - since_s < TIMEOUT_S:
                    return
                del self._under_way[connection]
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # its peer was faster
