"""Calls of sinks' tasks to their driver side, over the control connection."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from tailrace.errors import ProtocolError, TailraceError, TaskError, message_of
from tailrace.runtime.links.control import ControlConnection, SinkCall, SinkReply


class DriverCalls:
    """Any thread may call; one hands over the replies. ``orphaned`` ends the process: the driver is gone."""

    def __init__(self, connection: ControlConnection, timeout_s: float, orphaned: Callable[[], None]) -> None:
        self.timeout_s = timeout_s
        self._connection = connection
        self._orphaned = orphaned
        self._numbers = itertools.count()
        self._calls: dict[int, tuple[threading.Event, list[SinkReply]]] = {}

    def call(self, operator: str, task: int, message: Any) -> Any:
        """Send a message to the sink's driver side, and wait for its reply. Raises what it raised."""
        call = next(self._numbers)
        waiter: tuple[threading.Event, list[SinkReply]] = (threading.Event(), [])
        self._calls[call] = waiter
        try:
            self._connection.send(SinkCall(call, operator, task, message))
        except OSError:
            self._orphaned()
        except Exception as error:
            kind = "" if isinstance(error, ProtocolError) else f"{type(error).__name__}: "
            why = f"rows cannot be sent to the driver: {kind}{message_of(error)}"
            raise TaskError(operator, task, "(in a commit)", why) from None
        if not waiter[0].wait(self.timeout_s):
            raise TailraceError(f"the driver does not answer: operator={operator} task={task}; is it overloaded?")
        reply = waiter[1][0]
        if reply.error is not None:
            raise reply.error
        return reply.reply

    def replied(self, reply: SinkReply) -> None:
        waiter = self._calls.pop(reply.call, None)
        if waiter is not None:
            waiter[1].append(reply)
            waiter[0].set()
