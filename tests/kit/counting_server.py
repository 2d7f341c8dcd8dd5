"""An HTTP service on loopback that counts the calls of each second, and refuses them with 429 when it is told to.

It runs as a process of its own, so that it is not held up by the test: ``python counting_server.py``. Its first line is
the port. ``GET /`` is a call, ``POST /refuse?seconds=…&retry_after=…`` makes it refuse calls for so long, and ``GET
/counts`` gives the time of each call since its start, and whether it was refused.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from array import array
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit


class Service:
    """Answers on kept connections, one request after the other."""

    def __init__(self) -> None:
        self.begun_s = time.monotonic()
        self.answered = array("d")
        self.refused = array("d")
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

    def _answer(self, method: str, target: str) -> bytes:
        now_s = time.monotonic() - self.begun_s
        parts = urlsplit(target)
        if method == "POST":
            given = parse_qs(parts.query)
            self._refuse_until_s = now_s + float(given["seconds"][0])
            self._retry_after = given["retry_after"][0]
            return _response("200 OK", b"{}")
        if parts.path == "/counts":
            counts = {"now": now_s, "answered": list(self.answered), "refused": list(self.refused)}
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

    @property
    def calls(self) -> list[float]:
        return sorted(self.answered + self.refused)

    def most_in_a_second(self) -> int:
        """Of the seconds of the service's clock."""
        seconds = [0] * (int(self.now) + 1)
        for call in self.calls:
            seconds[int(call)] += 1
        return max(seconds)

    def rate(self, from_s: float, until_s: float) -> float:
        return sum(from_s <= call < until_s for call in self.calls) / (until_s - from_s)


def counts_of(port: int) -> Counts:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/counts", timeout=30) as response:
        return Counts(**json.load(response))


def refuse(port: int, seconds: float, retry_after: float) -> None:
    """Have the service refuse calls for so many seconds."""
    address = f"http://127.0.0.1:{port}/refuse?seconds={seconds}&retry_after={retry_after}"
    urllib.request.urlopen(urllib.request.Request(address, method="POST"), timeout=30).close()


async def main() -> None:
    server = await asyncio.start_server(Service().serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the test closes it, or dies


if __name__ == "__main__":
    asyncio.run(main())
