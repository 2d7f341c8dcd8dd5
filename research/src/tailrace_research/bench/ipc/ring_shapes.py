"""Which ring for tuples: one for every pair of tasks, one for every receiving task, or one for the receiving worker?

    python -m tailrace_research.bench.ipc.ring_shapes

Two processes send to the four tasks of a third, which waits for all of its rings at once, as a runner does. Measured
flat out and at a rate; the page of decisions about the ring has figures.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial

from tailrace.clock import SECOND_NS
from tailrace.ring import layout
from tailrace.ring.pair import PairRing
from tailrace.ring.segment import Segment
from tailrace.ring.shared import SharedRing
from tailrace_research.bench.turns import (
    Contest,
    Figures,
    aligned,
    machine_facts,
    machine_line,
    percentile,
    summarise,
    take_turns,
)

SENDERS, TASKS = 2, 4
RING_BYTES = 256 << 10  # as a link's
SHAPES = {"pair of tasks": SENDERS * TASKS, "receiving task": TASKS, "receiving worker": 1}
SIZES = (100, 10_000)
RATE = 3_000  # messages a second, of all senders
FLAT_OUT = 0
REPEATS = 5
SECONDS = 1.0
ALARM_S = 60
READ_AT_ONCE = 64
NAP_NS = 1_000_000
END = b"end"
BELL = b"\0"
RESULT = struct.Struct("<dddd")  # p50 and p99 in ns, when the last came, CPU seconds

Ring = PairRing | SharedRing


def open_ring(shape: str, segment: Segment) -> Ring:
    return PairRing(segment) if shape == "pair of tasks" else SharedRing(segment)


def ring_number(shape: str, sender: int, task: int) -> int:
    return {"pair of tasks": sender * TASKS + task, "receiving task": task, "receiving worker": 0}[shape]


def measure(shape: str, size: int, rate: int) -> Figures:
    """One run. Every process ends by itself."""
    kind = layout.PAIR if shape == "pair of tasks" else layout.SHARED
    segments = [Segment.create("shapes", kind, RING_BYTES) for _ in range(SHAPES[shape])]
    bells = [os.pipe() for _ in segments]
    for segment in segments:
        segment.unlink()
    start_ns = time.monotonic_ns() + SECOND_NS // 5
    ends = [
        _child(partial(_receive, shape, segments, bells)),
        *(_child(partial(_send, shape, segments, bells, sender, size, rate, start_ns)) for sender in range(SENDERS)),
    ]
    results = [RESULT.unpack(os.read(end, RESULT.size)) for end in ends]
    for end in (*ends, *(number for bell in bells for number in bell)):
        os.close(end)
    for _ in ends:
        os.wait()
    for segment in segments:
        segment.close()
    (p50_ns, p99_ns, last_ns, _), sent = results[0], sum(result[0] for result in results[1:])
    key = f"{shape.replace(' ', '_')}_{size}"
    if rate == FLAT_OUT:
        cpu_s = sum(result[3] for result in results)
        return {f"{key}_msgs_per_s": sent * SECOND_NS / (last_ns - start_ns), f"{key}_cpu_us": cpu_s * 1e6 / sent}
    return {f"{key}_p50_us": p50_ns / 1e3, f"{key}_p99_us": p99_ns / 1e3}


def _child(work: Callable[[], tuple[float, float, float, float]]) -> int:
    """Have this done by a process of its own; its result can be read from the file that is returned."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        signal.alarm(ALARM_S)
        try:
            os.write(write_end, RESULT.pack(*work()))
        finally:
            os._exit(0)
    os.close(write_end)
    return read_end


def _send(
    shape: str, segments: Sequence[Segment], bells: Sequence[tuple[int, int]],
    sender: int, size: int, rate: int, start_ns: int,
) -> tuple[float, float, float, float]:  # fmt: skip
    rings = {number: open_ring(shape, segments[number]) for number in _numbers(shape, sender)}
    began_s = time.process_time()
    clock = time.monotonic_ns
    period_ns = SECOND_NS * SENDERS // rate if rate else 0
    due_ns, deadline_ns = start_ns + sender * period_ns // SENDERS, start_ns + int(SECONDS * SECOND_NS)
    filling = b"x" * (size - 8)
    sent = 0
    _sleep_until(start_ns)
    while clock() < deadline_ns and due_ns < deadline_ns:
        if rate:
            _sleep_until(due_ns)
            stamp_ns, due_ns = due_ns, due_ns + period_ns
        else:
            stamp_ns = clock()
        number = ring_number(shape, sender, sent % TASKS)
        _write(rings[number], bells[number][1], sent % TASKS, stamp_ns.to_bytes(8, "little") + filling)
        sent += 1
    for number, ring in rings.items():
        _write(ring, bells[number][1], 0, END)
    return sent, 0.0, 0.0, time.process_time() - began_s


def _numbers(shape: str, sender: int) -> list[int]:
    return sorted({ring_number(shape, sender, task) for task in range(TASKS)})


def _sleep_until(due_ns: int) -> None:
    wait_ns = due_ns - time.monotonic_ns()
    if wait_ns > 0:
        time.sleep(wait_ns / SECOND_NS)


def _write(ring: Ring, bell: int, task: int, payload: bytes) -> None:
    while (result := ring.core.write(task, payload)) == layout.NONE:
        if ring.core.want_room(len(payload), layout.MODE_SLEEP):
            ring.core.sleep(1, NAP_NS)
    if result == layout.BELL:
        os.write(bell, BELL)


def _receive(
    shape: str, segments: Sequence[Segment], bells: Sequence[tuple[int, int]]
) -> tuple[float, float, float, float]:
    rings = {bells[number][0]: open_ring(shape, segment) for number, segment in enumerate(segments)}
    epoll = select.epoll()
    for bell in rings:
        epoll.register(bell, select.EPOLLIN)
    began_s = time.process_time()
    latencies: list[int] = []
    left = sum(len(_numbers(shape, sender)) for sender in range(SENDERS))
    for ring in rings.values():
        ring.core.want_data(layout.MODE_BELL)
    while left:
        for bell, _ in epoll.poll():
            os.read(bell, 512)
            core = rings[bell].core
            while records := core.read(READ_AT_ONCE):
                core.release()
                now_ns = time.monotonic_ns()
                for _, payload in records:
                    if payload == END:
                        left -= 1
                    else:
                        latencies.append(now_ns - int.from_bytes(payload[:8], "little"))
            if not core.want_data(layout.MODE_BELL):
                os.write(bells[list(rings).index(bell)][1], BELL)
    last_ns, cpu_s = time.monotonic_ns(), time.process_time() - began_s
    latencies.sort()
    return percentile(latencies, 0.5), percentile(latencies, 0.99), last_ns, cpu_s


def main() -> None:
    facts = machine_facts()
    contests = [
        Contest(f"a ring per {shape}, {size:,} B, {rate or 'flat out'}", partial(measure, shape, size, rate))
        for size in SIZES
        for rate in (RATE, FLAT_OUT)
        for shape in SHAPES
    ]
    in_words = lambda figures: ", ".join(f"{value:,.1f}" for value in figures.values())  # noqa: E731
    result = summarise(take_turns(contests, REPEATS, print, in_words))
    names = ("p50_us", "p99_us", "msgs_per_s", "cpu_us")
    rows: list[Sequence[str]] = [("a ring per", *(f"{name} {size:,} B" for size in SIZES for name in names))]
    for shape in SHAPES:
        keys = [f"{shape.replace(' ', '_')}_{size}_{name}" for size in SIZES for name in names]
        rows.append((shape, *(f"{result[key]:,.1f}" for key in keys)))
    print("\n".join(["", *aligned(rows), machine_line(facts)]))


if __name__ == "__main__":
    main()
