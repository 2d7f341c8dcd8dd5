"""The ledger knows which roots are pending, and is the only one that decides that a root is done.

It lives with the source task that owns the roots. Every emission of a root, the first, a hedge or a re-emission, is an
incarnation with registers of its own: one for *complete*, one for *durable*. A register starts as the exclusive or
of the ack ids that the emission sent out; every task that processes a bundle returns the id it received exclusive-or
the ids it sent; so the register is zero when, and only when, everything was processed. Ack ids are random for every
bundle and incarnation. Lineages must never be used for this: two incarnations would cancel each other out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.core.emissions import first_emission, hedge_of, next_emission
from tailrace.core.protocol.acks import Fold
from tailrace.metrics.histogram import Histogram
from tailrace.policy.hedging.api import MOST_HEDGES


class Root:
    """One root that is not yet below the prefix."""

    __slots__ = (
        "complete_ns",
        "due_ns",
        "durable",
        "emissions",
        "emitted_ns",
        "hedges",
        "offset",
        "split",
        "timeouts",
        "value",
    )

    def __init__(self, split: int, offset: int, value: Any, due_ns: int) -> None:
        self.split = split
        self.offset = offset
        self.value = value
        self.due_ns = due_ns
        self.emitted_ns = 0  # when the newest incarnation was emitted, hedges aside
        self.complete_ns = 0  # 0 until complete
        self.durable = False
        self.hedges = 0
        self.timeouts = 0  # how often the backstop has re-emitted it
        self.emissions: list[int] = []  # the emission number of each incarnation


class _Registers:
    __slots__ = ("complete", "durable", "last_ns", "root")

    def __init__(self, root: Root) -> None:
        self.root = root
        self.complete = 0
        self.durable = 0
        self.last_ns = 0  # the latest time of its acks, which come in any order


@dataclass(frozen=True)
class LedgerLimits:
    """The limits of a ledger."""

    max_pending: int  # the most roots from the committed prefix to the newest emission
    recovery_timeout_ns: int  # of the backstop, for losses that went unnoticed


SLOW_FACTOR = 3
"""The backstop waits at least this many times the longest recent latency: a long queue is not a loss."""

MOST_DOUBLINGS = 6
"""How often the backstop doubles its timeout at most."""


class Ledger:
    """The pending roots of the splits that one source task reads."""

    def __init__(self, starts: dict[int, int], limits: LedgerLimits, rng: Random) -> None:
        self._limits = limits
        self._next_emission = first_emission(rng)
        self._live: dict[int, _Registers] = {}
        self._spans: dict[int, deque[Root]] = {split: deque() for split in starts}
        self._prefix: dict[int, int] = dict(starts)
        self._committed: dict[int, int] = dict(starts)
        self._below: dict[int, Any] = {}  # the newest value below each prefix; a restart checks that it is repeated
        self._pending = 0  # roots above the prefixes
        self._span = 0  # roots above the committed prefixes
        self.not_durable = 0  # roots that are not durable
        self._uncommitted: dict[int, deque[int]] = {split: deque() for split in starts}  # offsets below the prefix
        self._slowest_ns = 0
        self._strikes = 0  # how often the backstop has re-emitted roots since none was late
        self.complete_latency = Histogram()
        self.durable_latency = Histogram()
        self.reemitted = 0
        self.observer: Callable[[Root, int], None] | None = None  # called with a complete root and the emission
        self.on_complete: Callable[[Root, int], None] | None = None  # called with a complete root and the time

    # -- emitting

    @property
    def room(self) -> int:
        """How many more roots may be emitted now."""
        return self._limits.max_pending - self.span

    @property
    def span(self) -> int:
        """Roots from the committed prefix to the newest emission.

        It does not start at the prefix that the ledger itself has reached: a ledger that is cut off from the
        coordinator must not get further than its successor may, which starts from the committed prefix.
        """
        return self._span

    @property
    def pending(self) -> int:
        """Roots from the ledger's own prefix to the newest emission, those that are durable above a gap included."""
        return self._pending

    def admit(self, split: int, offset: int, value: Any, due_ns: int) -> Root:
        """Take a root that the source has just read. The caller must ``emit`` it next."""
        root = Root(split, offset, value, due_ns)
        self._spans[split].append(root)
        self._pending += 1
        self._span += 1
        self.not_durable += 1
        return root

    def emit(self, root: Root, now_ns: int) -> int:
        """Begin a new incarnation of a root. Returns its emission number. The caller must ``arm`` it next."""
        emission = self._next_emission
        self._next_emission = next_emission(emission)
        self._live[emission] = _Registers(root)
        if root.emissions:
            self.reemitted += 1
        root.emissions.append(emission)
        root.emitted_ns = now_ns
        return emission

    def hedge(self, root: Root) -> int:
        """Begin a hedge, which races the newest incarnation. Returns its emission number. The caller must ``arm`` it
        next.

        Recovery does not repeat hedges: it begins one new incarnation by ``emit``.
        """
        assert root.hedges < MOST_HEDGES, f"a root is hedged too often: split={root.split} offset={root.offset}"
        emission = hedge_of(root.emissions[-1])
        self._live[emission] = _Registers(root)
        root.hedges += 1
        root.emissions.append(emission)
        return emission

    def arm(self, emission: int, ids: int, now_ns: int) -> None:
        """The emission has sent out bundles. ``ids``: the exclusive or of their ack ids."""
        registers = self._live.get(emission)
        if registers is not None:
            registers.complete ^= ids
            registers.durable ^= ids
            if now_ns > registers.last_ns:
                registers.last_ns = now_ns
            if not (registers.complete and registers.durable):
                self._finish(registers)

    # -- acknowledging

    def apply_both(self, fold: Fold, now_ns: int) -> None:
        """Apply acks that count for both marks. ``now_ns``: when the work that they acknowledge was done."""
        live = self._live
        for emission, ids in fold.items():
            registers = live.get(emission)
            if registers is not None:
                registers.complete = complete = registers.complete ^ ids
                registers.durable = durable = registers.durable ^ ids
                if now_ns > registers.last_ns:
                    registers.last_ns = now_ns
                if not (complete and durable):
                    self._finish(registers)

    def apply_complete(self, fold: Fold, now_ns: int) -> None:
        """Apply acks that count for *complete* only."""
        for emission, ids in fold.items():
            registers = self._live.get(emission)
            if registers is not None:
                registers.last_ns = max(registers.last_ns, now_ns)
                registers.complete ^= ids
                if not registers.complete:
                    self._complete(registers.root, registers.last_ns)

    def apply_durable(self, fold: Fold, now_ns: int) -> None:
        """Apply acks that count for *durable* only."""
        for emission, ids in fold.items():
            registers = self._live.get(emission)
            if registers is not None:
                registers.last_ns = max(registers.last_ns, now_ns)
                registers.durable ^= ids
                if not registers.durable:
                    self._durable(registers.root, registers.last_ns)

    def _finish(self, registers: _Registers) -> None:
        if not registers.complete:
            self._complete(registers.root, registers.last_ns)
        if not registers.durable:
            self._durable(registers.root, registers.last_ns)

    def _complete(self, root: Root, now_ns: int) -> None:
        if not root.complete_ns:
            root.complete_ns = now_ns
            if self.observer is not None:
                self.observer(root, self.completed_by(root))
            if self.on_complete is not None:
                self.on_complete(root, now_ns)
            latency_ns = max(0, now_ns - root.due_ns)
            self.complete_latency.record(latency_ns)
            if len(root.emissions) - root.hedges == 1:  # with a re-emission, the latency shows a loss, not the work
                self._slowest_ns = max(latency_ns, self._slowest_ns - (self._slowest_ns >> 10))

    def completed_by(self, root: Root) -> int:
        """The emission number of the incarnation that was complete first."""
        live = self._live
        return next(one for one in root.emissions if not (live[one].complete and live[one].durable))

    def _durable(self, root: Root, now_ns: int) -> None:
        if root.durable:
            return
        self._complete(root, now_ns)  # a fold may bring the durable mark before the complete one
        root.durable = True
        self.not_durable -= 1
        self.durable_latency.record(max(0, now_ns - root.due_ns))
        for emission in root.emissions:
            del self._live[emission]
        self._advance(root.split)

    def _advance(self, split: int) -> None:
        """Move the prefix over the longest run of durable roots."""
        span = self._spans[split]
        while span and span[0].durable:
            root = span.popleft()
            self._pending -= 1
            self._uncommitted[split].append(root.offset)
            self._prefix[split] = root.offset + 1
            self._below[split] = root.value

    # -- committing

    def uncommitted(self) -> dict[int, tuple[int, Any]]:
        """The prefixes that have moved since the last commit, each with the value just below it."""
        return {
            split: (offset, self._below[split])
            for split, offset in self._prefix.items()
            if offset > self._committed[split]
        }

    @property
    def moved(self) -> bool:
        """Whether a prefix is ahead of the committed one."""
        return self._prefix != self._committed

    def committed(self, split: int, offset: int) -> None:
        """The coordinator has stored this prefix, so that a restart will begin there."""
        if split in self._committed and offset > self._committed[split]:
            self._committed[split] = offset
            waiting = self._uncommitted[split]
            while waiting and waiting[0] < offset:
                waiting.popleft()
                self._span -= 1

    def reach(self) -> dict[int, int]:
        """The offset behind the newest root of every split."""
        return {split: span[-1].offset + 1 if span else self._prefix[split] for split, span in self._spans.items()}

    def has_committed(self, offsets: dict[int, int]) -> bool:
        return all(self._committed[split] >= offset for split, offset in offsets.items())

    def quiet(self) -> list[int]:
        """Splits of which nothing is pending, and all is committed."""
        return [split for split, span in self._spans.items() if not span and not self._uncommitted[split]]

    @property
    def settled(self) -> bool:
        """Whether no root is pending, and all prefixes are committed."""
        return not self._pending and self._prefix == self._committed

    @property
    def waits_for_commit(self) -> bool:
        """Whether the oldest root of a split is complete, and only waits for sinks to commit."""
        return any(span and span[0].complete_ns for span in self._spans.values())

    # -- recovering

    def unfinished(self) -> list[Root]:
        """Every root that is not durable, in the order of emission. Recovery re-emits them."""
        return [root for span in self._spans.values() for root in span if not root.durable]

    def overdue(self, now_ns: int) -> list[Root]:
        """The backstop: roots that have waited so long that something must have been lost unnoticed.

        The timeout doubles for a root each time, and for all roots as long as some are late. Where a task does not
        return from a call, nothing was lost, and re-emitted roots only add to what waits for it.
        """
        timeout_ns = max(self._limits.recovery_timeout_ns, SLOW_FACTOR * self._slowest_ns)
        late = [root for root in self.unfinished() if now_ns - root.emitted_ns > timeout_ns]
        if not late:
            self._strikes = 0
        found = [
            root
            for root in late
            if now_ns - root.emitted_ns > timeout_ns << min(max(root.timeouts, self._strikes), MOST_DOUBLINGS)
        ]
        for root in found:
            root.timeouts += 1
        self._strikes += bool(found)
        return found

    def validate(self) -> None:
        """Raise AssertionError if the ledger contradicts itself."""
        roots = [root for span in self._spans.values() for root in span]
        assert self._span == self._pending + sum(map(len, self._uncommitted.values()))
        unfinished = sum(bool(root.complete_ns) and not root.durable for root in roots)
        assert self.complete_latency.count == self.durable_latency.count + unfinished, "a root is complete twice"
        assert self._pending == len(roots) <= self._span, (self._pending, self._span)
        assert self._span <= self._limits.max_pending, f"span is not bounded: {self._span} roots"
        assert all(self._committed[split] <= offset for split, offset in self._prefix.items())
        assert self.not_durable == sum(not root.durable for root in roots)
        live = {emission for root in roots if not root.durable for emission in root.emissions}
        assert live == set(self._live), "registers and pending roots disagree"
        for split, span in self._spans.items():
            _assert_increasing(self._prefix[split], (root.offset for root in span))
            assert not span or not span[0].durable, f"prefix of split {split} lags behind"

    def __iter__(self) -> Iterator[Root]:
        return (root for span in self._spans.values() for root in span)


def _assert_increasing(low: int, offsets: Iterable[int]) -> None:
    for offset in offsets:
        assert offset >= low, f"offset {offset} is below {low}"
        low = offset + 1
