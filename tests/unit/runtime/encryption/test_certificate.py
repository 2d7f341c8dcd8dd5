"""A certificate is made in one step, known by its fingerprint, and never written down."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import pytest

import tailrace as tr
from tailrace.runtime.encryption.certificate import accepting, make_certificate
from tailrace.runtime.links.control import Bootstrap
from tailrace.runtime.listening import Ports


def test_each_run_has_a_certificate_of_its_own() -> None:
    one, other = make_certificate(), make_certificate()
    assert len(one.fingerprint) == 32 and one.fingerprint != other.fingerprint
    assert "PRIVATE KEY" in one.key and "CERTIFICATE" in one.text
    assert "PRIVATE" not in repr(one) and "BEGIN" not in repr(one)


def test_no_key_is_left_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = set(Path("/proc/self/fd").iterdir())
    accepting(make_certificate())
    assert not list(tmp_path.iterdir()) and set(Path("/proc/self/fd").iterdir()) == before


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    with pytest.raises(tr.OptionError) as refusal:
        make_certificate()
    assert str(refusal.value).startswith(
        f"encryption needs the package cryptography on the driver: python={sys.executable} cause="
    )
    assert str(refusal.value).endswith("; could you pip install 'tailrace[encrypt]'?")


def test_a_worker_gets_what_the_driver_has() -> None:
    certificate = make_certificate()
    limits = ("there", 2, b"another secret", b"fingerprint")
    given = Bootstrap(("there", 1), b"the secret", 3, 4, limits, certificate, Ports(20_000, 20_100), True)
    assert Bootstrap.from_json(given.to_json()) == pickle.loads(pickle.dumps(given)) == given
    assert given.fingerprint == certificate.fingerprint
    bare = Bootstrap(("there", 1), b"the secret", 3, 4)
    assert Bootstrap.from_json(bare.to_json()) == bare and bare.fingerprint is None
    assert json.loads(bare.to_json())["secret"] == b"the secret".hex()


def test_a_bootstrap_does_not_show_the_key() -> None:
    bootstrap = Bootstrap(("there", 1), b"the secret", 0, 1, None, make_certificate())
    assert "BEGIN" not in repr(bootstrap) and "secret" not in repr(bootstrap)
