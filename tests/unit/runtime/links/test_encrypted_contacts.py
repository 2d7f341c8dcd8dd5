"""The proof of the secret inside TLS: one in the middle reads nothing, adds nothing, and cannot stand for either."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.network.relays import Relay
from tailrace.errors import AuthenticationError, ProtocolError, Refused
from tailrace.runtime.encryption.certificate import Certificate, accepting, make_certificate
from tailrace.runtime.encryption.connection import EncryptedConnection, encrypted_by_acceptor, encrypted_by_dialer
from tailrace.runtime.links.auth import TIMEOUT_S, Contact, accept, answer, dial, new_secret
from tailrace.runtime.links.control import ControlConnection
from tailrace.runtime.links.frames import MESSAGE, frame
from tailrace.runtime.links.seals import Seal
from tailrace.testing.processes import wait_until

HELLO = {"role": "worker", "worker": 0, "epoch": 1}
SECRET = new_secret()
WORDS = "words that nobody else may read"


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


class Driver:
    """Accepts one connection after another, and hears messages."""

    def __init__(self, certificate: Certificate | None) -> None:
        self._encryption = None if certificate is None else accepting(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self.heard: list[Any] = []
        self.contacts: list[Contact] = []

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                contact = accept(connection, SECRET, self._encryption)
                self.contacts.append(contact)
                answer(contact, None)
                for message in ControlConnection(contact.connection, contact.seals).receive():
                    self.heard.append(message)
            except (ProtocolError, OSError) as error:
                self.heard.append(error)
                connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return make_certificate()


@contextmanager
def relayed(certificate: Certificate | None) -> Iterator[tuple[Driver, Relay]]:
    driver = Driver(certificate)
    threading.Thread(target=driver.run, daemon=True).start()
    with Relay(driver.address) as relay:
        try:
            yield driver, relay
        finally:
            driver.close()


@pytest.mark.parametrize("encrypted", [False, True])
def test_who_relays_reads_everything_in_clear_and_nothing_that_is_encrypted(
    encrypted: bool, certificate: Certificate
) -> None:
    with relayed(certificate if encrypted else None) as (driver, relay):
        contact = dial(relay.address, SECRET, HELLO, certificate.fingerprint if encrypted else None)
        ControlConnection(contact.connection, contact.seals).send(WORDS)
        wait_until(lambda: bool(driver.heard), 10, "the message")
        assert driver.heard == [WORDS]
        seen = [word in relay.seen for word in (WORDS.encode(), b"epoch", b"tailrac2")]
        assert seen == [not encrypted] * 3
        assert isinstance(contact.connection, EncryptedConnection) is encrypted
        contact.connection.close()


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_relay_that_adds_a_message_gets_nothing_executed(
    encrypted: bool, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS alone sees to that; without it and without seals the message would be taken."""
    monkeypatch.setattr(Seal, "check", lambda *_: None)
    bomb = tmp_path / "bomb"
    with relayed(certificate if encrypted else None) as (driver, relay):
        contact = dial(relay.address, SECRET, HELLO, certificate.fingerprint if encrypted else None)
        relay.add(frame(MESSAGE, 1, pickle.dumps(Bomb(bomb)), Seal(b"any")))
        wait_until(lambda: bool(driver.heard), 10, "the driver to hang up, or the message")
        assert ("an encrypted record is not authentic" in str(driver.heard[0])) is encrypted
        assert bomb.exists() is not encrypted
        contact.connection.close()


def test_one_in_the_middle_with_a_certificate_of_its_own_hears_no_proof(certificate: Certificate) -> None:
    """It would decrypt, relay the proofs, and add to what follows. It does not get that far."""
    own = make_certificate()
    heard: list[bytes] = []

    def stand_between(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        heard.append(encrypted_by_acceptor(connection, accepting(own), TIMEOUT_S).recv(1000))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=stand_between, args=(listener,), daemon=True)
        thread.start()
        with pytest.raises(AuthenticationError, match="the peer has another certificate"):
            dial(listener.getsockname(), SECRET, HELLO, certificate.fingerprint)
        thread.join(10)
    assert heard == [b""]


def test_encryption_alone_is_no_proof(certificate: Certificate) -> None:
    """Anybody may encrypt, and learn the certificate by that: the secret is what counts."""
    with relayed(certificate) as (driver, _):
        with pytest.raises(ProtocolError):
            dial(driver.address, new_secret(), HELLO, certificate.fingerprint)
        wait_until(lambda: bool(driver.heard), 10, "the refusal")
        assert not driver.contacts


def test_who_accepts_encrypted_connections_takes_none_in_clear(certificate: Certificate) -> None:
    with relayed(certificate) as (driver, _):
        with pytest.raises((ProtocolError, OSError)):
            dial(driver.address, SECRET, HELLO)
        wait_until(lambda: bool(driver.heard), 10, "the refusal")
        assert isinstance(driver.heard[0], AuthenticationError) and not driver.contacts


def test_who_dials_encrypted_connections_says_nothing_in_clear(certificate: Certificate) -> None:
    with relayed(None) as (driver, relay):
        with pytest.raises(AuthenticationError, match="no encryption with the peer"):
            dial(relay.address, SECRET, HELLO, certificate.fingerprint)
        assert not driver.contacts and b"tailrac2" not in relay.seen


def test_a_peer_that_is_refused_hears_why(certificate: Certificate) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            answer(accept(connection, SECRET, accepting(certificate)), "there is one already")

        threading.Thread(target=refuse, daemon=True).start()
        with pytest.raises(Refused, match="there is one already"):
            dial(listener.getsockname(), SECRET, HELLO, certificate.fingerprint)


def test_frames_of_links_carry_no_seals_where_tls_has_its_own(certificate: Certificate) -> None:
    near, far = socket.socketpair()
    thread = threading.Thread(target=lambda: encrypted_by_acceptor(far, accepting(certificate), TIMEOUT_S))
    thread.start()
    encrypted = encrypted_by_dialer(near, certificate.fingerprint, TIMEOUT_S)
    thread.join()
    seals: Any = "seals"
    assert Contact(encrypted, seals, False, {}).link_seals is None
    assert Contact(near, seals, False, {}).link_seals == "seals"
    near.close()
    far.close()
