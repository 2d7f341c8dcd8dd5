"""Messages between a client and the driver about one limit. All numbers but those of state are differences."""

from __future__ import annotations

from dataclasses import dataclass

UNSHARED = (1 << 32) - 1
"""As ``share``: permits are not scarce, and a client may keep what it has."""


@dataclass(frozen=True, slots=True)
class Request:
    """From a client."""

    wants: tuple[float, ...] = ()  # a cost for each further grant that is asked for; they are granted in this order
    spare: float = 0.0  # units for a hedge, to be granted at once or not at all
    permits: int = 0  # that are asked for
    returned: int = 0  # permits that are given back
    settled: float = 0.0  # units that calls have used beyond their cost; less than zero if they have used less
    attempts: int = 0  # made since the last request, within a second
    throttled: int = 0  # attempts that the service has refused
    retry_after_s: float = 0.0  # the longest time that it asked for


@dataclass(frozen=True, slots=True)
class Reply:
    """To a client."""

    now_ns: int  # by the driver's clock
    granted: int = 0  # of the costs asked for, the oldest first
    spare: float = 0.0  # units granted for a hedge
    permits: int = 0  # granted
    share: int = UNSHARED  # the permits that the client may keep when a call of its own has ended
    advance: float = 0.0  # units that the client may use before it asks for them
    busy: bool = False  # whether calls wait for the limit, in any client
    clients: int = 1  # that share the limit
