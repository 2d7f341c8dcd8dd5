"""The uplink that a worker shares with the others of its machine: shared words say what waits, and who may send next.

Until a worker has the words, or if it cannot have them, it sends by itself within an equal part of the uplink.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tailrace.core.plan.node_groups import NodeGroup, node_group_of_machine
from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.messages import Member
from tailrace.core.send_order.node_uplink import NodeUplink, NodeWords
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.errors import SegmentError
from tailrace.ring.owner import process_namespace
from tailrace.runtime.encryption.connection import Connection
from tailrace.runtime.execution.ports import WorkerServices
from tailrace.runtime.links.node_share import NodeShare
from tailrace.runtime.send_order.send_loop import SendLoop
from tailrace.runtime.send_order.shared_words import SharedUplink, SharedWords

KIND = "link"


class NodeUplinks(NodeShare[SharedWords]):
    """One worker's part in the uplink of its machine. For any thread.

    ``say_alone`` is called with the reason if the worker cannot have the words.
    """

    def __init__(
        self,
        services: WorkerServices,
        plan: Plan,
        bytes_per_s: int,
        loop: SendLoop,
        say_alone: Callable[[str], None],
    ) -> None:
        super().__init__(services, services.worker, KIND)
        self._places = NodeWords([operator.tasks for operator in plan.operators], plan.home)
        self._bytes_per_s = bytes_per_s
        self._loop = loop
        self._say_alone = say_alone
        self._lock = threading.Lock()  # for the group and the words, and so that the loop gets groups in their order
        self._made: SharedWords | None = None  # for others to ask for

    def follow(self, members: Mapping[int, Member]) -> None:
        """The membership has changed."""
        group = node_group_of_machine(members, self.worker)
        with self._lock:
            if group is None or group == self.group:
                return
            self.group, self._made = group, None
            self._loop.share(None, UplinkBudget(max(1, self._bytes_per_s // len(group.members))))
        if len(group.members) > 1:
            self.obtain(group)

    def make(self, group: NodeGroup) -> SharedWords:
        memory = SharedWords.make(self._places.count)
        self._places.clear(memory.words)
        return memory

    def offer(self, hello: Mapping[str, Any]) -> dict[str, Any] | None:
        """The data that a peer needs to map the words; None if this worker has not made them, or no longer has them."""
        with self._lock:
            made = self._made
            if made is None or not self.asked_by(hello):
                return None
            own = {"processes": process_namespace(), "pid": os.getpid()}
            return {**own, "file": made.number, "nonce": made.nonce}

    def take(self, connection: Connection, reply: Mapping[str, Any]) -> SharedWords:
        connection.close()
        if reply["processes"] != process_namespace():
            raise SegmentError("the workers have the same address, and see other processes; are they in containers?")
        return SharedWords.open(reply["pid"], reply["file"], reply["nonce"], self._places.count)

    def join(self, group: NodeGroup, made: SharedWords) -> None:
        with self._lock:
            if self.group is not group:
                made.close()
                return
            if group.maker == self.worker:
                self._made = made
            view = NodeUplink(made.words, self._places, self.worker, self._bytes_per_s, len(group.members))
            self._loop.share(SharedUplink(made, view), None)

    def do_without(self, why: str) -> None:
        self._say_alone(why)

    def close(self) -> None:
        with self._lock:
            self.group = self._made = None
            self._loop.share(None, UplinkBudget(self._bytes_per_s))
