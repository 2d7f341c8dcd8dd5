"""One task's way to a limit: an asyncio client of the driver's server, which goes on by itself if there is none.

While the server cannot be reached, calls wait. After ``PATIENCE_S`` the task says so, once, and keeps its part of the
limit, which is divided by the number of tasks, until it reaches the server again. A run therefore never hangs for want
of the driver, and all tasks together keep the limit if none of them reaches it.
"""

from __future__ import annotations

import asyncio
import logging
import math

from tailrace.calls.limit import Limit
from tailrace.calls.limits.declared import divided
from tailrace.calls.limits.holder import Holder, Waiting
from tailrace.calls.limits.messages import Reply
from tailrace.clock import system_clock
from tailrace.errors import OptionError, ProtocolError, Refused, shorten
from tailrace.policy.numbers import is_number
from tailrace.runtime.calls.limit_links import PATIENCE_S, Link, LocalLink, connect
from tailrace.runtime.calls.limit_server import ROLE, LimitAddress
from tailrace.runtime.calls.ports import LimitClient

logger = logging.getLogger("tailrace")

FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 5.0
"""Between two attempts to reach the server, at first and at last."""

GATHER_S = 0.002
"""How long requests that no call waits for are gathered into one message."""


_said: set[str] = set()
"""Limits of which this process has said that it cannot share them. It may have thousands of tasks, one by one."""


def open_limit(limit: Limit, server: LimitAddress | None, *, tasks: int = 1) -> LimitClient:
    """A client of a limit, for the running event loop. It must be closed.

    Args:
        limit: as it was declared.
        server: where the driver's limits are. None: this task cannot reach them, and keeps its part of the limit.
        tasks: how many tasks share the limit, for the times when they cannot share it through the driver.

    Example:
        >>> async def call_politely() -> None:
        ...     client = open_limit(tr.limit("geocoder", per_s=50), None, tasks=4)
        ...     permit = await client.acquire(1.0)
        ...     permit.release()
        ...     await client.close()
    """
    return _Client(limit, server, max(1, tasks))


class _Permit:
    """Leave to make one attempt."""

    __slots__ = ("_client", "_cost")

    def __init__(self, client: _Client, cost: float) -> None:
        self._client: _Client | None = client
        self._cost = cost

    def release(self, used: float | None = None) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.released(self._cost, used)


class _Client:
    """Law: that of ``LimitClient``."""

    def __init__(self, limit: Limit, server: LimitAddress | None, tasks: int) -> None:
        self._limit = limit
        self._server = server
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._holder = Holder(limit)
        self._futures: dict[Waiting, asyncio.Future[None]] = {}
        self._link: Link | None = None
        self._flush: asyncio.Handle | None = None
        self._flush_soon = False
        self._error: OptionError | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        if server is None:
            self._say_divided("no driver can be reached from here")
            self._go_on_alone()
        else:
            self._holder.disconnected()
            self._lost()

    # -- the caller's side

    async def acquire(self, cost: float) -> _Permit:
        cost = self._checked(cost, "cost")
        if self._error is not None:
            raise self._error
        waiting = self._holder.wait(cost)
        started = self._holder.startable(system_clock()) if len(self._futures) == 0 else []
        self._order_flush()
        if waiting in started:
            return _Permit(self, cost)
        future = self._futures[waiting] = self._loop.create_future()
        self._begin_patience()
        try:
            await future
        except asyncio.CancelledError:
            if self._futures.pop(waiting, None) is not None:
                self._holder.give_up(waiting)
                self._turn()  # the next call may need less
            elif future.done() and not future.cancelled() and future.exception() is None:
                self.released(cost, 0.0)  # it was granted in the same moment
            raise
        return _Permit(self, cost)

    def try_acquire(self, cost: float) -> _Permit | None:
        cost = self._checked(cost, "cost")
        started = self._holder.start_hedge(cost, system_clock())
        self._order_flush()
        return _Permit(self, cost) if started else None

    def throttled(self, retry_after_s: float) -> None:
        self._holder.throttled(retry_after_s)
        self._order_flush()

    def released(self, cost: float, used: float | None) -> None:
        if self._closed:
            return
        try:
            units = None if used is None else self._checked(used, "settle")
        except OptionError:
            self._holder.ended(cost, None)
            raise
        else:
            self._holder.ended(cost, units)
        finally:
            self._turn()

    async def close(self) -> None:
        self._closed = True
        if self._link is not None:
            self._send_request()
            self._link.close()
        for handle in (self._flush, self._patience):
            if handle is not None:
                handle.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        for future in self._futures.values():
            future.cancel()

    def _checked(self, units: float, option: str) -> float:
        if not (is_number(units) and math.isfinite(units) and units >= 0):
            raise OptionError(
                f"not a cost: limit={self._limit.name} {option}={shorten(units)}: "
                f"does the limit's {option}= function return a number, zero or more?"
            )
        return float(units)

    # -- requests and replies

    def _turn(self) -> None:
        """Start the calls that may start, and ask for what is missing."""
        while started := self._holder.startable(system_clock()):
            for waiting in started:
                future = self._futures.pop(waiting)
                if not future.done():
                    future.set_result(None)
                else:  # it was cancelled, and its task has not run since
                    self._holder.ended(waiting.cost, 0.0)
        self._order_flush()

    def _order_flush(self) -> None:
        soon = self._holder.in_a_hurry
        if self._flush is not None:
            if self._flush_soon or not soon:
                return
            self._flush.cancel()
        self._flush_soon = soon
        self._flush = self._loop.call_soon(self._flushed) if soon else self._loop.call_later(GATHER_S, self._flushed)

    def _flushed(self) -> None:
        self._flush = None
        self._send_request()

    def _send_request(self) -> None:
        if self._link is not None:
            request = self._holder.request(system_clock())
            if request is not None:
                self._link.send(request)

    def replied(self, reply: Reply) -> None:
        """From the link."""
        if not self._closed:
            self._holder.replied(reply, system_clock())
            self._turn()

    # -- the way to the server

    def _use(self, link: Link, said: int, sent_ns: int, now_ns: int) -> None:
        """As for ``Holder.connected``."""
        if self._link is not None:
            self._link.close()
        self._holder.disconnected()
        self._link = link
        self._holder.connected(said, sent_ns, now_ns)
        self._turn()

    def lost(self, link: Link) -> None:
        """From a link that has ended."""
        if self._link is link and not self._closed:
            self._link = None
            self._holder.disconnected()
            self._lost()

    def _lost(self) -> None:
        self._connecting = self._loop.create_task(self._connect())
        if self._futures:
            self._begin_patience()

    def _begin_patience(self) -> None:
        """Calls wait from now on. Before that the loop may have stood still, and the server may be there already."""
        if self._link is None and self._patience is None:
            self._patience = self._loop.call_later(PATIENCE_S, self._out_of_patience)

    def _out_of_patience(self) -> None:
        self._patience = None
        if self._closed or self._link is not None:
            return
        assert self._server is not None
        self._tasks = max(self._tasks, self._holder.clients)
        self._say_divided(f"the driver cannot be reached at {self._server.host}:{self._server.port}")
        self._go_on_alone()

    def _say_divided(self, why: str) -> None:
        if self._limit.name not in _said:
            _said.add(self._limit.name)
            logger.warning(
                "a limit is not shared, each task keeps its part of it: limit=%s tasks=%d cause=%s",
                *(self._limit.name, self._tasks, why),
            )

    def _go_on_alone(self) -> None:
        in_use, now_ns = self._holder.in_use, system_clock()
        self._use(LocalLink(divided(self._limit, self._tasks), in_use, self.replied), in_use, now_ns, now_ns)

    async def _connect(self) -> None:
        """Try to reach the server until that succeeds, or it refuses this limit."""
        assert self._server is not None
        pause_s = FIRST_PAUSE_S
        while True:
            said = self._holder.in_use  # calls may end before the connection is there
            try:
                link = await connect(self._server, self._hello(said), self.replied, self.lost)
                break
            except Refused as error:
                self._refused(error)
                return
            except (OSError, ProtocolError):
                await asyncio.sleep(pause_s)
                pause_s = min(LAST_PAUSE_S, 2 * pause_s)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        self._use(link, said, *link.heard.result())

    def _hello(self, in_use: int) -> dict[str, object]:
        limit = self._limit
        numbers = {"per_s": limit.per_s, "per_minute": limit.per_minute, "concurrency": limit.concurrency}
        return {"role": ROLE, "limit": limit.name, "in_use": in_use, **numbers}

    def _refused(self, error: Refused) -> None:
        """The server knows another limit of this name. All calls fail with that."""
        self._error = OptionError(str(error).partition(": ")[2])
        if self._patience is not None:
            self._patience.cancel()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(self._error)
        self._futures.clear()
