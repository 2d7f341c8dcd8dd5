"""Hone's figures 6 to 8: how results are summed up, what the paper claims, what we draw.

Reductions are taken stream by stream, both schedulers facing the same arrivals, and then averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tailrace.chart import Chart, Point, Series
from tailrace_research.reproduce.intervals import JOIN_T, interval_sql, statistics_sql
from tailrace_research.reproduce.study import Cells, Claim, Figure, Row

PAPER, CONSERVING = "round_robin_paper", "round_robin"
LABELS = {
    "lbf": "LBF",
    "lbf_work": "LBF by work, age floor 5 ms",
    PAPER: "round robin, the paper's",
    CONSERVING: "round robin, work-conserving",
    "fifo": "FIFO",
}
CAPACITY = 1_000  # tuples/s into each of 10 queues: as many as leave
TAIL_RATE = 900


def measures_sql(measures: dict[str, str]) -> str:
    """One row a measure, point and scheduler: its mean, and by how much LBF's is below it, with intervals.

    ``measures`` maps a name to an expression over the columns of a cell.
    """
    stacked = ", ".join(f"'{name}', CAST({expression} AS double)" for name, expression in measures.items())
    return f"""
    WITH long AS (
        SELECT queues, rate, scheduler, stream, stack({len(measures)}, {stacked}) AS (measure, value) FROM cells
    ), streams AS (
        SELECT measure, queues, rate, scheduler, stream, avg(value) AS value FROM long
        GROUP BY measure, queues, rate, scheduler, stream
    ), paired AS (
        SELECT theirs.*, 1 - try_divide(lbf.value, theirs.value) AS reduction
        FROM streams AS theirs JOIN streams AS lbf USING (measure, queues, rate, stream)
        WHERE lbf.scheduler = 'lbf'
    ), points AS (
        SELECT measure, scheduler, queues, rate, count(*) AS runs, {statistics_sql("value")},
            {statistics_sql("reduction")},
            percentile(reduction, 0.1) AS reduction_p10, percentile(reduction, 0.9) AS reduction_p90
        FROM paired GROUP BY measure, scheduler, queues, rate
    )
    SELECT measure, scheduler, queues, rate, runs, {interval_sql("value")}, {interval_sql("reduction")},
        reduction_p10, reduction_p90
    FROM points {JOIN_T} ORDER BY measure, scheduler, queues, rate
    """


JAIN_SQL = f"""
    WITH samples AS (
        SELECT queues, rate, scheduler, stream, seed, posexplode(jain) AS (sample, jain) FROM cells
    ), factors AS (
        SELECT theirs.scheduler, queues, rate, stream,
            coalesce(lbf.jain, 1) / coalesce(theirs.jain, 1) AS factor, lbf.jain / theirs.jain AS nonempty
        FROM samples AS theirs JOIN samples AS lbf USING (queues, rate, stream, seed, sample)
        WHERE lbf.scheduler = 'lbf' AND theirs.scheduler <> 'lbf'
    ), streams AS (
        SELECT scheduler, queues, rate, stream, avg(factor) AS factor, max(factor) AS best,
            avg(nonempty) AS nonempty, max(nonempty) AS nonempty_best
        FROM factors GROUP BY scheduler, queues, rate, stream
    ), points AS (
        SELECT scheduler, queues, rate, count(*) AS runs, {statistics_sql("factor")}, {statistics_sql("best")},
            max(best) AS best_ever, avg(nonempty) AS nonempty, max(nonempty_best) AS nonempty_best_ever
        FROM streams GROUP BY scheduler, queues, rate
    )
    SELECT scheduler, queues, rate, runs, {interval_sql("factor")}, {interval_sql("best")}, best_ever,
        nonempty, nonempty_best_ever
    FROM points {JOIN_T} ORDER BY scheduler, queues, rate
"""
"""Queues that are all empty count as balanced, index 1; the columns ``nonempty`` leave such samples out."""


# -- picking points


def _in_a(row: Row) -> bool:
    return bool(row["queues"] == 10)


def _in_b(row: Row) -> bool:
    return bool(row["rate"] == 1_000)


def _of(rows: Sequence[Row], scheduler: str, measure: str | None, within: Callable[[Row], bool]) -> list[Row]:
    found = [row for row in rows if row["scheduler"] == scheduler and row.get("measure") == measure and within(row)]
    assert found, f"no such points: scheduler={scheduler} measure={measure}"
    return found


def _at(row: Row) -> str:
    return f"{row['queues']} queues, {row['rate']:,}/s"


def _claim(row: Row, key: str, text: str, unit: str, theirs: float | None, column: str, where: str = "") -> Claim:
    low, high = row.get(f"{column}_low"), row.get(f"{column}_high")
    return Claim(key, text, unit, theirs, row[column], low, high, where or _at(row))


def _reduction(
    rows: Sequence[Row],
    key: str,
    text: str,
    theirs: float | None,
    *,
    measure: str,
    against: str = PAPER,
    within: Callable[[Row], bool] = _in_a,
) -> Claim:
    """The point where LBF gains most against another scheduler."""
    row = max(_of(rows, against, measure, within), key=lambda point: float(point["reduction"]))
    where = f"{_at(row)}; 80% of runs {row['reduction_p10']:.0%}..{row['reduction_p90']:.0%}"
    return _claim(row, key, text, "%", theirs, "reduction", where)


def _stable(row: Row) -> bool:
    return bool(_in_a(row) and row["rate"] < CAPACITY)


def _in_steps_of_500(row: Row) -> bool:
    return bool(_in_a(row) and row["rate"] % 500 == 0)


# -- charts


def _curves(rows: Iterable[Row], x: str, y: str, labels: dict[str, str], within: Callable[[Row], bool]) -> list[Series]:
    rows = [row for row in rows if within(row)]
    return [
        Series(
            label,
            [
                Point(row[x], row[y], row[f"{y}_low"], row[f"{y}_high"])
                for row in sorted(rows, key=lambda row: int(row[x]))
                if row["scheduler"] == scheduler
            ],
            dashed=scheduler not in ("lbf", PAPER),
        )
        for scheduler, label in labels.items()
    ]


NOTE = "bars: 95% confidence of the mean; solid: in the paper; dashed: added here"
RATE, COUNT = "tuples/s into each of 10 queues", "queues, 1,000 tuples/s into each"


def _measure_charts(rows: Sequence[Row], measure: str, title: str, y_label: str) -> dict[str, Chart]:
    of_measure = [row for row in rows if row["measure"] == measure]
    return {
        part: Chart(
            f"Hone, {title}", x_label, y_label, _curves(of_measure, x, "value", LABELS, within), log, True, [NOTE]
        )
        for part, x, x_label, within, log in (("a", "rate", RATE, _in_a, True), ("b", "queues", COUNT, _in_b, False))
    }


# -- figure 6


def _claims_6(rows: Sequence[Row]) -> list[Claim]:
    most = "max_backlog"
    return [
        _reduction(rows, "max_backlog_reduction", "below the paper's round robin, at best", 0.833, measure=most),
        _reduction(
            rows,
            "max_backlog_reduction_steps_500",
            "the same, rates in steps of 500/s only",
            0.833,
            measure=most,
            within=_in_steps_of_500,
        ),
        _reduction(
            rows,
            "max_backlog_reduction_before_sending",
            "the same, counted before the slot's tuple leaves",
            0.833,
            measure="max_seen",
        ),
        _reduction(
            rows,
            "max_backlog_reduction_overloaded",
            "the same, 20 queues and more",
            None,
            measure=most,
            within=lambda row: _in_b(row) and row["queues"] > 10,
        ),
        _reduction(
            rows,
            "max_backlog_reduction_work_conserving",
            "below a work-conserving round robin, at best",
            None,
            measure=most,
            against=CONSERVING,
        ),
        _reduction(rows, "max_backlog_reduction_fifo", "below FIFO, at best", None, measure=most, against="fifo"),
    ]


def _charts_6(rows: Sequence[Row]) -> dict[str, Chart]:
    return _measure_charts(rows, "max_backlog", "Fig. 6: largest backlog", "tuples in the fullest queue, ever")


def figure_6(cells: Cells) -> Figure:
    sql = measures_sql({"max_backlog": "max_backlog", "max_seen": "max_seen"})
    return Figure("6", "largest backlog of any queue in any slot", cells, sql, _claims_6, _charts_6)


# -- figure 7


def _claims_7(rows: Sequence[Row]) -> list[Claim]:
    def top(column: str, within: Callable[[Row], bool], against: str = PAPER) -> Row:
        return max(_of(rows, against, None, within), key=lambda row: float(row[column] or 0))

    def point(queues: int, rate: int) -> Row:
        return _of(rows, PAPER, None, lambda row: row["queues"] == queues and row["rate"] == rate)[0]

    best = "mean over runs of the best of nine slots"
    return [
        _claim(
            top("best_ever", _in_a),
            "jain_factor_best",
            "best of all slots and runs, empty queues count as balanced",
            "x",
            10.0,
            "best_ever",
        ),
        _claim(
            top("nonempty_best_ever", _in_a),
            "jain_factor_best_nonempty",
            "the same, slots where all queues are empty left out",
            "x",
            None,
            "nonempty_best_ever",
        ),
        _claim(point(20, 1_000), "jain_factor_20_queues", f"20 queues: {best}", "x", 1.9, "best"),
        _claim(point(10, 1_000), "jain_factor_10_queues", f"10 queues: {best}", "x", None, "best"),
        _claim(point(20, 500), "jain_factor_20_queues_at_500", "20 queues, if 500/s was meant", "x", 1.9, "best"),
        _claim(point(100, 1_000), "jain_factor_100_queues", "100 queues: falls to 1", "x", 1.0, "best"),
        _claim(
            top("factor", _in_a, CONSERVING),
            "jain_factor_work_conserving",
            "mean of slots, over a work-conserving round robin, at best",
            "x",
            None,
            "factor",
        ),
    ]


def _charts_7(rows: Sequence[Row]) -> dict[str, Chart]:
    labels = {PAPER: "over the paper's round robin", CONSERVING: "over a work-conserving round robin"}
    y_label = "Jain's index of LBF / of round robin, mean of nine slots"
    title = "Hone, Fig. 7: evenness of backlogs"
    at_500 = _curves(rows, "queues", "factor", {PAPER: "the paper's, 500 tuples/s"}, lambda row: row["rate"] == 500)
    return {
        "a": Chart(title, RATE, y_label, _curves(rows, "rate", "factor", labels, _in_a), True, False, [NOTE]),
        "b": Chart(title, COUNT, y_label, [*_curves(rows, "queues", "factor", labels, _in_b), *at_500], notes=[NOTE]),
    }


def figure_7(cells: Cells) -> Figure:
    title = "Jain's index of backlogs, LBF over round robin, at nine slots"
    return Figure("7", title, cells, JAIN_SQL, _claims_7, _charts_7)


# -- figure 8


def _tail(rows: Sequence[Row], key: str, text: str, against: str) -> Claim:
    """LBF's tail as a multiple of another's, where the difference in backlogs is large and queues still stable."""
    (row,) = _of(rows, against, "p999_delay_us", lambda row: _in_a(row) and row["rate"] == TAIL_RATE)
    ratio, low, high = (
        None if row[column] is None else 1 - row[column] for column in ("reduction", "reduction_high", "reduction_low")
    )
    assert ratio is not None, f"no delays at all: {_at(row)}"
    return Claim(key, text, "x", None, ratio, low, high, _at(row))


def _claims_8(rows: Sequence[Row]) -> list[Claim]:
    mean = "mean_delay_us"
    return [
        _reduction(rows, "mean_delay_reduction", "below the paper's round robin, at best", 0.898, measure=mean),
        _reduction(
            rows,
            "mean_delay_reduction_queues",
            "the same over the number of queues",
            0.701,
            measure=mean,
            within=_in_b,
        ),
        _reduction(
            rows,
            "mean_delay_reduction_whole_slots",
            "at best, if who leaves at once waits 0 slots",
            0.898,
            measure="mean_delay_slots",
        ),
        _reduction(
            rows,
            "mean_delay_reduction_with_sending",
            "at best, with the slot that sends counted in",
            0.898,
            measure="sojourn_slots",
        ),
        _reduction(
            rows,
            "mean_delay_reduction_work_conserving",
            "below a work-conserving round robin, at best",
            None,
            measure=mean,
            against=CONSERVING,
            within=_stable,
        ),
        _tail(rows, "p999_delay_vs_work_conserving", "p99.9, over that of a work-conserving round robin", CONSERVING),
        _tail(rows, "p999_delay_vs_fifo", "p99.9, over that of FIFO", "fifo"),
        _tail(rows, "p999_delay_vs_lbf_work", "p99.9, over that of LBF by work with an age floor", "lbf_work"),
    ]


def _charts_8(rows: Sequence[Row]) -> dict[str, Chart]:
    tails = [row for row in rows if row["measure"] == "p999_delay_us" and row["rate"] <= CAPACITY]
    return {
        **_measure_charts(rows, "mean_delay_us", "Fig. 8: mean queueing delay", "us"),
        "c": Chart(
            "Hone, not in the paper: p99.9 of queueing delay, up to capacity",
            RATE,
            "us",
            _curves(tails, "rate", "value", LABELS, _in_a),
            False,
            True,
            [NOTE],
        ),
    }


def figure_8(cells: Cells) -> Figure:
    sql = measures_sql(
        {
            "mean_delay_us": "mean_delay_us",
            "mean_delay_slots": "mean_delay_slots",
            "sojourn_slots": "mean_delay_slots + 1",
            "p999_delay_us": "p999_delay_us",
        }
    )
    return Figure("8", "mean queueing delay of the tuples that left", cells, sql, _claims_8, _charts_8)
