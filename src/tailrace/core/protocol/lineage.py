"""A lineage names a tuple for de-duplication: equal for two incarnations of it, different for everything else.

It starts from the root and folds in, hop by hop, the edge travelled (which implies the operator that emitted),
the output's index within its call, and the target task where an edge broadcasts. It is a 64-bit number made by
multiplication and addition alone, because it is computed for every tuple: the root is scrambled thoroughly once,
and from there on an affine step keeps different paths apart as well as anything slower would.

A sink compares split and offset too, so that two tuples can be taken for one only if they come of one root. For *n*
tuples of a root the odds are about n²/2⁶⁵: for a thousand of each of 10¹² roots 3% that it happens once, for ten of
each 3·10⁻⁶. Lineages alone, among all that is pending, would clash sooner: N·n/2⁶⁴ for N rows with n pending at a
time, which is 5% for 10¹² rows and a million pending.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.policy.hashing import stable_hash

MASK = (1 << 64) - 1
STEP = 0xD1342543DE82EF95
INDEX = 0x9E3779B97F4A7C15
BROADCAST = 0xA0761D6478BD642F


def split_salt(source: str, split: str) -> int:
    """A number that tells the roots of one split from those of another."""
    return stable_hash(("split", source, split))


def edge_salt(upstream: str, downstream: str, port: str, ordinal: int) -> int:
    """A number that tells edges apart. It is made of names, to survive a restart with an edited topology."""
    return stable_hash(("edge", upstream, downstream, port, ordinal))


def root_lineage(salt: int, offset: int) -> int:
    """The lineage of a root: the finalizer of splitmix64 over its place in the split."""
    mixed = (salt + (offset + 1) * INDEX) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


def child_lineages(parents: Sequence[int], salt: int, indices: Sequence[int] | None) -> list[int]:
    """Lineages of tuples sent along one edge. ``indices`` of None: each is the only output of its call."""
    if indices is None:
        return [(parent * STEP + salt) & MASK for parent in parents]
    return [(parent * STEP + salt + index * INDEX) & MASK for parent, index in zip(parents, indices, strict=True)]


def broadcast_lineages(lineages: Sequence[int], task: int) -> list[int]:
    """Lineages of one task's copies on an edge that broadcasts."""
    shift = (task + 1) * BROADCAST
    return [(lineage * STEP + shift) & MASK for lineage in lineages]
