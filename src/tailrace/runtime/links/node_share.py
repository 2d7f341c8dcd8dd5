"""Something that the workers of one machine share: one of them makes it, the others ask that one for it.

It belongs to a node group, that is, workers of one machine in certain epochs. When one of them is replaced the group is
over, and with it everything it shared; the next group begins without it.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from tailrace.core.plan.node_groups import NodeGroup
from tailrace.errors import ProtocolError, SegmentError
from tailrace.runtime.encryption.connection import Connection
from tailrace.runtime.links.peers import Peers

RETRY_S = (0.02, 1.0)
"""The wait between two questions to a maker that has made nothing yet: the first one, and the longest."""

Made = TypeVar("Made")


class NodeShare(ABC, Generic[Made]):
    """One worker's part in one thing that is shared. ``kind`` and ``target`` name it in a hello to its maker.

    Subclasses set ``group`` to the group that counts, and then call ``obtain``.
    """

    def __init__(self, peers: Peers, worker: int, kind: str, target: int = 0) -> None:
        self.group: NodeGroup | None = None
        self.worker = worker
        self._peers = peers
        self._kind = kind
        self._target = target

    @abstractmethod
    def make(self, group: NodeGroup) -> Made:
        """Make it. Raises SegmentError if that is impossible."""

    @abstractmethod
    def take(self, connection: Connection, reply: Mapping[str, Any]) -> Made:
        """Take what the maker offers, and close the connection. Raises SegmentError if that is impossible."""

    @abstractmethod
    def join(self, group: NodeGroup, made: Made) -> None:
        """It is there. From any thread: the group may be over."""

    @abstractmethod
    def do_without(self, why: str) -> None:
        """This worker cannot have it."""

    def obtain(self, group: NodeGroup) -> None:
        """Make it, or ask for it in the background."""
        if group.maker != self.worker:
            threading.Thread(target=self._ask, args=(group,), name=self._kind, daemon=True).start()
            return
        try:
            made = self.make(group)
        except SegmentError as error:
            self.do_without(str(error))
            return
        self.join(group, made)

    def asked_by(self, hello: Mapping[str, Any]) -> bool:
        """Whether a peer that asks means the group that counts here."""
        group = self.group
        return group is not None and hello.get("group") == [list(member) for member in group.members]

    def _ask(self, group: NodeGroup) -> None:
        wait_s, longest_s = RETRY_S
        while self.group is group:
            try:
                made = self._ask_once(group)
            except (OSError, ProtocolError):
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, longest_s)
            except (SegmentError, KeyError, TypeError, ValueError) as error:
                self.do_without(str(error))
                return
            else:
                self.join(group, made)
                return

    def _ask_once(self, group: NodeGroup) -> Made:
        member = self._peers.member(group.maker)
        if member is None:
            raise ProtocolError(f"no worker to ask: worker={group.maker}")
        hello = {"kind": self._kind, "target": self._target, "group": group.members}
        return self.take(*self._peers.ask(member, hello))
