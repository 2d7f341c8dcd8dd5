"""Strangers, and peers that have gone mad, connect to the ports of a run. It goes on, and ends exact."""

from __future__ import annotations

import json
import pickle
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from kit.runs import assert_prefixes, coordinator, homes, received, recoveries, restarts, running, same, stop
from tailrace.errors import AuthenticationError, ProtocolError
from tailrace.runtime.links.auth import CHALLENGE, DIGEST, GREETING, MAGIC, _prove_as_dialer, dial
from tailrace.runtime.links.frames import ACKS, BUNDLES, HEADER, MESSAGE, frame
from tailrace.testing.processes import listening_ports, wait_until

WORKERS = 2
LINKS = ("bundles", "acks")
KINDS = {"coordinator": MESSAGE, "bundles": BUNDLES, "acks": ACKS}


class Target:
    """One port of a run, and what a peer would say there."""

    def __init__(self, run: tr.Run, topology: tr.Topology, port: str) -> None:
        self.secret = coordinator(run).secret
        self.kind = KINDS[port]
        if port == "coordinator":
            self.address = coordinator(run).address
            self.hello: dict[str, Any] = {"role": "worker", "worker": 0, "epoch": 999}
            return
        operator, task = ("far", 1) if port == "bundles" else ("numbers", 0)
        (worker,) = homes(topology, WORKERS, operator)
        (number,) = listening_ports(run.workerPids()[worker])
        self.address = ("127.0.0.1", number)
        to_epoch = coordinator(run).epoch_of(worker)
        self.hello = {"role": "link", "kind": port, "worker": 1 - worker, "epoch": 999}
        self.hello |= {"target": task, "to_epoch": to_epoch}

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def enter(self) -> socket.socket:
        """Past the handshake, as a peer."""
        return dial(self.address, self.secret, self.hello).connection


@contextmanager
def attacked(port: str, **options: Any) -> Iterator[tuple[Target, tr.Run]]:
    """A run that must survive what happens inside, and reads on for a while after it."""
    out = tr.to_list()
    topology = tr.Topology("attacked")
    numbers = topology.source("numbers", tr.at_rate(range(10_000_000), 2000))
    numbers.map("far", same).sink("out", out)
    with running(topology, workers=WORKERS, **options) as run:
        wait_until(lambda: received(run, "out") > 0, 30, "the first rows")
        yield Target(run, topology, port), run
        least = received(run, "out") + 200
        wait_until(lambda: received(run, "out") >= least or not run.isActive, 30, "the run to go on")
        assert run.exception() is None, run.exception()
        progress = stop(run)
    assert_prefixes(out.values, 1, 200)
    assert restarts(progress) == [0] * WORKERS, "no worker may die of it"


def hangs_up(connection: socket.socket, timeout_s: float = 10) -> bool:
    """Whether the other side closes the connection. Its own patience is 5 s."""
    connection.settimeout(timeout_s)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_the_bomb_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "bomb")))
    assert (tmp_path / "bomb").exists()


@pytest.mark.parametrize("port", ["coordinator", "bundles"])
def test_strangers(port: str, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    load = frame(KINDS[port], 1, pickle.dumps(Bomb(bomb)))
    with attacked(port) as (target, _), target.connect() as silent:
        with pytest.raises(AuthenticationError, match="does not know the run's secret"):
            dial(target.address, secrets.token_bytes(32), target.hello)
        for data in (load, secrets.token_bytes(1000), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3, b"\0" * 100):
            with target.connect() as stranger:
                stranger.sendall(data)
                assert hangs_up(stranger)
        with target.connect() as stranger:
            stranger.sendall(MAGIC + secrets.token_bytes(CHALLENGE // 2))  # a truncated handshake, then silence
        with target.connect() as stranger:
            stranger.sendall(MAGIC + secrets.token_bytes(CHALLENGE))
            greeting = stranger.recv(4096)
            hello = json.dumps(target.hello).encode()
            whole = struct.pack("<I", len(hello)) + hello + load
            stranger.sendall(greeting[-DIGEST:] + whole)  # its own answer reflected, then all that a peer would say
            assert hangs_up(stranger)
        assert hangs_up(silent), "who says nothing is sent away after a while"
    assert not bomb.exists(), "something of a stranger's was unpickled"


@pytest.mark.parametrize("port", ["coordinator", "bundles"])
def test_strangers_of_an_encrypted_run(port: str) -> None:
    """To know the secret does not help who speaks in clear, nor encryption who does not know the secret."""
    with attacked(port, encrypt=True) as (target, run):
        fingerprint = coordinator(run).fingerprint
        assert fingerprint is not None
        with pytest.raises((ProtocolError, ConnectionError)):
            target.enter()
        with pytest.raises(ProtocolError):
            dial(target.address, secrets.token_bytes(32), target.hello, fingerprint)
        with pytest.raises(AuthenticationError, match="the peer has another certificate"):
            dial(target.address, target.secret, target.hello, secrets.token_bytes(32))
        hellos = (b"\x16\x03\x01\x40\x00\x01" + bytes(1000), MAGIC + secrets.token_bytes(CHALLENGE), bytes(20_000))
        with target.connect() as silent, target.connect() as half:
            half.sendall(hellos[0][:20])
            for data in hellos[1:]:
                with target.connect() as stranger:
                    stranger.sendall(data)
                    assert hangs_up(stranger)
            assert hangs_up(half) and hangs_up(silent)
        if port == "bundles":
            dial(target.address, target.secret, target.hello, fingerprint).connection.close()


def _oversize(target: Target) -> bytes:
    return HEADER.pack(0xFFFF_FFFF, target.kind, 1) + b"x" * 1000


def _undersize(target: Target) -> bytes:
    return HEADER.pack(3, target.kind, 1) + b"x" * 1000


def _out_of_sequence(target: Target) -> bytes:
    return frame(target.kind, 7, b"")


def _wrong_kind(target: Target) -> bytes:
    return frame(77, 1, b"")


@pytest.mark.parametrize("port", LINKS)
def test_peers_that_break_the_protocol(port: str) -> None:
    with attacked(port) as (target, _):
        for attack in (_oversize, _undersize, _out_of_sequence, _wrong_kind):
            with target.enter() as peer:
                peer.sendall(attack(target))
                assert hangs_up(peer), attack.__name__


@pytest.mark.parametrize("port", LINKS)
def test_a_peer_whose_payload_cannot_be_decoded(port: str) -> None:
    with attacked(port) as (target, _), target.enter() as peer:
        peer.sendall(frame(target.kind, 1, b"neither a pickle nor a fold"))
        assert hangs_up(peer)


@pytest.mark.parametrize("port", LINKS)
def test_a_peer_that_leaves_in_mid_frame(port: str) -> None:
    """A peer of ours would report it: who sent knows that it broke, and sends no more into it."""
    with attacked(port) as (target, run):
        with target.enter() as peer:
            peer.sendall(frame(target.kind, 1, b"x" * 1000)[:500])
            peer.shutdown(socket.SHUT_WR)
            assert hangs_up(peer)
        assert recoveries(run) == 0


def test_a_worker_that_the_coordinator_does_not_expect() -> None:
    with attacked("coordinator") as (target, run):
        for epoch in (999, coordinator(run).epoch_of(0)):  # the second is there already
            target.hello["epoch"] = epoch
            with pytest.raises(ProtocolError, match=f"epoch {epoch} of worker 0 is not expected"):
                target.enter()


HELLOS: list[Any] = [
    b"not json",
    b"[]",
    b"{}",
    b'{"role": "link", "worker": 0, "epoch": 999}',
    b'{"role": "worker", "worker": [], "epoch": 999}',
    b'{"role": "worker", "worker": 77, "epoch": 999}',
    b'{"role": "worker", "worker": 0, "epoch": "x"}',
    {"target": "none"},
    {"target": 10**6},
    {"to_epoch": 0},
    {"kind": None},
    {"epoch": 0},
    struct.pack("<I", 1 << 31),
]


@pytest.mark.parametrize("port", ["coordinator", "bundles"])
def test_a_peer_that_says_nonsense_for_a_greeting(port: str) -> None:
    with attacked(port) as (target, _):
        for hello in HELLOS:
            data = hello if isinstance(hello, bytes) else json.dumps(target.hello | hello).encode()
            whole = data if data[-1:] == b"\x80" else struct.pack("<I", len(data)) + data
            with target.connect() as peer:
                seals = _prove_as_dialer(peer, target.secret)
                peer.sendall(whole + seals.sending.of(GREETING, data))
                assert hangs_up(peer, 3), f"still connected after {hello}"


def test_a_link_of_an_epoch_that_was_replaced_is_refused() -> None:
    with attacked("bundles") as (target, _):
        target.hello["epoch"] = 0
        with pytest.raises(ProtocolError, match="epoch 0 of worker 0 has been replaced"):
            target.enter()
