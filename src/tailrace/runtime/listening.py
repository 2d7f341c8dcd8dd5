"""Where the processes of a run listen, and by which addresses others reach them."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.errors import OptionError, shorten

WORKER_BIND, WORKER_ADDRESS = "TAILRACE_WORKER_BIND", "TAILRACE_WORKER_ADDRESS"
"""Variables in the environment of a node: the address that its workers listen on, and the one that others reach."""

LAST_PORT = 65_535

FREE_S = 10.0
"""How long a worker waits for a port: the process whose place it takes may not have left yet."""

LOOK_S = 0.1


@dataclass(frozen=True)
class Place:
    """The addresses of a process that listens."""

    bind: str  # that its sockets are bound to
    address: str  # that others connect to


LOOPBACK = Place("127.0.0.1", "127.0.0.1")


@dataclass(frozen=True)
class Ports:
    """A range of ports: each process takes the first that is free."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def ports_of(value: int | str | None) -> Ports | None:
    """The ports that an option names: ``20000``, ``"20000"`` or ``"20000-20100"``. None: any that the system picks."""
    if value is None:
        return None
    found = None if isinstance(value, bool) else re.fullmatch(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?", str(value))
    ports = found and Ports(int(found[1]), int(found[2] or found[1]))
    if not ports or not 0 < ports.first <= ports.last <= LAST_PORT:
        raise OptionError(f"neither a port nor a range of ports: port={shorten(value)}; did you mean 20000-20100?")
    return ports


def listen(address: str, ports: Ports | None, backlog: int) -> socket.socket:
    """Listen on the first port that is free. Raises OptionError if none is, and OSError if there is no such address."""
    if ports is None:
        return socket.create_server((address, 0), backlog=backlog)
    for port in range(ports.first, ports.last + 1):
        try:
            return socket.create_server((address, port), backlog=backlog)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise OptionError(
        f"no port is free: address={address} port={ports}; every process of a run on a machine takes one, "
        "and its limits another: is the range too small?"
    )


def why_not_bind(address: str) -> OSError | None:
    """Why nothing can listen on this address of the machine; None if something can."""
    try:
        socket.create_server((address, 0)).close()
    except OSError as error:
        return error
    return None


def place_of_worker(own: str, environment: Mapping[str, str] = os.environ) -> Place:
    """Where a worker listens that reaches its driver from the address ``own``.

    That address, unless the node's environment names others. It is that on loopback, which is on one machine only.
    """
    if ipaddress.ip_address(own).is_loopback:
        return Place(own, own)
    address = environment.get(WORKER_ADDRESS) or own
    bind = environment.get(WORKER_BIND) or (own if address == own or why_not_bind(address) else address)
    return Place(bind, address)


def listen_as_worker(place: Place, ports: Ports | None, backlog: int) -> socket.socket:
    """Listen there, after waiting for a port for a while. Raises OptionError if what was asked for cannot be had."""
    deadline_s = time.monotonic() + FREE_S
    while True:
        try:
            return listen(place.bind, ports, backlog)
        except OptionError:
            if time.monotonic() > deadline_s:
                raise
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL and (error.errno or 0) >= 0:  # below 0: there is no such name
                raise
            raise OptionError(
                f"a worker cannot listen: host={socket.gethostname()} address={place.bind} cause={error}; "
                f"is {WORKER_BIND} that of another machine?"
            ) from error
        time.sleep(LOOK_S)
