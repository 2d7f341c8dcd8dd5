"""An acceptor goes on accepting whatever strangers do, and when files or threads run out for a while."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tailrace.runtime.links import acceptor as module
from tailrace.runtime.links.acceptor import Acceptor, Serve
from tailrace.testing.processes import wait_until


class House:
    """A handshake is one byte. Afterwards what else comes is sent back."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.acceptor = Acceptor(self.listener, self.greet, "test")
        self.acceptor.start()

    def greet(self, connection: socket.socket) -> Serve | None:
        try:
            if connection.recv(1) == b"!":
                return lambda: self.serve(connection)
        except OSError:
            pass
        connection.close()
        return None

    def serve(self, connection: socket.socket) -> None:
        while data := connection.recv(100):
            connection.sendall(data)
        connection.close()

    def knock(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname(), timeout=10)

    def answers(self) -> bool:
        with self.knock() as connection:
            connection.sendall(b"!hello")
            return connection.recv(100) == b"hello"


@pytest.fixture
def house() -> Iterator[House]:
    house = House()
    yield house
    house.acceptor.close()
    names = {thread.name for thread in threading.enumerate()}
    wait_until(lambda: "test-accept" not in {thread.name for thread in threading.enumerate()}, 10, f"its end: {names}")


class Failing:
    """A listener that has nothing but trouble, a few times."""

    def __init__(self, listener: socket.socket, times: int, number: int) -> None:
        self._listener, self._times, self._number = listener, times, number

    def accept(self) -> tuple[socket.socket, object]:
        if self._times:
            self._times -= 1
            raise OSError(self._number, "no")
        return self._listener.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._listener, name)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.ENOBUFS, errno.EPROTO])
def test_a_moment_without_files_passes(house: House, number: int) -> None:
    house.acceptor._listener = Failing(house.listener, 3, number)  # type: ignore[assignment]
    assert house.answers() and house.answers()


def test_a_moment_without_threads_passes(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    start: Callable[[threading.Thread], None] = threading.Thread.start
    left = [2]

    def fail(thread: threading.Thread) -> None:
        if thread.name == "test" and left[0]:
            left[0] -= 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)
    for _ in range(2):
        with house.knock() as refused:
            assert refused.recv(1) == b""
    assert house.answers() and not house.acceptor.under_way


def test_a_handshake_has_a_deadline_as_a_whole(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    with house.knock() as served, house.knock() as slow:
        served.sendall(b"!a")
        assert served.recv(1) == b"a"
        assert slow.recv(1) == b"", "it is hung up on, though nobody waits for its next byte"
        served.sendall(b"b")
        assert served.recv(1) == b"b", "who has been taken in may take his time"


def test_when_too_many_are_under_way_the_oldest_goes(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 5)
    monkeypatch.setattr(module, "LOOK_S", 60)  # whoever comes makes the oldest go, not the next look
    strangers = [house.knock() for _ in range(20)]
    assert house.answers()
    wait_until(lambda: house.acceptor.under_way <= 5, 10, "the oldest to go")
    assert all(stranger.recv(1) == b"" for stranger in strangers[:14])
    for stranger in strangers:
        stranger.close()
