"""A service to call in tests and measurements: an HTTP server in a process of its own, which counts what it was asked.

A call of ``/call/KEY`` takes a time that the key decides, the same in every run. By chance, calls hang, fail with 500,
or are refused with 429 and ``Retry-After``; calls above a rate are refused, too. ``/report`` says what was asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any
from urllib.request import urlopen

from tailrace.errors import TailraceError
from tailrace.policy.hashing import stable_hash

HOST = "127.0.0.1"
_PROGRAM = f"from {__name__} import main; main()"


@dataclass(frozen=True)
class Behaviour:
    """How a service answers.

    Args:
        median_ms: how long half of all keys take at most. Times are log-normal.
        sigma: how much they differ.
        least_ms: the shortest time.
        most_ms: the longest time.
        hanging: the share of calls that hang, whatever their key.
        hang_factor: how much longer these take.
        failing: the share of calls that are answered with 500.
        refusing: the share of calls that are answered with 429, whatever the rate.
        refuse_above: calls a second above which 429 is the answer. ``None``: any number.
        refuse_from_s: seconds after the first call at which this begins.
        refuse_until_s: and at which it ends.
        retry_after_s: what 429 says.
        seed: of what happens by chance.

    Example:
        >>> from tailrace.testing import Behaviour
        >>> Behaviour(hanging=0.01, refusing=0.03).hang_factor
        30.0
    """

    median_ms: float = 15.0
    sigma: float = 0.6
    least_ms: float = 5.0
    most_ms: float = 50.0
    hanging: float = 0.0
    hang_factor: float = 30.0
    failing: float = 0.0
    refusing: float = 0.0
    refuse_above: int | None = None
    refuse_from_s: float = 0.0
    refuse_until_s: float = math.inf
    retry_after_s: float = 0.5
    seed: int = 1


def answer_ms(behaviour: Behaviour, key: str) -> float:
    """How long a call takes that does not hang."""
    rng = Random(stable_hash(key))
    drawn = rng.lognormvariate(math.log(behaviour.median_ms), behaviour.sigma)
    return min(behaviour.most_ms, max(behaviour.least_ms, drawn))


@dataclass
class Counts:
    """What a service was asked. Times are those of its own clock."""

    by_key: dict[str, int] = field(default_factory=dict)  # calls that were answered
    begun_s: list[float] = field(default_factory=list)  # all calls
    taken_s: list[float] = field(default_factory=list)  # all calls that were not refused
    refused: int = 0
    failed: int = 0


class _Connection(asyncio.Protocol):
    """One keep-alive connection. Requests on it come one after another, without a body."""

    def __init__(self, behaviour: Behaviour, counts: Counts, rng: Random) -> None:
        self._behaviour = behaviour
        self._counts = counts
        self._rng = rng
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if end:
            self._buffer = rest
            self._asked(head.split(b" ", 2)[1].decode())

    def _asked(self, path: str) -> None:
        if path == "/report":
            self._answer(200, json.dumps(asdict(self._counts)))
            return
        behaviour, counts, now_s = self._behaviour, self._counts, time.monotonic()
        counts.begun_s.append(now_s)
        if self._refuses(now_s) or self._rng.random() < behaviour.refusing:
            counts.refused += 1
            self._answer(429, "", f"Retry-After: {behaviour.retry_after_s:g}\r\n")
            return
        counts.taken_s.append(now_s)
        if self._rng.random() < behaviour.failing:
            counts.failed += 1
            self._answer(500, "")
            return
        key = path.rpartition("/")[2]
        counts.by_key[key] = counts.by_key.get(key, 0) + 1
        delay_ms = answer_ms(behaviour, key)
        if self._rng.random() < behaviour.hanging:
            delay_ms *= behaviour.hang_factor
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._answer, 200, f"answer to {key}")

    def _refuses(self, now_s: float) -> bool:
        behaviour, since_s = self._behaviour, now_s - self._counts.begun_s[0]
        if behaviour.refuse_above is None or not behaviour.refuse_from_s <= since_s < behaviour.refuse_until_s:
            return False
        in_the_last_second = len(self._counts.taken_s) - bisect_right(self._counts.taken_s, now_s - 1)
        return in_the_last_second >= behaviour.refuse_above

    def _answer(self, status: int, body: str, header: str = "") -> None:
        if not self._transport.is_closing():
            text = body.encode()
            reply = f"HTTP/1.1 {status} X\r\n{header}Content-Length: {len(text)}\r\n\r\n".encode()
            self._transport.write(reply + text)


async def _serve(behaviour: Behaviour) -> None:
    counts, rng = Counts(), Random(behaviour.seed)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(behaviour, counts, rng), HOST, 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until the one who started it closes it, or is gone


@dataclass(frozen=True)
class Service:
    """A service that runs.

    Args:
        port: where it listens, on this machine.

    Example:
        >>> from tailrace.testing import Service
        >>> Service(port=8080).url
        'http://127.0.0.1:8080/call'
    """

    port: int

    @property
    def url(self) -> str:
        """What to call, followed by a slash and a key."""
        return f"http://{HOST}:{self.port}/call"

    def report(self) -> dict[str, Any]:
        """What it was asked so far: ``by_key``, ``begun_s``, ``taken_s``, ``refused`` and ``failed``."""
        with urlopen(f"http://{HOST}:{self.port}/report", timeout=10) as reply:
            found: dict[str, Any] = json.loads(reply.read())
        return found


@contextlib.contextmanager
def serving(behaviour: Behaviour | None = None) -> Iterator[Service]:
    """Run a service for the length of a ``with`` block.

    Args:
        behaviour: how it answers.

    Example:
        >>> from urllib.request import urlopen
        >>> from tailrace.testing import serving
        >>> with serving() as service:
        ...     print(urlopen(f"{service.url}/mill").read().decode())
        answer to mill
    """
    child = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, json.dumps(asdict(behaviour or Behaviour()))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        port = child.stdout.readline().strip()
        if not port:
            raise TailraceError(f"the service did not start: exit_code={child.wait()}")
        yield Service(int(port))
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


def main() -> None:
    """Serve until standard input ends. The first line of the output is the port."""
    asyncio.run(_serve(Behaviour(**json.loads(sys.argv[1]))))
