"""The law of hedging rules as a function that checks any rule.

The law is in ``tailrace.policy.hedging.api``. The source below is a minimal driver: its roots are quick or stuck by
chance, tasks are sometimes idle and sometimes busy, and some roots are lost and emitted again.
"""

from __future__ import annotations

import heapq
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from random import Random

import cloudpickle

from tailrace.errors import shorten
from tailrace.policy.hedging.api import MOST_HEDGES, Hedger, HedgeRule, Load
from tailrace.policy.hedging.budget import BURST, LUCKY_BURSTS

MS = 1_000_000
EVERY_NS = MS
WORK_NS = MS
QUICK_NS, STUCK_NS = (2 * MS, 4 * MS), (50 * MS, 80 * MS)
STUCK, LOST = 0.05, 0.02
OBSERVE_EVERY = 100  # roots
BUSY = (0.3, 0.3, 0.99)
"""Utilisation of the busiest operator in the first, second and last third of a run."""

_IN_ANOTHER_PROCESS = """
import pickle, sys
from tailrace.testing.hedging import _hedge_everywhere
sys.stdout.buffer.write(pickle.dumps(_hedge_everywhere(*pickle.load(sys.stdin.buffer))))
"""

Hedge = tuple[int, int]
"""(time, root)"""


def check_hedge_rule(rule: HedgeRule, *, roots: int = 6_000, seeds: Sequence[int] = (0, 1)) -> None:
    """Raise ``AssertionError`` unless a hedging rule keeps its law. Starts one other Python process.

    Args:
        rule: the rule.
        roots: how many roots are emitted, a thousand a second.
        seeds: the seeds to try.

    Example:
        >>> from tailrace.testing import check_hedge_rule
        >>> check_hedge_rule(tr.fixed_timeout(20), roots=100, seeds=[1])
    """
    assert roots > 0 and seeds, "nothing to check: roots and seeds need at least one"
    assert cloudpickle.loads(cloudpickle.dumps(rule)) == rule, f"a rule is a value: rule={rule.name}"
    for seed in seeds:
        for discards in (False, True):
            first = _Source(rule, seed, discards).run(roots)
            # Two that take turns: hedgers must not share state through the rule.
            one, two = _Source(rule, seed, discards), _Source(rule, seed, discards)
            _check_same(rule, "equal seeds and equal traffic give equal hedges", first, one.run(roots // 2), seed)
            _check_same(rule, "hedgers of one rule share nothing", first, two.run(roots // 2), seed)
            _check_same(rule, "hedgers of one rule share nothing", first, one.run(roots), seed)
    _check_other_process(rule, roots, seeds)


class _Source:
    """A source task and all that is behind it, in virtual time."""

    def __init__(self, rule: HedgeRule, seed: int, discards: bool) -> None:
        self.rule, self.seed, self.discards = rule, seed, discards
        self.hedger: Hedger = rule.bind(Random(seed))
        self.rng = Random(seed + 1_000)
        self.events: list[tuple[int, int, int, bool]] = []  # (at, sequence, root, hedge)
        self.sequence = 0
        self.emitted = 0
        self.pending: set[int] = set()
        self.hedged: Counter[int] = Counter()
        self.hedges: list[Hedge] = []
        self.work_ns = self.unrun_ns = 0
        self.reported = (0, 0, 0, 0)  # roots, hedges, work_ns and unrun_ns by the last report

    def run(self, until: int) -> list[Hedge]:
        """Emit roots until there are ``until`` of them. The last ones may still be pending."""
        for root in range(self.emitted, until):
            self.catch_up((root + 1) * EVERY_NS)
            self.emitted = root + 1
            self.pending.add(root)
            self.hedger.emitted(root, (root + 1) * EVERY_NS)
            if self.rng.random() < LOST:
                self.hedger.emitted(root, (root + 1) * EVERY_NS)
            self.send(root, False, (root + 1) * EVERY_NS)
            if root % OBSERVE_EVERY == 0:
                self.hedger.observed(self.load(BUSY[root * len(BUSY) // until]), (root + 1) * EVERY_NS)
            self.ask((root + 1) * EVERY_NS)
        return self.hedges

    def load(self, utilisation: float) -> Load:
        complete = self.emitted - len(self.pending)
        before, self.reported = self.reported, (complete, len(self.hedges), self.work_ns, self.unrun_ns)
        return Load(utilisation, *(now - then for now, then in zip(self.reported, before, strict=True)))

    def send(self, root: int, hedge: bool, now_ns: int) -> None:
        latency_ns = self.rng.randrange(*(STUCK_NS if self.rng.random() < STUCK else QUICK_NS))
        self.sequence += 1
        heapq.heappush(self.events, (now_ns + latency_ns, self.sequence, root, hedge))

    def catch_up(self, now_ns: int) -> None:
        """Handle all events before ``now_ns``, and call ``due`` after each."""
        while True:
            wake_ns = self.hedger.wake_ns()
            event_ns = self.events[0][0] if self.events else now_ns
            before_ns = min(event_ns, now_ns, wake_ns or now_ns) - 1
            if self.asked(before_ns):
                raise self.broken("nothing is due before the moment that wake_ns names", at_ns=before_ns)
            if wake_ns is not None and before_ns + 1 < min(event_ns, now_ns):
                self.ask(before_ns + 1)
                if self.hedger.wake_ns() == wake_ns:
                    raise self.broken("a moment that wake_ns names passes", wake_ns=wake_ns)
            elif event_ns < now_ns:
                self.happen(*heapq.heappop(self.events))
            else:
                return

    def happen(self, at_ns: int, _: int, root: int, hedge: bool) -> None:
        late = root not in self.pending
        if late and hedge and self.discards and self.rule.cancels:
            self.unrun_ns += WORK_NS
        else:
            self.work_ns += WORK_NS
        if not late:
            self.pending.remove(root)
            self.hedger.completed(root, at_ns, hedge)
        self.ask(at_ns)

    def ask(self, now_ns: int) -> None:
        for root in self.asked(now_ns):
            self.hedges.append((now_ns, root))
            self.send(root, True, now_ns)
        self.check_budget()

    def asked(self, now_ns: int) -> Sequence[int]:
        roots = self.hedger.due(now_ns)
        for root in roots:
            facts = {"at_ns": now_ns, "root": shorten(root)}
            if not isinstance(root, int) or not 0 <= root < self.emitted:
                raise self.broken("only roots that were emitted are due", **facts)
            if root not in self.pending:
                raise self.broken("a root that is complete is not due", **facts)
            if self.hedged[root] == MOST_HEDGES:
                raise self.broken(f"a root is due {MOST_HEDGES} times in its life at most", **facts)
            self.hedged[root] += 1
        return roots

    def check_budget(self) -> None:
        """If hedges are never thrown away, each costs exactly the work of a root."""
        budget, issued_ns = self.rule.budget, len(self.hedges) * WORK_NS
        if budget is None or self.discards:
            return
        complete = self.emitted - len(self.pending)
        allowed_ns = budget * complete * WORK_NS + LUCKY_BURSTS * BURST * WORK_NS
        if issued_ns > allowed_ns:
            raise self.broken("hedges cost no more than the budget", issued_ns=issued_ns, allowed_ns=allowed_ns)

    def broken(self, law: str, **facts: object) -> AssertionError:
        return _broken(self.rule, law, seed=self.seed, **facts)


def _broken(rule: HedgeRule, law: str, **facts: object) -> AssertionError:
    details = " ".join(f"{name}={fact}" for name, fact in facts.items())
    return AssertionError(f"hedging rule breaks its law: {law}: rule={rule.name} {details}")


def _check_same(rule: HedgeRule, law: str, expected: list[Hedge], given: list[Hedge], seed: int) -> None:
    for left, right in zip(expected, given, strict=False):
        if left != right:
            raise _broken(rule, law, seed=seed, expected=left, given=right)


def _hedge_everywhere(rule: HedgeRule, roots: int, seeds: Sequence[int]) -> dict[int, list[Hedge]]:
    return {seed: _Source(rule, seed, discards=False).run(roots) for seed in seeds}


def _check_other_process(rule: HedgeRule, roots: int, seeds: Sequence[int]) -> None:
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", _IN_ANOTHER_PROCESS],
        input=cloudpickle.dumps((rule, roots, list(seeds))),
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        timeout=60,
    )
    law = "equal hedges in any process"
    if done.returncode != 0:
        raise _broken(rule, law, error=done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    there = pickle.loads(done.stdout)
    for seed, here in _hedge_everywhere(rule, roots, seeds).items():
        _check_same(rule, law, here, there[seed], seed)
