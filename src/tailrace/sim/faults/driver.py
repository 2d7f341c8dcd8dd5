"""The simulated driver process: events wait for their turn, the disk is slow, and the process pauses.

If every event were handled at once and the disk took no time, a coordinator could never be late, and mistakes in how it
handles its own lateness would not show.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tailrace.clock import MILLISECOND_NS
from tailrace.core.protocol.coordinator import Coordinator
from tailrace.core.protocol.messages import Command, Persist
from tailrace.sim.faults.interfaces import AnyCluster

MS = MILLISECOND_NS

LATE_NS = 30 * MS
"""After a pause of this length the coordinator excuses all workers before it looks for silent ones."""

CALM_NS = 100 * MS
"""A process that was neither stopped nor cut off for this long has been heard within the heartbeat timeout."""

Event = Callable[[], list[Command]]


class HealthyWorkerLost(AssertionError):
    """The coordinator has declared a worker dead that was alive, reachable, and had sent heartbeats."""


@dataclass(frozen=True)
class Hardship:
    """Difficulties of a driver, until the network is quiet."""

    event_ns: int  # time spent on each event
    writes_ns: tuple[int, ...]  # a write of the checkpoint takes one of these times
    pauses: tuple[tuple[int, int, bool], ...]  # (time, length, whether all workers pause as well)


NONE = Hardship(0, (0,), ())


def hardship_of(seed: int) -> Hardship:
    """Half of all seeds have a driver without difficulties."""
    rng = Random(f"{seed} driver")
    if rng.random() < 0.5:
        return NONE
    event_ns = rng.choice([0, MS // 5, MS, 4 * MS])
    writes_ns = rng.choice([(0,), (MS, 15 * MS), (5 * MS, 80 * MS), (MS, 2_000 * MS)])
    pauses = tuple(
        (rng.randrange(30, 500) * MS, rng.randrange(10, 300) * MS, rng.random() < 0.5)
        for _ in range(rng.choice([0, 0, 1, 2]))
    )
    return Hardship(event_ns, writes_ns, pauses)


class Driver:
    """Passes events to the current coordinator one after the other, and calls its ``tick``."""

    def __init__(self, cluster: AnyCluster, hardship: Hardship, rng: Random) -> None:
        self._cluster = cluster
        self._hardship = hardship
        self._rng = rng
        self._line: deque[tuple[Coordinator, int, Event]] = deque()
        self._scheduled = False
        self._paused_until_ns = 0
        self._all_paused_until_ns = 0  # pause of the workers as well
        self._unread: set[tuple[int, int]] = set()  # (worker, epoch) of messages that came during a pause
        self._turned_ns = 0
        self.waited = 0  # events that came while it was busy
        self.pauses = 0
        self.long_writes = 0

    def start(self) -> None:
        for at_ns, for_ns, everybody in self._hardship.pauses:
            self._cluster.engine.after(at_ns, lambda f=for_ns, e=everybody: self._pause(f, e))  # type: ignore[misc]
        self._tick()

    @property
    def on_time(self) -> bool:
        """Whether every event was handled as soon as it came."""
        return not self.waited and not self.pauses

    def _pause(self, for_ns: int, everybody: bool) -> None:
        cluster = self._cluster
        if cluster.quiet:
            return
        self.pauses += 1
        until_ns = cluster.engine.now_ns + for_ns
        self._paused_until_ns = max(until_ns, self._paused_until_ns)
        cluster.disturbed(until_ns)
        if everybody:
            self._all_paused_until_ns = until_ns
            for process in cluster.by_epoch.values():
                process.stopped_until_ns = max(until_ns, process.stopped_until_ns)
        cluster.engine.after(for_ns + self._rng.randrange(20) * MS, self._read)

    # -- events

    def arrive(self, leader: Coordinator, worker: int, epoch: int, event: Event) -> None:
        """A message has come. The reading thread notes that the worker was heard; the event waits for its turn."""
        if leader is self._cluster.coordinator:
            if self._cluster.engine.now_ns < self._paused_until_ns:
                self._unread.add((worker, epoch))
            else:
                leader.heard(worker, epoch, self._cluster.engine.now_ns)
            self.post(leader, event)

    def _read(self) -> None:
        """Reading threads go on some time after a pause, perhaps after the thread that calls ``tick``."""
        for worker, epoch in self._unread:
            self._cluster.coordinator.heard(worker, epoch, self._cluster.engine.now_ns)
        self._unread.clear()

    def restart(self) -> None:
        """Another driver takes over. Unread messages are lost with the old connections."""
        self._unread.clear()

    def post(self, leader: Coordinator, event: Event) -> None:
        self._line.append((leader, self._cluster.engine.now_ns, event))
        if not self._scheduled:
            self._turn()
        else:
            self.waited += 1

    def _turn(self) -> None:
        """Handle events one after the other, as long as they take no time."""
        engine = self._cluster.engine
        self._scheduled = False
        while self._line:
            if engine.now_ns < self._paused_until_ns:
                self._later(self._paused_until_ns - engine.now_ns)
                return
            leader, came_ns, event = self._line.popleft()
            if came_ns < engine.now_ns:
                self._cluster.disturbed(engine.now_ns)
            if leader is self._cluster.coordinator:
                self._cluster.obey(event())
            if self._hardship.event_ns and not self._cluster.quiet:
                self._later(self._hardship.event_ns)
                return

    def _later(self, delay_ns: int) -> None:
        self._scheduled = True
        self._cluster.engine.after(delay_ns, self._turn)

    # -- timeouts

    def _tick(self) -> None:
        cluster, now_ns = self._cluster, self._cluster.engine.now_ns
        if now_ns < self._paused_until_ns:
            cluster.engine.after(self._paused_until_ns - now_ns, self._tick)
            return
        coordinator = cluster.coordinator
        held_ns, self._turned_ns = now_ns - self._turned_ns, now_ns
        if held_ns > LATE_NS:
            coordinator.excuse(now_ns, held_ns)
        for place in coordinator.silent(now_ns):
            if place in self._unread:
                coordinator.heard(*place, now_ns)
        cluster.obey(coordinator.tick(now_ns))
        if not cluster.finished:
            cluster.engine.after(10 * MS, self._tick)

    def was_silent(self, epoch: int) -> None:
        """An epoch was declared dead for silence. Raises ``HealthyWorkerLost`` if the worker was healthy."""
        process, now_ns = self._cluster.by_epoch[epoch], self._cluster.engine.now_ns
        alone_ns = process.stopped_until_ns if process.stopped_until_ns != self._all_paused_until_ns else 0
        if process.alive and max(alone_ns, process.cut_off_until_ns) < now_ns - CALM_NS:
            raise HealthyWorkerLost(f"a healthy worker was declared dead: worker={process.worker} epoch={epoch}")

    # -- storing

    def store(self, persist: Persist) -> None:
        """Write a checkpoint. It takes effect as a whole, later, or not at all if the driver dies before."""
        leader = self._cluster.coordinator
        takes_ns = 0 if self._cluster.quiet else self._rng.choice(self._hardship.writes_ns)
        self.long_writes += takes_ns > LATE_NS

        def written() -> None:
            if leader is self._cluster.coordinator and self._cluster.write(persist):
                self.post(leader, lambda: leader.stored(self._cluster.engine.now_ns))

        if takes_ns:
            self._cluster.engine.after(takes_ns, written)
        else:
            written()
