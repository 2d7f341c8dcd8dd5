"""A client of a limit that loses its connection makes another, and no permit is lost."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import tailrace as tr
from tailrace.runtime.calls import limit_client, limit_links, limit_server
from tailrace.runtime.calls.limit_client import open_limit
from tailrace.runtime.calls.limit_server import LimitServer, limit_address


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LimitServer]:
    """A server of its own for each test."""
    server = LimitServer()
    monkeypatch.setattr(limit_server, "_server", server)
    yield server
    server.close()


def within(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(work(), seconds)

    asyncio.run(main())


def test_a_client_reconnects_and_says_how_many_calls_it_has(server: LimitServer) -> None:
    limit = tr.limit("narrow", concurrency=2)
    address = limit_address(limit)

    async def work() -> None:
        client = open_limit(limit, address)
        permit = await client.acquire(1.0)
        for connections in list(server._connections.values()):
            for connection in list(connections.values()):
                connection.socket.shutdown(socket.SHUT_RDWR)
        second = await client.acquire(1.0)
        third = asyncio.ensure_future(client.acquire(1.0))
        done, _ = await asyncio.wait([third], timeout=0.3)
        assert not done
        permit.release()
        (await third).release()
        second.release()
        await client.close()

    within(30, work)


def test_calls_that_end_while_a_client_reconnects_leave_their_permits(
    server: LimitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tr.limit("narrow", concurrency=2)
    address = limit_address(limit)
    told: list[Any] = []
    ended = asyncio.Event()

    async def slowly(*args: Any) -> Any:
        told.append(args[1])
        await ended.wait()
        return await limit_links.connect(*args)

    async def work() -> None:
        client, other = open_limit(limit, address), open_limit(limit, address)
        permits = [await client.acquire(1.0) for _ in range(2)]
        monkeypatch.setattr(limit_client, "connect", slowly)
        for connection in list(server._connections[server._limits["narrow"]].values()):
            connection.socket.shutdown(socket.SHUT_RDWR)
        while len(told) < 2:
            await asyncio.sleep(0.001)
        for permit in permits:
            permit.release()
        ended.set()
        while len(server._connections.get(server._limits["narrow"], ())) < 2:
            await asyncio.sleep(0.001)
        for _ in range(2):
            await other.acquire(1.0)
        assert sorted(said["in_use"] for said in told) == [0, 2]
        await client.close()
        await other.close()

    within(30, work)


def test_a_client_that_is_closed_while_it_connects_leaves_no_error_behind(server: LimitServer) -> None:
    """On a busy machine a step is over before its connection is there. Asyncio reports errors that no one looks at."""
    reported: list[str] = []
    links: list[limit_links.RemoteLink] = []
    address = limit_address(tr.limit("api", per_s=500))

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
        create = loop.create_connection

        async def cut(factory: Callable[[], Any], **options: Any) -> Any:
            def made() -> Any:
                links.append(factory())
                loop.call_soon(client._connecting.cancel)  # before the loop says that the connection is made
                return links[-1]

            return await create(made, **options)

        loop.create_connection = cut  # type: ignore[method-assign, assignment]
        client: Any = open_limit(tr.limit("api", per_s=500), address)
        while not (links and links[0].ended):
            await asyncio.sleep(0.001)
        await client.close()

    within(30, work)
    links.clear()
    gc.collect()
    assert reported == []


def test_a_connection_that_ends_as_soon_as_it_is_there_is_made_again(
    server: LimitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = limit_links.RemoteLink.take
    links: list[limit_links.RemoteLink] = []

    def take_and_end(link: limit_links.RemoteLink, data: bytes) -> None:
        take(link, data)
        if link.heard.done() and not links:
            links.append(link)
            link.connection_lost(None)

    monkeypatch.setattr(limit_links.RemoteLink, "take", take_and_end)
    limit = tr.limit("api", per_s=500)

    async def work() -> None:
        client = open_limit(limit, limit_address(limit))
        (await client.acquire(1.0)).release()
        await client.close()

    within(30, work)
    assert links[0].ended
