"""Accepts connections for as long as its listener is open, whatever happens to some of them.

Strangers may connect: to say nothing, to say it slowly, or so often that files or threads run out. Therefore a whole
handshake has a deadline; the number of handshakes under way is limited, and the oldest has to go when one more comes;
and running out of files or threads is waited out.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from tailrace.runtime.links.auth import TIMEOUT_S, close_listener

MOST = 256
"""Handshakes under way. One takes milliseconds, and as many workers may start at once, or links be dialed."""

BREATH_S = 0.05
"""How long to wait when no files or threads are left."""

LOOK_S = 0.5
"""How often to look for handshakes that take too long."""

Serve = Callable[[], None]
"""An action to carry out after a handshake."""


class Acceptor:
    """Calls ``greet`` for each connection, in a thread of its own, to do the handshake.

    It returns what to do afterwards in that thread, or None, and closes the connection if it is of no use.
    """

    def __init__(self, listener: socket.socket, greet: Callable[[socket.socket], Serve | None], name: str) -> None:
        self._listener = listener
        self._greet = greet
        self._name = name
        self._closed = False
        self._lock = threading.Lock()
        self._under_way: dict[socket.socket, float] = {}  # since when; the oldest is first

    @property
    def under_way(self) -> int:
        """Handshakes that have begun and not ended."""
        return len(self._under_way)

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
            except OSError:  # no files left, or the peer has left already
                time.sleep(BREATH_S)
            else:
                self._hang_up(MOST - 1)
                self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        with self._lock:
            self._under_way[connection] = time.monotonic()
        try:
            threading.Thread(target=self._shake_hands, args=(connection,), name=self._name, daemon=True).start()
        except RuntimeError:  # no threads left
            self._done(connection)
            connection.close()
            time.sleep(BREATH_S)

    def _shake_hands(self, connection: socket.socket) -> None:
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
        """End handshakes that take too long, and the oldest while there are too many. Their threads then close them."""
        with self._lock:
            for connection, since_s in list(self._under_way.items()):
                if len(self._under_way) <= most and time.monotonic() - since_s < TIMEOUT_S:
                    return
                del self._under_way[connection]
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the peer has ended it already
