"""One who relays the handshake of two peers can neither add to what they say nor change it."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tailrace.errors import ProtocolError
from tailrace.runtime.links import auth
from tailrace.runtime.links.auth import Contact, accept, answer, dial, new_secret, stays_here
from tailrace.runtime.links.channels import Channel, SocketWriter, writer_of
from tailrace.runtime.links.control import ControlConnection
from tailrace.runtime.links.frames import BUNDLES, MESSAGE, FrameReader, frame
from tailrace.runtime.links.seals import seals_of
from tailrace.testing.processes import wait_until

HELLO = {"role": "worker", "worker": 0, "epoch": 1}


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@dataclass
class Relay:
    """Somebody between a dialer and the driver, who passes on what they say, changed if it likes."""

    driver: socket.socket
    listener: socket.socket
    change: bytes = b""  # of what the dialer says, to the second
    to: bytes = b""
    ends: list[socket.socket] = field(default_factory=list)

    def run(self) -> None:
        dialer, _ = self.listener.accept()
        driver = socket.create_connection(self.driver.getsockname())
        self.ends += [dialer, driver]
        threading.Thread(target=self._pump, args=(driver, dialer), daemon=True).start()
        self._pump(dialer, driver)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data.replace(self.change, self.to) if self.change else data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def add(self, data: bytes) -> None:
        self.ends[1].sendall(data)


@contextmanager
def relayed(change: bytes = b"", to: bytes = b"") -> Iterator[tuple[Relay, bytes, list[Any]]]:
    """A driver behind a relay, and what it has heard, or why it hung up."""
    secret = new_secret()
    heard: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as driver, socket.create_server(("127.0.0.1", 0)) as listener:

        def drive() -> None:
            connection, _ = driver.accept()
            with connection:
                try:
                    contact = accept(connection, secret)
                    answer(contact, None)
                    heard.extend(ControlConnection(connection, contact.seals).receive())
                except ProtocolError as error:
                    heard.append(error)

        relay = Relay(driver, listener, change, to)
        threads = [threading.Thread(target=work, daemon=True) for work in (drive, relay.run)]
        for thread in threads:
            thread.start()
        yield relay, secret, heard
        for end in relay.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        threads[0].join(10)


def test_a_relay_that_changes_nothing_is_not_noticed() -> None:
    with relayed() as (relay, secret, heard):
        contact = dial(relay.listener.getsockname(), secret, HELLO)
        ControlConnection(contact.connection, contact.seals).send("hello")
        wait_until(lambda: bool(heard), 10, "the message")
        contact.connection.close()
    assert heard == ["hello"]


def test_a_relay_that_adds_a_message_gets_nothing_executed(tmp_path: Path) -> None:
    with relayed() as (relay, secret, heard):
        contact = dial(relay.listener.getsockname(), secret, HELLO)
        relay.add(frame(MESSAGE, 1, pickle.dumps(Evil(tmp_path / "evil"))))
        wait_until(lambda: bool(heard), 10, "the driver to hang up")
        contact.connection.close()
    assert "not authentic" in str(heard[0]) and not list(tmp_path.iterdir())


def test_a_relay_cannot_change_who_somebody_is() -> None:
    with relayed(b'"epoch": 1', b'"epoch": 7') as (relay, secret, heard), pytest.raises((ProtocolError, OSError)):
        dial(relay.listener.getsockname(), secret, HELLO)
    assert "not authentic" in str(heard[0])


def test_links_are_sealed_where_they_leave_the_machine() -> None:
    near, far = Contact(None, "seals", True, {}), Contact(None, "seals", False, {})  # type: ignore[arg-type]
    assert near.link_seals is None and far.link_seals == "seals"


def test_a_sealed_link_takes_what_its_peer_sends_and_nothing_else() -> None:
    one, other = socket.socketpair()
    with one, other:
        theirs, ours = (auth.seals_of(b"secret", (b"a", b"b"), dialed) for dialed in (True, False))
        out = writer_of(Channel(one, seals=theirs))
        assert isinstance(out, SocketWriter)
        out.write(BUNDLES, b"first")
        out.write(BUNDLES, b"second")
        data = other.recv(1000)
    reader = FrameReader(seal=ours.receiving)
    frames = [(kind, number, bytes(payload)) for kind, number, payload in reader.feed(data)]
    assert frames == [(BUNDLES, 1, b"first"), (BUNDLES, 2, b"second")]
    for position in range(4, len(data) // 2):  # the length may be anything: it is looked at first
        changed = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(ProtocolError, match="not authentic"):
            list(FrameReader(seal=ours.receiving).feed(changed))


def test_who_claims_to_be_near_and_is_not_is_refused() -> None:
    """Else somebody who relays could have links between machines go without seals."""
    secret = new_secret()
    errors: list[Exception] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take() -> None:
            connection, _ = listener.accept()
            try:
                with patch.object(auth, "stays_here", lambda connection: False):
                    accept(connection, secret)
            except ProtocolError as error:
                errors.append(error)

        thread = threading.Thread(target=take, daemon=True)
        with patch.object(auth, "stays_here", stays_here):
            connection = socket.create_connection(listener.getsockname())
            thread.start()
            seals = auth._prove_as_dialer(connection, secret)
            auth._send_json(connection, seals.sending, {**HELLO, "near": True})
            thread.join(10)
            connection.close()
    assert "within its machine; who relays it?" in str(errors[0])


def test_what_stays_here() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        assert stays_here(near)


def test_a_seal_counts_in_one_direction_of_one_connection_alone() -> None:
    """A frame that is sent back to its sender, or into another connection of the same run, is not authentic."""
    secret, challenges = new_secret(), (b"d" * 32, b"a" * 32)
    dialer, acceptor = (seals_of(secret, challenges, dialed) for dialed in (True, False))
    for one, other in ((dialer, acceptor), (acceptor, dialer)):
        seal = one.sending.of(b"head", b"payload")
        other.receiving.check(seal, b"head", b"payload")
        later = [seals_of(secret, again, other is dialer) for again in ((b"e" * 32, b"a" * 32), (b"d" * 32, b"b" * 32))]
        strangers = seals_of(new_secret(), challenges, other is dialer)
        for wrong in (one.receiving, strangers.receiving, *(seals.receiving for seals in later)):
            with pytest.raises(ProtocolError, match="a frame is not authentic"):
                wrong.check(seal, b"head", b"payload")
