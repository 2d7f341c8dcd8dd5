"""A connection that encrypts behaves as the socket it is made of, whatever the pieces that bytes come and go in."""

from __future__ import annotations

import random
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tailrace.errors import AuthenticationError, ProtocolError, Tampered
from tailrace.runtime.encryption.certificate import Certificate, accepting, dialing, make_certificate
from tailrace.runtime.encryption.connection import (
    CHUNK,
    EncryptedConnection,
    detached,
    encrypted_by_acceptor,
    encrypted_by_dialer,
)
from tailrace.runtime.encryption.session import RECORD_BYTES, TlsSession
from tailrace.testing.processes import wait_until

PATIENCE_S = 5.0
WHOLE = 2 * RECORD_BYTES


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return make_certificate()


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The dialer's end and the acceptor's, over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname(), timeout=PATIENCE_S)
        far, _ = listener.accept()
    far.settimeout(PATIENCE_S)
    with near, far:
        yield near, far


def both(*work: Callable[[], Any]) -> list[Any]:
    """Results of what is done at the same time; errors are results too."""
    with ThreadPoolExecutor(len(work)) as pool:
        futures = [pool.submit(one) for one in work]
        return [future.exception(30) or future.result() for future in futures]


@pytest.fixture
def ends(
    sockets: tuple[socket.socket, socket.socket], certificate: Certificate
) -> tuple[EncryptedConnection, EncryptedConnection]:
    near, far = sockets
    dialer, acceptor = both(
        lambda: encrypted_by_dialer(near, certificate.fingerprint, PATIENCE_S),
        lambda: encrypted_by_acceptor(far, accepting(certificate), PATIENCE_S),
    )
    assert isinstance(dialer, EncryptedConnection) and isinstance(acceptor, EncryptedConnection)
    return dialer, acceptor


def read(connection: EncryptedConnection, count: int, at_once: Callable[[], int] = lambda: 1 << 18) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(at_once())
        assert piece, f"closed after {len(data)} of {count}"
        data += piece
    return data


# -- bytes


def test_bytes_arrive_as_they_were_sent_both_ways(ends: tuple[EncryptedConnection, EncryptedConnection]) -> None:
    for sender, receiver in (ends, ends[::-1]):
        sender.sendall(b"hello")
        assert receiver.recv(1000) == b"hello"


def test_nothing_of_it_can_be_read_on_the_way(
    ends: tuple[EncryptedConnection, EncryptedConnection], sockets: tuple[socket.socket, socket.socket]
) -> None:
    ends[0].sendall(b"a tuple that nobody else may read")
    seen = sockets[1].recv(1000)
    assert seen[:3] == b"\x17\x03\x03" and b"tuple" not in seen


@pytest.mark.parametrize("size", [1, 16 << 10, (16 << 10) + 1, CHUNK, CHUNK + 1, 3_000_000])
def test_any_size_arrives_in_any_pieces(ends: tuple[EncryptedConnection, EncryptedConnection], size: int) -> None:
    rng = random.Random(size)
    data = rng.randbytes(size)
    sender, receiver = ends
    _, found = both(
        lambda: sender.sendall(data), lambda: read(receiver, size, lambda: rng.choice([7, 5000, 1 << 16, 1 << 18]))
    )
    assert found == data


def test_a_small_read_leaves_the_rest_for_the_next(ends: tuple[EncryptedConnection, EncryptedConnection]) -> None:
    ends[0].sendall(b"one and two")
    assert [ends[1].recv(4) for _ in range(3)] == [b"one ", b"and ", b"two"]


def test_an_event_loop_never_waits_for_what_has_been_decrypted(
    ends: tuple[EncryptedConnection, EncryptedConnection],
) -> None:
    """A reader that waits for the socket and then reads once gets everything, a record and a half at a time too."""
    sender, receiver = ends
    data = random.Random(1).randbytes(400_000)
    receiver.setblocking(False)
    poll = select.poll()
    poll.register(receiver, select.POLLIN)
    thread = threading.Thread(target=sender.sendall, args=(data,))
    thread.start()
    found = b""
    while len(found) < len(data):
        assert poll.poll(PATIENCE_S * 1000), f"nothing more comes: found={len(found)} of {len(data)}"
        try:
            found += receiver.recv(WHOLE)
        except BlockingIOError:
            continue  # half a record
        assert not detached(receiver)[2], "something is held back that nothing will signal"
    thread.join()
    assert found == data


def test_records_in_pieces_are_put_together(
    sockets: tuple[socket.socket, socket.socket], ends: tuple[EncryptedConnection, EncryptedConnection]
) -> None:
    """Each byte arrives by itself, and the reader never waits."""
    (_, session, _), receiver = detached(ends[0]), ends[1]
    assert session is not None
    receiver.setblocking(False)
    found = b""
    for byte in session.encrypt(b"first") + session.encrypt(b"second"):
        sockets[0].sendall(bytes([byte]))
        select.select([receiver], [], [], PATIENCE_S)
        try:
            found += receiver.recv(WHOLE)
        except BlockingIOError:
            pass
    assert found == b"firstsecond"


def test_a_sender_that_does_not_wait_sends_each_byte_once(
    ends: tuple[EncryptedConnection, EncryptedConnection],
) -> None:
    """As a link does: it goes on with the same bytes whenever the socket may take more."""
    sender, receiver = ends
    sender.setblocking(False)
    data = random.Random(2).randbytes(5_000_000)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(read(receiver, len(data))))
    rest = memoryview(data)
    with pytest.raises(BlockingIOError):  # before anybody reads
        while True:
            rest = rest[sender.send(rest) :]
    thread.start()
    while rest:
        try:
            rest = rest[sender.send(rest) :]
        except BlockingIOError:
            select.select([], [sender], [], PATIENCE_S)
    thread.join(30)
    assert found == [data]


def test_one_thread_sends_while_another_waits_for_data(ends: tuple[EncryptedConnection, EncryptedConnection]) -> None:
    """As both do on a control connection, all the time."""
    one, other = ends
    data = [random.Random(seed).randbytes(2_000_000) for seed in (3, 4)]
    results = both(
        lambda: one.sendall(data[0]),
        lambda: other.sendall(data[1]),
        lambda: read(other, len(data[0])),
        lambda: read(one, len(data[1])),
    )
    assert results == [None, None, *data]


# -- ends


@pytest.mark.parametrize("closer", [0, 1])
def test_the_end_of_a_peer_is_the_end_of_its_bytes(
    ends: tuple[EncryptedConnection, EncryptedConnection], closer: int
) -> None:
    ends[closer].sendall(b"last words")
    ends[closer].close()
    other = ends[1 - closer]
    assert other.recv(1000) == b"last words" and other.recv(1000) == b"" and other.recv(1000) == b""
    with pytest.raises(OSError):
        for _ in range(100):
            other.sendall(b"too late")
            time.sleep(0.01)
    assert ends[closer].fileno() == -1


def test_a_peer_that_ends_within_a_record_has_said_nothing(
    sockets: tuple[socket.socket, socket.socket], ends: tuple[EncryptedConnection, EncryptedConnection]
) -> None:
    _, session, _ = detached(ends[0])
    assert session is not None
    sockets[0].sendall(session.encrypt(b"half a tuple")[:-5])
    sockets[0].close()
    assert ends[1].recv(1000) == b""


def test_a_thread_that_waits_is_woken_when_another_shuts_the_connection_down(
    ends: tuple[EncryptedConnection, EncryptedConnection],
) -> None:
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(ends[1].recv(1000)))
    thread.start()
    time.sleep(0.05)
    ends[1].shutdown(socket.SHUT_RDWR)
    thread.join(5)
    assert found == [b""]


def test_a_session_that_its_peer_ends_has_broken(
    sockets: tuple[socket.socket, socket.socket], ends: tuple[EncryptedConnection, EncryptedConnection]
) -> None:
    """None of ours does that: whoever does is gone, though its connection is open."""
    _, session, _ = detached(ends[0])
    assert session is not None
    with pytest.raises(ssl.SSLError):
        session._tls.unwrap()
    sockets[0].sendall(session.to_send())
    with pytest.raises(ConnectionResetError, match="ended the encryption"):
        ends[1].recv(1000)


@pytest.mark.parametrize("added", ["garbage", "a record again", "a changed record", "a record out of turn", "clear"])
def test_bytes_that_somebody_adds_end_the_connection(
    sockets: tuple[socket.socket, socket.socket], ends: tuple[EncryptedConnection, EncryptedConnection], added: str
) -> None:
    _, session, _ = detached(ends[0])
    assert session is not None
    first, second = session.encrypt(b"first"), session.encrypt(b"second")
    changed = first[:-1] + bytes([first[-1] ^ 1])
    bytes_of = {
        "garbage": bytes(100),
        "a record again": first + first,
        "a changed record": changed,
        "a record out of turn": second,
        "clear": b"\x17\x03\x03\x00\x05hello",
    }
    sockets[0].sendall(bytes_of[added])
    with pytest.raises(Tampered, match=r"not authentic: cause=.*; was it changed, or added, on the way\?") as refusal:
        while True:
            assert ends[1].recv(1000) in (b"first", b"")
    assert isinstance(refusal.value, ProtocolError) and isinstance(refusal.value, OSError)


# -- who is not let in


def test_who_dials_says_nothing_to_a_peer_with_another_certificate(
    sockets: tuple[socket.socket, socket.socket], certificate: Certificate
) -> None:
    near, far = sockets
    heard: list[bytes] = []

    def pretend() -> None:
        connection = encrypted_by_acceptor(far, accepting(make_certificate()), PATIENCE_S)
        heard.append(connection.recv(1000))

    thread = threading.Thread(target=pretend)
    thread.start()
    with pytest.raises(AuthenticationError) as refusal:
        encrypted_by_dialer(near, certificate.fingerprint, PATIENCE_S)
    near.close()
    thread.join(10)
    error = refusal.value
    assert heard == [b""]
    assert str(error).startswith("the peer has another certificate: fingerprint=")
    assert str(error).endswith("; does somebody stand between, or listen on its port?")


def old_context(*, server: Certificate | None = None) -> ssl.SSLContext:
    if server is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context = accepting(server)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def test_an_older_tls_is_refused_at_both_ends(
    sockets: tuple[socket.socket, socket.socket], certificate: Certificate
) -> None:
    near, far = sockets

    def dial_with_an_older_one() -> str:
        try:
            old_context().wrap_socket(near)
        except OSError as error:
            return str(error)
        return "accepted"

    stranger, ours = both(
        dial_with_an_older_one, lambda: encrypted_by_acceptor(far, accepting(certificate), PATIENCE_S)
    )
    assert isinstance(ours, AuthenticationError) and "cause=UNSUPPORTED_PROTOCOL" in str(ours)
    assert "PROTOCOL_VERSION" in stranger.upper(), "the stranger is told why"


def test_who_dials_takes_no_older_tls(sockets: tuple[socket.socket, socket.socket], certificate: Certificate) -> None:
    near, far = sockets

    def accept_with_an_older_one() -> None:
        with ExitStack() as stack:
            stack.enter_context(pytest.raises(OSError))
            old_context(server=certificate).wrap_socket(far, server_side=True)

    ours, _ = both(lambda: encrypted_by_dialer(near, certificate.fingerprint, PATIENCE_S), accept_with_an_older_one)
    assert isinstance(ours, AuthenticationError) and "no encryption with the peer: cause=" in str(ours)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"tailrac2" + bytes(32), bytes(1000), b"\x16\x03\x01"])
def test_a_stranger_that_does_not_speak_tls_is_sent_away(
    sockets: tuple[socket.socket, socket.socket], certificate: Certificate, said: bytes
) -> None:
    near, far = sockets
    near.sendall(said)
    near.shutdown(socket.SHUT_WR)
    with pytest.raises(AuthenticationError, match=r"no encryption with the peer"):
        encrypted_by_acceptor(far, accepting(certificate), PATIENCE_S)


def test_who_says_a_byte_now_and_then_is_given_up_in_time(
    sockets: tuple[socket.socket, socket.socket], certificate: Certificate
) -> None:
    near, far = sockets
    stop = threading.Event()

    def drip() -> None:
        session = TlsSession(dialing(), dialed=True)
        session.shake_hands(b"")
        for byte in session.to_send():
            if stop.wait(0.05):
                return
            near.sendall(bytes([byte]))

    thread = threading.Thread(target=drip)
    thread.start()
    begun_s = time.monotonic()
    with pytest.raises(TimeoutError):
        encrypted_by_acceptor(far, accepting(certificate), 0.5)
    assert time.monotonic() - begun_s < PATIENCE_S
    stop.set()
    thread.join()


def test_no_ticket_is_given_that_a_later_connection_could_resume(
    sockets: tuple[socket.socket, socket.socket], ends: tuple[EncryptedConnection, EncryptedConnection]
) -> None:
    """It would wait in the dialer's socket, where an event loop would take it for the end of a link."""
    poll = select.poll()
    poll.register(ends[0], select.POLLIN)
    assert not poll.poll(100)


def test_a_connection_keeps_the_options_of_its_socket(ends: tuple[EncryptedConnection, EncryptedConnection]) -> None:
    near, far = ends
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 4) == b"\1\0\0\0"
    assert near.getpeername() == far.getsockname() and near.family == socket.AF_INET
    near.settimeout(0.05)
    with pytest.raises(TimeoutError):
        near.recv(10)
    wait_until(lambda: near.fileno() >= 0, 1)


def test_nothing_goes_out_past_the_encryption() -> None:
    """Python may call any method of a socket, ``sendmsg`` among them: this one has none that is not encrypted."""
    assert not {"sendmsg", "sendto", "sendfile", "recv_into", "makefile", "dup", "detach"} & set(
        dir(EncryptedConnection)
    )
