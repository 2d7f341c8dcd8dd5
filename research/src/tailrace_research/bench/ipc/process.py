"""The process that forks senders and receivers for ``pairs``, so that each starts small, warm and alike.

A line of JSON on the standard input is a measurement to make, a line on the standard output its figures. The end of the
input ends a measurement, too: a signal's exception might be lost in what Python runs around a fork.

Both ends know when a message was due: it needs no stamp, and the sender gives the same bytes every time. An empty
message ends the warm-up, and another one the rest.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import multiprocessing
import multiprocessing.connection
import signal
import sys
import time
from dataclasses import dataclass
from itertools import repeat
from multiprocessing.connection import Connection
from typing import Any

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace_research.bench.children import ALARM_SLACK_S
from tailrace_research.bench.ipc.channels import Channel, Receive, Send, open_channel
from tailrace_research.bench.turns import Figures, percentile

END = b""
SETTLE_NS = 2 * MILLISECOND_NS  # before the first message is due
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29  # linux/prctl.h
WATCH_NS = 50_000  # before a message is due the sleep ends: it ends late, by 18 us at the median where this was tried
CHUNK_BYTES = 16 << 10  # are sent flat out between two looks at the clock

Task = dict[str, Any]


def begin(task: Task) -> None:
    """In a child: end with the parent, or after a time. And let sleeps end when they should, not up to 50 us later:
    that would be the sender's delay and not the channel's.
    """
    system = ctypes.CDLL(None)
    system.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    system.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    signal.alarm(int(task["timeout_s"]) + ALARM_SLACK_S)


@dataclass(frozen=True)
class Paced:
    """When the first message was due, and the CPU time that went into waiting for that moment of each."""

    start_ns: int
    sleeping_ns: int
    watching_ns: int


def pace(send: Send, payload: bytes, rate: int, messages: int) -> Paced:
    """An open loop: message n is due at ``start + n / rate``. It sleeps, and then watches the clock, since a timer
    alone is late by as much as a channel takes.
    """
    clock, cpu_clock = time.monotonic_ns, time.thread_time_ns
    period_ns = SECOND_NS // rate
    sleeping_ns = watching_ns = 0
    start_ns = clock() + SETTLE_NS
    for due_ns in range(start_ns, start_ns + messages * period_ns, period_ns):
        sent_ns = cpu_clock()
        wait_ns = due_ns - clock() - WATCH_NS
        if wait_ns > 0:
            time.sleep(wait_ns / SECOND_NS)
        woken_ns = cpu_clock()
        while clock() < due_ns:
            pass
        sleeping_ns += woken_ns - sent_ns
        watching_ns += cpu_clock() - woken_ns
        send(payload)
    return Paced(start_ns, sleeping_ns, watching_ns)


def flood(send: Send, payload: bytes, seconds: float) -> int:
    """As fast as it goes. Returns how many it sent."""
    deadline_ns = time.monotonic_ns() + int(seconds * SECOND_NS)
    chunk = max(1, CHUNK_BYTES // len(payload))
    sent = 0
    while time.monotonic_ns() < deadline_ns:
        for _ in repeat(None, chunk):
            send(payload)
        sent += chunk
    return sent


def take(receive: Receive) -> list[int]:
    """When each message up to the end came."""
    arrivals: list[int] = []
    while True:
        batch = receive()
        now_ns = time.monotonic_ns()
        if not len(batch[-1]):
            return [*arrivals, *repeat(now_ns, len(batch) - 1)]
        arrivals.extend(repeat(now_ns, len(batch)))


def drain(receive: Receive) -> tuple[int, int]:
    """How many messages came up to the end, and when that was."""
    count = 0
    while len((batch := receive())[-1]):
        count += len(batch)
    return count + len(batch) - 1, time.monotonic_ns()


def send_all(channel: Channel, line: Connection, answer: Connection, task: Task) -> None:
    begin(task)
    payload = b"x" * task["bytes"]
    line.recv()  # the receiver is there
    send = channel.sender()
    flood(send, payload, task["warm_up_s"])
    send(END)
    line.recv()  # and has seen enough
    answer.send(send_at_rate(send, line, payload, task) if task["rate"] else send_flat_out(send, line, payload, task))


def send_at_rate(send: Send, line: Connection, payload: bytes, task: Task) -> Figures:
    rate, messages = task["rate"], max(1, round(task["rate"] * task["seconds"]))
    cpu_ns = time.process_time_ns()
    paced = pace(send, payload, rate, messages)
    send(END)
    arrivals, its_cpu_ns = line.recv()
    # Asked for so late because a queue's thread may send after us.
    cpu_ns = time.process_time_ns() - cpu_ns + its_cpu_ns - paced.watching_ns
    check_count(messages, len(arrivals))
    return {
        **latencies(arrivals, paced.start_ns, rate),
        "cpu_us": (cpu_ns - paced.sleeping_ns) / 1e3 / messages,
        "cpu_with_sleep_us": cpu_ns / 1e3 / messages,
    }


def send_flat_out(send: Send, line: Connection, payload: bytes, task: Task) -> Figures:
    cpu_ns, start_ns = time.process_time_ns(), time.monotonic_ns()
    messages = flood(send, payload, task["seconds"])
    send(END)
    (received, end_ns), its_cpu_ns = line.recv()
    cpu_ns = time.process_time_ns() - cpu_ns + its_cpu_ns
    check_count(messages, received)
    return {"msgs_per_s": messages * SECOND_NS / (end_ns - start_ns), "cpu_us": cpu_ns / 1e3 / messages}


def check_count(sent: int, received: int) -> None:
    if sent != received:
        raise ValueError(f"messages were lost or doubled: sent={sent} received={received}")


def receive_all(channel: Channel, line: Connection, task: Task) -> None:
    begin(task)
    receive = channel.receiver()
    line.send("there")
    drain(receive)
    cpu_ns = time.process_time_ns()
    line.send("warm")
    received = take(receive) if task["rate"] else drain(receive)
    line.send((received, time.process_time_ns() - cpu_ns))


def latencies(arrivals: list[int], start_ns: int, rate: int) -> Figures:
    """From when each message was due."""
    period_ns = SECOND_NS // rate
    ordered = sorted(arrival - start_ns - number * period_ns for number, arrival in enumerate(arrivals))
    return {
        "p50_us": percentile(ordered, 0.5) / 1e3,
        "p99_us": percentile(ordered, 0.99) / 1e3,
        "mean_us": sum(ordered) / len(ordered) / 1e3,
    }


def measure(task: Task) -> dict[str, Any]:
    """Fork what it takes, and wait for its figures. Nothing is left running."""
    context = multiprocessing.get_context("fork")
    result, answer = context.Pipe(duplex=False)
    one, other = context.Pipe()
    channel = open_channel(task["name"], task["bytes"], task["capacity"])
    try:
        receiver = context.Process(target=receive_all, args=(channel, other, task), daemon=True)
        sender = context.Process(target=send_all, args=(channel, one, answer, task), daemon=True)
        return _outcome(result, [receiver, sender], task)
    finally:
        channel.close()


def _outcome(result: Connection, processes: list[Any], task: Task) -> dict[str, Any]:
    try:
        for process in processes:
            process.start()
        waiting = {process.sentinel: process for process in processes}
        deadline = time.monotonic() + task["timeout_s"]
        while not result.poll():
            left = deadline - time.monotonic()
            if left <= 0:
                return {"error": "too slow"}
            for ended in multiprocessing.connection.wait([result, sys.stdin, *waiting], left):  # type: ignore[list-item]
                if ended is sys.stdin:  # no request comes before its answer: this is the end of the input
                    sys.exit(1)
                if ended in waiting:
                    process = waiting.pop(ended)
                    process.join()  # it is about to end: its code may still be on the way
                    if process.exitcode:
                        return {"error": "failed"}
        figures: dict[str, Any] = result.recv()
        return figures
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()


def main() -> None:
    if importlib.util.find_spec("zmq") is not None:
        import zmq  # noqa: F401  # once, and not in every child
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(measure(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
