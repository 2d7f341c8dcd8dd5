"""The certificate that a driver makes for a run, and what both ends of a connection insist on.

No authority vouches for it, and it holds no name. Processes that dial know its fingerprint and take no other one, so
no authority, name or clock decides what is trusted. The key never touches a disk.
"""

from __future__ import annotations

import importlib
import os
import ssl
import sys
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from hashlib import sha256

from tailrace.errors import OptionError

PACKAGE = "cryptography"
INSTALL = "pip install 'tailrace[encrypt]'"

VALID = datetime(2000, 1, 1), datetime(9999, 12, 31)
"""Nothing looks at these times: a run may outlast a year, and clocks of machines differ."""


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key, both as PEM. A process that accepts connections of the run needs both."""

    text: str = field(repr=False)
    key: str = field(repr=False)

    @property
    def fingerprint(self) -> bytes:
        """A digest, by which processes that dial recognise the certificate."""
        return fingerprint_of(ssl.PEM_cert_to_DER_cert(self.text))


def fingerprint_of(encoded: bytes) -> bytes:
    """The fingerprint of a certificate in its binary form."""
    return sha256(encoded).digest()


def why_no_certificates() -> str | None:
    """Why this process cannot make certificates; None if it can."""
    try:
        importlib.import_module(f"{PACKAGE}.x509")
    except ImportError as error:
        return (
            f"encryption needs the package {PACKAGE} on the driver: python={sys.executable} cause={error}; "
            f"could you {INSTALL}?"
        )
    return None


def make_certificate() -> Certificate:
    """Make a key and a certificate for it. Raises OptionError where the package for that is missing."""
    why_not = why_no_certificates()
    if why_not is not None:
        raise OptionError(why_not)
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    no_name = x509.Name([])
    builder = x509.CertificateBuilder(no_name, no_name, key.public_key(), x509.random_serial_number(), *VALID)
    certificate = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Certificate(certificate.decode(), private.decode())


def accepting(certificate: Certificate) -> ssl.SSLContext:
    """For those who accept connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nothing is resumed: a connection is made once, and its peer proves itself each time
    with _Pipe(certificate.text) as text, _Pipe(certificate.key) as key:
        context.load_cert_chain(text.path, key.path)
    return context


@cache
def dialing() -> ssl.SSLContext:
    """For those who dial. They compare fingerprints themselves, before they say anything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # of chains and dates; that the peer has the key is checked in any case
    return context


class _Pipe:
    """A text that ``ssl``, which reads certificates from files only, can read once. It is shorter than a pipe holds."""

    def __init__(self, text: str) -> None:
        self._reading, writing = os.pipe()
        os.write(writing, text.encode())
        os.close(writing)
        self.path = f"/proc/self/fd/{self._reading}"

    def __enter__(self) -> _Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._reading)
