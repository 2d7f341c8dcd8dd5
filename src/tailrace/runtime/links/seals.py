"""Seals: what is said on an authenticated connection carries a keyed hash, so that nobody on the way can add to it.

Each direction has a key of its own, made of the run's secret and both challenges of the handshake: a frame fits no
other connection, and cannot be sent back. Its number is hashed with it: it can be neither repeated nor left out. A seal
hides nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from tailrace.errors import ProtocolError

SEAL_BYTES = 16
"""A forger has one guess in 2**128, and then the connection is closed."""

Part = bytes | memoryview


class Seal:
    """Of one direction."""

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(key=key, digest_size=SEAL_BYTES)

    def of(self, *parts: Part) -> bytes:
        keyed = self._keyed.copy()
        for part in parts:
            keyed.update(part)
        return keyed.digest()

    def check(self, seal: Part, *parts: Part) -> None:
        if not hmac.compare_digest(seal, self.of(*parts)):
            raise ProtocolError("a frame is not authentic: was it changed, or added, on the way?")


@dataclass(frozen=True)
class Seals:
    """Of both directions, as one end has them."""

    sending: Seal = field(repr=False)
    receiving: Seal = field(repr=False)


def seals_of(secret: bytes, challenges: Sequence[bytes], dialed: bool) -> Seals:
    """``challenges``: the dialer's, then the acceptor's. ``dialed``: whether this end did."""
    keys = [hmac.digest(secret, b"seal" + role + b"".join(challenges), "sha256") for role in (b"dial", b"accept")]
    dialers, acceptors = (Seal(key) for key in keys)
    return Seals(dialers, acceptors) if dialed else Seals(acceptors, dialers)
