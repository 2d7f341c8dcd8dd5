"""Charts are well-formed SVG that put points where they belong."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tailrace.chart import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis, Chart, Point, Series, render_chart

SVG = "{http://www.w3.org/2000/svg}"
CHART = Chart(
    "a < b & c",
    "rate",
    "delay",
    [Series("one", [Point(1, 2, 1, 4), Point(10, 20)]), Series("two", [Point(1, 5), Point(10, 5)], dashed=True)],
    notes=["a note"],
)


def elements(chart: Chart, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(render_chart(chart)).iter(f"{SVG}{tag}"))


@pytest.mark.parametrize("log", [False, True])
def test_every_series_point_and_word_is_there(log: bool) -> None:
    chart = replace(CHART, log_x=log, log_y=log)
    assert len(elements(chart, "polyline")) == 2
    assert len(elements(chart, "circle")) == 4
    said = {text.text for text in elements(chart, "text")}
    assert {"a < b & c", "rate", "delay", "one", "two", "a note"} <= said
    for circle in elements(chart, "circle"):
        assert LEFT <= float(circle.attrib["cx"]) <= WIDTH
        assert TOP <= float(circle.attrib["cy"]) <= HEIGHT


def test_marks_without_a_line_a_band_and_colours_that_belong_together() -> None:
    one, two = CHART.series
    chart = replace(CHART, series=[one, replace(two, line=False, colour=0)], band=(2, 5))
    assert len(elements(chart, "polyline")) == 1
    assert len({circle.attrib["fill"] for circle in elements(chart, "circle")}) == 1
    _, band, _ = elements(chart, "rect")
    assert LEFT < float(band.attrib["x"]) < float(band.attrib["x"]) + float(band.attrib["width"]) < WIDTH


def test_an_interval_is_a_line_around_its_point() -> None:
    first = elements(CHART, "circle")[0]
    bars = [line for line in elements(CHART, "line") if line.attrib["x1"] == line.attrib["x2"] == first.attrib["cx"]]
    heights = sorted(float(line.attrib["y1"]) - float(line.attrib["y2"]) for line in bars)
    assert heights[-1] > 0  # from low, further down, to high
    assert float(bars[-1].attrib["y2"]) < float(first.attrib["cy"]) < float(bars[-1].attrib["y1"])


def test_larger_is_further_right_and_further_up() -> None:
    small, large = elements(CHART, "circle")[:2]
    assert float(small.attrib["cx"]) < float(large.attrib["cx"])
    assert float(small.attrib["cy"]) > float(large.attrib["cy"])


def test_ticks_are_round_numbers() -> None:
    assert Axis(0, 47, 0, 1, log=False).ticks() == [0, 10, 20, 30, 40]
    assert Axis(0.3, 6, 0, 1, log=True).ticks() == pytest.approx([0.5, 1, 2, 5])
    assert Axis(500, 5000, 0, 1, log=False).ticks() == [1000, 2000, 3000, 4000, 5000]


def test_a_decade_takes_as_much_room_as_the_next() -> None:
    axis = Axis(1, 100, 0, 200, log=True)
    assert [axis.at(value) for value in (1, 10, 100)] == pytest.approx([0, 100, 200])


def test_a_single_point_can_be_drawn() -> None:
    chart = replace(CHART, series=[Series("one", [Point(3, 0)])])
    assert not re.search("nan|inf", render_chart(chart))


def test_an_interval_that_leaves_a_logarithmic_axis_is_cut() -> None:
    chart = replace(CHART, series=[Series("one", [Point(1, 5, -3, 13)])], log_y=True)
    bars = [line for line in elements(chart, "line") if line.attrib["x1"] == elements(chart, "circle")[0].attrib["cx"]]
    assert bars[-1].attrib["y1"] == f"{HEIGHT - BOTTOM:.1f}"


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="a logarithmic axis has no place for this value: value=0: is it a count"):
        render_chart(replace(CHART, series=[Series("one", [Point(1, 0)])], log_y=True))
    with pytest.raises(ValueError, match="a chart without points: title='a < b & c': has anything been measured"):
        render_chart(replace(CHART, series=[Series("one", [])]))
