from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from tailrace import demo
from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from tailrace.dashboard import LiveTable, plain_line, render_summary, text, watch
from tailrace.dashboard.live import render
from tailrace.errors import OptionError
from tailrace.metrics.counters import TaskCounters
from tailrace.metrics.progress import ProgressBuilder, WorkerStatus

Progress = dict[str, Any]
OPERATORS = [("lines", "source", 1), ("parse [bold] sentences", "flat_map", 2), ("out", "sink", 1)]


def run_in_its_second_interval(*, trouble: bool) -> Progress:
    """A run of 75 seconds of which the last one is on show."""
    builder = ProgressBuilder("run-1", "job-1", "wordcount", OPERATORS, started_ns=0)
    tasks = (lines, parse, out) = [TaskCounters(name, 0, worker=i % 2) for i, (name, _, _) in enumerate(OPERATORS)]
    workers = [WorkerStatus(0, 1, 11, "node-a", 0, 40.0, "running")]
    lines.received = lines.completed = lines.durable = 500_000
    lines.complete.record_many([2 * MILLISECOND_NS] * 900 + [40 * MILLISECOND_NS] * 99 + [700 * MILLISECOND_NS])
    parse.execution.record_many([3 * MILLISECOND_NS] * 10)
    send(builder, tasks)
    builder.build(74 * SECOND_NS, "2026-01-01T00:01:14Z", workers, 0, [])
    lines.received += 12_345
    lines.completed += 12_000
    lines.emitted = 12_345
    lines.pending = 345
    lines.complete.record_many([850 * MICROSECOND_NS] * 99 + [1_240 * MICROSECOND_NS])
    parse.received, parse.emitted, parse.queued, parse.busy_ns = 12_345, 98_765, 1_234, 950 * MILLISECOND_NS
    parse.execution.record_many([64 * MICROSECOND_NS] * 99 + [4 * MILLISECOND_NS])
    if trouble:
        parse.skipped, parse.dead_letters, out.duplicates, lines.reemitted = 2, 1, 6, 1_500
        workers.append(WorkerStatus(1, 3, None, None, 2, 20.5, "lost"))
    send(builder, tasks)
    lost = ["count[0]", "count[1]", "count[2]", "count[3]"] if trouble else []
    return builder.build(75 * SECOND_NS, "2026-01-01T00:01:15Z", workers, 2 if trouble else 0, lost)


def send(builder: ProgressBuilder, tasks: list[TaskCounters]) -> None:
    for task in tasks:
        builder.update(task.worker, 1, [task.snapshot()])


def screen(progress: Progress, width: int = 100) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(render(progress))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_live_table_of_a_healthy_run() -> None:
    assert screen(run_in_its_second_interval(trouble=False)) == LIVE_HEALTHY.splitlines()


def test_live_table_of_a_run_in_trouble() -> None:
    assert screen(run_in_its_second_interval(trouble=True)) == LIVE_TROUBLE.splitlines()


@pytest.mark.parametrize(("busiest", "alarm"), [(0.9, False), (0.91, True)])
def test_one_task_without_room_colours_the_whole_operator(busiest: float, alarm: bool) -> None:
    progress = run_in_its_second_interval(trouble=False)
    progress["operators"][1]["tasks"][1]["busyRatio"] = busiest
    progress["operators"][1]["tasks"][0]["busyRatio"] = 0.0
    console = Console(width=100, file=io.StringIO(), force_terminal=True, color_system="standard", _environ={})
    with console.capture() as capture:
        console.print(render(progress))
    assert ("\x1b[31m" in capture.get()) is alarm  # nothing else is red: there are no errors


def test_live_table_fits_with_the_widest_numbers() -> None:
    progress = run_in_its_second_interval(trouble=True)
    progress["name"] = "n" * 90
    for operator in progress["operators"]:
        operator.update(name="o" * 40, role="map_batch", receivedPerSecond=9.99e5, emittedPerSecond=9.99e5)
        operator.update(queued=999_000, busyRatio=9.99, skipped=999_000)
        operator["intervalExecutionMs"].update(p50=1.11, p99=11.1, max=59_900.0)
    lines = screen(progress)
    assert max(map(len, lines)) == 100
    assert lines[0] == "n" * 90 + "  recover…"
    assert lines[-1].split("  ")[0] == "o" * 17 + "…"
    assert " ".join(lines[-1].split()[1:]) == "map_batch 1 999k 999k 999k 1.11 ms 11.1 ms 59.9 s 999% 999k"


def test_plain_line_of_a_healthy_run() -> None:
    assert plain_line(run_in_its_second_interval(trouble=False)) == PLAIN_HEALTHY


def test_plain_line_of_a_run_in_trouble() -> None:
    assert plain_line(run_in_its_second_interval(trouble=True)) == PLAIN_TROUBLE


def test_hedging_is_shown_while_it_is_on_and_after_it_was() -> None:
    progress = run_in_its_second_interval(trouble=False)
    progress["tail"] = {"replay": "adaptive_timeout"}
    progress["replay"] = {"hedges": 1_500, "won": 900, "wasted": 590, "cancelledTuples": 1_200}
    progress["replay"].update(timeoutMs=12.3, hedgesLeft=30.6)
    words = "hedges 1.50k won 900 wasted 590 tuples cancelled 1.20k timeout 12.3 ms left 31 (adaptive_timeout)"
    assert words in plain_line(progress).split(" | ")
    assert words in screen(progress)
    assert f"  replay    {words}" in render_summary(progress).splitlines()
    progress["replay"]["hedgesLeft"] = None
    assert words.replace(" left 31", "") in plain_line(progress).split(" | "), "nothing limits them"
    progress["tail"] = {"replay": None}
    assert "hedges 1.50k won 900 wasted 590 tuples cancelled 1.20k (off)" in plain_line(progress).split(" | ")


def test_load_aware_edges_are_shown_the_first_few_of_them() -> None:
    progress = run_in_its_second_interval(trouble=False)
    edge = {"from": "lines", "to": "count", "grouping": "least_work", "held": 0, "credits": 0}
    edge |= {"leastShare": 0.18, "mostShare": 0.31, "estimateMs": 2.1, "measuredMs": 2.04}
    pulled = {**edge, "grouping": "pull", "held": 12, "credits": 1, "estimateMs": None, "mostShare": None}
    progress["edges"] = [edge, pulled]
    words = "lines → count (least_work) shares 18%..31% estimate 2.10 ms, measured 2.04 ms"
    assert [words, "lines → count (pull) held 12, credits 1"] == plain_line(progress).split(" | ")[-2:]
    assert words in screen(progress)
    assert f"  edge      {words}" in render_summary(progress).splitlines()
    progress["edges"] = [edge] * 7
    assert plain_line(progress).endswith(f"{words} | and 3 more edges")


def test_summary() -> None:
    assert render_summary(run_in_its_second_interval(trouble=True)) == SUMMARY.strip("\n")


def test_summary_of_a_run_that_did_nothing() -> None:
    builder = ProgressBuilder("run-1", "job-1", "idle", [("lines", "source", 1)], started_ns=0)
    assert render_summary(builder.build(0, "", [], 0, [], status="failed")) == SUMMARY_IDLE.strip("\n")


def test_smallest_count_still_shows_a_bar_and_no_share_is_rounded_up() -> None:
    progress = run_in_its_second_interval(trouble=False)
    progress["latencyHistogram"] = [[1.0, 999_999], [2.0, 0], [5.0, 1]]
    assert render_summary(progress).splitlines()[-3:] == [
        "  ≤ 1 ms ████████████████████████████████████████   1.00M    99.999%",
        "  ≤ 2 ms                                                0    99.999%",
        "  ≤ 5 ms ▏                                              1   100.000%",
    ]


@pytest.mark.parametrize(
    ("function", "value", "words"),
    [
        (text.count, 0, "0"),
        (text.count, 999, "999"),
        (text.count, 1_000, "1.00k"),
        (text.count, 12_345, "12.3k"),
        (text.count, 999_499, "999k"),
        (text.count, 999_500, "1.00M"),
        (text.count, 4_560_000_000_000_000, "4560T"),
        (text.rate, 0.0, "0/s"),
        (text.rate, 0.5, "0.50/s"),
        (text.rate, 12_345.6, "12.3k/s"),
        (text.latency, None, "–"),
        (text.latency, 0, "0 ms"),
        (text.latency, 0.00085, "850 ns"),
        (text.latency, 0.85, "850 µs"),
        (text.latency, 0.99951, "1.00 ms"),
        (text.latency, 1.24, "1.24 ms"),
        (text.latency, 9.996, "10.0 ms"),
        (text.latency, 2_000.0, "2.00 s"),
        (text.latency, 59_940.0, "59.9 s"),
        (text.latency, 59_960.0, "1 min 00 s"),
        (text.latency, 75_000.0, "1 min 15 s"),
        (text.bound, 0.0015, "1.5 µs"),
        (text.bound, 200.0, "200 ms"),
        (text.bound, 1e8, "1e+05 s"),
        (text.elapsed, 0, "0.0 s"),
        (text.elapsed, 59_940, "59.9 s"),
        (text.elapsed, 59_960, "1 min 00 s"),
        (text.elapsed, 3_599_600, "1 h 00 min"),
        (text.elapsed, 7_620_000, "2 h 07 min"),
        (text.elapsed, 273_600_000, "3 d 04 h"),
        (text.ratio, 0.456, "46%"),
        (text.listed, ["a", "b", "c"], "a, b, c"),
        (text.listed, ["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)
def test_numbers_for_people(function: Callable[[Any], str], value: object, words: str) -> None:
    assert function(value) == words


class FakeRun:
    """Active for a number of sleeps; a new progress each second of them, none before the first."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds
        self.now_s = 0.0
        self.error: Exception | None = None
        self.interrupted_at_s: float | None = None
        self.stopped = False

    @property
    def isActive(self) -> bool:
        return self.left_s > 1e-9

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.left_s -= seconds
        if self.interrupted_at_s is not None and self.now_s >= self.interrupted_at_s:
            raise KeyboardInterrupt

    def awaitTermination(self, timeout: float | None = None) -> bool:
        if self.error is not None:
            raise self.error
        return True

    def stop(self, timeout: float | None = None) -> None:
        self.stopped = True

    @property
    def lastProgress(self) -> Progress | None:
        second = int(self.now_s + 1e-9)
        return {**run_in_its_second_interval(trouble=False), "timestamp": f"second {second}"} if second else None


def watched(run: FakeRun, interval_s: float, *, terminal: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=terminal, color_system=None, _environ={"TERM": "xterm"})
    watch(run, interval_s, console, run.sleep)
    return file.getvalue()


def test_watch_prints_each_progress_once_where_there_is_no_terminal() -> None:
    lines = watched(FakeRun(2.5), 0.4, terminal=False).splitlines()
    assert [line.split(" wordcount")[0] for line in lines] == ["second 1", "second 2"]
    assert lines[0] == PLAIN_HEALTHY.replace("2026-01-01T00:01:15Z", "second 1")


def test_watch_shows_the_last_progress_and_notices_the_end_early() -> None:
    run = FakeRun(3.0)
    lines = watched(run, 60, terminal=False).splitlines()
    assert [line.split(" wordcount")[0] for line in lines] == ["second 3"]
    assert run.now_s == pytest.approx(3.0)


def test_watch_redraws_a_table_on_a_terminal_and_leaves_the_last() -> None:
    output = watched(FakeRun(2.0), 0.5, terminal=True)
    assert output.count("since the start") == 3  # two progresses, and the one that stays
    assert "\x1b[2K" in output
    assert " | " not in output


@pytest.mark.parametrize(
    ("status", "summary_follows", "left"),
    [("finished", True, False), ("finished", False, True), ("failed", True, True)],
)
def test_the_table_of_a_finished_run_makes_room_for_the_summary(status: str, summary_follows: bool, left: bool) -> None:
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=True, color_system=None, _environ={"TERM": "xterm"})
    with LiveTable(console, summary_follows=summary_follows) as table:
        table.update({**run_in_its_second_interval(trouble=False), "status": status})
    written = file.getvalue()
    assert written.rindex("wordcount") > written.index("wordcount")  # written again when the cursor comes back
    assert written.endswith("\x1b[1A\x1b[2K") is not left


@pytest.mark.parametrize("interval", [0, -1, "1", None, float("nan")])
def test_watch_refuses_an_interval_that_would_spin(interval: Any) -> None:
    with pytest.raises(OptionError, match=f"interval must be positive: interval_s={interval!r}; is it a number"):
        watch(FakeRun(1.0), interval)


def test_watch_raises_what_the_run_has_failed_with_once_all_is_shown() -> None:
    file, run = io.StringIO(), FakeRun(2.0)
    run.error = RuntimeError("no fifty")
    with pytest.raises(RuntimeError, match="no fifty"):
        watch(run, 0.5, Console(file=file, width=100), run.sleep)
    assert "second 2" in file.getvalue()


def test_ctrl_c_drains_a_run_that_is_watched() -> None:
    file, run = io.StringIO(), FakeRun(5.0)
    run.interrupted_at_s = 2.0
    with pytest.raises(KeyboardInterrupt):
        watch(run, 0.5, Console(file=file, width=100), run.sleep)
    assert run.stopped
    assert "draining: what was read still arrives (Ctrl-C again to give up)" in file.getvalue()


def test_a_second_ctrl_c_gives_up_even_while_the_message_about_the_first_is_written() -> None:
    class Interrupting(io.StringIO):
        def write(self, text: str) -> int:
            written = super().write(text)
            if "draining" in text:
                raise KeyboardInterrupt
            return written

    run = FakeRun(5.0)
    run.interrupted_at_s = 2.0
    with pytest.raises(KeyboardInterrupt):
        watch(run, 0.5, Console(file=Interrupting(), width=100), run.sleep)
    assert run.stopped


def test_coloured_words_of_the_demo_do_not_colour_the_table() -> None:
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=True, color_system="standard", _environ={"TERM": "xterm"})
    with LiveTable(console) as table:
        table.update(run_in_its_second_interval(trouble=False))
        demo.say(console, "kill -9", "bold red")
    assert re.findall("\x1b\\[1;31m([^\x1b]*)", file.getvalue()) == ["kill -9"]


def test_live_table_gives_the_cursor_back_after_an_error() -> None:
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=True, _environ={"TERM": "xterm"})
    with pytest.raises(KeyboardInterrupt), LiveTable(console) as table:
        table.update(run_in_its_second_interval(trouble=False))
        raise KeyboardInterrupt
    assert file.getvalue().count("\x1b[?25l") == file.getvalue().count("\x1b[?25h") == 1


LIVE_HEALTHY = """\
wordcount  running  1 min 15 s
in 12.3k/s  done 12.0k/s  pending 345  workers 1/1  recoveries 0
complete, now    p50 852 µs   p99 852 µs   p99.9 1.25 ms  max 1.25 ms
since the start  p50 2.03 ms  p99 40.9 ms  p99.9 40.9 ms  max 700 ms

operator            role      tasks   in/s  out/s  queued      p50      p99      max  busy  errors
──────────────────────────────────────────────────────────────────────────────────────────────────
lines               source        1  12.3k  12.3k       0        –        –        –    0%       0
parse [bold] sent…  flat_map      2  12.3k  98.8k   1.23k  64.5 µs  64.5 µs  4.00 ms   48%       0
out                 sink          1      0      0       0        –        –        –    0%       0
"""

LIVE_TROUBLE = """\
wordcount  recovering: 1 of 2 workers running  1 min 15 s
in 12.3k/s  done 12.0k/s  pending 345  workers 1/2  recoveries 2
state lost: count[0], count[1], count[2] and 1 more  re-emitted 1.50k  duplicates dropped 6  skipped
2  dead letters 1
complete, now    p50 852 µs   p99 852 µs   p99.9 1.25 ms  max 1.25 ms
since the start  p50 2.03 ms  p99 40.9 ms  p99.9 40.9 ms  max 700 ms

operator            role      tasks   in/s  out/s  queued      p50      p99      max  busy  errors
──────────────────────────────────────────────────────────────────────────────────────────────────
lines               source        1  12.3k  12.3k       0        –        –        –    0%       0
parse [bold] sent…  flat_map      2  12.3k  98.8k   1.23k  64.5 µs  64.5 µs  4.00 ms   48%       3
out                 sink          1      0      0       0        –        –        –    0%       0
"""

PLAIN_HEALTHY = (
    "2026-01-01T00:01:15Z wordcount running | 1 min 15 s | in 12.3k/s | done 12.0k/s | pending 345 | "
    "complete p50 852 µs p99 852 µs p99.9 1.25 ms max 1.25 ms | workers 1/1"
)

PLAIN_TROUBLE = (
    "2026-01-01T00:01:15Z wordcount recovering: 1 of 2 workers running | 1 min 15 s | in 12.3k/s | "
    "done 12.0k/s | pending 345 | complete p50 852 µs p99 852 µs p99.9 1.25 ms max 1.25 ms | "
    "workers 1/2 | state lost: count[0], count[1], count[2] and 1 more | recoveries 2 | "
    "re-emitted 1.50k | duplicates dropped 6 | skipped 2 | dead letters 1"
)

SUMMARY = """
wordcount after 1 min 15 s: recovering: 1 of 2 workers running
  roots     512k complete, 500k durable, 345 pending, 6.83k/s
  complete  p50 2.03 ms p99 40.9 ms p99.9 40.9 ms max 700 ms
  workers   2, 1 min 00 s of CPU time
  trouble   state lost: count[0], count[1], count[2] and 1 more
            recoveries 2
            re-emitted 1.50k
            duplicates dropped 6
            skipped 2
            dead letters 1

  operator                tasks  received  emitted      p50      p99      max
  lines                       1      512k    12.3k        –        –        –
  parse [bold] sentences      2     12.3k    98.8k  64.5 µs  3.01 ms  4.00 ms
  out                         1         0        0        –        –        –

  latency to complete                                 count  no longer
  ≤   1 ms ████▌                                         99     9.000%
  ≤ 1.5 ms ▏                                              1     9.090%
  ≤   2 ms                                                0     9.090%
  ≤   3 ms ████████████████████████████████████████     900    90.909%
  ≤   5 ms                                                0    90.909%
  ≤   7 ms                                                0    90.909%
  ≤  10 ms                                                0    90.909%
  ≤  15 ms                                                0    90.909%
  ≤  20 ms                                                0    90.909%
  ≤  30 ms                                                0    90.909%
  ≤  50 ms ████▌                                         99    99.909%
  ≤  70 ms                                                0    99.909%
  ≤ 100 ms                                                0    99.909%
  ≤ 150 ms                                                0    99.909%
  ≤ 200 ms                                                0    99.909%
  ≤ 300 ms                                                0    99.909%
  ≤ 500 ms                                                0    99.909%
  ≤ 700 ms ▏                                              1   100.000%
"""

SUMMARY_IDLE = """
idle after 0.0 s: failed
  roots     0 complete, 0 durable, 0 pending, 0/s
  complete  –
  workers   0, 0.0 s of CPU time
  trouble   none

  operator  tasks  received  emitted  p50  p99  max
  lines         1         0        0    –    –    –
"""


def test_a_summary_says_where_workers_are_if_not_all_are_on_one_host() -> None:
    progress = run_in_its_second_interval(trouble=False)
    (one,) = progress["workers"]
    progress["workers"] = [one, {**one, "host": "node-b"}, {**one, "host": "node-b"}, {**one, "host": None}]
    assert "  workers   4 (1 on node-a, 2 on node-b), 2 min 40 s of CPU time\n" in render_summary(progress)


def test_a_failed_run_says_with_what() -> None:
    progress = {**run_in_its_second_interval(trouble=True), "status": "failed", "error": "ValueError: no fifty"}
    assert " | failed: ValueError: no fifty | state lost: " in plain_line(progress)
    assert "trouble   failed: ValueError: no fifty\n" in render_summary(progress)
    file = io.StringIO()
    Console(file=file, width=100).print(render(progress))
    assert "failed: ValueError: no fifty" in file.getvalue()
