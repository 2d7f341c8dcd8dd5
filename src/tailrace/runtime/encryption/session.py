"""One end of a TLS connection, without its socket: bytes in, bytes out. The code that moves them may wait as it likes.

Python's own TLS sockets do not fit: two threads may not use one at a time, of which one waits, and each record costs
them several system calls.
"""

from __future__ import annotations

import ssl
import threading

from tailrace.errors import AuthenticationError, Tampered

RECORD_BYTES = 5 + (16 << 10) + 256
"""The largest TLS record. What it carries is always shorter."""

PLAIN_BYTES = 16 << 10
"""The most that a record carries."""


Data = bytes | bytearray | memoryview


class TlsSession:
    """The keys of a connection, once ``shake_hands`` has said that they are agreed upon. For any thread."""

    def __init__(self, context: ssl.SSLContext, *, dialed: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=not dialed)
        self._lock = threading.Lock()  # OpenSSL does not allow two threads to use a connection at a time

    def shake_hands(self, received: bytes) -> bool:
        """Take what the peer said. True when the handshake is over. Raises AuthenticationError if it failed.

        In any case ``to_send`` has to be sent.
        """
        with self._lock:
            self._incoming.write(received)
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLError as error:
                why = error.reason or error
                raise AuthenticationError(
                    f"no encryption with the peer: cause={why}; is it of another run, or does it not encrypt?"
                ) from error
            return True

    def to_send(self) -> bytes:
        """The bytes that the handshake has to send."""
        with self._lock:
            return self._outgoing.read()

    @property
    def peers_certificate(self) -> bytes:
        """In its binary form; empty if the peer has none, as those who dial."""
        return self._tls.getpeercert(binary_form=True) or b""

    def encrypt(self, data: Data) -> bytes:
        with self._lock:
            written = self._tls.write(data)  # a record at a time
            if written < len(data):
                rest = memoryview(data)[written:]
                while rest:
                    rest = rest[self._tls.write(rest) :]
            return self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """The content of the records that these bytes complete; empty if they complete none.

        Raises Tampered, an OSError, if the peer has not sent them, and ConnectionResetError if it ended the session.
        """
        with self._lock:
            self._incoming.write(data)
            found: list[bytes] = []
            try:
                while True:
                    part = self._tls.read(PLAIN_BYTES)
                    if not part:
                        raise ConnectionResetError("the peer has ended the encryption")
                    found.append(part)
                    if not self._incoming.pending:
                        break
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                why = error.reason or error
                raise Tampered(
                    f"an encrypted record is not authentic: cause={why}; was it changed, or added, on the way?"
                ) from error
        return found[0] if len(found) == 1 else b"".join(found)
