"""Processes draw from a node's queue as fast as it is filled, and sleep whenever it is empty: no wake-up is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import chain
from random import Random

import pytest

from tailrace.core.plan.node_groups import NodeGroup
from tailrace.runtime.links.channels import offer_ring, take_ring
from tailrace.runtime.links.frames import encode
from tailrace.runtime.shared_queues.node_queue import NodeQueue
from tailrace.testing.processes import wait_until

RECORDS = 8_000
END = -1

DRAWS = """
import os, select, sys
from tailrace.core.plan.node_groups import NodeGroup
from tailrace.runtime.links.channels import take_ring
from tailrace.runtime.shared_queues.node_queue import NodeQueue
from tailrace.runtime.links.frames import decode_bundles

queue = NodeQueue(take_ring(sys.argv[1], sys.argv[2], "queue"), NodeGroup(0, ((0, 1),)))
queue.decode = decode_bundles
bell, slept, drawn = queue.bell(), 0, []
poll = select.epoll()
poll.register(bell, select.EPOLLIN | select.EPOLLEXCLUSIVE)
print("ready", flush=True)
while True:
    _, bundles = queue.take(1)
    if bundles == [-1]:
        break
    if bundles:
        drawn += bundles
    elif queue.prepare_sleep():
        rung = poll.poll(10)
        if not rung:
            sys.exit("slept on while something was there, or nothing came")
        try:
            os.read(bell, 1 << 16)
        except BlockingIOError:
            pass
        queue.awake()
        queue.bell_rang()
        slept += 1
print(*drawn)
print(slept, file=sys.stderr)
"""


def _wait_for_all_to_be_drawn(queue: NodeQueue) -> None:
    """Without a pause: what is put next shall come while the others fall asleep."""
    deadline = time.monotonic() + 20
    while queue.queued:
        assert time.monotonic() < deadline, "somebody sleeps on while something is there"


@pytest.mark.parametrize("processes", [1, 2])
def test_whoever_sleeps_is_woken_for_what_is_put(processes: int) -> None:
    offer = offer_ring("bell", "queue")
    name, nonce = offer.segment.path.name, offer.segment.nonce.hex()
    queue = NodeQueue(take_ring(name, nonce, "queue"), NodeGroup(0, ((0, 1),)))
    command = [sys.executable, "-c", DRAWS, name, nonce]
    drawing = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
        for _ in range(processes)
    ]
    try:
        assert all(one.stdout is not None and one.stdout.readline() == "ready\n" for one in drawing)
        offer.withdraw()
        rng = Random(1)
        for number in range(RECORDS):
            payload = encode([number])
            wait_until(lambda payload=payload: queue.put(payload), 20, "room")
            if rng.random() < 0.2:
                _wait_for_all_to_be_drawn(queue)
                time.sleep(rng.random() * 0.0001)  # about what it takes to fall asleep
        for _ in drawing:
            queue.put(encode([END]))
        said = [one.communicate(timeout=30) for one in drawing]
    finally:
        for one in drawing:
            one.kill()
            one.wait()
        queue.close()
        offer.withdraw()
        offer.close()
    assert not any(one.returncode for one in drawing), said
    drawn = [[int(number) for number in out.split()] for out, _ in said]
    assert sorted(chain(*drawn)) == list(range(RECORDS))
    assert all(one == sorted(one) for one in drawn)
    assert all(int(err) > 100 for _, err in said), "all have slept"
