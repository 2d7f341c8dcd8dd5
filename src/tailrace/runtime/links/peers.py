"""A protocol for the worker that links belong to: it knows who its peers are, and how to reach them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tailrace.core.protocol.messages import Member
from tailrace.runtime.encryption.connection import Connection
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.link import OutLink


class Peers(Protocol):
    """The other workers of a run, as the newest membership has them. For any thread."""

    def home_of(self, task: int) -> int:
        """The worker that a task lives in."""
        ...

    def member(self, worker: int) -> Member | None:
        """The current epoch of a worker; None while there is none."""
        ...

    def counts(self, worker: int, epoch: int) -> bool:
        """Whether frames from this epoch of a worker are accepted. False once it has been replaced."""
        ...

    def connect(self, link: OutLink, member: Member, done: Callable[[Channel | None], None]) -> None:
        """Make a channel for a link in the background. ``done`` gets None if the link is not wanted any more."""
        ...

    def lost_link(self, worker: int, epoch: int) -> None:
        """Report that a link to this epoch of a worker has broken."""
        ...

    def ask(self, member: Member, hello: dict[str, Any]) -> tuple[Connection, dict[str, Any]]:
        """Connect to a peer with this hello, and wait for its reply. Raises OSError or ProtocolError."""
        ...
