"""Whom a link is with is decided by epochs, however late its keeper hears of what has happened."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from kit.neighbours import NobodyHere, Stepped
from tailrace.core.protocol.link_peer import LinkPeer
from tailrace.core.protocol.messages import Member
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.link import OutLink
from tailrace.runtime.links.out_links import OutLinks

OLD, NEW = Member(1, ("there", 1)), Member(3, ("there", 2))


class Far(NobodyHere):
    """Another worker, which may be replaced. Dials end when the test says so."""

    def __init__(self) -> None:
        self.present: Member | None = OLD
        self.dials: list[tuple[Member, Callable[[Channel | None], None]]] = []
        self.lost: list[tuple[int, int]] = []
        self.far_ends: list[socket.socket] = []

    def member(self, worker: int) -> Member | None:
        return self.present

    def connect(self, link: OutLink, member: Member, done: Callable[[Channel | None], None]) -> None:
        self.dials.append((member, done))

    def lost_link(self, worker: int, epoch: int) -> None:
        self.lost.append((worker, epoch))

    def reach(self, number: int = -1) -> Channel:
        """This dial succeeds."""
        near, far = socket.socketpair()
        self.far_ends.append(far)
        channel = Channel(near)
        self.dials.pop(number)[1](channel)
        return channel


@pytest.fixture
def far() -> Far:
    return Far()


@pytest.fixture
def links(far: Far) -> OutLinks:
    links = OutLinks(far, lambda action: action())  # type: ignore[arg-type]
    links.moved_to(Stepped("test"))
    return links


def closed(channel: Channel) -> bool:
    return channel.connection.fileno() < 0


def test_old_news_close_no_fresh_link(far: Far, links: OutLinks) -> None:
    """A task that was in a call flushes first, and so dials the new worker; then it reads that the old one is gone."""
    links.link("bundles", 7)
    old = far.reach()
    far.present = NEW
    link = links.link("bundles", 7)
    assert closed(old) and not link.open
    fresh = far.reach()
    links.close(frozenset({1}))
    assert link.open and not closed(fresh) and far.lost == []


def test_news_close_a_link_with_the_dead(far: Far, links: OutLinks) -> None:
    link = links.link("bundles", 7)
    old = far.reach()
    far.present = None
    links.close(frozenset({1}))
    assert closed(old) and not link.open and link.member is None and far.lost == []


def test_a_dial_under_way_is_not_dialed_twice(far: Far, links: OutLinks) -> None:
    far.present = NEW
    link = links.link("bundles", 7)
    links.close(frozenset({1}))
    links.link("bundles", 7)
    assert [member for member, _ in far.dials] == [NEW]
    far.reach()
    assert link.open


def test_a_connection_with_one_who_was_replaced_is_closed(far: Far, links: OutLinks) -> None:
    links.link("bundles", 7)
    far.present = NEW
    link = links.link("bundles", 7)
    assert [member for member, _ in far.dials] == [OLD, NEW]
    fresh = far.reach(1)
    late = far.reach(0)
    assert closed(late) and not closed(fresh) and link.member == NEW


def test_no_channel_is_dropped_unclosed(far: Far, links: OutLinks) -> None:
    link = links.link("bundles", 7)
    done: Any = far.dials[0][1]
    first = far.reach()
    near, _ = socket.socketpair()
    second = Channel(near)
    done(second)
    assert closed(second) and not closed(first) and link.open


def test_a_lost_link_names_the_epoch_that_it_was_with(far: Far, links: OutLinks) -> None:
    link = links.link("bundles", 7)
    far.reach()
    far.present = NEW  # which the task has not looked at yet
    far.far_ends[0].close()
    link._on_event(readable=True, writable=False)
    assert far.lost == [(1, OLD.epoch)] and not link.open


def test_an_equal_member_of_a_newer_version_keeps_its_link(far: Far, links: OutLinks) -> None:
    link = links.link("bundles", 7)
    channel = far.reach()
    far.present = Member(OLD.epoch, OLD.address)
    assert links.link("bundles", 7) is link and link.member is far.present and not closed(channel)


def test_a_dial_that_failed_is_tried_again_when_next_asked_for() -> None:
    peer = LinkPeer()
    assert peer.to_dial(OLD) and not peer.to_dial(OLD)
    assert not peer.reached(OLD, made=False)
    assert peer.to_dial(OLD)
