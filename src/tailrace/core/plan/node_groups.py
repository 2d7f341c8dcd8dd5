"""A node group: the workers of a machine that draw from one queue for an operator, each in one epoch.

The queue belongs to those epochs. When one of them ends or another begins there is a new node group, with a new queue,
and the old queue is abandoned as it is. The roots of all that was in it are pending in a ledger, and so are those of
what a dead process had taken or was writing. Every change of epochs is followed by a recovery, once all workers act on
it, which re-emits these roots. No process therefore needs to know which one held what, nothing of a dead epoch is ever
drawn, and a process that is merely stopped delays no other once it has been replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.core.plan.plan import OperatorPlan, Plan
from tailrace.core.protocol.messages import Member
from tailrace.policy.techniques import NODE


@dataclass(frozen=True)
class NodeGroup:
    """The workers of one machine that share a queue, each in one epoch.

    Law: two workers compute the same node group, or one of them does not act on the newest membership yet.
    """

    maker: int  # the worker that makes the queue
    members: tuple[tuple[int, int], ...]  # (worker, epoch); all may put, those with tasks of the operator draw

    def has(self, worker: int) -> bool:
        return any(member == worker for member, _ in self.members)


def node_group_of(plan: Plan, operator: OperatorPlan, members: Mapping[int, Member], worker: int) -> NodeGroup | None:
    """The node group of a worker that shares by node. None where fewer than two workers have tasks of the operator."""
    own = members.get(worker)
    if own is None or operator.widest != NODE:
        return None
    together = _of_machine(members, own)
    homes = set(plan.homes(operator))
    drawing = [other for other, _ in together if other in homes]
    return NodeGroup(drawing[0], together) if len(drawing) > 1 else None


def node_group_of_machine(members: Mapping[int, Member], worker: int) -> NodeGroup | None:
    """All workers on a worker's machine. None if the worker itself is no member."""
    own = members.get(worker)
    together = () if own is None else _of_machine(members, own)
    return NodeGroup(together[0][0], together) if together else None


def _of_machine(members: Mapping[int, Member], own: Member) -> tuple[tuple[int, int], ...]:
    machine = own.address[0]
    return tuple(sorted((other, member.epoch) for other, member in members.items() if member.address[0] == machine))
