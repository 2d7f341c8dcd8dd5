"""Calls of a counting server: a class for an operator, and a process that makes calls as a task of a query does."""

from __future__ import annotations

import asyncio
import pickle
import sys
from random import Random

import tailrace as tr
from tailrace.runtime.calls.caller import Caller
from tailrace.runtime.calls.limit_client import open_limit
from tailrace.runtime.calls.limit_server import LimitAddress

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Service:
    """Calls it on connections that are kept. A refusal becomes RetryAfter."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: dict[int, list[Connection]] = {}  # by event loop: several tasks of a worker may share this object

    async def call(self, value: object) -> object:
        idle = self._idle.setdefault(id(asyncio.get_running_loop()), [])
        if idle:
            reader, writer = idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET / HTTP/1.1\r\nHost: service\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        await reader.readexactly(int(headers["Content-Length"]))
        idle.append((reader, writer))
        if lines[0].split(" ")[1] == "429":
            raise tr.RetryAfter(float(headers["Retry-After"]))
        return value


async def make_calls(limit: tr.Limit, address: LimitAddress, port: int, concurrency: int) -> None:
    """Call the service without an end, as often as the limit lets this process."""
    calls = tr.Calls(limit=limit, concurrency=concurrency)
    client = open_limit(limit, address, tasks=3)
    caller = Caller(Service(port).call, calls, asynchronous=True, name="task", rng=Random(1), limit=client)

    async def one_by_one() -> None:
        while True:
            outcome = await caller.call((0,))
            if outcome.error is not None:
                raise outcome.error

    await asyncio.gather(*(one_by_one() for _ in range(concurrency)))


if __name__ == "__main__":
    asyncio.run(make_calls(*pickle.load(sys.stdin.buffer)))
