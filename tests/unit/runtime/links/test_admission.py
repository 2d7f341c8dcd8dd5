"""A link hands over as many bundles as its task has room for, and keeps the rest for later rounds."""

from __future__ import annotations

import socket

from kit.neighbours import Stepped, Worker
from kit.tasks import context_of, plan_of, task_of
from tailrace.core.bundles import new_bundle
from tailrace.core.queues.rounds import FIRST_QUEUE
from tailrace.runtime.execution.task_host import TaskHost
from tailrace.runtime.links.channels import Channel
from tailrace.runtime.links.frames import BUNDLES, encode
from tailrace.topology import Kind

FRAME = 30


def test_the_first_frame_of_a_link_does_not_fill_the_queue() -> None:
    ran: list[int] = []
    plan = plan_of(lambda source: source.filter("work", lambda value: ran.append(value) is not None, tasks=1))
    host = TaskHost(task_of(context_of(plan)), Worker(), Kind.AUTO)
    runner = Stepped("work/0")
    runner.adopt(host)
    near, far = socket.socketpair()
    with near, far:
        host.take_link(Channel(near), "bundles", 1, 1)
        bundles = [new_bundle(n, 0, n, n, [n], [n]) for n in range(1, FRAME + 1)]
        (link,) = host.input.bundle_links
        link.on_frame(BUNDLES, memoryview(encode(bundles)))
        assert len(host.task.queue) <= 4 * FIRST_QUEUE < FRAME
        assert len(host.task.queue) + len(link.unadmitted) == FRAME
        runner.step(FRAME)
        assert ran == list(range(1, FRAME + 1)), "all of them, in order"
        assert not link.paused
