"""Draws what the rows of ``bench dataframe`` measured: when calls began, when rows were done, how late they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.chart import Chart, Point, Series, render_chart
from tailrace_research.bench.dataframe import arrivals, journal, limit, skewed, stream, window
from tailrace_research.bench.turns import percentile

POINTS = 200  # of a line
SHOWN_S = 20.0  # of a stream


def draw(folder: Path, traces: Mapping[str, list[float]]) -> list[Path]:
    """Draw a chart for each row that was measured, of its last repeat. Returns the files."""
    drawers = {"window": _window, "limit": _limit, "journal": _journal, "skewed": _skewed, "stream": _stream}
    charts = {name: drawer(traces) for name, drawer in drawers.items()}
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    for name, chart in charts.items():
        if chart is not None:
            path = folder / f"{name}.svg"
            path.write_text(render_chart(chart), "utf-8")
            drawn.append(path)
    return drawn


def _window(traces: Mapping[str, list[float]]) -> Chart | None:
    found = {title: traces.get(f"window_{window.SMALL}_{side}", []) for side, title in window.SIDES.items()}
    if not all(found.values()):
        return None
    lines = [Series(title, _made(moments)) for title, moments in found.items()]
    return Chart(
        f"About one call in a hundred hangs, Arrow batches of {window.SMALL:,} rows", "seconds", "calls made", lines
    )


def _limit(traces: Mapping[str, list[float]]) -> Chart | None:
    rate = limit.RATES[-1]
    moments = traces.get(f"limit_{rate}", [])
    if not moments:
        return None
    lines = [
        Series("calls in each second, as the service counts", _by_second(moments)),
        Series("limit", [Point(0, rate), Point(_length(moments), rate)], dashed=True),
    ]
    title = f"A limit of {rate}/s: 3 workers, one killed, then {limit.REFUSING_S:g} s in which the service takes half"
    return Chart(title, "seconds", "calls/s", lines)


def _journal(traces: Mapping[str, list[float]]) -> Chart | None:
    found = {title: traces.get(f"journal_{side}", []) for side, title in journal.SIDES.items()}
    if not all(found.values()):
        return None
    lines = [Series(title, _made(moments)) for title, moments in found.items()]
    return Chart("Paid calls, five workers and a driver killed", "seconds", "calls made", lines)


def _skewed(traces: Mapping[str, list[float]]) -> Chart | None:
    found = {title: traces.get(f"skewed_{side}", []) for side, title in skewed.SIDES.items()}
    if not all(found.values()):
        return None
    lines = [Series(title, _counted(moments, 0.0)) for title, moments in found.items()]
    title = f"Rows of a table that is clustered by what makes them slow, {skewed.SLOTS} slots"
    return Chart(title, "seconds", "rows done", lines)


def _stream(traces: Mapping[str, list[float]]) -> Chart | None:
    """The query at its best, and Tailrace."""
    late_s = {side: traces.get(f"stream_{side}_late_s", []) for side in stream.SIDES}
    if not all(late_s.values()):
        return None
    best = min(stream.QUERIES, key=lambda side: percentile(sorted(late_s[side]), 0.99))
    lines = []
    for side in (best, stream.OURS):
        moments = zip(traces[f"stream_{side}_due_s"], late_s[side], strict=True)
        shown = [Point(due_s, waited_s) for due_s, waited_s in moments if due_s <= SHOWN_S]
        lines.append(Series(stream.SIDES[side], shown[:: max(1, len(shown) // POINTS)]))
    title = f"When rows that are not slow can be read: {stream.RATE} rows/s, 1% are {arrivals.SLOW_TIMES} times slower"
    return Chart(title, "seconds", "seconds after arrival", lines)


def _made(moments: Sequence[float]) -> list[Point]:
    """How many calls had begun by then, since the first of them."""
    return _counted(moments, moments[0])


def _counted(moments: Sequence[float], since: float) -> list[Point]:
    step = max(1, len(moments) // POINTS)
    counted = [*range(0, len(moments), step), len(moments) - 1]
    return [Point(moments[number] - since, number + 1) for number in counted]


def _by_second(moments: Sequence[float]) -> list[Point]:
    counted = [0] * (int(_length(moments)) + 1)
    for moment in moments:
        counted[int(moment - moments[0])] += 1
    return [Point(second + 0.5, calls) for second, calls in enumerate(counted[:-1])]


def _length(moments: Sequence[float]) -> float:
    return moments[-1] - moments[0]
