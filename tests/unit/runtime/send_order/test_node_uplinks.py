"""Workers of a machine find the words of their link, anew for each node group, and do without where they cannot."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.messages import Member
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.errors import ProtocolError
from tailrace.runtime.links import node_share
from tailrace.runtime.send_order.node_uplinks import NodeUplinks
from tailrace.runtime.send_order.shared_words import SharedUplink
from tailrace.sim.faults.topologies import SimSink, SimSource
from tailrace.testing.processes import wait_until
from tailrace.topology import Topology

RATE = 900


class Loop:
    """Remembers what it was told to share."""

    def __init__(self) -> None:
        self.link: SharedUplink | None = None
        self.budget: UplinkBudget | None = None

    def share(self, link: SharedUplink | None, budget: UplinkBudget | None) -> None:
        if self.link is not None:
            self.link.memory.close()
        self.link, self.budget = link, budget


class Worker:
    """Asks others as over the wire, but for the wire."""

    def __init__(self, worker: int, everyone: dict[int, Worker]) -> None:
        topology = Topology("t")
        topology.source("s", SimSource("s", 1)).sink("out", SimSink(committing=False), tasks=4)
        self.worker = worker
        self.loop = Loop()
        self.alone: list[str] = []
        self.members: dict[int, Member] = {}
        self.spoil: Callable[[dict[str, Any]], dict[str, Any]] = dict
        self._everyone = everyone
        self.links = NodeUplinks(self, make_plan(topology, 3), RATE, self.loop, self.alone.append)  # type: ignore[arg-type]
        everyone[worker] = self

    def follow(self, members: dict[int, Member]) -> None:
        self.members = members
        self.links.follow(members)

    def member(self, worker: int) -> Member | None:
        return self.members.get(worker)

    def ask(self, member: Member, hello: dict[str, Any]) -> tuple[socket.socket, dict[str, Any]]:
        maker = next(one for one, other in self.members.items() if other == member)
        offer = self._everyone[maker].links.offer(json.loads(json.dumps(hello)))
        if offer is None:
            raise ProtocolError("no such link here")
        return socket.socket(), self.spoil(offer)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(node_share, "RETRY_S", (0.001, 0.01))
    everyone: dict[int, Worker] = {}
    made = [Worker(number, everyone) for number in range(3)]
    yield made
    for one in made:
        one.links.close()


def together(*epochs: int) -> dict[int, Member]:
    return {worker: Member(epoch, ("here", worker)) for worker, epoch in enumerate(epochs)}


def joined(workers: list[Worker]) -> bool:
    return all(one.loop.link is not None for one in workers)


def test_until_it_is_there_each_has_an_equal_part_and_then_all_have_the_same_words(workers: list[Worker]) -> None:
    for one in workers[1:]:  # the maker does not know yet
        one.follow(together(1, 1, 1))
        assert one.loop.link is None and one.loop.budget is not None
        assert one.loop.budget.bytes_per_s == RATE // 3
    workers[0].follow(together(1, 1, 1))
    wait_until(lambda: joined(workers), 20, "a link for all")
    links = [one.loop.link for one in workers]
    assert links[0] is not None and links[2] is not None
    links[0].memory.words[0] = 77
    assert links[2].memory.words[0] == 77


def test_when_one_is_replaced_nothing_of_the_old_circle_counts(workers: list[Worker]) -> None:
    for one in workers:
        one.follow(together(1, 1, 1))
    wait_until(lambda: joined(workers), 20, "a link for all")
    old = workers[0].loop.link
    assert old is not None
    old_nonce = old.memory.nonce
    workers[0].follow(together(1, 2, 1))
    assert workers[0].links.offer({"group": [[0, 1], [1, 1], [2, 1]]}) is None, "that of a node group which is over"
    for one in workers[1:]:
        one.follow(together(1, 2, 1))
    wait_until(lambda: joined(workers), 20, "a link for all")
    assert {one.loop.link.memory.nonce for one in workers if one.loop.link} != {old_nonce}


def test_one_that_cannot_have_the_words_sends_within_its_part_and_says_so(workers: list[Worker]) -> None:
    workers[2].spoil = lambda offer: {**offer, "nonce": "00"}
    for one in workers:
        one.follow(together(1, 1, 1))
    wait_until(lambda: joined(workers[:2]) and bool(workers[2].alone), 20, "two with a link")
    assert workers[2].loop.link is None and workers[2].loop.budget is not None
    assert workers[2].alone[0].startswith("another file than was meant")


def test_a_worker_alone_on_its_machine_has_all_of_the_link(workers: list[Worker]) -> None:
    apart = {worker: Member(1, (f"machine {worker}", 1)) for worker in range(3)}
    workers[1].follow(apart)
    assert workers[1].loop.link is None
    assert workers[1].loop.budget is not None and workers[1].loop.budget.bytes_per_s == RATE
