"""The ledger against a model that remembers every tree of tuples instead of folding it into a number."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from tailrace.core.protocol.acks import AckFold, fold_into
from tailrace.core.protocol.ledger import Ledger, LedgerLimits, Root

SPLITS = {3: 0, 8: 100}
LIMITS = LedgerLimits(max_pending=6, recovery_timeout_ns=1_000)


@dataclass
class Tree:
    """One incarnation: the tuples not yet processed, and the rows that wait for a commit."""

    root: Root
    emission: int
    unprocessed: list[int] = field(default_factory=list)  # ack ids
    uncommitted: list[int] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.unprocessed

    @property
    def durable(self) -> bool:
        return not self.unprocessed and not self.uncommitted


class LedgerMachine(RuleBasedStateMachine):
    """Folds are held back and delivered in any order, or lost; what is complete is known from the trees."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = Random(5)
        self.now_ns = 10
        self.ledger = Ledger(SPLITS, LIMITS, self.rng)
        self.next_offset = dict(SPLITS)
        self.trees: list[Tree] = []
        self.roots: list[Root] = []
        self.fold = AckFold()  # not yet delivered
        self.poisoned: set[int] = set()  # emissions of which a fold was lost: they can never finish
        self.done: set[tuple[int, int]] = set()  # (split, offset) durable by a delivered tree
        self.processed: set[tuple[int, int]] = set()
        self.committed = dict(SPLITS)

    trees_made = Bundle("trees_made")

    def emit(self, root: Root, width: int) -> Tree:
        tree = Tree(root, self.ledger.emit(root, self.now_ns))
        tree.unprocessed = [self.rng.getrandbits(64) for _ in range(width)]
        ids = 0
        for ack in tree.unprocessed:
            ids ^= ack
        self.ledger.arm(tree.emission, ids, self.now_ns)
        self.trees.append(tree)
        self.settle()
        return tree

    def settle(self) -> None:
        """What the ledger has been told is what the trees say, for every tree of which no fold is held or lost."""
        held = set(self.fold.both) | set(self.fold.complete) | set(self.fold.durable)
        for tree in self.trees:
            if tree.emission not in held and tree.emission not in self.poisoned:
                if tree.complete:
                    self.processed.add((tree.root.split, tree.root.offset))
                if tree.durable:
                    self.done.add((tree.root.split, tree.root.offset))

    @precondition(lambda self: self.ledger.room > 0)
    @rule(target=trees_made, split=st.sampled_from(sorted(SPLITS)), gap=st.integers(1, 3), width=st.integers(0, 3))
    def read(self, split: int, gap: int, width: int) -> Tree:
        offset = self.next_offset[split]
        self.next_offset[split] += gap
        root = self.ledger.admit(split, offset, f"{split}/{offset}", self.now_ns)
        self.roots.append(root)
        return self.emit(root, width)

    @rule(tree=trees_made, children=st.integers(0, 3), rows=st.integers(0, 2))
    def process(self, tree: Tree, children: int, rows: int) -> None:
        """A task takes a bundle, sends children, and writes rows that become durable later."""
        if not tree.unprocessed:
            return
        made = [self.rng.getrandbits(64) for _ in range(children)]
        written = [self.rng.getrandbits(64) for _ in range(rows)]
        ids = tree.unprocessed.pop(0)
        for ack in (*made, *written):
            ids ^= ack
        for ack in written:
            fold_into(self.fold.complete, {tree.emission: ack})
        fold_into(self.fold.both, {tree.emission: ids})
        tree.unprocessed += made
        tree.uncommitted += written

    @rule(tree=trees_made)
    def commit(self, tree: Tree) -> None:
        for ack in tree.uncommitted:
            fold_into(self.fold.durable, {tree.emission: ack})
        tree.uncommitted = []

    @rule(order=st.permutations(["both", "complete", "durable"]))
    def deliver(self, order: list[str]) -> None:
        folds = dict(zip(("both", "complete", "durable"), self.fold.take(), strict=True))
        for which in order:
            getattr(self.ledger, f"apply_{which}")(folds[which], self.now_ns)
        self.settle()

    @rule()
    def lose(self) -> None:
        for fold in self.fold.take():
            self.poisoned.update(fold)

    @rule(target=trees_made, width=st.integers(0, 2))
    def recover(self, width: int) -> object:
        again = self.ledger.unfinished()
        assert again == [root for root in self.ledger if not root.durable]
        before = self.ledger.reemitted
        made = [self.emit(root, width) for root in again]
        assert self.ledger.reemitted == before + len(again)
        return multiple(*made)

    @rule(stray=st.integers(0, 2**64 - 1))
    def acknowledge_nothing(self, stray: int) -> None:
        """Acks for an emission of another ledger."""
        emission = self.ledger._next_emission + 1_000 + stray % 1_000
        self.ledger.apply_both({emission: stray}, self.now_ns)
        self.ledger.apply_durable({emission: stray}, self.now_ns)

    @rule(ns=st.integers(1, 400))
    def wait(self, ns: int) -> None:
        self.now_ns += ns

    @rule()
    def tell_coordinator(self) -> None:
        for split, (offset, value) in self.ledger.uncommitted().items():
            assert offset > self.committed[split]
            below = max(root.offset for root in self.roots if root.split == split and root.offset < offset)
            assert value == f"{split}/{below}"
            self.committed[split] = offset
            self.ledger.committed(split, offset)
        assert self.ledger.uncommitted() == {}
        assert self.ledger.settled == (self.ledger.pending == 0)

    @invariant()
    def agrees_with_the_trees(self) -> None:
        self.ledger.validate()
        for root in self.roots:
            place = (root.split, root.offset)
            assert root.durable == (place in self.done)
            assert bool(root.complete_ns) == (place in self.processed or place in self.done)

    @invariant()
    def the_span_begins_at_the_oldest_root_that_is_not_durable(self) -> None:
        span = list(self.ledger)
        for split in SPLITS:
            mine = [root for root in self.roots if root.split == split]
            first = next((index for index, root in enumerate(mine) if not root.durable), len(mine))
            assert [root for root in span if root.split == split] == mine[first:]
        assert self.ledger.pending == len(span)
        above = [root for root in self.roots if root.offset >= self.committed[root.split]]
        assert self.ledger.room == LIMITS.max_pending - len(above)
        oldest = [next((root for root in span if root.split == split), None) for split in SPLITS]
        assert self.ledger.waits_for_commit == any(root is not None and root.complete_ns > 0 for root in oldest)


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=40)
