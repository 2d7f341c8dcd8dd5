"""Lines for Spark's socket source are sent when they are due."""

from __future__ import annotations

import socket
import time

from tailrace.clock import MILLISECOND_NS
from tailrace_research.bench.feed import Feed


def test_lines_are_sent_when_they_are_due_and_counted_from_the_connection() -> None:
    feed = Feed([0, 50 * MILLISECOND_NS], lambda number, due_ns: f"{number} {due_ns}")
    feed.start()
    time.sleep(0.1)  # nobody is there yet
    try:
        with socket.create_connection(("127.0.0.1", feed.port)) as peer, peer.makefile() as lines:
            got = [(*map(int, lines.readline().split()), time.monotonic_ns()) for _ in range(2)]
        assert feed.sent.wait(10)
    finally:
        feed.close()
    assert [number for number, _, _ in got] == [0, 1]
    assert got[1][1] - got[0][1] == 50 * MILLISECOND_NS
    assert all(due_ns <= came_ns for _, due_ns, came_ns in got)


def test_a_feed_that_is_closed_before_anyone_comes_ends() -> None:
    feed = Feed([0], lambda number, due_ns: "")
    feed.start()
    feed.close()
    feed.join(10)
    assert not feed.is_alive()
