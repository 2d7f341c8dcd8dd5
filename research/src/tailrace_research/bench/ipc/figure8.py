"""Figure 8 of the TurboStream paper, theirs and ours: latency against message size, rate, and size of the ring.

The paper's curves have no numbers, so its values are those of its text: averages, of Netty and of a ring between two
Java processes. Ours are medians, of TCP and of a ring between two Python processes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.chart import Chart, Series, render_chart
from tailrace.chart import Point as ChartPoint
from tailrace.ring import why_unavailable
from tailrace.ring.segment import ring_capacity
from tailrace_research.bench.ipc.pairs import Pairs
from tailrace_research.bench.ipc.run import IpcSizes
from tailrace_research.bench.turns import Contest, Figures, Say, machine_facts, machine_line, summarise, take_turns

A_BYTES = (10_000, 20_000, 40_000, 80_000, 160_000, 320_000)
A_RATE = 100
A_CAPACITY = 2 << 20  # as theirs
B_BYTES = (10_000, 40_000)
B_RATES = (100, 500, 1_000, 2_000, 3_000)
C_BYTES = (10_000, 40_000, 160_000)
C_RATE = 3_000
C_LEAST, C_STEPS = 3, 8  # messages in the smallest ring; a record may take half of it at most. Each is twice the last
C_THEIR_BEST = (50, 100)  # messages
THEIR_NETTY_US = {10_000: 11_430.0, 40_000: 192_360.0}  # at 3,000/s; section II says so of Figure 2c
THEIR_NETTY_RATE = 3_000
THEIR_SUMMARY = "Theirs, over a and b: the ring takes 45.64% to 99.30% less than Netty."
STATISTICS = ("p50_us", "mean_us", "p99_us")


@dataclass(frozen=True)
class Point:
    figure: str
    name: str
    message_bytes: int
    rate: int
    capacity: int

    @property
    def title(self) -> str:
        ring = f" in {self.capacity >> 10:,} KiB" if self.figure == "c" else ""
        return f"figure 8{self.figure}: {self.name}, {self.message_bytes:,} bytes at {self.rate:,}/s{ring}"

    def key(self, stem: str) -> str:
        return f"{self.figure}_{self.name}_{self.message_bytes}_{self.rate}_{self.capacity}_{stem}"


def all_points() -> list[Point]:
    both = ("ring", "tcp")
    return [
        *(Point("a", name, size, A_RATE, A_CAPACITY) for size in A_BYTES for name in both),
        *(Point("b", name, size, rate, A_CAPACITY) for size in B_BYTES for rate in B_RATES for name in both),
        *(
            Point("c", "ring", size, C_RATE, ring_capacity(C_LEAST * size) << step)
            for size in C_BYTES
            for step in range(C_STEPS)
        ),
    ]


def draw_figure8(folder: Path, sizes: IpcSizes, say: Say) -> list[Path]:
    """Measure it, and write ``figure8<a,b,c>.svg`` and ``.csv`` to a folder. Returns what was written."""
    missing = why_unavailable()
    if missing is not None:
        say(f"Figure 8 is left out: {missing}")
        return []
    points = all_points()
    facts = machine_facts()
    with Pairs(sizes.warm_up_s) as pairs:
        contests = [
            Contest(point.title, lambda point=point: _measure(pairs, point, sizes.seconds))  # type: ignore[misc]
            for point in points
        ]
        samples = take_turns(contests, sizes.repeats, say, lambda figures: f"{next(iter(figures.values())):,.0f} us")
    result = {**summarise(samples), **facts}
    folder.mkdir(parents=True, exist_ok=True)
    return [path for figure in "abc" for path in _write(folder, figure, points, result, sizes)]


def _measure(pairs: Pairs, point: Point, seconds: float) -> Figures:
    measured = pairs.measure(point.name, point.message_bytes, point.rate, seconds, point.capacity)
    return {point.key(stem): measured[stem] for stem in STATISTICS}


def _write(
    folder: Path, figure: str, points: Sequence[Point], result: dict[str, Any], sizes: IpcSizes
) -> Iterable[Path]:
    ours = [point for point in points if point.figure == figure]
    note = f"Ours: medians, repeats: {sizes.repeats} of {sizes.seconds:g} s. {machine_line(result)}"
    chart = {"a": chart_a, "b": chart_b, "c": chart_c}[figure](ours, result, note)
    drawing, table = folder / f"figure8{figure}.svg", folder / f"figure8{figure}.csv"
    drawing.write_text(render_chart(chart), "utf-8")
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("whose", "contestant", "bytes", "messages_per_s", "ring_bytes", *STATISTICS))
        writer.writerows(_rows(figure, ours, result))
    return drawing, table


def _rows(figure: str, points: Sequence[Point], result: dict[str, Any]) -> Iterable[Sequence[Any]]:
    for point in points:
        capacity = point.capacity if point.name == "ring" else ""
        values = [f"{result[point.key(stem)]:.1f}" for stem in STATISTICS]
        yield ("ours", point.name, point.message_bytes, point.rate, capacity, *values)
    if figure == "b":
        for size, mean_us in THEIR_NETTY_US.items():
            yield ("theirs", "netty", size, THEIR_NETTY_RATE, "", "", mean_us, "")


def _curve(points: Sequence[Point], result: dict[str, Any], stem: str, x: str) -> list[ChartPoint]:
    return [ChartPoint(getattr(point, x), result[point.key(stem)]) for point in points]


def chart_a(points: Sequence[Point], result: dict[str, Any], note: str) -> Chart:
    ring, tcp = (
        _curve([point for point in points if point.name == name], result, "p50_us", "message_bytes")
        for name in ("ring", "tcp")
    )
    half = [ChartPoint(point.x, point.y / 2) for point in tcp]
    return Chart(
        f"Figure 8a: latency against message size, {A_RATE} messages/s, ring of {A_CAPACITY >> 20} MiB",
        "bytes",
        "p50, us",
        (
            Series("TCP", tcp, colour=1),
            Series("ring", ring, colour=0),
            Series("half of TCP: their ring takes about half of Netty at every size", half, dashed=True, colour=2),
        ),
        log_x=True,
        log_y=True,
        notes=(note, THEIR_SUMMARY),
    )


def chart_b(points: Sequence[Point], result: dict[str, Any], note: str) -> Chart:
    series = []
    for colour, size in enumerate(B_BYTES):
        for name, title in (("tcp", "TCP"), ("ring", "ring")):
            some = [point for point in points if point.name == name and point.message_bytes == size]
            curve = _curve(some, result, "p50_us", "rate")
            series.append(Series(f"{title}, {size:,} bytes", curve, name == "tcp", 2 * colour + (name == "ring")))
    for colour, (size, mean_us) in enumerate(THEIR_NETTY_US.items()):
        label = f"theirs: Netty, {size:,} bytes, {mean_us / 1e3:.2f} ms on average"
        series.append(Series(label, [ChartPoint(THEIR_NETTY_RATE, mean_us)], colour=2 * colour, line=False))
    title = "Figure 8b: latency against rate"
    return Chart(title, "messages/s", "p50, us", series, log_x=True, log_y=True, notes=(note, THEIR_SUMMARY))


def chart_c(points: Sequence[Point], result: dict[str, Any], note: str) -> Chart:
    series = []
    for colour, size in enumerate(C_BYTES):
        some = [point for point in points if point.message_bytes == size]
        for stem in ("p50_us", "p99_us"):
            curve = [ChartPoint(point.capacity / size, result[point.key(stem)]) for point in some]
            series.append(Series(f"{size:,} bytes, {stem[:3]}", curve, stem == "p99_us", colour))
    return Chart(
        f"Figure 8c: latency against the size of the ring, {C_RATE:,} messages/s",
        "messages that the ring has room for",
        "us",
        series,
        log_x=True,
        log_y=True,
        band=C_THEIR_BEST,
        notes=(note, "Shaded: {} to {} messages, the best size for theirs.".format(*C_THEIR_BEST)),
    )
