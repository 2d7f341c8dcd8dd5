"""Who cannot be reached is tried again by one thread, the user hears of it, and a link that is cut is noticed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.core.protocol.messages import Member
from tailrace.runtime.links import dialer
from tailrace.runtime.links.auth import Contact, seals_of, tune
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.dialer import Dialer
from tailrace.runtime.links.link import OutLink
from tailrace.runtime.links.link_watch import LinkWatch, Progress, progress_of
from tailrace.testing.processes import wait_until

THERE = Member(4, ("10.9.8.7", 4711))


class Network:
    """Stands in for ``dial``."""

    def __init__(self) -> None:
        self.up = True
        self.tries: list[dict[str, Any]] = []

    def dial(
        self, address: tuple[str, int], secret: bytes, hello: dict[str, Any], fingerprint: bytes | None
    ) -> Contact:
        self.tries.append(hello)
        assert fingerprint == b"fingerprint", "it must be known by something"
        if not self.up:
            raise TimeoutError("timed out")
        near, self.far = socket.socketpair()
        return Contact(near, seals_of(secret, (b"a", b"b"), dialed=True), True, {"ok": True})


class Desk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.network = Network()
        monkeypatch.setattr(dialer, "dial", self.network.dial)
        monkeypatch.setattr(dialer, "keep_alive", lambda connection, timeout_s: None)
        self.said: list[tuple[int, str]] = []
        self.made: dict[int, Channel | None] = {}
        self.dialer = Dialer(0, 1, "here", b"secret", lambda why: None, self._say, b"fingerprint")

    def _say(self, worker: int, why: str) -> None:
        self.said.append((worker, why))

    def want(self, target: int) -> OutLink:
        link = OutLink("bundles", target, 1, lambda epoch: None)
        assert link.to_dial(THERE)
        self.dialer.connect(link, THERE, lambda channel: self.made.__setitem__(target, channel))
        return link


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(dialer, "SAY_AFTER_S", 0.0)
    desk = Desk(monkeypatch)
    yield desk
    desk.dialer.close()
    wait_until(lambda: not threads_named("reach", "dial"), 10, "it to stop, as the next test takes the place of dial()")


def threads_named(*beginnings: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith(beginnings)]


def test_who_can_be_reached_is_reached(desk: Desk) -> None:
    desk.want(1)
    wait_until(lambda: desk.made.get(1), 10)
    assert desk.said == []


def test_the_user_hears_who_cannot_be_reached_and_why_once(desk: Desk) -> None:
    desk.network.up = False
    for target in range(20):
        desk.want(target)
    wait_until(lambda: len(desk.network.tries) >= 5, 10, "more tries")
    ((worker, why),) = desk.said
    assert worker == 1
    assert why.startswith("address=10.9.8.7:4711 for=0s cause=TimeoutError: timed out; does a firewall keep")


def test_one_tries_for_all_and_all_follow(desk: Desk) -> None:
    """Else those who cannot be reached would take all dialers."""
    desk.network.up = False
    desk.want(0)
    wait_until(lambda: desk.said, 10)
    for target in range(1, 30):
        desk.want(target)
    targets = {hello["target"] for hello in desk.network.tries}
    assert targets == {0} and not desk.made
    desk.network.up = True
    wait_until(lambda: len(desk.made) == 30, 10, "all to be reached")
    assert all(desk.made.values())


def test_a_dialer_that_is_closed_tries_no_more(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "RETRY_S", 60.0)
    desk.network.up = False
    desk.want(0)
    wait_until(lambda: desk.said, 10)
    desk.dialer.close()
    wait_until(lambda: not threads_named("reach"), 10)
    assert len(desk.network.tries) == 1


def test_nobody_tries_for_links_that_have_another_peer_now(desk: Desk) -> None:
    desk.network.up = False
    link = desk.want(0)
    wait_until(lambda: desk.said, 10)
    link.forget()
    wait_until(lambda: desk.made == {0: None}, 10, "it to be given up")
    wait_until(lambda: not threads_named("reach"), 10)
    desk.network.up = True
    desk.want(1)
    wait_until(lambda: desk.made.get(1), 10, "the next link to be dialed at once, and not to wait for the one before")


# -- links that are cut


def test_what_stands_still() -> None:
    assert Progress(4, 0, 3, 3500).stands_still(3)
    assert Progress(0, 3, 0, 3500).stands_still(3), "probes of a closed window are not answered"
    assert not Progress(4, 0, 3, 2500).stands_still(3)
    assert not Progress(0, 0, 0, 60_000).stands_still(3), "idle"
    assert not Progress(0, 0, 1, 60_000).stands_still(3), "a closed window: probes are answered"


class Tcp:
    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.near = socket.create_connection(listener.getsockname())
            self.far, _ = listener.accept()
        tune(self.near)


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the kernel does not tell")
def test_a_receiver_that_has_no_room_is_not_cut_off() -> None:
    """As that of a task in a long call. A time limit of the kernel's own would end the connection."""
    tcp = Tcp()
    with tcp.near, tcp.far:
        tcp.near.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                tcp.near.send(bytes(1 << 16))
        watch = LinkWatch()
        watch.add(1, 1, tcp.near)
        for _ in range(10):
            threading.Event().wait(0.1)
            assert watch.end_those_that_stand_still(0.01) == []
        progress = progress_of(tcp.near)
        assert progress is not None and progress.retransmits + progress.probes <= 1


def test_all_links_with_a_worker_are_ended_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from tailrace.runtime.links import link_watch

    ends = [Tcp() for _ in range(4)]
    stands = {ends[0].near.fileno()}
    still = Progress(5, 0, 1, 9000)
    monkeypatch.setattr(
        link_watch, "progress_of", lambda one: still if one.fileno() in stands else Progress(0, 0, 0, 9)
    )
    watch = LinkWatch()
    for worker, end in zip((1, 1, 1, 2), ends, strict=True):
        watch.add(worker, 5, end.near)
    ends[2].near.close()  # its keeper was faster
    assert watch.end_those_that_stand_still(3) == [1]
    for end in ends[:2]:
        end.near.settimeout(5)
        assert end.near.recv(1) == b"", "its keeper finds that it is over"
    ends[3].far.sendall(b"x")
    assert ends[3].near.recv(1) == b"x"
    assert watch.end_those_that_stand_still(3) == []
    for end in ends:
        end.near.close()
        end.far.close()
