"""The figures of ``bench ipc`` as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace_research.bench.ipc.channels import CONTESTANTS, RECORDS_AT_ONCE
from tailrace_research.bench.ipc.pairs import FLAT_OUT
from tailrace_research.bench.ipc.run import LATENCIES, MESSAGE_BYTES, RATES, key_of
from tailrace_research.bench.turns import aligned, machine_line, range_of

BASELINE = "tcp"
ENOUGH_REPEATS = 5
TITLES = {
    "p50_us": ("p50, us", "{:,.1f}"),
    "p99_us": ("p99, us", "{:,.0f}"),
    "cpu_us": ("CPU, us", "{:,.2f}"),
    "msgs_per_s": ("messages/s", "{:,.0f}"),
}
ABOUT = {
    "ring": f"ring: a PairRing of {{ring_mib:g}} MiB, copying, up to {RECORDS_AT_ONCE} records or 256 KiB a read.",
    "shared": "shared: a SharedRing, the same for many producers and consumers.",
    "tcp": "tcp: loopback with TCP_NODELAY and the engine's frames, up to 256 KiB a read: what the ring replaces.",
    "bare": "bare: the same connection with a length before each message and a buffered file, which copies less.",
    "unix": "unix: as tcp, over AF_UNIX.",
    "queue": "queue: multiprocessing.Queue, bounded.",
    "zmq": "zmq: ZeroMQ, PUSH to PULL over ipc://; it reads and writes several messages at once by itself.",
}


def render_table(result: dict[str, Any]) -> str:
    """A block for each rate: medians, the range of the repeats in brackets, and how many times TCP's that is."""
    blocks = [_block(result, f"at {rate:,} messages/s", rate, (*LATENCIES, "cpu_us")) for rate in RATES]
    flat_out = _block(result, "flat out", FLAT_OUT, ("msgs_per_s", "cpu_us"))
    lines = [line for block in (*blocks, flat_out) for line in (*block, "")]
    return "\n".join([*lines, *_footnotes(result)])


def _block(result: dict[str, Any], title: str, rate: int, stems: Sequence[str]) -> list[str]:
    rows: list[Sequence[str]] = [(title, *(cell for stem in stems for cell in (TITLES[stem][0], "", "x tcp")))]
    for size in MESSAGE_BYTES:
        for name in CONTESTANTS:
            if key_of(name, stems[0], size, rate) in result:
                cells = [cell for stem in stems for cell in _cells(result, name, stem, size, rate)]
                rows.append((f"{size:,} bytes, {name}", *cells))
    return aligned(rows)


def _cells(result: dict[str, Any], name: str, stem: str, size: int, rate: int) -> tuple[str, str, str]:
    key, form = key_of(name, stem, size, rate), TITLES[stem][1]
    ratio = result[key] / result[key_of(BASELINE, stem, size, rate)]
    return form.format(result[key]), range_of(result, key, form), "" if name == BASELINE else f"{ratio:.2f}"


def _footnotes(result: dict[str, Any]) -> list[str]:
    few = ["These are few repeats: too few to tell a difference from noise."]
    return [
        *(few if result["repeats"] < ENOUGH_REPEATS else []),
        f"Medians of repeats [least..most]: {result['repeats']} of {result['seconds']:g} s each, taking turns; "
        "two processes, pinned to nothing.",
        machine_line(result),
        "Latency: one way, from when a message was due (open loop) until the receiver has its bytes.",
        "CPU: of both processes per message, without the sender's waiting for the next one to be due.",
        *(
            text.format(ring_mib=result["ring_bytes"] / 2**20)
            for name, text in ABOUT.items()
            if key_of(name, "msgs_per_s", MESSAGE_BYTES[0], FLAT_OUT) in result
        ),
    ]
