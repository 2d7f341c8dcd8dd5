"""Seals: everything on an authenticated connection carries a keyed hash, so that no attacker can add to it.

Each direction has a key of its own, derived from the run's secret and both challenges of the handshake: a frame is
valid on no other connection, and cannot be reflected. The hash covers the frame's number: a frame can be neither
repeated nor left out. A seal hides nothing.
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
    """Makes and checks the seals of one direction."""

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
    """The seals of both directions, as one end uses them."""

    sending: Seal = field(repr=False)
    receiving: Seal = field(repr=False)


def seals_of(secret: bytes, challenges: Sequence[bytes], dialed: bool) -> Seals:
    """``challenges``: the dialer's, then the acceptor's. ``dialed``: whether this end is the dialer."""
    keys = [hmac.digest(secret, b"seal" + role + b"".join(challenges), "sha256") for role in (b"dial", b"accept")]
    dialers, acceptors = (Seal(key) for key in keys)
    return Seals(dialers, acceptors) if dialed else Seals(acceptors, dialers)
