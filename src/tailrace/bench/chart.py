"""Line charts as SVG, both axes logarithmic: all that the benchmarks draw, without a dependency for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 760, 480
LEFT, RIGHT, TOP, BOTTOM = 76, 20, 44, 58
LINE_HEIGHT = 17
MANTISSAS = (1, 2, 5)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by the colour-blind as well


@dataclass(frozen=True)
class Series:
    label: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False  # with hollow marks
    line: bool = True  # or marks only


@dataclass(frozen=True)
class Chart:
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    band: tuple[float, float] | None = None  # of x, shaded
    notes: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        share = (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        ticks = [mantissa * 10.0**decade for decade in decades for mantissa in MANTISSAS]
        return [tick for tick in ticks if self.low * 0.999 <= tick <= self.high * 1.001]


def render_chart(chart: Chart) -> str:
    xs = [x for series in chart.series for x, _ in series.points]
    ys = [y for series in chart.series for _, y in series.points]
    x_axis = Axis(min(xs) / 1.1, max(xs) * 1.1, LEFT, WIDTH - RIGHT)
    y_axis = Axis(min(ys) / 1.5, max(ys) * 1.5, HEIGHT - BOTTOM, TOP)
    height = HEIGHT + LINE_HEIGHT * (len(chart.series) + len(chart.notes)) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(WIDTH / 2, 24, chart.title, "middle", 'font-size="15"'),
        *_band(chart.band, x_axis),
        *_axes(chart, x_axis, y_axis),
        *(part for series in chart.series for part in _curve(series, x_axis, y_axis)),
        *_legend(chart),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _text(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {stroke}/>'


def _band(band: tuple[float, float] | None, x_axis: Axis) -> list[str]:
    if band is None:
        return []
    low, high = (x_axis.at(min(max(edge, x_axis.low), x_axis.high)) for edge in band)
    box = f'x="{low:.1f}" y="{TOP}" width="{high - low:.1f}" height="{HEIGHT - BOTTOM - TOP}"'
    return [f'<rect {box} fill="#dddddd"/>']


def _axes(chart: Chart, x_axis: Axis, y_axis: Axis) -> list[str]:
    grid, base = 'stroke="#eeeeee"', HEIGHT - BOTTOM
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
        _text(18, middle, chart.y_label, "middle", f'transform="rotate(-90 18 {middle:.1f})"'),
    ]


def _stroke(series: Series) -> str:
    return f'stroke="{COLOURS[series.colour]}" stroke-width="2"' + (' stroke-dasharray="6 4"' if series.dashed else "")


def _curve(series: Series, x_axis: Axis, y_axis: Axis) -> list[str]:
    places = [(x_axis.at(x), y_axis.at(y)) for x, y in series.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    lines = [f'<polyline points="{path}" fill="none" {_stroke(series)}/>'] if series.line else []
    radius = 3 if series.line else 6
    return [*lines, *(_mark(series, x, y, radius) for x, y in places)]


def _mark(series: Series, x: float, y: float, radius: int) -> str:
    colour = COLOURS[series.colour]
    fill = "white" if series.dashed else colour
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" stroke="{colour}"/>'


def _legend(chart: Chart) -> list[str]:
    parts, y = [], HEIGHT + 4.0
    for series in chart.series:
        if series.line:
            parts.append(_line(LEFT, y - 4, LEFT + 30, y - 4, _stroke(series)))
        parts.append(_mark(series, LEFT + 15, y - 4, 3 if series.line else 6))
        parts.append(_text(LEFT + 38, y, series.label))
        y += LINE_HEIGHT
    for note in chart.notes:
        parts.append(_text(LEFT, y, note))
        y += LINE_HEIGHT
    return parts
