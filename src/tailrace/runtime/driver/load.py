"""The load report that the coordinator sends to hedging rules, computed from the counters that tasks report anyway.

Rates of a task are taken over the time between its own two snapshots, because each snapshot carries the time of the
worker that took it. The utilisation of an operator with concurrent calls is relative to its ``concurrency``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tailrace.core.plan.plan import OperatorPlan, Plan
from tailrace.metrics.counters import TaskKey, TaskSnapshot
from tailrace.policy.hedging.api import Load
from tailrace.topology import Role

Pair = tuple[TaskSnapshot, TaskSnapshot]
"""A task's counters at the previous measurement and now."""


class LoadMeter:
    """Computes load from the difference between successive snapshots of all tasks."""

    def __init__(self, plan: Plan) -> None:
        self._operators = plan.operators
        self._upstream = [
            [plan.operators[edge.upstream].name for edge in plan.edges if edge.downstream == operator.index]
            for operator in plan.operators
        ]
        self._before: dict[TaskKey, TaskSnapshot] = {}

    def measure(self, snapshots: Iterable[TaskSnapshot]) -> Load | None:
        """The load since the previous call; None on the first call."""
        now = {snapshot.key: snapshot for snapshot in snapshots}
        before, self._before = self._before, now
        if not before:
            return None
        pairs = [(before.get(key, TaskSnapshot(*key)), snapshot) for key, snapshot in now.items()]
        sources = {op.name for op in self._operators if op.operator.role is Role.SOURCE}
        roots = [pair for pair in pairs if pair[0].operator in sources]
        others = [pair for pair in pairs if pair[0].operator not in sources]
        return Load(
            utilisation=max((self._utilisation(op, others) for op in self._operators), default=0.0),
            roots=_delta(roots, "completed"),
            hedges=_delta(roots, "hedges"),
            work_ns=_delta(others, "busy_ns"),
            unrun_ns=self._unrun_ns(pairs),
        )

    def _unrun_ns(self, pairs: list[Pair]) -> int:
        """Estimated work saved by cancelled tuples: each counts the mean cost of itself and of all its descendants."""
        received, busy_ns, unrun = Counter[str](), Counter[str](), Counter[str]()
        for then, now in pairs:
            received[now.operator] += now.received
            busy_ns[now.operator] += now.busy_ns
            unrun[now.operator] += now.unrun - then.unrun + now.unrun_hedges - then.unrun_hedges
        after_ns: dict[str, float] = {}  # mean cost of all descendants of one tuple of an operator
        unrun_ns = 0.0
        for operator in reversed(self._operators):  # downstream operators first: the list is in topological order
            whole_ns = after_ns.get(operator.name, 0.0) + busy_ns[operator.name] / max(1, received[operator.name])
            unrun_ns += unrun[operator.name] * whole_ns
            upstream = self._upstream[operator.index]
            sent = sum(received[name] for name in upstream)
            for name in upstream if sent else ():
                after_ns[name] = after_ns.get(name, 0.0) + whole_ns * received[operator.name] / sent
        return int(unrun_ns)

    def _utilisation(self, operator: OperatorPlan, pairs: list[Pair]) -> float:
        at_once = operator.operator.options.get("concurrency", 1) if operator.is_async else 1
        shares = [
            (now.busy_ns - then.busy_ns) / (now.at_ns - then.at_ns) / at_once
            for then, now in pairs
            if now.operator == operator.name and 0 < then.at_ns < now.at_ns
        ]
        return min(1.0, sum(shares) / len(shares)) if shares else 0.0


def _delta(pairs: Iterable[Pair], name: str) -> int:
    return sum(getattr(now, name) - getattr(then, name) for then, now in pairs)
