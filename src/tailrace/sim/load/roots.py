"""Which roots are done, by counting their tuples on the way.

An *incarnation* is one emission of a root. The first has the number of the root; each further one, a hedge, has the
number of the one before plus the number of roots. The first incarnation to complete counts.
"""

from __future__ import annotations

from collections.abc import Sequence

PENDING = -1


class Roots:
    """The roots of a simulation. Law: a root is done once."""

    def __init__(self, due_ns: Sequence[int]) -> None:
        self.count = len(due_ns)
        self.due_ns = due_ns
        self.done_ns = [PENDING] * self.count
        self.latencies_ns: list[int] = []
        self.on_the_way = [0] * self.count  # emitted tuples of each incarnation that were neither run nor dropped

    def complete(self, incarnation: int, now_ns: int) -> bool:
        """An incarnation is complete. Returns whether it is the first of its root."""
        root = incarnation % self.count
        if self.done_ns[root] != PENDING:
            return False
        self.done_ns[root] = now_ns
        self.latencies_ns.append(now_ns - self.due_ns[root])
        return True

    def is_done(self, incarnation: int) -> bool:
        return self.done_ns[incarnation % self.count] != PENDING

    def validate(self) -> None:
        assert not any(self.on_the_way), f"tuples on the way at the end: {sum(self.on_the_way)}"
        assert PENDING not in self.done_ns, f"a root was never done: {self.done_ns.index(PENDING)}"
        assert len(self.latencies_ns) == self.count, f"roots={self.count} done={len(self.latencies_ns)}"
