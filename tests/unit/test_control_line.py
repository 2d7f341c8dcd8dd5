"""The line between worker and coordinator takes messages in order, and nothing else."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tailrace.errors import ProtocolError
from tailrace.runtime import wire
from tailrace.runtime.control import ControlLine
from tailrace.runtime.wire import ACKS, HEADER, MESSAGE, frame


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, ControlLine]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield theirs, ControlLine(ours)


def message(number: int, value: object) -> bytes:
    return frame(MESSAGE, number, pickle.dumps(value))


def test_messages_come_in_order_until_the_end(ends: tuple[socket.socket, ControlLine]) -> None:
    peer, line = ends
    peer.sendall(message(1, "a") + message(2, {"b": 2}))
    peer.close()
    assert list(line.receive()) == ["a", {"b": 2}]


def test_what_one_end_sends_the_other_receives(ends: tuple[socket.socket, ControlLine]) -> None:
    peer, line = ends
    line.send(1)
    line.send([2])
    line.close()
    assert list(ControlLine(peer).receive()) == [1, [2]]


def test_a_message_that_is_too_large_is_the_only_one_that_is_not_sent(ends: tuple[socket.socket, ControlLine]) -> None:
    peer, line = ends
    line.send("one")
    with patch.object(wire, "MAX_FRAME", 1000), pytest.raises(ProtocolError, match="frame too large: bytes=2") as why:
        line.send(bytes(2000))
    assert "limit=1000" in str(why.value)
    line.send("two")
    line.close()
    assert list(ControlLine(peer).receive()) == ["one", "two"]


@pytest.mark.parametrize(
    "data",
    [
        message(2, "skips one"),
        message(1, "a") + message(1, "a copy"),
        frame(ACKS, 1, b""),
        HEADER.pack(0xFFFF_FFFF, MESSAGE, 1),
        HEADER.pack(3, MESSAGE, 1),
    ],
)
def test_anything_else_ends_the_line(ends: tuple[socket.socket, ControlLine], data: bytes) -> None:
    peer, line = ends
    peer.sendall(data)
    with pytest.raises(ProtocolError):
        list(line.receive())
