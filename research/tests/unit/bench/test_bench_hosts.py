"""The longest time without a completed root, from what sinks wrote down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.clock import SECOND_NS
from tailrace_research.bench.hosts.gaps import Stamp, counting, first_times, longest_gap_s, read_stamps
from tailrace_research.bench.hosts.run import TITLES, render_table
from tailrace_research.bench.turns import summarise


def stamp(number: int, at_s: float, host: str = "host0") -> Stamp:
    return Stamp(number, int(at_s * SECOND_NS), host)


@pytest.mark.parametrize(
    ("times_s", "gap_s"),
    [([], 10.0), ([0.5, 11], 10.0), ([2, 3, 9], 6.0), ([1, 4, 7, 10.5], 3.5), ([5], 6.0)],
)
def test_the_longest_gap_counts_the_edges(times_s: list[float], gap_s: float) -> None:
    times = [int(at_s * SECOND_NS) for at_s in times_s]
    assert longest_gap_s(times, SECOND_NS, 11 * SECOND_NS) == pytest.approx(gap_s)


def test_a_row_counts_when_it_comes_first() -> None:
    assert first_times([stamp(1, 2), stamp(0, 3), stamp(1, 1)]) == [SECOND_NS, 3 * SECOND_NS]


def test_what_a_host_completes_while_it_is_cut_off_does_not_count() -> None:
    before, during, after, other = stamp(0, 1), stamp(1, 3), stamp(2, 5), stamp(3, 3, "host1")
    found = counting([before, during, after, other], "host0", 2 * SECOND_NS, 4 * SECOND_NS)
    assert found == [before, after, other]


def test_a_line_that_a_kill_has_cut_short_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "0-host0-7.stamps").write_text("0 1000000000 host0\n1 2000000000 host0\n2 30")
    (tmp_path / "1-host1-8.stamps").write_text("")
    assert read_stamps(tmp_path) == [stamp(0, 1), stamp(1, 2)]


def test_the_table_names_all_figures() -> None:
    result = summarise({key: [1.0, 3.0, 2.0] for key in TITLES})
    result |= {"minutes": 1.0, "repeats": 3, "per_s": 300.0, "cores": 2, "python": "3.11", "load_before": 0.1}
    text = render_table({**result, "false_deaths": 0})
    assert text.count("2.00  [1.00..3.00]") == 3 and "0 false deaths in 1 minutes" in text
    assert "false deaths" not in render_table(result)
