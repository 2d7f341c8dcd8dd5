"""Calls a service, as cheaply as Python can: connections are kept, one for each call under way."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from tailrace.calls import RetryAfter
from tailrace.testing.service import HOST

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_idle: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Connection]] = WeakKeyDictionary()


async def ask(port: int, key: str) -> str:
    """The service's answer to a key. Raises ``RetryAfter`` when it refuses the call for now."""
    idle = _idle.setdefault(asyncio.get_running_loop(), [])
    reader, writer = idle.pop() if idle else await asyncio.open_connection(HOST, port)
    try:
        writer.write(f"GET /call/{key} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        body = await reader.readexactly(int(headers["content-length"]))
    except BaseException:
        writer.close()  # an answer to this call may still come: nothing else can use the connection
        raise
    idle.append((reader, writer))
    code = int(status.split(" ")[1])
    if code == 429:
        raise RetryAfter(float(headers["retry-after"]), "too many calls")
    if code != 200:
        raise OSError(f"the service answered {code}")
    return body.decode()
