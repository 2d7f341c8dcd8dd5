"""Frames survive any cutting of the stream they travel in; handshakes survive any liar."""

from __future__ import annotations

import secrets
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import AuthenticationError, ProtocolError
from tailrace.runtime.links import auth
from tailrace.runtime.links.frames import HEADER, MAX_FRAME, FrameReader, decode_folds, encode_folds, frame

frames = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 2**64 - 1), st.binary(max_size=300)), min_size=1, max_size=8
)


def _read(reader: FrameReader, pieces: list[bytes]) -> list[tuple[int, int, bytes]]:
    return [(kind, number, bytes(payload)) for piece in pieces for kind, number, payload in reader.feed(piece)]


def _cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(position % (len(data) + 1) for position in at)})
    return [data[low:high] for low, high in pairwise(edges)]


@given(frames, st.lists(st.integers(0, 4000), max_size=20))
def test_any_cutting_gives_the_same_frames(sent: list[tuple[int, int, bytes]], at: list[int]) -> None:
    reader = FrameReader()
    assert _read(reader, _cut(b"".join(frame(*one) for one in sent), at)) == sent
    assert not reader.partial


@given(frames)
def test_byte_by_byte(sent: list[tuple[int, int, bytes]]) -> None:
    data = b"".join(frame(*one) for one in sent)
    assert _read(FrameReader(), [data[at : at + 1] for at in range(len(data))]) == sent


@given(frames, st.integers(1, 300))
def test_a_truncated_stream_gives_whole_frames_only(sent: list[tuple[int, int, bytes]], missing: int) -> None:
    data = b"".join(frame(*one) for one in sent)
    reader = FrameReader()
    found = _read(reader, [data[: -min(missing, len(data))]])
    assert found == sent[: len(found)] and len(found) < len(sent)


@given(st.binary(max_size=40), st.integers(0, 40), st.sampled_from([0, 1, 8, 101 + HEADER.size, 2**31, 2**32 - 1]))
def test_a_frame_of_impossible_size(rest: bytes, cut: int, length: int) -> None:
    data = struct.pack("<IBQ", length, 1, 1) + rest
    with pytest.raises(ProtocolError, match=rf"frame of impossible size: bytes={length} limit=100; is the peer"):
        _read(FrameReader(limit=100), [data[:cut], data[cut:]])


def test_a_huge_frame_is_refused_before_it_is_gathered() -> None:
    reader = FrameReader()
    with pytest.raises(ProtocolError, match="impossible size: bytes=4294967295"):
        _read(reader, [HEADER.pack(0xFFFF_FFFF, 1, 1)])


def test_a_payload_that_is_too_large_is_not_framed() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return MAX_FRAME + 1

    with pytest.raises(ProtocolError, match=f"frame too large: bytes={MAX_FRAME + 1} limit={MAX_FRAME}"):
        frame(1, 1, Huge())


folds = st.dictionaries(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), max_size=20)


@given(st.tuples(folds, folds, folds), st.integers(0, 2**63))
def test_folds_come_back(sent: tuple[dict[int, int], dict[int, int], dict[int, int]], sent_ns: int) -> None:
    assert decode_folds(memoryview(encode_folds(sent, sent_ns))) == (sent, sent_ns)


# --- handshakes


class Acceptor(threading.Thread):
    """The accepting side, on a socket pair."""

    def __init__(self, connection: socket.socket, secret: bytes, why_not: str | None) -> None:
        super().__init__(daemon=True)
        self.connection, self.secret, self.why_not = connection, secret, why_not
        self.hello: dict[str, Any] | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            contact = auth.accept(self.connection, self.secret)
            self.hello = contact.said
            auth.answer(contact, self.why_not)
        except Exception as error:
            self.error = error


@contextmanager
def accepting(
    monkeypatch: pytest.MonkeyPatch, secret: bytes, why_not: str | None = None
) -> Iterator[tuple[socket.socket, Acceptor]]:
    """The dialing end of a socket pair whose other end accepts. ``dial`` finds it instead of the network."""
    near, far = socket.socketpair()
    near.settimeout(10)
    monkeypatch.setattr(auth, "tune", lambda connection: None)  # these are no TCP sockets
    monkeypatch.setattr(auth.socket, "create_connection", lambda address, timeout: near)
    acceptor = Acceptor(far, secret, why_not)
    acceptor.start()
    try:
        yield near, acceptor
    finally:
        near.close()
        acceptor.join(10)
        far.close()


ADDRESS = ("nowhere", 1)


def test_who_shares_the_secret_gets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = auth.new_secret()
    with accepting(monkeypatch, secret) as (_, acceptor):
        auth.dial(ADDRESS, secret, {"role": "worker"})
        acceptor.join(10)
    assert acceptor.hello == {"role": "worker"}


def test_who_is_refused_hears_why(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = auth.new_secret()
    with (
        accepting(monkeypatch, secret, why_not="full house"),
        pytest.raises(ProtocolError, match=r"refused by nowhere:1: full house"),
    ):
        auth.dial(ADDRESS, secret, {})


def test_the_dialer_finds_out_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with accepting(monkeypatch, auth.new_secret()) as (_, acceptor):
        with pytest.raises(AuthenticationError, match="does something else listen on its port"):
            auth.dial(ADDRESS, auth.new_secret(), {})
        acceptor.join(10)
    assert isinstance(acceptor.error, ProtocolError) and acceptor.hello is None


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        (b"x" * 40, AuthenticationError, "does not speak our protocol"),
        (auth.MAGIC + b"x" * 31, ProtocolError, "connection closed: received=39 expected=40"),
        (auth.MAGIC + b"x" * 32 + b"y" * 32, AuthenticationError, "is it of another run"),
        (b"", ProtocolError, "received=0"),
    ],
)
def test_the_acceptor_refuses(monkeypatch: pytest.MonkeyPatch, said: bytes, error: type[Exception], text: str) -> None:
    with accepting(monkeypatch, auth.new_secret()) as (near, acceptor):
        near.sendall(said)
        near.shutdown(socket.SHUT_WR)
        acceptor.join(10)
    assert type(acceptor.error) is error and text in str(acceptor.error)


def test_an_answer_cannot_be_reflected_or_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = auth.new_secret()
    recorded = b""
    for replay in (False, True):
        with accepting(monkeypatch, secret) as (near, acceptor):
            challenge = b"c" * auth.CHALLENGE
            near.sendall(auth.MAGIC + challenge)
            greeting = auth.receive_exactly(near, len(auth.MAGIC) + auth.CHALLENGE + auth.DIGEST)
            other = greeting[len(auth.MAGIC) : -auth.DIGEST]
            near.sendall(recorded if replay else greeting[-auth.DIGEST :])
            recorded = auth._answer(secret, b"dial", challenge, other)
            acceptor.join(10)
        assert isinstance(acceptor.error, AuthenticationError), replay


@pytest.mark.parametrize(
    ("hello", "text"),
    [
        (struct.pack("<I", 5000), "hello too large: bytes=5000 limit=4096"),
        (struct.pack("<I", 4) + b"oops", "hello is not JSON"),
        (struct.pack("<I", 2) + b"[]", "hello is not an object: type=list"),
        (struct.pack("<I", 2) + b"\xff\xfe", "hello is not JSON"),
        (struct.pack("<I", 4) + b"{}", "connection closed: received=2 expected=4"),
    ],
)
def test_a_peer_with_the_secret_that_says_nonsense(monkeypatch: pytest.MonkeyPatch, hello: bytes, text: str) -> None:
    secret = auth.new_secret()
    with accepting(monkeypatch, secret) as (near, acceptor):
        seals = auth._prove_as_dialer(near, secret)
        near.sendall(hello if "closed" in text else hello + seals.sending.of(auth.GREETING, hello[4:]))
        near.shutdown(socket.SHUT_WR)
        acceptor.join(10)
    assert isinstance(acceptor.error, ProtocolError) and text in str(acceptor.error)


def test_secrets_are_long_and_differ() -> None:
    assert len({auth.new_secret() for _ in range(100)}) == 100
    assert len(auth.new_secret()) == len(secrets.token_bytes(32))
