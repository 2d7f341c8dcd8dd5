"""Ports for tests of runs that are given some."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from tailrace.runtime.listening import Ports

HERE = "127.0.0.1"


def free_ports(count: int) -> Ports:
    """So many neighbouring ports that nobody has, most likely not for a while either."""
    for first in range(21_000, 32_000, count):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server((HERE, port)))
            except OSError:
                continue
            return Ports(first, first + count - 1)
    raise AssertionError("no free ports")
