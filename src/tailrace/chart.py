"""Draws line charts as SVG without dependencies, with error intervals and linear or logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

WIDTH, HEIGHT = 760, 480
LEFT, RIGHT, TOP, BOTTOM = 84, 20, 44, 58
LINE_HEIGHT = 17
TICKS = 8  # on a linear axis, approximately
MANTISSAS = (1, 2, 5)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # distinguishable by the colour-blind


class Point(NamedTuple):
    """A measured value, with its interval if there is one."""

    x: float
    y: float
    low: float | None = None  # ends of an interval around y
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A line of a chart, and its entry in the legend."""

    label: str
    points: Sequence[Point]
    dashed: bool = False
    colour: int | None = None  # index into COLOURS; by default the position of the series
    line: bool = True  # False: marks only


@dataclass(frozen=True)
class Chart:
    """The content of a chart: titles, series, scales."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    notes: Sequence[str] = ()
    band: tuple[float, float] | None = None  # a shaded range of x


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels."""

    low: float
    high: float
    begin: float
    end: float
    log: bool

    def at(self, value: float) -> float:
        low, high, value = (
            (log10(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        if self.log:
            decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
            ticks = [mantissa * 10.0**decade for decade in decades for mantissa in MANTISSAS]
        else:
            step = _round_step((self.high - self.low) / TICKS)
            ticks = [step * count for count in range(floor(self.low / step), ceil(self.high / step) + 1)]
        slack = (self.high - self.low) * 1e-9
        return [tick for tick in ticks if self.low - slack <= tick <= self.high + slack]


def _round_step(least: float) -> float:
    """The next larger number of the form 1, 2 or 5 times a power of ten."""
    decade = 10.0 ** floor(log10(least))
    return next(mantissa * decade for mantissa in (*MANTISSAS, 10) if mantissa * decade >= least * (1 - 1e-9))


def _axis(values: Sequence[float], begin: float, end: float, log: bool, from_zero: bool) -> Axis:
    low, high = min(values), max(values)
    if log:
        if low <= 0:
            raise ValueError(f"a logarithmic axis has no place for this value: value={low}: is it a count of nothing?")
        return Axis(low / 1.2, high * 1.2, begin, end, log)
    margin = (high - low or abs(high) or 1.0) * 0.05
    return Axis(0.0 if from_zero and low >= 0 else low - margin, high + margin, begin, end, log)


def render_chart(chart: Chart) -> str:
    """The chart as the text of an SVG file. Raises ValueError if it has no points."""
    points = [point for series in chart.series for point in series.points]
    if not points:
        raise ValueError(f"a chart without points: title={chart.title!r}: has anything been measured?")
    ends = [end for point in points for end in (point.low, point.high) if end is not None]
    heights = [*(point.y for point in points), *(end for end in ends if end > 0 or not chart.log_y)]
    x_axis = _axis([point.x for point in points], LEFT, WIDTH - RIGHT, chart.log_x, from_zero=False)
    y_axis = _axis(heights, HEIGHT - BOTTOM, TOP, chart.log_y, from_zero=True)
    height = HEIGHT + LINE_HEIGHT * (len(chart.series) + len(chart.notes)) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(WIDTH / 2, 24, chart.title, "middle", ' font-size="15"'),
        *_band(chart.band, x_axis),
        *_axes(chart, x_axis, y_axis),
        *(part for place, series in enumerate(chart.series) for part in _curve(series, place, x_axis, y_axis)),
        *_legend(chart),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _text(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {stroke}/>'


def _band(band: tuple[float, float] | None, x_axis: Axis) -> list[str]:
    if band is None:
        return []
    low, high = (x_axis.at(min(max(edge, x_axis.low), x_axis.high)) for edge in band)
    box = f'x="{low:.1f}" y="{TOP}" width="{high - low:.1f}" height="{HEIGHT - BOTTOM - TOP}"'
    return [f'<rect {box} fill="#dddddd"/>']


def _axes(chart: Chart, x_axis: Axis, y_axis: Axis) -> list[str]:
    grid, base = 'stroke="#e5e5e5"', HEIGHT - BOTTOM
    parts = []
    for tick in x_axis.ticks():
        x = x_axis.at(tick)
        parts += [_line(x, TOP, x, base, grid), _text(x, base + 16, f"{tick:,g}", "middle")]
    for tick in y_axis.ticks():
        y = y_axis.at(tick)
        parts += [_line(LEFT, y, WIDTH - RIGHT, y, grid), _text(LEFT - 6, y + 4, f"{tick:,g}", "end")]
    frame = f'x="{LEFT}" y="{TOP}" width="{WIDTH - RIGHT - LEFT}" height="{base - TOP}"'
    middle = (TOP + base) / 2
    return [
        *parts,
        f'<rect {frame} fill="none" stroke="black"/>',
        _text((LEFT + WIDTH - RIGHT) / 2, base + 38, chart.x_label, "middle"),
        _text(18, middle, chart.y_label, "middle", f' transform="rotate(-90 18 {middle:.1f})"'),
    ]


def _colour(series: Series, place: int) -> str:
    return COLOURS[(place if series.colour is None else series.colour) % len(COLOURS)]


def _stroke(series: Series, place: int) -> str:
    dashes = ' stroke-dasharray="6 4"' if series.dashed else ""
    return f'stroke="{_colour(series, place)}" stroke-width="2"{dashes}'


def _curve(series: Series, place: int, x_axis: Axis, y_axis: Axis) -> list[str]:
    path = " ".join(f"{x_axis.at(point.x):.1f},{y_axis.at(point.y):.1f}" for point in series.points)
    parts = [f'<polyline points="{path}" fill="none" {_stroke(series, place)}/>'] if series.line else []
    for point in series.points:
        x = x_axis.at(point.x)
        if point.low is not None and point.high is not None:
            low = max(point.low, y_axis.low)  # an interval may extend below a logarithmic axis
            stroke = f'stroke="{_colour(series, place)}"'
            parts.append(_line(x, y_axis.at(low), x, y_axis.at(point.high), stroke))
        parts.append(_mark(series, place, x, y_axis.at(point.y)))
    return parts


def _mark(series: Series, place: int, x: float, y: float) -> str:
    radius = 3 if series.line else 6
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{_colour(series, place)}"/>'


def _legend(chart: Chart) -> list[str]:
    parts, y = [], HEIGHT + 4.0
    for place, series in enumerate(chart.series):
        sample = (
            _line(LEFT, y - 4, LEFT + 30, y - 4, _stroke(series, place))
            if series.line
            else _mark(series, place, LEFT + 15, y - 4)
        )
        parts += [sample, _text(LEFT + 38, y, series.label)]
        y += LINE_HEIGHT
    for note in chart.notes:
        parts.append(_text(LEFT, y, note))
        y += LINE_HEIGHT
    return parts
