"""The links of a model at work: how long tuples and messages take from a sender to a task."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.clock import SECOND_NS
from tailrace.sim.load.models.model import APART, Model, Uplink


class Lane:
    """The way from one sender to one task."""

    __slots__ = ("free", "instant", "latency_ns", "tuple_ns")

    def __init__(self, link: Uplink, tuple_bytes: int, free: list[float]) -> None:
        self.latency_ns = link.latency_ns
        self.tuple_ns = None if link.bytes_per_s is None else tuple_bytes * SECOND_NS / link.bytes_per_s
        self.instant = not link.latency_ns and link.bytes_per_s is None
        self.free = free  # when the link is free again; lanes over one link share this list

    def arrival_ns(self, now_ns: int) -> int:
        """When a tuple arrives that is sent now."""
        if self.tuple_ns is None:
            return now_ns + self.latency_ns
        self.free[0] = max(self.free[0], now_ns) + self.tuple_ns
        return int(self.free[0]) + self.latency_ns

    def message_ns(self, now_ns: int) -> int:
        """When a message arrives that is sent now. It takes no bandwidth, and overtakes no tuple."""
        return (now_ns if self.tuple_ns is None else max(now_ns, int(self.free[0]))) + self.latency_ns


class Network:
    """The links of a model. All stages share one link from one node to another."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._free: dict[tuple[int, int], list[float]] = {}

    def lanes(self, machines: Sequence[int], nodes: Sequence[int]) -> list[list[Lane]]:
        """For each sender, given by its machine, the lanes to all tasks, given by their nodes."""
        return [[self._lane(machine, node) for node in nodes] for machine in machines]

    def _lane(self, machine: int, node: int) -> Lane:
        link = self._model.local if machine == node else self._model.link
        return Lane(link, self._model.tuple_bytes, self._free.setdefault((machine, node), [0.0]))


def source_machines(model: Model) -> list[int]:
    """The machine of each source task: its node, or a machine of its own if it is apart from all nodes."""
    nodes = map(model.sender_node, range(model.senders))
    return [-1 - sender if node == APART else node for sender, node in enumerate(nodes)]
