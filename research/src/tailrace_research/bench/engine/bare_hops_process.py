"""One of the two processes of ``bare_hops``. A frame is a length and a pickle; a frame of length 0 ends the stream."""

from __future__ import annotations

import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from tailrace_research.bench.children import child_options, report
from tailrace_research.bench.turns import percentile

LENGTH = struct.Struct("<I")
PAYLOAD = "a word"
READY = b"!"


def send(connection: socket.socket, message: Any) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    connection.sendall(LENGTH.pack(len(data)) + data)


def send_end(connection: socket.socket) -> None:
    connection.sendall(LENGTH.pack(0))


def receive(connection: socket.socket) -> Iterator[Any]:
    """Messages until the end of the stream. A peer that dies before it is an error."""
    with connection.makefile("rb") as stream:
        while True:
            (length,) = LENGTH.unpack(stream.read(LENGTH.size))
            if length == 0:
                return
            yield pickle.loads(stream.read(length))


def source(out: socket.socket, rate: float, messages: int) -> None:
    out.recv(len(READY))
    period_ns = 1e9 / rate
    start_ns = time.monotonic_ns()
    for number in range(messages):
        due_ns = start_ns + int(number * period_ns)
        wait_ns = due_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        send(out, (number, due_ns, PAYLOAD))
    send_end(out)


def relay(connection: socket.socket, out: socket.socket) -> None:
    for message in receive(connection):
        send(out, message)
    send_end(out)


def end(connection: socket.socket, latencies_ns: list[int]) -> None:
    for _, due_ns, _ in receive(connection):
        latencies_ns.append(time.monotonic_ns() - due_ns)


def summary(latencies_ns: list[int]) -> dict[str, Any]:
    ordered = sorted(latencies_ns)
    fractions = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
    return {**{name: percentile(ordered, fraction) / 1e6 for name, fraction in fractions.items()}, "n": len(ordered)}


def main() -> None:
    options = child_options()
    first, second, third = (socket.socket(fileno=fd) for fd in options["sockets"])
    latencies_ns: list[int] = []
    if options["role"] == "A":
        stages = [
            threading.Thread(target=source, args=(first, options["rate"], options["messages"])),
            threading.Thread(target=relay, args=(second, third)),
        ]
    else:
        stages = [
            threading.Thread(target=relay, args=(first, second)),
            threading.Thread(target=end, args=(third, latencies_ns)),
        ]
    for stage in stages:
        stage.start()
    if options["role"] == "B":
        first.sendall(READY)
    for stage in stages:
        stage.join()
    if options["role"] == "A":
        report(options, {})
    elif len(latencies_ns) == options["messages"]:
        report(options, summary(latencies_ns[options["warm_up"] :]))


if __name__ == "__main__":
    main()
