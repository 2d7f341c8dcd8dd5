"""The server of limits and its clients, over loopback."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random

import pytest

import tailrace as tr
from kit.network.relays import Relay
from tailrace.calls.limits.messages import Reply, Request
from tailrace.errors import OptionError, ProtocolError
from tailrace.runtime.calls import limit_client, limit_links, limit_server
from tailrace.runtime.calls.limit_client import open_limit
from tailrace.runtime.calls.limit_messages import (
    REQUEST,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from tailrace.runtime.calls.limit_server import LimitAddress, LimitServer, limit_address
from tailrace.runtime.links.auth import dial
from tailrace.runtime.links.frames import frame
from tailrace.runtime.listening import Ports
from tailrace.testing.processes import wait_until

API = tr.limit("api", per_s=500)
HELLO = {"role": "limit", "limit": "api", "in_use": 0, "per_s": 500, "per_minute": None, "concurrency": None}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LimitServer]:
    """A server of its own for each test."""
    server = LimitServer()
    monkeypatch.setattr(limit_server, "_server", server)
    yield server
    server.close()


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_client, "_said", set())


def within(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(work(), seconds)

    asyncio.run(main())


async def call_once(limit: tr.Limit, address: LimitAddress | None) -> None:
    client = open_limit(limit, address)
    (await client.acquire(1.0)).release()
    await client.close()


def test_messages_arrive_as_they_were_sent() -> None:
    request = Request((1.0, 2.5), 0.5, 3, 4, -5.5, 6, 7, 8.25)
    assert decode_request(memoryview(encode_request(request))) == request
    reply = Reply(1 << 60, 2, 3.5, 4, 5, 6.5, True, 7)
    assert decode_reply(memoryview(encode_reply(reply))) == reply


@pytest.mark.parametrize(
    "payload",
    [
        *(b"", b"\0" * 30, encode_request(Request((1.0,)))[:-1], encode_request(Request((float("nan"),)))),
        *(encode_request(Request((-1.0,))), encode_request(Request(settled=float("inf")))),
    ],
)
def test_what_is_no_request_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="a message about a limit cannot be decoded"):
        decode_request(memoryview(payload))


def test_clients_keep_a_limit_together(server: LimitServer) -> None:
    address = limit_address(API)
    uses: list[float] = []

    async def task(client: object, count: int) -> None:
        for _ in range(count):
            permit = await client.acquire(1.0)  # type: ignore[attr-defined]
            uses.append(time.monotonic())
            permit.release()

    async def work() -> None:
        clients = [open_limit(API, address) for _ in range(3)]
        await asyncio.gather(*(task(client, 30) for client in clients for _ in range(5)))
        await asyncio.gather(*(client.close() for client in clients))

    within(60, work)
    assert len(uses) == 450
    for first in uses:
        assert sum(first <= use < first + 1 for use in uses) <= 1.05 * 500 + 1


def test_a_limit_in_use_cannot_be_declared_otherwise(server: LimitServer) -> None:
    address = limit_address(API)
    other = tr.limit("api", per_s=20)

    async def work() -> None:
        client = open_limit(API, address)
        await client.acquire(1.0)
        both = r"^two limits of one name: limit=api first=\(per_s=500\) second=\(per_s=20\): did you mean two names"
        with pytest.raises(OptionError, match=both):
            limit_address(other)
        stranger = open_limit(other, address)
        with pytest.raises(OptionError, match=both):
            await stranger.acquire(1.0)
        with pytest.raises(OptionError, match=both):
            await stranger.acquire(1.0)
        await stranger.close()
        await client.close()

    within(30, work)

    def may_be_declared() -> bool:
        try:
            limit_address(other)
        except OptionError:
            return False
        return True

    wait_until(may_be_declared, 10, "the client to leave")
    within(30, lambda: call_once(other, limit_address(other)))


def test_limits_of_one_query_must_agree(server: LimitServer) -> None:
    with pytest.raises(OptionError, match="two limits of one name: limit=api"):
        limit_address(API, tr.limit("api", concurrency=3))


def test_rubbish_on_the_port_disturbs_no_client(server: LimitServer) -> None:
    address = limit_address(API)
    rng = Random(7)
    place = (address.host, address.port)
    for size in (0, 1, 8, 100, 5000):
        with socket.create_connection(place, timeout=10) as stranger:
            stranger.sendall(rng.randbytes(size))
    silent = socket.create_connection(place, timeout=10)
    with pytest.raises(ProtocolError):
        dial(place, b"another secret", HELLO)
    with pytest.raises(ProtocolError, match="not a client of a limit"):
        dial(place, address.secret, {"role": "worker"})
    with pytest.raises(ProtocolError, match="not a limit"):
        dial(place, address.secret, {**HELLO, "per_s": "many"})
    for payload in (b"", rng.randbytes(50), encode_request(Request((1.0,) * 100_001))):
        contact = dial(place, address.secret, HELLO)
        contact.connection.sendall(frame(REQUEST, 1, payload, contact.seals.sending))
        contact.connection.settimeout(10)
        while contact.connection.recv(1000):
            pass  # it is closed in the end
        contact.connection.close()
    for garbage in (rng.randbytes(200), frame(REQUEST, 2, encode_request(Request()), None)):
        contact = dial(place, address.secret, HELLO)
        contact.connection.sendall(garbage)
        contact.connection.settimeout(10)
        with contact.connection:
            try:
                while contact.connection.recv(1000):
                    pass
            except ConnectionResetError:
                pass
    within(30, lambda: call_once(API, address))
    silent.close()


def test_a_client_that_does_not_read_holds_up_none_and_is_disconnected(
    server: LimitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_server, "MOST_UNSENT", 1000)
    monkeypatch.setattr(limit_server, "BEAT_S", 0.0002)
    address = limit_address(API)
    contact = dial((address.host, address.port), address.secret, HELLO)
    for _ in range(5):
        within(30, lambda: call_once(API, address))
    wait_until(lambda: not server._connections, 60, "the server to drop it")
    within(30, lambda: call_once(API, address))
    contact.connection.close()


def test_a_task_without_its_driver_says_so_once_and_keeps_its_part(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limit_client, "PATIENCE_S", 0.3)
    server = LimitServer()
    address = LimitAddress("127.0.0.1", server.listen("127.0.0.1"), server.secret)

    async def work() -> None:
        client = open_limit(API, address, tasks=4)
        (await client.acquire(1.0)).release()
        await asyncio.to_thread(server.close)
        for _ in range(20):
            (await client.acquire(1.0)).release()
        await client.close()

    with caplog.at_level(logging.WARNING, "tailrace"):
        within(60, work)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "tailrace"]
    assert line == (
        "a limit is not shared, each task keeps its part of it: limit=api tasks=4 "
        f"cause=the driver cannot be reached at 127.0.0.1:{address.port}"
    )


def test_a_driver_that_says_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It accepts and authenticates, and then never replies."""
    monkeypatch.setattr(limit_client, "PATIENCE_S", 0.3)
    monkeypatch.setattr(limit_links, "PATIENCE_S", 0.3)
    monkeypatch.setattr(limit_links, "BEAT_S", 0.1)
    server = LimitServer()
    monkeypatch.setattr(server, "_read", lambda connection: time.sleep(0.01))
    monkeypatch.setattr(server, "_step_all", lambda: None)
    address = LimitAddress("127.0.0.1", server.listen("127.0.0.1"), server.secret)
    with caplog.at_level(logging.WARNING, "tailrace"):
        within(60, lambda: call_once(API, address))
    server.close()
    assert "the driver cannot be reached" in caplog.text


def test_a_driver_that_comes_back_is_used_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limit_client, "PATIENCE_S", 0.2)
    monkeypatch.setattr(limit_client, "LAST_PAUSE_S", 0.2)
    server = LimitServer()
    wrong = replace(LimitAddress("127.0.0.1", server.listen("127.0.0.1"), b"wrong"))

    async def work() -> None:
        client = open_limit(API, wrong)
        (await client.acquire(1.0)).release()  # by itself: the server does not let it in
        server.secret = b"wrong"
        while not server._connections:
            await asyncio.sleep(0.01)
        for _ in range(10):
            (await client.acquire(1.0)).release()
        await client.close()

    within(60, work)
    server.close()


def test_where_no_driver_can_be_reached_the_limit_is_divided(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tailrace"):
        for _ in range(2):
            within(30, lambda: call_once(API, None))
    assert caplog.messages == [
        "a limit is not shared, each task keeps its part of it: limit=api tasks=1 "
        "cause=no driver can be reached from here"
    ]


def test_calls_that_are_given_up_leave_what_they_waited_for(server: LimitServer) -> None:
    limit = tr.limit("one", concurrency=1)
    address = limit_address(limit)

    async def work() -> None:
        client = open_limit(limit, address)
        permit = await client.acquire(1.0)
        waiting = [asyncio.ensure_future(client.acquire(1.0)) for _ in range(3)]
        await asyncio.sleep(0.05)
        waiting[0].cancel()
        waiting[1].cancel()
        permit.release()
        permit.release()  # the second time does nothing
        (await waiting[2]).release()
        (await client.acquire(1.0)).release()
        await client.close()

    within(30, work)


def test_a_cost_that_is_no_number_is_refused_and_its_permit_comes_back(server: LimitServer) -> None:
    limit = tr.limit("api", per_s=500, concurrency=1)

    async def work() -> None:
        client = open_limit(limit, limit_address(limit))
        with pytest.raises(OptionError, match="not a cost: limit=api cost=-1: does the limit's cost= function return"):
            await client.acquire(-1)
        permit = await client.acquire(1.0)
        with pytest.raises(OptionError, match="not a cost: limit=api settle=nan"):
            permit.release(float("nan"))
        (await client.acquire(1.0)).release()
        await client.close()

    within(30, work)


def test_thousands_of_requests_at_once_are_served(server: LimitServer) -> None:
    limit = tr.limit("wide", per_s=1_000_000)
    address = limit_address(limit)

    async def work() -> None:
        clients = [open_limit(limit, address) for _ in range(40)]
        permits = await asyncio.gather(*(client.acquire(1.0) for client in clients for _ in range(200)))
        for permit in permits:
            permit.release()
        await asyncio.gather(*(client.close() for client in clients))

    within(120, work)


def test_an_address_hides_the_secret(server: LimitServer) -> None:
    address = limit_address()
    assert address.secret.hex() not in repr(address)
    assert "secret" not in repr(address)
    assert limit_address() == address


def test_hedges_get_spare_units_and_none_while_calls_wait(server: LimitServer) -> None:
    limit = tr.limit("slow", per_s=40)
    address = limit_address(limit)

    async def work() -> None:
        client = open_limit(limit, address)
        (await client.acquire(1.0)).release()
        while (permit := client.try_acquire(1.0)) is None:  # the first attempt fetches one
            await asyncio.sleep(0.005)
        permit.release()
        waiting = [asyncio.ensure_future(client.acquire(1.0)) for _ in range(10)]
        await asyncio.sleep(0)
        while not all(one.done() for one in waiting[:-1]):
            assert client.try_acquire(1.0) is None
            await asyncio.sleep(0.005)
        await client.close()

    within(30, work)


# -- encrypted, and on ports that were asked for


def test_an_encrypted_limit_is_kept_as_any_and_none_reads_it(server: LimitServer) -> None:
    hidden = limit_address(API, encrypt=True)
    assert hidden.fingerprint == server.certificate.fingerprint and "fingerprint=b" in repr(hidden)
    assert hidden.port != limit_address(API).port, "the two do not mix"
    seen = []
    for address in (hidden, limit_address(API)):
        with Relay((address.host, address.port)) as relay:
            within(30, partial(call_many, API, replace(address, port=relay.address[1]), 100))
            seen.append(relay.seen)
    assert [b'"limit": "api"' in one for one in seen] == [False, True]


async def call_many(limit: tr.Limit, address: LimitAddress, times: int) -> None:
    client = open_limit(limit, address)
    for _ in range(times):
        (await client.acquire(1.0)).release()
    assert not limit_client._said, "it went on without the driver"
    await client.close()


def test_a_client_that_does_not_encrypt_is_refused_where_others_do(server: LimitServer) -> None:
    address = limit_address(API, encrypt=True)
    with pytest.raises((ProtocolError, OSError)):
        dial((address.host, address.port), address.secret, HELLO)
    assert server.serves_this_process


def test_bytes_that_are_added_end_a_clients_connection_and_no_other(server: LimitServer) -> None:
    address = limit_address(API, encrypt=True)
    with Relay((address.host, address.port)) as relay:
        attacked = dial(relay.address, address.secret, HELLO, address.fingerprint)
        other = dial((address.host, address.port), address.secret, HELLO, address.fingerprint)
        wait_until(lambda: len(server._connections) == 1 and server._users["api"] == 2, 10)
        relay.add(b"\x17\x03\x03\x00\x05hello")
        wait_until(lambda: server._users["api"] == 1, 10, "it to be sent away")
        attacked.connection.close()
        other.connection.close()


def test_a_limit_listens_where_it_may(server: LimitServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if port < 65_000:
            ports = Ports(port, port + 50)
            address = limit_address(API, ports=ports)
            assert ports.first < address.port <= ports.last
            within(30, lambda: call_once(API, address))
            assert limit_address(API, ports=ports) == address
