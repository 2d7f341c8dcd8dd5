"""Links through a ring: frames of any size in order, backpressure, and an end that loses nothing that was sent."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from tailrace.errors import ProtocolError
from tailrace.ring import layout
from tailrace.ring.segment import FOLDER, PREFIX
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.links.channels import Channel, offer_ring, take_ring
from tailrace.runtime.links.frames import ACKS, BUNDLES, MAX_FRAME
from tailrace.runtime.links.link import FRAMES_AT_ONCE, InLink, OutLink, RingInLink

TURNS = 2_000


class Ends:
    """Both ends of one link on a runner that is turned by hand."""

    def __init__(self, kind: str = "bundles") -> None:
        self.runner = Runner("test", lambda error: None)
        near, far = socket.socketpair()
        offer = offer_ring("test", kind)
        taken = take_ring(offer.segment.path.name, offer.segment.nonce.hex())
        offer.withdraw()
        self.lost_out: list[bool] = []
        self.lost_in: list[Exception | None] = []
        self.frames: list[tuple[int, bytes]] = []
        self.pause_after = 1 << 30
        self.out = OutLink(kind, 0, 1, lambda epoch: self.lost_out.append(True))
        self.out.attach(Channel(near, offer), self.runner)
        self.into = RingInLink(Channel(far, taken), 1, 1, self._on_frame, self._on_lost)
        self.into.watch(self.runner)
        self.memory = taken.segment.memory

    def _on_frame(self, kind: int, payload: memoryview) -> None:
        self.frames.append((kind, bytes(payload)))
        if len(self.frames) >= self.pause_after:
            self.into.pause()

    def _on_lost(self, link: InLink, error: Exception | None) -> None:
        self.lost_in.append(error)

    def turn(self, turns: int = 4) -> None:
        for _ in range(turns):
            self.runner.turn(wait=False)

    def close(self) -> None:
        self.out.close()
        self.into.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()
    assert not list(FOLDER.glob(f"{PREFIX}-test-*"))


def test_frames_arrive_in_order(ends: Ends) -> None:
    for number in range(50):
        ends.out.send(BUNDLES, b"frame %d" % number)
        if number % 7 == 0:
            ends.turn(1)
    ends.out.send(ACKS, b"")
    ends.turn()
    assert ends.frames == [*((BUNDLES, b"frame %d" % number) for number in range(50)), (ACKS, b"")]


@pytest.mark.parametrize("size", [60_000, 65_520, 65_521, 262_144, 3_000_000])
def test_a_frame_larger_than_a_record_arrives_whole(ends: Ends, size: int) -> None:
    payload = os.urandom(size)
    ends.out.send(BUNDLES, payload)
    for _ in range(TURNS):
        ends.turn(1)
        if ends.frames and ends.out.ready:
            break
    ends.out.send(BUNDLES, b"next")
    ends.turn()
    assert [len(frame) for _, frame in ends.frames] == [size, 4]
    assert ends.frames[0] == (BUNDLES, payload)


def test_a_frame_that_no_peer_would_take_is_refused(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.runtime.links.frames.MAX_FRAME", 1_000_000)
    with pytest.raises(ProtocolError, match="frame too large: bytes=1000001"):
        ends.out.send(BUNDLES, bytes(1_000_001))
    assert ends.out.ready and MAX_FRAME > 1_000_000
    ends.out.send(BUNDLES, b"after")
    ends.turn()
    assert ends.frames == [(BUNDLES, b"after")]


def test_a_receiver_that_pauses_holds_the_sender_back(ends: Ends) -> None:
    ends.pause_after = 3
    sent = 0
    while ends.out.ready and sent < 1_000:
        ends.out.send(BUNDLES, bytes(10_000))
        sent += 1
        ends.turn(1)
    assert 3 < sent < 40 and len(ends.frames) == 3, "the ring is full, and nobody reads"
    ends.turn(20)
    assert not ends.out.ready
    ends.pause_after = 1 << 30
    ends.into.resume()
    ends.turn(TURNS)
    assert ends.out.ready and len(ends.frames) == sent


def test_what_was_sent_before_the_end_is_read(ends: Ends) -> None:
    ends.out.send(BUNDLES, b"last words")
    ends.out.close()
    ends.turn()
    assert ends.frames == [(BUNDLES, b"last words")]
    assert [str(error) for error in ends.lost_in] == ["closed by the peer"]


def test_so_is_more_than_is_read_at_once(ends: Ends) -> None:
    for number in range(3 * FRAMES_AT_ONCE):
        ends.out.send(BUNDLES, b"%d" % number)
    ends.into.deferred = True
    ends.out.close()
    ends.turn(1)
    assert len(ends.frames) == 3 * FRAMES_AT_ONCE and len(ends.lost_in) == 1


@pytest.mark.parametrize("size", [10, 200_000, 400_000])
def test_what_is_urgent_wakes_a_reader_who_did_not_ask(ends: Ends, size: int) -> None:
    ends.turn()
    ends.into.deferred = True
    ends.into.read()
    ends.out.send(BUNDLES, b"asked for")  # as it was at first
    ends.turn()
    for urgent in (False, True):
        ends.out.send(BUNDLES, bytes(size), urgent=urgent)
        rung = ends.runner._epoll.poll(0)
        for _ in range(TURNS):
            ends.into.read()
            ends.turn(1)
        assert len(ends.frames[-1][1]) == size
        if size < 400_000:  # more does not fit: the rest follows as it is read
            assert bool(rung) is urgent


def test_a_sender_notices_the_end(ends: Ends) -> None:
    ends.into.close()
    ends.turn()
    assert ends.lost_out == [True] and not ends.out.open


def test_a_ring_that_something_else_wrote_to_is_given_up(ends: Ends) -> None:
    ends.turn()
    ends.out.send(BUNDLES, b"x")
    ends.memory[layout.DATA[layout.PAIR] + 8 : layout.DATA[layout.PAIR] + 12] = b"\xff" * 4
    ends.turn()
    (error,) = ends.lost_in
    assert isinstance(error, ProtocolError) and "did something else write to the ring" in str(error)


def test_moving_to_another_runner_loses_nothing(ends: Ends) -> None:
    ends.out.send(BUNDLES, b"one")
    ends.turn()
    ends.into.unwatch()
    ends.out.send(BUNDLES, b"two")
    ends.turn()
    assert len(ends.frames) == 1
    other = Runner("other", lambda error: None)
    ends.into.watch(other)
    other.turn(wait=False)
    assert [frame for _, frame in ends.frames] == [b"one", b"two"]


def test_names_are_gone_before_the_first_frame(ends: Ends) -> None:
    assert not list(FOLDER.glob(f"{PREFIX}-test-*"))
