"""Several processes keep one limit, as the service itself counts: with kills, and with refusals when it says so."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kit.http_calls
import tailrace as tr
from kit.counting_server import await_use, counts_of, refuse, service
from tailrace.runtime.calls.limit_client import open_limit
from tailrace.runtime.calls.limit_server import limit_address
from tailrace.testing.processes import wait_until


@contextmanager
def tasks(count: int, limit: tr.Limit, port: int, concurrency: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that call the service as often as they may. They end with the block."""
    address = limit_address(limit)
    command = [sys.executable, kit.http_calls.__file__]
    environment = {"PYTHONPATH": f"{Path(kit.__path__[0]).parent}:{':'.join(filter(None, sys.path))}"}
    started = []
    try:
        for _ in range(count):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
            started.append(process)
            assert process.stdin is not None
            process.stdin.write(pickle.dumps((limit, address, port, concurrency)))
            process.stdin.close()
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait(30)


@pytest.mark.parametrize(("per_s", "concurrency"), [(20, 8), (200, 16), (2000, 64)])
def test_three_tasks_keep_and_use_a_limit_though_one_is_killed(per_s: int, concurrency: int) -> None:
    limit = tr.limit(f"killed-{per_s}", per_s=per_s)
    with service() as port, tasks(3, limit, port, concurrency) as processes:
        await_use(port, per_s)
        processes[0].kill()
        await_use(port, per_s, seconds=1.0)  # the others have no less for it
        killed = counts_of(port).now
        wait_until(lambda: counts_of(port).now > killed + 3, 60, "three seconds")
        await_use(port, per_s)
        counts = counts_of(port)
    counts.assert_kept(per_s)


HOLDER = """
import asyncio, pickle, sys
from tailrace.runtime.calls.limit_client import open_limit

async def hold(limit, address):
    client = open_limit(limit, address)
    permits = [await client.acquire(1.0) for _ in range(limit.concurrency)]
    print("held", flush=True)
    await asyncio.sleep(3600)

asyncio.run(hold(*pickle.load(sys.stdin.buffer)))
"""


def test_permits_of_a_task_that_is_killed_come_back() -> None:
    limit = tr.limit("held", concurrency=3)
    address = limit_address(limit)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None and holder.stdout is not None

    async def take_all() -> None:
        client = open_limit(limit, address)
        taking = [asyncio.ensure_future(client.acquire(1.0)) for _ in range(3)]
        taken, _ = await asyncio.wait(taking, timeout=0.5)
        assert not taken
        holder.kill()
        await asyncio.wait_for(asyncio.gather(*taking), 30)
        await client.close()

    try:
        holder.stdin.write(pickle.dumps((limit, address)))
        holder.stdin.close()
        assert holder.stdout.readline() == b"held\n"
        asyncio.run(take_all())
    finally:
        holder.kill()
        holder.wait(30)
        holder.stdout.close()


def test_a_service_that_refuses_calls_is_left_alone_and_then_used_again() -> None:
    limit = tr.limit("refused", per_s=200)
    with service() as port, tasks(3, limit, port, 16):
        await_use(port, 200)
        refuse(port, seconds=1.0, retry_after=1.0)
        wait_until(lambda: counts_of(port).refused, 30, "a refusal")
        begun = counts_of(port).refused[0]
        wait_until(lambda: counts_of(port).now > begun + 4, 60, "calls after the refusals")
        await_use(port, 200)
        counts = counts_of(port)
    counts.assert_kept(200)
    assert len(counts.refused) <= 200  # then most of the recent ones were, and all pause
