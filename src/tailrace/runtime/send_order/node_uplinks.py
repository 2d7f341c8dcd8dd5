"""The link that a worker shares with others of its machine: it makes the words, or asks who made them, at each change.

Words belong to a node group, all workers of the machine in their epochs: of one that was replaced nothing is left.
Until a worker has the words, or if it cannot have them, it sends by itself within an equal part of the link.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tailrace.core.plan.node_groups import NodeGroup, node_group_of_machine
from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.messages import Member
from tailrace.core.send_order.node_uplink import NodeUplink, NodeWords
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.errors import ProtocolError, SegmentError
from tailrace.ring.owner import process_namespace
from tailrace.runtime.send_order.send_loop import SendLoop
from tailrace.runtime.send_order.shared_words import SharedUplink, SharedWords
from tailrace.runtime.shared_queues.node_queues import RETRY_S, Ground

KIND = "link"


class NodeUplinks:
    """Of one worker. For any thread."""

    def __init__(
        self, near: Ground, plan: Plan, bytes_per_s: int, loop: SendLoop, say_alone: Callable[[str], None]
    ) -> None:
        self._near = near
        self._places = NodeWords([operator.tasks for operator in plan.operators], plan.home)
        self._bytes_per_s = bytes_per_s
        self._loop = loop
        self._say_alone = say_alone
        self._lock = threading.Lock()  # for the following two, and so that the loop hears of node groups in their order
        self._group: NodeGroup | None = None
        self._made: SharedWords | None = None  # for others to ask for

    def follow(self, members: Mapping[int, Member]) -> None:
        """The membership has changed."""
        group = node_group_of_machine(members, self._near.worker)
        with self._lock:
            if group is None or group == self._group:
                return
            self._group, self._made = group, None
            self._loop.share(None, UplinkBudget(max(1, self._bytes_per_s // len(group.members))))
        if group.maker != self._near.worker:
            threading.Thread(target=self._ask, args=(group,), name="link", daemon=True).start()
        elif len(group.members) > 1:
            self._make(group)

    def _make(self, group: NodeGroup) -> None:
        try:
            memory = SharedWords.make(self._places.count)
        except SegmentError as error:
            self._say_alone(str(error))
            return
        self._places.clear(memory.words)
        self._join(group, memory)

    def offer(self, hello: Mapping[str, Any]) -> dict[str, Any] | None:
        """What a peer needs to map the words; None if we have not made them, or no longer have them."""
        with self._lock:
            group, made = self._group, self._made
            if group is None or made is None or hello.get("group") != [list(member) for member in group.members]:
                return None
            own = {"processes": process_namespace(), "pid": os.getpid()}
            return {**own, "file": made.number, "nonce": made.nonce}

    def _ask(self, group: NodeGroup) -> None:
        wait_s, longest_s = RETRY_S
        while self._group is group:
            try:
                memory = self._ask_once(group)
            except (OSError, ProtocolError):
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, longest_s)
            except (SegmentError, KeyError, TypeError, ValueError) as error:
                self._say_alone(str(error))
                return
            else:
                self._join(group, memory)
                return

    def _ask_once(self, group: NodeGroup) -> SharedWords:
        member = self._near.member(group.maker)
        if member is None:
            raise ProtocolError(f"nobody to ask: worker={group.maker}")
        asked = {"kind": KIND, "target": 0, "group": group.members}
        connection, reply = self._near.ask(member, asked)
        connection.close()
        if reply["processes"] != process_namespace():
            raise SegmentError("the workers have the same address, and see other processes; are they in containers?")
        return SharedWords.open(reply["pid"], reply["file"], reply["nonce"], self._places.count)

    def _join(self, group: NodeGroup, memory: SharedWords) -> None:
        with self._lock:
            if self._group is not group:
                memory.close()
                return
            if group.maker == self._near.worker:
                self._made = memory
            here = self._near.worker
            view = NodeUplink(memory.words, self._places, here, self._bytes_per_s, len(group.members))
            self._loop.share(SharedUplink(memory, view), None)

    def close(self) -> None:
        with self._lock:
            self._group = self._made = None
            self._loop.share(None, UplinkBudget(self._bytes_per_s))
