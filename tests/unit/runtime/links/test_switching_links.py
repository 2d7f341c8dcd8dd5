"""Links follow a task that begins to share a queue, or ceases to: in the middle of a frame, and whoever gets them."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kit.neighbours import Stepped, Worker
from kit.tasks import context_of, plan_of, task_of
from tailrace.core.bundles import new_bundle
from tailrace.runtime.execution.runner import Runner
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.links.channels import Channel, writer_of
from tailrace.runtime.links.frames import BUNDLES, encode
from tailrace.runtime.shared_queues.pool import Pool
from tailrace.sim.faults.topologies import mark
from tailrace.topology import Kind

TASKS = 2


class Peer:
    """A task elsewhere that sends to one here."""

    def __init__(self) -> None:
        self.socket, self.far = socket.socketpair()
        written, self._written = socket.socketpair()
        self._out = writer_of(Channel(written))
        self._number = 0

    def frame(self) -> bytes:
        """The next, with one tuple."""
        self._number += 1
        number = self._number
        self._out.write(BUNDLES, encode([new_bundle(number, 0, number, number, [number], [("s", 0, number)])]))
        return self._written.recv(1 << 16)


class Shop:
    """Two tasks on runners of their own, which may share a queue and do not yet."""

    def __init__(self) -> None:
        plan = plan_of(lambda source: source.map("work", mark("w"), tasks=TASKS))
        context = context_of(plan)
        self.worker = Worker()
        self.hosts: list[TaskHost] = []
        for number in range(1, 1 + TASKS):
            task = task_of(context, number)
            self.hosts.append(TaskHost(task, self.worker, Kind.AUTO))
        self.shared = Stepped("shared")
        self.made: list[Stepped] = []
        self.pool = Pool(context.queues[1], self.hosts, self.worker, self.shared, self._new_runner)
        self.runners = [Stepped(f"work/{index}") for index in range(TASKS)]
        for runner, host in zip(self.runners, self.hosts, strict=True):
            runner.adopt(host)
        self.peer = Peer()
        self.hosts[0].take_link(Channel(self.peer.socket), "bundles", 1, 1)

    def _new_runner(self, name: str) -> Runner:
        self.made.append(Stepped(name))
        return self.made[-1]

    def share(self, *hosts: int, wanted: bool = True) -> None:
        for index in hosts:
            member = self.pool.members[index]
            member.host.post(member.join if wanted else member.leave)
            self.runners[index].step()
        self.settle()

    def settle(self) -> None:
        """Whoever reads links takes some turns, and whoever runs tasks, but for what they have to run."""
        self.shared.step()
        for intake in self.made:
            intake.step()
        for runner, host in zip(self.runners, self.hosts, strict=True):
            while host._mail:
                host._mail.popleft()()
            runner.run_posted()

    def ran(self, host: int) -> list[int]:
        sent = self.hosts[host].task.lanes[0].bundles
        return [value[2] for bundle in sent for value in bundle[5]]


@pytest.fixture
def shop() -> Iterator[Shop]:
    yield Shop()


def test_a_frame_that_had_half_come_is_read_by_the_pool_and_run_by_whoever_is_free(shop: Shop) -> None:
    frame = shop.peer.frame()
    shop.peer.far.send(frame[:7])
    shop.runners[0].step()
    shop.share(0, 1)
    assert [runner.name for runner in shop.made] == ["work intake"], "tasks apart need somebody who reads for them"
    shop.peer.far.send(frame[7:])
    shop.runners[0].step()
    assert shop.ran(0) == [], "its own runner reads no more"
    shop.made[0].step()
    shop.runners[1].step()
    assert shop.ran(1) == [1]


def test_links_come_back_with_the_task_and_only_its_own(shop: Shop) -> None:
    shop.share(0, 1)
    other = Peer()
    shop.hosts[1].take_link(Channel(other.socket), "bundles", 1, 1)
    shop.settle()
    shop.share(0, wanted=False)
    shop.peer.far.send(shop.peer.frame())
    other.far.send(other.frame())
    shop.made[0].step()
    assert len(shop.pool.queue) == 1, "that of the other is still read for the pool"
    shop.runners[0].step()
    shop.runners[1].step()
    assert (shop.ran(0), shop.ran(1)) == ([1], [1])


def test_a_link_that_comes_to_who_does_not_read_it_gets_where_it_should(shop: Shop) -> None:
    other = Peer()
    shop.pool.members[1].take_link(Channel(other.socket), 1, 1)  # it shares nothing
    shop.settle()
    other.far.send(other.frame())
    shop.runners[1].step()
    assert shop.ran(1) == [1]


def test_a_task_that_comes_back_at_once_keeps_its_links(shop: Shop) -> None:
    shop.share(0, 1)
    member = shop.pool.members[0]
    for change in (member.leave, member.join, member.leave, member.join):
        member.host.post(change)
    shop.runners[0].step()
    for _ in range(3):
        shop.settle()
    shop.peer.far.send(shop.peer.frame())
    shop.made[0].step()
    assert len(shop.pool.queue) == 1


def test_a_link_of_an_epoch_that_was_replaced_meanwhile_ends_on_the_way(shop: Shop) -> None:
    shop.hosts[0].post(shop.pool.members[0].join)
    shop.runners[0].step()
    shop.worker.lowest = 2  # nobody has the link just now
    shop.settle()
    assert shop.peer.socket.fileno() == -1
    assert shop.peer.far.recv(1) == b""


def test_a_paused_link_is_read_again_where_there_is_room(shop: Shop) -> None:
    (link,) = shop.hosts[0].input.bundle_links
    link.unadmitted.append(new_bundle(7, 0, 7, 7, [7], [("s", 0, 7)]))
    link.pause()  # as when its own queue is full
    shop.peer.far.send(shop.peer.frame())
    shop.share(0, 1)
    assert shop.ran(0) == [7], "what had been read does not wait for a round that nobody begins"
    shop.made[0].step()
    assert len(shop.pool.queue) == 1 and not link.unadmitted


def test_tasks_on_the_shared_runner_move_out_when_they_share_with_one_apart(shop: Shop) -> None:
    moving = shop.hosts[1]
    shop.runners[1].release(moving)
    moving.shared = True
    shop.shared.adopt(moving)
    isolated: list[TaskHost] = []
    shop.shared.isolate = isolated.append
    moving.post(shop.pool.members[1].join)
    shop.shared.step()
    assert not shop.made and not isolated, "those on one thread read their links there"
    shop.hosts[0].post(shop.pool.members[0].join)
    shop.runners[0].step()
    shop.shared.step()
    assert isolated == [moving] and len(shop.made) == 1
