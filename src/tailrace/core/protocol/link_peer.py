"""Whom a link is with. One rule for all that can happen to it, in whatever order its keeper hears of it.

A task in a long call hears late: that a worker was replaced, that a connection is there, that one has broken. What it
hears then is about the epoch that it names, and says nothing of a link with the one that took its place.
"""

from __future__ import annotations

from tailrace.core.protocol.messages import Member


class LinkPeer:
    """The sending end of a link, as far as decisions go; its keeper dials, closes and sends."""

    def __init__(self) -> None:
        self.member: Member | None = None  # whom the connection is with, or is being made with
        self.open = False

    def outlived(self, present: Member | None) -> bool:
        """Whether it is with somebody who has been replaced: what is sent now would be lost, perhaps unnoticed."""
        return self.member is not None and self.member != present

    def closes_on_news(self, present: Member | None) -> bool:
        """News say that its worker was replaced. A link with the successor may be there already, and stays."""
        return self.outlived(present)

    def to_dial(self, present: Member | None) -> bool:
        """Whether a connection is to be made now: there is none, none is being made, and somebody is there."""
        if self.member is not None or present is None:
            return False
        self.member = present
        return True

    def reached(self, member: Member, made: bool) -> bool:
        """A dial has ended. Whether the connection is to be used; if not, and one was made, it is to be closed."""
        if self.open or self.member != member:
            return False
        if not made:
            self.member = None  # tried again when it is next asked for
        self.open = made
        return made

    def forget(self) -> None:
        """The connection is closed."""
        self.member, self.open = None, False
