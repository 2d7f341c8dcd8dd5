"""Drives the hedger of one source task: tells it what happens to roots, and asks it which to hedge.

The hedger (``tailrace.policy.hedging``) decides when a root is late and whether the budget allows a hedge. The source
task emits the hedge; ``races`` decides which emission wins and cancels the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tailrace.core.emissions import is_hedge, race_until
from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.ledger import Ledger, Root
from tailrace.errors import OptionError
from tailrace.metrics.counters import TaskCounters
from tailrace.policy.hedging.api import MOST_HEDGES, HedgeRule, Load
from tailrace.policy.hedging.least_waiting import LeastWaiting
from tailrace.policy.techniques import Tail
from tailrace.topology import Role

NEVER = 1 << 63


class HedgingController:
    """The roots of one source task under one rule.

    Law: a root is hedged at most ``MOST_HEDGES`` times in its life.
    """

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
        self._edges = edges  # those that track which task got which emission
        self._hedger = rule.bind(rng)
        self._pending: dict[int, Root] = {}  # roots that the hedger knows, by their first emission
        for root in ledger:
            if not root.complete_ns and root.emissions:
                self.emitted(root, now_ns)

    # -- events

    def emitted(self, root: Root, now_ns: int) -> None:
        """A root is emitted for the first time, or again by recovery, which supersedes its hedges."""
        # Recovery emits a root again that is complete and not durable, because its rows may have been lost.
        if root.complete_ns:
            for edge in self._edges:
                edge.forget(root.emissions)
        key = root.emissions[0]
        # A root that was hedged under an earlier rule, or is complete, stays unknown to this hedger.
        if key in self._pending or not (root.complete_ns or root.hedges):
            self._pending[key] = root
            self._hedger.emitted(key, now_ns)
            self.wake_ns = 0

    def completed(self, root: Root, now_ns: int, won: bool) -> None:
        """One emission of a root is complete, the first to be so. ``won``: it is a hedge."""
        key = root.emissions[0]
        if self._edges:
            winner = key if len(root.emissions) == 1 else self._ledger.completed_by(root)
            for edge in self._edges:
                edge.completed(winner, root.emissions)
        if self._pending.pop(key, None) is None:
            return  # it was hedged under another rule
        self._hedger.completed(key, now_ns, won)
        self.wake_ns = 0

    def loaded(self, load: Load, now_ns: int) -> None:
        self._hedger.observed(load, now_ns)
        self.wake_ns = 0

    # -- decisions

    def due(self, now_ns: int) -> list[Root]:
        """The roots to hedge now."""
        roots = [self._pending[key] for key in self._hedger.due(now_ns)]
        wake_ns = self._hedger.wake_ns()
        self.wake_ns = NEVER if wake_ns is None or wake_ns <= now_ns else wake_ns
        return roots

    def show(self) -> None:
        """Update the gauges of this task."""
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
            hedges = [emission for emission in root.emissions if is_hedge(emission)]
            assert len(hedges) == root.hedges <= MOST_HEDGES, f"hedges of one root: {len(hedges)}"
            assert all(set(race_until(hedge)) <= set(root.emissions) for hedge in hedges)


# -- where hedging is allowed


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
    """Sources whose roots must not be hedged, each with the reason. Raises ``OptionError`` if that is all of them."""
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
