"""Protocols: the needs that a caller has of a limit and of a journal."""

from __future__ import annotations

from typing import Any, Protocol


class Permit(Protocol):
    """Leave to make one attempt."""

    def release(self, used: float | None = None) -> None:
        """The attempt has ended. ``used``: the units it has really used, if they are known now. May be called twice."""
        ...


class LimitClient(Protocol):
    """One process's way to one limit. All methods are called in the event loop that it was opened in.

    Law: over all clients of a limit, attempts with a permit keep the limit's rate and concurrency.
    """

    async def acquire(self, cost: float) -> Permit:
        """Wait for leave to make one attempt of this cost. Cancelling the wait gives it up."""
        ...

    def try_acquire(self, cost: float) -> Permit | None:
        """Leave at once if the limit has slack, else None. For hedges: they never take what another call waits for."""
        ...

    def throttled(self, retry_after_s: float) -> None:
        """An attempt was refused by the service, which wants to be left alone for so long."""
        ...

    async def close(self) -> None: ...


class Journal(Protocol):
    """Results that were kept. Used by one thread.

    Law: what ``keep`` was given before a process died, ``find`` gives in any process that asks afterwards.
    """

    def find(self, key: bytes) -> tuple[Any] | None:
        """The result that is kept under this key, in a tuple of one, or None."""
        ...

    def begin(self, key: bytes) -> bool:
        """Say that this call is made now. False: it is under way already, and its result may be found soon."""
        ...

    def give_up(self, key: bytes) -> None:
        """The call has ended without a result. Another may begin."""
        ...

    def keep(self, key: bytes, result: Any) -> None:
        """Keep a result. When this returns, it survives the death of the process."""
        ...

    def close(self) -> None: ...
