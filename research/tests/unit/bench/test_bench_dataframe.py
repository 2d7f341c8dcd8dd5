"""What ``bench dataframe`` makes of what its service counted."""

from __future__ import annotations

from tailrace_research.bench.dataframe.limit import fullest_second, kept

EVEN_S = [number / 8 for number in range(80)]  # eight a second, for ten seconds


def test_the_fullest_second_is_found_wherever_it_begins() -> None:
    assert fullest_second(EVEN_S) == 8
    assert fullest_second([0.0, 0.9, 1.1, 1.2, 1.85, 3.0]) == 4
    assert fullest_second([5.0]) == 1


def test_use_counts_whole_seconds_of_what_was_allowed() -> None:
    assert kept(EVEN_S, EVEN_S, 8, (20, 24), 0.5) == (0, 1)
    excess, use = kept(EVEN_S, EVEN_S, 4, (20, 24), 0.5)
    assert (excess, use) == (1, 2)
    _, use = kept(EVEN_S, EVEN_S, 16, (0, 9), 0.5)
    assert use == 1


def test_calls_that_were_refused_count_against_the_limit_and_not_as_use() -> None:
    taken_s = [moment_s for moment_s in EVEN_S if not 2 <= moment_s < 4]
    assert kept(EVEN_S, taken_s, 8, (20, 24), 0.5) == (0, 7 / 9)
