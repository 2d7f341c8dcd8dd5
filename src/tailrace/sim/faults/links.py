"""Links of simulated processes: connections that take time, break late, and belong to tasks that may be in a long call.

In runs without these faults a link exists whenever it is needed. In the others a connection takes time to make. It ends
with the process at either end, or some time after the network between the two workers was cut, and everything on its
way is then lost. While a task is in a call, its thread reads nothing: neither frames nor news from its worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import Any

from tailrace.clock import MILLISECOND_NS
from tailrace.core.protocol.link_peer import LinkPeer
from tailrace.core.protocol.messages import Member
from tailrace.core.tasks.base import Task
from tailrace.core.tasks.source import SourceTask
from tailrace.sim.faults.interfaces import AnyCluster, AnyProcess, Way

MS = MILLISECOND_NS

RETRY_NS = 5 * MS
"""Time until a worker that was not reached is dialed again."""

NOTICE_NS = 60 * MS
"""Time without an answer after which a connection counts as broken. All cuts last longer."""


@dataclass(frozen=True)
class LinkFaults:
    """The part of a seed's decisions that is about links and calls."""

    long_calls: float = 0  # share of the steps of a task that take long
    cuts: int = 0  # how often the network between two workers is cut

    @property
    def any(self) -> bool:
        return bool(self.long_calls or self.cuts)


NO_FAULTS = LinkFaults()


def link_faults_of(rng: Random) -> LinkFaults:
    """Drawn from a generator of their own, so that the rest of a seed stays the same.

    More than half of all seeds have none, because during long calls checks of time are suspended.
    """
    return LinkFaults(rng.choice([0, 0, 0, 0, 0, 0, 0.05, 0.2]), rng.choice([0, 0, 0, 0, 0, 0, 1, 2]))


class Wires:
    """The network of a cluster: which pairs of workers are cut off from each other, and how long things take."""

    def __init__(self, cluster: AnyCluster, faults: LinkFaults, rng: Random) -> None:
        self.faults = faults
        self.rng = rng
        self.numbers = count(1)
        self.closed: set[int] = set()  # connections that have ended
        self.lost = 0  # connections between two live processes that broke
        self.long_calls = 0
        self.blocked = 0  # frames and dials that a cut has stopped
        self.disturbed_until_ns = 0  # checks of time are suspended until then
        self._cluster = cluster
        self._cut_until_ns: dict[frozenset[int], int] = {}
        for _ in range(faults.cuts):
            cluster.engine.after(rng.randrange(20, 300) * MS, self._cut)

    def _cut(self) -> None:
        workers = self._cluster.plan.workers
        pair = frozenset(self.rng.sample(range(workers), 2))
        now_ns = self._cluster.engine.now_ns
        until_ns = now_ns + self.rng.choice([80, 200, 500, 1500]) * MS
        self._cut_until_ns[pair] = max(until_ns, self._cut_until_ns.get(pair, 0))
        self.disturb(until_ns)
        for process in tuple(self._cluster.by_epoch.values()):
            (peer,) = pair - {process.worker} if process.worker in pair else (None,)
            if peer is not None:
                notice = process.guarded(partial(process.way_was_cut, peer, now_ns))
                self._cluster.engine.after(NOTICE_NS + self.rng.randrange(20 * MS), notice)

    def disturb(self, until_ns: int) -> None:
        self.disturbed_until_ns = max(until_ns, self.disturbed_until_ns)
        self._cluster.disturbed(until_ns)

    def passes(self, one: int, other: int) -> bool:
        """Whether a frame or a dial gets through between two workers now. Counts those that do not."""
        cut = self.is_cut(one, other)
        self.blocked += cut
        return not cut

    def is_cut(self, one: int, other: int) -> bool:
        return self._cluster.engine.now_ns < self._cut_until_ns.get(frozenset({one, other}), 0)


class SimLink(LinkPeer):
    """The sending end of a link."""

    def __init__(self, sender: int, target: int, worker: int, lasting: bool) -> None:
        super().__init__()
        self.sender = sender
        self.target = target
        self.worker = worker
        self.lasting = lasting  # whether payloads wait until the receiver is there
        self.connection = 0
        self.made_ns = 0
        self.number = 0  # of the last frame
        self.waiting: deque[tuple[int, Any]] = deque()


class SimLinks:
    """All links of one process."""

    def __init__(self, process: AnyProcess, wires: Wires) -> None:
        self._process = process
        self._wires = wires
        self._links: dict[tuple[int, int], SimLink] = {}

    def send(self, sender: int, target: int, receiver: int, payload: Any, lasting: bool) -> None:
        link = self._link(sender, target, receiver, lasting)
        link.waiting.append((receiver, payload))
        self._flush(link)

    def way(self, sender: int, target: int, receiver: int, lasting: bool) -> Way | None:
        """The connection that a frame would take now. ``None`` if it would have to wait."""
        link = self._link(sender, target, receiver, lasting)
        self._flush(link)
        if not link.open or link.waiting:
            return None
        assert link.member is not None
        return (self._process.worker, self._process.epoch, sender, target, link.connection), link.member.epoch

    def _link(self, sender: int, target: int, receiver: int, lasting: bool) -> SimLink:
        link = self._links.get((sender, target))
        if link is None:
            home = self._process.plan.home[receiver]
            link = self._links[sender, target] = SimLink(sender, target, home, lasting)
        return link

    def flush(self, sender: int) -> None:
        for link in tuple(self._links.values()):
            if link.sender == sender and link.waiting:
                self._flush(link)

    def relink(self, sender: int, workers: frozenset[int]) -> None:
        """The thread of this task learns that these workers have been replaced."""
        for link in tuple(self._links.values()):
            if link.sender == sender and link.worker in workers:
                if link.closes_on_news(self._member(link)):
                    assert link.member != self._member(link), "old news close a link with a worker that is there"
                    self._close(link)
                self._flush(link)

    def peer_ended(self, epoch: int) -> None:
        """A process at the other end of some links has ended."""
        for link in tuple(self._links.values()):
            if link.open and link.member is not None and link.member.epoch == epoch:
                self._find_lost(link)

    def way_was_cut(self, worker: int, at_ns: int) -> None:
        """No answer has come from a worker since ``at_ns``: its older connections are broken."""
        for link in tuple(self._links.values()):
            if link.open and link.worker == worker and link.made_ns <= at_ns:
                self._wires.lost += 1
                self._find_lost(link)

    def _find_lost(self, link: SimLink) -> None:
        self._process.do(link.sender, partial(self._lost, link, link.connection))

    def _lost(self, link: SimLink, connection: int) -> None:
        if not link.open or link.connection != connection:
            return  # it was closed meanwhile
        assert link.member is not None
        epoch = link.member.epoch
        self._close(link)
        self._process.follow(self._process.core.lost_link(link.worker, epoch))
        if link.waiting:
            self._flush(link)

    def _close(self, link: SimLink) -> None:
        if link.open:
            self._wires.closed.add(link.connection)
        link.forget()

    def _member(self, link: SimLink) -> Member | None:
        return self._process.core.membership.member(link.worker)

    def _flush(self, link: SimLink) -> None:
        member = self._member(link)
        if link.outlived(member):
            self._close(link)
        if member is None and not link.lasting:
            link.waiting.clear()
        if link.to_dial(member):
            assert member is not None
            self._dial(link, member)
        while link.open and link.waiting:
            assert link.member is not None
            receiver, payload = link.waiting.popleft()
            link.number += 1
            name = (self._process.worker, self._process.epoch, link.sender, link.target, link.connection)
            self._process.cluster.transmit(name, link.member.epoch, link.number, receiver, payload)

    def _dial(self, link: SimLink, member: Member) -> None:
        process, cluster = self._process, self._process.cluster

        def end() -> None:
            peer = cluster.by_epoch[member.epoch]
            now_ns, passes = cluster.engine.now_ns, self._wires.passes(process.worker, link.worker)
            made = passes and peer.alive and peer.core.membership.counts(process.worker, process.epoch)
            delay_ns = 0 if made else RETRY_NS
            reached = partial(process.do, link.sender, partial(self._reached, link, member, made, now_ns))
            cluster.engine.after(delay_ns, process.guarded(reached))

        cluster.engine.after(self._wires.rng.choice([1, 2, 30]) * MS, process.guarded(end))

    def _reached(self, link: SimLink, member: Member, made: bool, at_ns: int) -> None:
        if link.reached(member, made):
            link.connection, link.number, link.made_ns = next(self._wires.numbers), 0, at_ns
            cluster = self._process.cluster
            if not cluster.by_epoch[member.epoch].alive:
                self._find_lost(link)
            elif self._wires.is_cut(
                self._process.worker, link.worker
            ):  # it was cut after it was made, during a call of this task
                notice = partial(self.way_was_cut, link.worker, cluster.engine.now_ns)
                cluster.engine.after(NOTICE_NS, self._process.guarded(notice))
        if link.waiting:
            self._flush(link)


class Threads:
    """The threads of one process, one for each task. During a call, a task does nothing else."""

    def __init__(self, process: AnyProcess, wires: Wires) -> None:
        self._process = process
        self._wires = wires
        self._mail: dict[int, deque[Callable[[], None]]] = {}  # actions that wait, for each task in a call

    def do(self, task: int, action: Callable[[], None]) -> None:
        """Run an action now, or after the current call of the task."""
        mail = self._mail.get(task)
        if mail is None:
            action()
        else:
            mail.append(action)

    def post(self, task: int, action: Callable[[], None]) -> None:
        """Run an action when the task reads its mailbox, which may be after several of its turns."""
        wires = self._wires
        if wires.faults.any:
            lag_ns = wires.rng.choice([0, 0, 40, 100]) * MS
            self._process.cluster.engine.after(lag_ns, self._process.guarded(partial(self.do, task, action)))

    def call(self, task: Task, work: Callable[[], None]) -> None:
        """Let a task work. It takes no time or a long time; sources never take long."""
        wires, engine = self._wires, self._process.cluster.engine
        rate = 0 if self._process.cluster.quiet else wires.faults.long_calls
        if not rate or isinstance(task, SourceTask) or not task.runnable or wires.rng.random() >= rate:
            work()
            return
        wires.long_calls += 1
        mail = self._mail[task.number] = deque()
        duration_ns = wires.rng.randrange(5, wires.rng.choice([60, 120, 300])) * MS
        wires.disturb(engine.now_ns + duration_ns)

        def end() -> None:
            work()  # its results are sent before the mailbox is read
            while mail and self._process.alive:
                mail.popleft()()
            if self._mail.get(task.number) is mail:
                del self._mail[task.number]

        engine.after(duration_ns, self._process.guarded(end))
