"""The line between worker and coordinator takes messages in order, and nothing else."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from typing import Any, ClassVar
from unittest.mock import patch

import pytest

from tailrace.errors import ProtocolError
from tailrace.runtime.links import frames
from tailrace.runtime.links.control import Bootstrap, ControlConnection
from tailrace.runtime.links.frames import ACKS, HEADER, MESSAGE, frame
from tailrace.runtime.links.seals import seals_of

OURS, THEIRS = (seals_of(b"secret", (b"one", b"other"), dialed) for dialed in (False, True))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, ControlConnection]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield theirs, ControlConnection(ours, OURS)


def message(number: int, value: object) -> bytes:
    return frame(MESSAGE, number, pickle.dumps(value), THEIRS.sending)


def test_messages_come_in_order_until_the_end(ends: tuple[socket.socket, ControlConnection]) -> None:
    peer, line = ends
    peer.sendall(message(1, "a") + message(2, {"b": 2}))
    peer.close()
    assert list(line.receive()) == ["a", {"b": 2}]


def test_what_one_end_sends_the_other_receives(ends: tuple[socket.socket, ControlConnection]) -> None:
    peer, line = ends
    line.send(1)
    line.send([2])
    line.close()
    assert list(ControlConnection(peer, THEIRS).receive()) == [1, [2]]


def test_a_message_that_is_too_large_is_the_only_one_that_is_not_sent(
    ends: tuple[socket.socket, ControlConnection],
) -> None:
    peer, line = ends
    line.send("one")
    with patch.object(frames, "MAX_FRAME", 1000), pytest.raises(ProtocolError, match="frame too large: bytes=2") as why:
        line.send(bytes(2000))
    assert "limit=1000" in str(why.value)
    line.send("two")
    line.close()
    assert list(ControlConnection(peer, THEIRS).receive()) == ["one", "two"]


@pytest.mark.parametrize(
    "data",
    [
        message(2, "skips one"),
        message(1, "a") + message(1, "a copy"),
        frame(ACKS, 1, b"", THEIRS.sending),
        HEADER.pack(0xFFFF_FFFF, MESSAGE, 1),
        HEADER.pack(3, MESSAGE, 1),
    ],
)
def test_anything_else_ends_the_line(ends: tuple[socket.socket, ControlConnection], data: bytes) -> None:
    peer, line = ends
    peer.sendall(data)
    with pytest.raises(ProtocolError):
        list(line.receive())


class Bomb:
    """Leaves a mark when it is unpickled."""

    went_off: ClassVar[list[bool]] = []

    def __reduce__(self) -> Any:
        return Bomb.went_off.append, (True,)


@pytest.mark.parametrize(
    "forged",
    [
        frame(MESSAGE, 1, pickle.dumps(Bomb())),
        frame(MESSAGE, 1, pickle.dumps(Bomb()), seals_of(b"guess", (b"one", b"other"), True).sending),
        frame(MESSAGE, 1, pickle.dumps(Bomb()), seals_of(b"secret", (b"another", b"connection"), True).sending),
        frame(MESSAGE, 1, pickle.dumps(Bomb()), OURS.sending),
        frame(MESSAGE, 1, pickle.dumps(Bomb()))[:-1] + b"x" * 17,
    ],
    ids=["unsealed", "another secret", "another connection", "sent back", "changed"],
)
def test_what_is_not_authentic_is_not_unpickled(ends: tuple[socket.socket, ControlConnection], forged: bytes) -> None:
    peer, line = ends
    peer.sendall(forged)
    peer.close()
    with pytest.raises(ProtocolError, match=r"not authentic: was it changed, or added, on the way\?"):
        list(line.receive())
    assert not Bomb.went_off


def test_a_sealed_message_cannot_be_repeated_or_left_out(ends: tuple[socket.socket, ControlConnection]) -> None:
    peer, line = ends
    peer.sendall(message(1, "a") + message(1, "a"))
    received = line.receive()
    assert next(received) == "a"
    with pytest.raises(ProtocolError, match="not the next message: kind=3 number=1"):
        next(received)


def test_a_bootstrap_does_not_show_the_secret() -> None:
    bootstrap = Bootstrap(("there", 1), b"the secret", 0, 1, ("there", 2, b"another secret"))
    assert "secret" not in repr(bootstrap) and "epoch=1" in repr(bootstrap)
