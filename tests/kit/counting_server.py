"""An HTTP service on loopback that counts the calls of each second, and refuses them with 429 when it is told to.

It runs as a process of its own, so that it is not held up by the test: ``python counting_server.py``. Its first line is
the port. ``GET /`` is a call, ``POST /refuse?seconds=…&retry_after=…`` makes it refuse calls for so long, and ``GET
/counts`` gives the time of each call since its start, and whether it was refused.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from tailrace.testing.processes import wait_until

BEAT_S = 0.005
HELD_UP_S = 0.02


class Service:
    """Answers on kept connections, one request after the other."""

    def __init__(self) -> None:
        self.begun_s = time.monotonic()
        self.answered = array("d")
        self.refused = array("d")
        self.held_up: list[tuple[float, float]] = []  # from when to when the process did nothing
        self._refuse_until_s = 0.0
        self._retry_after = "1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                writer.write(self._answer(method, target))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def watch(self) -> None:
        """Notice when this process is held up: calls that come meanwhile are counted too late."""
        while True:
            before_s = time.monotonic()
            await asyncio.sleep(BEAT_S)
            now_s = time.monotonic()
            if now_s - before_s > HELD_UP_S:
                self.held_up.append((before_s - self.begun_s, now_s - self.begun_s))

    def _answer(self, method: str, target: str) -> bytes:
        now_s = time.monotonic() - self.begun_s
        parts = urlsplit(target)
        if method == "POST":
            given = parse_qs(parts.query)
            self._refuse_until_s = now_s + float(given["seconds"][0])
            self._retry_after = given["retry_after"][0]
            return _response("200 OK", b"{}")
        if parts.path == "/counts":
            counts: dict[str, object] = {"now": now_s, "answered": list(self.answered), "refused": list(self.refused)}
            counts["held_up"] = self.held_up
            return _response("200 OK", json.dumps(counts).encode())
        if now_s < self._refuse_until_s:
            self.refused.append(now_s)
            return _response("429 Too Many Requests", b"", f"Retry-After: {self._retry_after}\r\n")
        self.answered.append(now_s)
        return _response("200 OK", b"ok")


def _response(status: str, body: bytes, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


@dataclass(frozen=True)
class Counts:
    """The seconds since the service began at which calls came."""

    now: float
    answered: list[float]
    refused: list[float]
    held_up: list[tuple[float, float]]  # from when to when the service itself did nothing

    @property
    def calls(self) -> list[float]:
        return sorted(self.answered + self.refused)

    def assert_kept(self, per_s: float) -> None:
        """No second of the service's clock has more than 5% above the limit, and one call.

        If the service itself was held up as a second began, calls of the one before were counted in it.
        """
        seconds = [0] * (int(self.now) + 1)
        for call in self.calls:
            seconds[int(call)] += 1
        for second, count in enumerate(seconds):
            late_s = sum(second - begun for begun, ended in self.held_up if begun < second <= ended)
            assert count <= (1.05 + late_s) * per_s + 1, f"second={second} count={count} late_s={late_s:.3f}"

    def rate(self, from_s: float, until_s: float) -> float:
        return sum(from_s <= call < until_s for call in self.calls) / (until_s - from_s)


def counts_of(port: int) -> Counts:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/counts", timeout=30) as response:
        return Counts(**json.load(response))


def await_use(port: int, per_s: float, seconds: float = 3.0) -> None:
    """Wait until 0.9 of the limit has been used for some seconds. A busy machine may need several attempts."""

    def used() -> bool:
        counts = counts_of(port)
        return counts.now > seconds and counts.rate(counts.now - seconds, counts.now) >= 0.9 * per_s

    wait_until(used, 60, f"0.9 of {per_s}/s to be used")


def refuse(port: int, seconds: float, retry_after: float) -> None:
    """Have the service refuse calls for so many seconds."""
    address = f"http://127.0.0.1:{port}/refuse?seconds={seconds}&retry_after={retry_after}"
    urllib.request.urlopen(urllib.request.Request(address, method="POST"), timeout=30).close()


@contextmanager
def service() -> Iterator[int]:
    """A counting server in a process of its own. Its port."""
    command = [sys.executable, __file__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(30)


async def main() -> None:
    service = Service()
    watch = asyncio.create_task(service.watch())
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the test closes it, or dies
    watch.cancel()


if __name__ == "__main__":
    asyncio.run(main())
