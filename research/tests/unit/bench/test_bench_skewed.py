"""The rows of ``bench dataframe`` about a skewed table and a stream: what is drawn, and what is made of the figures."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace_research.bench.dataframe import skewed, stream
from tailrace_research.bench.dataframe.arrivals import SLOW_TIMES, Arrivals, draw_arrivals, work
from tailrace_research.bench.dataframe.plots import draw
from tailrace_research.bench.dataframe.watcher import SPARK_LOG, Output, Watcher
from tailrace_research.bench.turns import summarise

# --- skewed


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


# --- stream


def test_rows_arrive_at_random_and_one_in_a_hundred_is_slow() -> None:
    arrivals = draw_arrivals(100, 300, 0.01, seed=1)
    assert len(arrivals.due_ns) == pytest.approx(30_000, rel=0.03)
    assert list(arrivals.due_ns) == sorted(arrivals.due_ns)
    assert fmean(arrivals.slow) == pytest.approx(0.01, rel=0.2)
    gaps = [later - earlier for earlier, later in zip(arrivals.due_ns, arrivals.due_ns[1:], strict=False)]
    assert fmean(gap > SECOND_NS / 300 for gap in gaps) == pytest.approx(0.368, abs=0.02), "gaps are exponential"
    assert draw_arrivals(100, 300, 0.01, seed=2).due_ns != arrivals.due_ns


def test_the_first_rows_come_gently() -> None:
    arrivals = draw_arrivals(60, 300, 0.01, seed=1, gently_s=30)
    gently = sum(due_ns < 30 * SECOND_NS for due_ns in arrivals.due_ns)
    assert gently == pytest.approx(900, rel=0.2)
    assert len(arrivals.due_ns) - gently == pytest.approx(9_000, rel=0.05)


def test_a_line_says_what_its_row_costs() -> None:
    arrivals = Arrivals([5, 9], [False, True], cost_s=0.001)
    quick, slow = (work(arrivals.line(number, 1_000 + due)) for number, due in enumerate(arrivals.due_ns))
    assert (quick["id"], quick["slow"], quick["due_ns"]) == (0, False, 1_005)
    assert (slow["id"], slow["slow"], slow["due_ns"]) == (1, True, 1_009)
    assert slow["ended_ns"] - slow["began_ns"] >= SLOW_TIMES * MILLISECOND_NS


def row(number: int, *, late_ms: float, slow: bool = False) -> dict[str, Any]:
    """Due every 10 ms, begins after 1 ms, takes 4 ms."""
    due_ns = number * 10 * MILLISECOND_NS
    moments = {"due_ns": due_ns, "began_ns": due_ns + MILLISECOND_NS, "ended_ns": due_ns + 5 * MILLISECOND_NS}
    return {"id": number, "slow": slow, **moments, "seen_ns": due_ns + int(late_ms * 1e6), "file": f"{number // 10}"}


def test_figures_are_those_of_the_other_rows() -> None:
    rows = [row(number, late_ms=20 + number % 100) for number in range(1000)]
    rows[500] = row(500, late_ms=700, slow=True)
    found = stream.figures(rows)
    assert found["p50_ms"] == pytest.approx(69, abs=1)
    assert found["p99_ms"] == pytest.approx(118, abs=1)
    assert found["slow_p99_ms"] == 700
    assert found["begun_p99_ms"] == 1
    assert found["shown_p99_ms"] == pytest.approx(113, abs=1)
    assert found["busy"] == pytest.approx(0.4 / stream.SLOTS, rel=0.01)
    assert found["files_per_min"] == pytest.approx(600, rel=0.01)


def test_the_best_trigger_of_each_repeat_is_the_one_to_beat() -> None:
    p99s = {
        "asap": [3000.0, 1500.0],
        "half": [2000.0, 2500.0],
        "second": [2500.0, 2000.0],
        "spread": [9e3, 9e3],
        stream.OURS: [520.0, 300.0],
    }
    samples = {f"stream_{side}_{key}": values for side, values in p99s.items() for key in stream.FIGURES}
    concluded = stream.conclude(samples)
    assert concluded == {"stream_p99_ratio": [0.26, 0.2]}
    table = "\n".join(stream.table(summarise({**samples, **concluded})))
    assert "p99 of rows that are not slow: 0.23 [0.20..0.26] of the query's at its best trigger." in table


# --- the watcher


def test_the_watcher_sees_each_name_once_also_in_a_folder_that_is_made_later(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path / "out", re.compile(r"part-.*"))
    watcher.start()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-1").touch()
    (tmp_path / "out" / ".part-2").touch()
    deadline_s = time.monotonic() + 10
    while not watcher.seen_ns and time.monotonic() < deadline_s:
        time.sleep(0.01)
    first_ns = watcher.seen_ns["part-1"]
    (tmp_path / "out" / "part-3").touch()
    watcher.end()
    assert watcher.seen_ns.keys() == {"part-1", "part-3"}
    assert watcher.seen_ns["part-1"] == first_ns < watcher.seen_ns["part-3"]


def test_rows_of_sparks_sink_are_seen_when_its_log_names_their_file(tmp_path: Path) -> None:
    """An entry that compacts others repeats their files, and does not make them younger."""
    output = Output(tmp_path, with_log=True)
    log = tmp_path / SPARK_LOG
    log.mkdir()
    for batch in range(3):
        pq.write_table(pa.table({"id": [batch]}), tmp_path / f"part {batch}.parquet")
    adds = [json.dumps({"path": f"file://{tmp_path}/part%20{batch}.parquet", "action": "add"}) for batch in range(3)]
    (log / "0").write_text(f"v1\n{adds[0]}")
    (log / "1").write_text("v1")
    (log / "2.compact").write_text("\n".join(["v1", *adds[:2]]))
    output.watcher.seen_ns.update({"0": 10, "1": 20, "2.compact": 30})
    assert output.count() == 2
    assert [(row["id"], row["seen_ns"]) for row in output.rows()] == [(0, 10), (1, 30)]


# --- plots


def test_rows_that_were_measured_are_drawn(tmp_path: Path) -> None:
    rng = Random(1)
    traces = {f"skewed_{side}": sorted(rng.random() for _ in range(1000)) for side in skewed.SIDES}
    assert draw(tmp_path / "one", traces) == [tmp_path / "one" / "skewed.svg"]
    for side in stream.SIDES:
        traces[f"stream_{side}_due_s"] = [number / 300 for number in range(9000)]
        longest_s = 1.0 if side == "half" else 2.0
        traces[f"stream_{side}_late_s"] = [longest_s * rng.random() for _ in range(9000)]
    assert draw(tmp_path / "two", traces) == [tmp_path / "two" / "skewed.svg", tmp_path / "two" / "stream.svg"]
    drawn = (tmp_path / "two" / "stream.svg").read_text("utf-8")
    titles = [title for title in stream.SIDES.values() if f">{title}</text>" in drawn]
    assert titles == ["query, every 500 ms", "from_stream"], "the best of the queries, and ours"
    assert drawn.count("<circle") < 500
