"""The row of ``bench dataframe`` about a skewed table: what is drawn, and what is made of the figures."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tailrace_research.bench.dataframe import skewed
from tailrace_research.bench.dataframe.plots import draw
from tailrace_research.bench.turns import summarise


def test_an_eighth_of_the_table_is_half_of_the_work() -> None:
    costs = skewed.draw_costs(20_000, slots_s=35.0)
    assert len(costs) == 20_000
    assert sum(costs) == pytest.approx(35.0 * skewed.SLOTS)
    parts = [sum(costs[first : first + 2_500]) / sum(costs) for first in range(0, 20_000, 2_500)]
    assert 3.5 < 8 * max(parts) < 4.2, "times the ideal, as it comes"
    assert max(costs) < 1.0, "no row is as long as a good part of the whole"
    assert costs == skewed.draw_costs(20_000, slots_s=35.0)


def test_ratios_of_a_skewed_table_are_taken_repeat_by_repeat() -> None:
    samples = {"skewed_as_is_s": [120.0, 160.0], "skewed_tuned_s": [36.0, 40.0], "skewed_apply_s": [40.0, 40.0]}
    concluded = skewed.conclude(samples)
    assert concluded == {"skewed_as_is_speedup": [3.0, 4.0], "skewed_tuned_ratio": [40 / 36, 1.0]}
    of_ideal = {f"skewed_{side}_of_ideal": [1.0, 1.0] for side in skewed.SIDES}
    table = "\n".join(skewed.table(summarise({**samples, **concluded, **of_ideal})))
    assert "apply is 3.50 [3.00..4.00] times as fast as is, and takes 1.06 [1.00..1.11] of the tuned time." in table


def test_rows_of_a_skewed_table_are_drawn(tmp_path: Path) -> None:
    rng = Random(1)
    traces = {f"skewed_{side}": sorted(rng.random() for _ in range(1000)) for side in skewed.SIDES}
    assert draw(tmp_path / "one", traces) == [tmp_path / "one" / "skewed.svg"]
    drawn = (tmp_path / "one" / "skewed.svg").read_text("utf-8")
    assert all(title.partition(",")[0] in drawn for title in skewed.SIDES.values())
