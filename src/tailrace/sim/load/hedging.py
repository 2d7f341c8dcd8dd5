"""Drives hedging rules in the load simulation, with one hedger for each source task.

``due`` is called after each event that a hedger was told of, and exactly at the time that ``wake_ns`` names. An
*incarnation* is one emission of a root: see ``roots``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

from tailrace.clock import MILLISECOND_NS
from tailrace.policy.hedging.api import MOST_HEDGES, HedgeRule, Load
from tailrace.policy.hedging.least_waiting import LeastWaiting
from tailrace.sim.load.agenda import WAKE, Agenda
from tailrace.sim.load.roots import Roots

OBSERVE_EVERY_NS = 100 * MILLISECOND_NS
WINDOW = 10
"""Observations over which utilisation is measured: a second."""

ALL_SENDERS = -1
NEVER = 1 << 63

Busy = Callable[[], Sequence[tuple[int, int]]]
"""For each stage: the busy time of all its tasks, and their number."""


class Hedging:
    """Law: a root is hedged at most ``MOST_HEDGES`` times, and never after it is done."""

    def __init__(self, rule: HedgeRule, senders: Sequence[int], roots: Roots, agenda: Agenda, seed: int) -> None:
        self.name = rule.name
        self.cancels = rule.cancels
        self.senders = senders  # of each root
        self.roots = roots
        self.agenda = agenda
        roots.on_the_way.extend([0] * (MOST_HEDGES * roots.count))
        self.hedgers = [rule.bind(Random(f"{seed} replay {sender}")) for sender in range(max(senders) + 1)]
        self.pending = [0] * len(self.hedgers)  # roots of each sender that are emitted and not done
        self.emitted_times = bytearray(roots.count)
        self.touched: dict[int, None] = {}  # senders whose hedger was told something by the current event, in order
        self.armed_ns = [NEVER] * len(self.hedgers)
        self.edges: dict[int, list[LeastWaiting]] = {}  # by sender: its shuffled edges
        self.work_ns = [0, 0]  # of first incarnations, and of hedges
        self.unrun_ns = 0.0
        self.reported = (0, 0, 0, 0)  # roots, hedges, work_ns and unrun_ns by the last report
        self.issued = 0
        self.won = 0
        self.observations: deque[tuple[int, Sequence[tuple[int, int]]]] = deque(maxlen=WINDOW + 1)

    def begin(self, emit: Callable[[int, int], None], busy: Busy) -> None:
        """Start. ``emit`` sends the tuples of a root as a given incarnation."""
        self.emit = emit
        self.busy = busy
        self.observations.append((self.agenda.now_ns, busy()))
        self.agenda.push(self.agenda.now_ns + OBSERVE_EVERY_NS, WAKE, self, ALL_SENDERS, 0, None)

    # -- events

    def emitted(self, root: int) -> None:
        sender = self.senders[root]
        self.emitted_times[root] = 1
        self.pending[sender] += 1
        self.hedgers[sender].emitted(root, self.agenda.now_ns)
        self.touched[sender] = None

    def executed(self, incarnation: int, duration_ns: int) -> None:
        self.work_ns[incarnation >= self.roots.count] += duration_ns

    def discarded(self, work_ns: float) -> None:
        """Work was thrown away, at mean costs."""
        self.unrun_ns += work_ns

    def completed(self, incarnation: int) -> None:
        again, root = divmod(incarnation, self.roots.count)
        self.won += again > 0
        sender = self.senders[root]
        self.pending[sender] -= 1
        self.hedgers[sender].completed(root, self.agenda.now_ns, hedge=bool(again))
        for edge in self.edges.get(sender, ()):
            edge.completed(incarnation, range(root, len(self.roots.on_the_way), self.roots.count))
        self.touched[sender] = None

    def edge(self, sender: int, tasks: int) -> LeastWaiting:
        """Track where roots of this sender go along a shuffled edge."""
        edge = LeastWaiting(tasks)
        self.edges.setdefault(sender, []).append(edge)
        return edge

    # -- decisions

    def wake(self, sender: int) -> None:
        if sender == ALL_SENDERS:
            self.observe()
        elif self.armed_ns[sender] <= self.agenda.now_ns:
            self.armed_ns[sender] = NEVER
            self.touched[sender] = None

    def observe(self) -> None:
        now_ns, busy = self.agenda.now_ns, self.busy()
        then_ns, before = self.observations[0]
        shares = [
            (now - then) / (tasks * (now_ns - then_ns)) for (now, tasks), (then, _) in zip(busy, before, strict=True)
        ]
        self.observations.append((now_ns, busy))
        load = self.load(max(shares))
        for sender, hedger in enumerate(self.hedgers):
            hedger.observed(load, now_ns)
            self.touched[sender] = None
        if len(self.roots.latencies_ns) < self.roots.count:
            self.agenda.push(now_ns + OBSERVE_EVERY_NS, WAKE, self, ALL_SENDERS, 0, None)

    def load(self, utilisation: float) -> Load:
        """The work of all tasks since the last report."""
        before = self.reported
        now = self.reported = (len(self.roots.latencies_ns), self.issued, sum(self.work_ns), int(self.unrun_ns))
        return Load(utilisation, *(after - earlier for after, earlier in zip(now, before, strict=True)))

    def turn(self) -> None:
        """Call ``due`` of the hedgers that were told something."""
        for sender in self.touched:
            for root in self.hedgers[sender].due(self.agenda.now_ns):
                self.hedge(root, sender)
            self.arm(sender)
        self.touched.clear()

    def hedge(self, root: int, sender: int) -> None:
        own = 0 <= root < self.roots.count and self.senders[root] == sender
        times = self.emitted_times[root] if own else 0
        assert 1 <= times <= MOST_HEDGES, f"not a root to emit again: rule={self.name} root={root}"
        assert not self.roots.is_done(root), f"a root is emitted again that is done: rule={self.name} root={root}"
        self.emitted_times[root] = times + 1
        self.issued += 1
        self.emit(root, root + times * self.roots.count)

    def arm(self, sender: int) -> None:
        wake_ns = self.hedgers[sender].wake_ns() if self.pending[sender] else None
        if wake_ns is not None and self.agenda.now_ns < wake_ns < self.armed_ns[sender]:
            self.armed_ns[sender] = wake_ns
            self.agenda.push(wake_ns, WAKE, self, sender, 0, None)

    @property
    def extra_work(self) -> float:
        return self.work_ns[1] / max(1, self.work_ns[0])

    def validate(self) -> None:
        assert not any(self.pending), f"roots left over: {sum(self.pending)}"
        assert all(self.emitted_times), "a root was never emitted"
        assert self.won <= self.issued == sum(self.emitted_times) - self.roots.count
