"""The peer of an outgoing link: one rule for all events, in whatever order the owner of the link learns of them.

A task in a long call learns late that a worker was replaced, that a connection was made, or that one has broken. Each
event is about the epoch that it names, and changes nothing for a link with the successor.
"""

from __future__ import annotations

from tailrace.core.protocol.messages import Member


class LinkPeer:
    """Decides what to do with the sending end of a link. Its owner dials, closes and sends."""

    def __init__(self) -> None:
        self.member: Member | None = None  # with which the connection is, or is being made
        self.open = False

    def outlived(self, present: Member | None) -> bool:
        """Whether the peer has been replaced: what is sent to it now would be lost, perhaps unnoticed."""
        return self.member is not None and self.member != present

    def closes_on_news(self, present: Member | None) -> bool:
        """Whether to close the link on news that the worker was replaced. A link with the successor stays open."""
        return self.outlived(present)

    def to_dial(self, present: Member | None) -> bool:
        """Whether to make a connection now: there is none, none is being made, and there is a member to connect to."""
        if self.member is not None or present is None:
            return False
        self.member = present
        return True

    def reached(self, member: Member, made: bool) -> bool:
        """A dial has ended. Returns whether to use the connection; if not, the owner must close one that was made."""
        if self.open or self.member != member:
            return False
        if not made:
            self.member = None  # to_dial lets the owner try again
        self.open = made
        return made

    def forget(self) -> None:
        """The connection is closed."""
        self.member, self.open = None, False
