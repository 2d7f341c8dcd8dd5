"""How tuples and messages get from a sender to a task: links between nodes and within them, at work."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.clock import SECOND_NS
from tailrace.sim.load.models.model import APART, Link, Model


class Lane:
    """From one sender to one task."""

    __slots__ = ("free", "instant", "latency_ns", "tuple_ns")

    def __init__(self, link: Link, tuple_bytes: int, free: list[float]) -> None:
        self.latency_ns = link.latency_ns
        self.tuple_ns = None if link.bytes_per_s is None else tuple_bytes * SECOND_NS / link.bytes_per_s
        self.instant = not link.latency_ns and link.bytes_per_s is None
        self.free = free  # when the link has sent all so far; lanes over the same link share the list

    def arrival_ns(self, now_ns: int) -> int:
        """Of a tuple that is sent now."""
        if self.tuple_ns is None:
            return now_ns + self.latency_ns
        self.free[0] = max(self.free[0], now_ns) + self.tuple_ns
        return int(self.free[0]) + self.latency_ns

    def message_ns(self, now_ns: int) -> int:
        """When a message arrives that is sent now: it takes no time of its own, and overtakes no tuple."""
        return (now_ns if self.tuple_ns is None else max(now_ns, int(self.free[0]))) + self.latency_ns


class Network:
    """The links of a model. What all stages send from one node to another goes over one of them."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._free: dict[tuple[int, int], list[float]] = {}

    def lanes(self, machines: Sequence[int], nodes: Sequence[int]) -> list[list[Lane]]:
        """For each sender, by its machine, the lanes to tasks, by their node."""
        return [[self._lane(machine, node) for node in nodes] for machine in machines]

    def _lane(self, machine: int, node: int) -> Lane:
        link = self._model.local if machine == node else self._model.link
        return Lane(link, self._model.tuple_bytes, self._free.setdefault((machine, node), [0.0]))


def source_machines(model: Model) -> list[int]:
    """The node of each source task. Those that are apart from all nodes are on a machine of their own each."""
    nodes = map(model.sender_node, range(model.senders))
    return [-1 - sender if node == APART else node for sender, node in enumerate(nodes)]
