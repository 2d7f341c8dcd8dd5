"""Hedging: a source task emits late roots once more, as its hedger says. What comes of it is up to ``races``.

What a hedger must be told about work is worked out from what all tasks together have done (``Load``), once a second,
and shared out evenly over roots and over hedges. Hedges are charged what those before them cost, and the difference
when it is known what they did.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.acks import HEDGE
from tailrace.core.protocol.ledger import Ledger, Root
from tailrace.core.protocol.messages import Load
from tailrace.errors import OptionError
from tailrace.metrics.counters import TaskCounters
from tailrace.policy.hedging.api import MOST_HEDGES, HedgeRule
from tailrace.policy.hedging.least_waiting import LeastWaiting
from tailrace.policy.techniques import Tail
from tailrace.topology import Role

NEVER = 1 << 63

FADE = 0.84
"""Of what was known before, with each load: half is left after a second, in which there may be few hedges."""


class HedgingController:
    """The roots of one source task under one rule. Law: a root is hedged at most ``MOST_HEDGES`` times in its life."""

    def __init__(
        self,
        rule: HedgeRule,
        ledger: Ledger,
        counters: TaskCounters,
        rng: Random,
        now_ns: int,
        edges: Sequence[LeastWaiting] = (),
    ) -> None:
        self.rule = rule
        self.wake_ns = 0  # when to ask what is due
        self._ledger = ledger
        self._counters = counters
        self._edges = edges  # that note where roots go
        self._hedger = rule.bind(rng)
        self._pending: dict[int, Root] = {}  # by the number of their first emission: what the hedger knows of
        self._work = _WorkPerRoot()
        self._issued = 0  # hedges since the last load
        for root in ledger:
            if not root.complete_ns and root.emissions:
                self.emitted(root, now_ns)

    # -- what happens

    def emitted(self, root: Root, now_ns: int) -> None:
        """A root is emitted for the first time, or again by recovery. A hedge of it is forgotten by that."""
        if root.complete_ns:  # and not durable: a loss may have taken its rows
            for edge in self._edges:
                edge.forget(root.emissions)
        key = root.emissions[0]
        if key in self._pending or not (root.complete_ns or root.hedges):
            self._pending[key] = root
            self._hedger.emitted(key, now_ns)
            self.wake_ns = 0

    def completed(self, root: Root, now_ns: int, won: bool) -> None:
        """The first incarnation of a root is complete. ``won``: it is a hedge."""
        key = root.emissions[0]
        if self._edges:
            winner = key if len(root.emissions) == 1 else self._ledger.completed_by(root)
            for edge in self._edges:
                edge.completed(winner, root.emissions)
        if self._pending.pop(key, None) is None:
            return  # it was hedged under another rule
        if self._work.root_ns:
            self._hedger.executed(self._work.root_ns, hedge=False)
        self._hedger.completed(key, now_ns, won)
        self.wake_ns = 0

    def loaded(self, load: Load, now_ns: int) -> None:
        if self._work.learn(load, self._issued):
            self._issued = 0
        self._charge(0)
        self._hedger.observed(load.utilisation, now_ns)
        self.wake_ns = 0

    # -- what to do about it

    def due(self, now_ns: int) -> list[Root]:
        """Roots to be hedged now."""
        roots = [self._pending[key] for key in self._hedger.due(now_ns)]
        self._issued += len(roots)
        self._charge(len(roots))
        wake_ns = self._hedger.wake_ns()
        self.wake_ns = NEVER if wake_ns is None or wake_ns <= now_ns else wake_ns
        return roots

    def _charge(self, hedges: int) -> None:
        for _ in range(self._work.run.take(hedges)):
            self._hedger.executed(self._work.root_ns, hedge=True)
        for _ in range(self._work.spared.take(hedges)):
            self._hedger.discarded(hedge=False)

    def show(self) -> None:
        """Bring gauges up to date."""
        state = self._hedger.state()
        self._counters.timeout_ns = state.timeout_ns or 0
        self._counters.hedges_left = state.hedges_left

    def validate(self) -> None:
        """Raise AssertionError if this contradicts the ledger."""
        incomplete = {root.emissions[0] for root in self._ledger if not root.complete_ns and root.emissions}
        assert set(self._pending) <= incomplete, "a root is waited for that is complete"
        emissions = sum(len(root.emissions) for root in self._ledger if not root.complete_ns)
        assert all(len(edge) <= emissions for edge in self._edges), "a root has a place that is complete"
        for root in self._ledger:
            hedges = [emission for emission in root.emissions if emission >= HEDGE]
            assert len(hedges) == root.hedges <= MOST_HEDGES, f"hedges of one root: {len(hedges)}"
            assert all(hedge - HEDGE in root.emissions for hedge in hedges)


class _WorkPerRoot:
    """What a root costs on average, and how many roots' worth of work a hedge brings and spares."""

    def __init__(self) -> None:
        self.root_ns = 0
        self.run = _Portions()  # of a hedge: what is thrown away of it taken off
        self.spared = _Portions()  # of the first incarnation, by a hedge
        self._roots = self._work_ns = self._hedges = self._unrun_ns = self._unrun_hedges_ns = 0.0

    def learn(self, load: Load, issued: int) -> bool:
        """``issued``: hedges that were charged at what was known before. False if there is nothing to learn."""
        if not (load.work_ns and load.roots):
            return False
        self._roots = FADE * self._roots + load.roots
        self._work_ns = FADE * self._work_ns + load.work_ns
        self._hedges = FADE * self._hedges + load.hedges
        self._unrun_ns = FADE * self._unrun_ns + load.unrun_ns
        self._unrun_hedges_ns = FADE * self._unrun_hedges_ns + load.unrun_hedges_ns
        whole_ns = self._work_ns + self._unrun_ns + self._unrun_hedges_ns
        self.root_ns = max(1, round(whole_ns / (self._roots + self._hedges)))
        hedges_ns = max(1.0, self._hedges) * self.root_ns
        self.run.correct(max(0.0, 1 - self._unrun_hedges_ns / hedges_ns), issued)
        self.spared.correct(min(1.0, self._unrun_ns / hedges_ns), issued)
        return True


class _Portions:
    """Whole things that are ``each`` on average."""

    def __init__(self) -> None:
        self.each = 0.0
        self._owed = 0.0

    def correct(self, each: float, taken: int) -> None:
        """So many should have been ``each``. What was too much is kept back from the next."""
        self._owed += taken * (each - self.each)
        self.each = each

    def take(self, times: int) -> int:
        self._owed += times * self.each
        whole = max(0, int(self._owed))
        self._owed -= whole
        return whole


# -- where it is allowed


def reasons_against(plan: Plan) -> dict[int, str]:
    """For each source, by operator index, why its roots may not be hedged; empty if they may."""
    sources = [op.index for op in plan.operators if op.operator.role is Role.SOURCE]
    return {source: _why_not(plan, source) for source in sources}


def _why_not(plan: Plan, source: int) -> str:
    reached, found = {source}, []
    for edge in sorted(plan.edges, key=lambda edge: edge.upstream):  # operators are in topological order
        if edge.upstream in reached:
            reached.add(edge.downstream)
    for index in sorted(reached):
        operator = plan.operators[index].operator
        if operator.stateful or not operator.idempotent:
            found.append(f"{operator.name} ({'stateful' if operator.stateful else 'idempotent=False'})")
    return ", ".join(found)


def check_hedging(plan: Plan, tail: Tail) -> list[str]:
    """Sources whose roots the hedging rule has to leave alone, in words. Raises if that is all of them."""
    if tail.hedge is None:
        return []
    reasons = reasons_against(plan)
    refused = [f"{plan.operators[source].name}: {why}" for source, why in reasons.items() if why]
    if refused and len(refused) == len(reasons):
        raise OptionError(
            f"no root may be hedged: hedge={tail.hedge.name} {'; '.join(refused)}: "
            "could these operators do without state, or do it all twice?"
        )
    return refused
