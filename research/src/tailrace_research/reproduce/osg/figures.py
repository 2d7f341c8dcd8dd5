"""OSG's figures 4 to 10, sweeps of one parameter each: how results are summed up, what the paper claims, what we draw.

Speed-ups are taken run by run over round robin on the same stream, then averaged; so are gains, their other form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from tailrace.chart import Chart, Point, Series
from tailrace_research.reproduce.intervals import JOIN_T, interval_sql, statistics_sql
from tailrace_research.reproduce.osg.simulations import SETTING
from tailrace_research.reproduce.study import FORMATS, Cells, Claim, Figure, Row

LABELS = {
    "shuffle": "round robin",
    "osg": "OSG by its text",
    "osg_pooled": "OSG, sketches pooled",
    "osg_idle_counts": "OSG, idle time counts",
    "osg_published": "OSG as its authors' code does it",
    "osg_mended": "OSG, idle time counts and sketches pooled",
    "full_knowledge": "Full Knowledge",
    "pull": "pull",
    "least_work": "least work",
}
IN_PAPER = ("shuffle", "osg", "full_knowledge")
SUFFIXES = {"osg_published": "", "osg": "_by_the_text", "osg_mended": "_mended"}
ABLATIONS = SUFFIXES | {"osg_pooled": "_pooled", "osg_idle_counts": "_idle_counts"}
"""Policy to what ends a claim's key."""

VALUES = {
    "mean_ms": "mean_ms",
    "p99_ms": "p99_ms",
    "throughput_per_s": "throughput_per_s",
    "throughput_change": "throughput_per_s / base_per_s - 1",
    "speedup": "base_ms / mean_ms",
    "gain": "1 - mean_ms / base_ms",
    "vs_full": "exact_ms / mean_ms",
}
"""Over the columns of a cell, of round robin and of Full Knowledge on the same stream."""

NOTE = "bars: 95% confidence of the mean; solid: in the paper; dashed: added here"


def sweep_sql(x: str, *names: str) -> str:
    """One row a point and policy: for each value its mean, interval, and the least and the most of all runs.

    ``x`` is an expression over the setting. What a policy takes no notice of, it has at one value only: ``epsilon``.
    """
    keys = ", ".join([*(name for name in SETTING if name != "epsilon"), "stream"])
    return f"""
    WITH base AS (
        SELECT {keys}, mean_ms AS base_ms, throughput_per_s AS base_per_s FROM cells WHERE policy = 'shuffle'
    ), exact AS (
        SELECT {keys}, mean_ms AS exact_ms FROM cells WHERE policy = 'full_knowledge'
    ), runs AS (
        SELECT {x} AS x, policy, stream, {", ".join(f"{VALUES[name]} AS {name}" for name in names)}
        FROM (SELECT * FROM cells) JOIN base USING ({keys}) JOIN exact USING ({keys})
    ), streams AS (
        SELECT x, policy, stream, {", ".join(f"avg({name}) AS {name}" for name in names)},
            {", ".join(f"min({name}) AS {name}_min, max({name}) AS {name}_max" for name in names)}
        FROM runs GROUP BY x, policy, stream
    ), points AS (
        SELECT x, policy, count(*) AS runs, {", ".join(map(statistics_sql, names))},
            {", ".join(f"min({name}_min) AS {name}_min, max({name}_max) AS {name}_max" for name in names)}
        FROM streams GROUP BY x, policy
    )
    SELECT x, policy, runs, {", ".join(f"{interval_sql(name)}, {name}_min, {name}_max" for name in names)}
    FROM points {JOIN_T} ORDER BY x, policy
    """


# -- claims


def at(rows: Sequence[Row], policy: str, x: float) -> Row:
    return next(row for row in rows if row["policy"] == policy and abs(row["x"] - x) < 1e-9)


def of(rows: Sequence[Row], policy: str, low: float = float("-inf"), high: float = float("inf")) -> list[Row]:
    return [row for row in rows if row["policy"] == policy and low <= row["x"] <= high]


def claim(row: Row, key: str, text: str, unit: str, theirs: float | None, column: str, where: str) -> Claim:
    """One point, with the range of all its runs."""
    factor, digits, suffix = FORMATS[unit]
    least, most = (f"{row[f'{column}_{end}'] * factor:{digits}}" for end in ("min", "max"))
    where = f"{where}; {row['runs']} streams, runs {least}..{most}{suffix.removesuffix('x')}"
    return Claim(key, text, unit, theirs, row[column], row[f"{column}_low"], row[f"{column}_high"], where)


def _speedups(
    rows: Sequence[Row], key: str, where: str, theirs: float | None, x: float, suffixes: dict[str, str]
) -> list[Claim]:
    return [
        claim(at(rows, policy, x), f"{key}{suffix}", LABELS[policy], "x", theirs, "speedup", where)
        for policy, suffix in suffixes.items()
    ]


def _peak(rows: Sequence[Row], policy: str, key: str, theirs: float | None, of_x: Callable[[float], str]) -> Claim:
    row = max(of(rows, policy), key=lambda row: float(row["speedup"]))
    return claim(row, key, f"{LABELS[policy]}, at best", "x", theirs, "speedup", of_x(row["x"]))


# -- charts


def chart(
    rows: Sequence[Row],
    column: str,
    title: str,
    x_label: str,
    y_label: str,
    policies: Iterable[str],
    said: Iterable[tuple[float, float]] = (),
    log_x: bool = False,
    log_y: bool = False,
) -> Chart:
    """``said``: points that the paper's text names."""
    curves = [
        Series(
            LABELS[policy],
            [Point(row["x"], row[column], row[f"{column}_low"], row[f"{column}_high"]) for row in found],
            dashed=policy not in IN_PAPER,
        )
        for policy in policies
        if (found := of(rows, policy))
    ]
    marks = [Series("said in the paper's text", [Point(x, y) for x, y in said], line=False)] if said else []
    return Chart(f"OSG, {title}", x_label, y_label, [*curves, *marks], log_x, log_y, [NOTE])


# -- figures 4 and 5: the skew of items

ALPHA = "alpha of the Zipf law; 0: uniform"


def _claims_4(rows: Sequence[Row]) -> list[Claim]:
    said = ((0.0, "uniform", 0.04), (0.5, "zipf_05", 0.04), (1.0, "zipf_1", 0.20))
    gains = [
        claim(
            at(rows, policy, x),
            f"osg_gain_{name}{suffix}",
            f"{LABELS[policy]}, gain",
            "%",
            gain,
            "gain",
            f"alpha {x:g}",
        )
        for x, name, gain in said
        for policy, suffix in SUFFIXES.items()
    ]
    ideal = [
        claim(
            at(rows, policy, 2.0),
            f"osg_vs_full_zipf_2{suffix}",
            f"{LABELS[policy]}, Full Knowledge's mean over its own",
            "x",
            1.0,
            "vs_full",
            "alpha 2",
        )
        for policy, suffix in SUFFIXES.items()
    ]
    return [*gains, *ideal]


def _charts_4(rows: Sequence[Row]) -> dict[str, Chart]:
    return {"": chart(rows, "mean_ms", "Fig. 4: mean completion time", ALPHA, "ms", LABELS, log_y=True)}


def _claims_5(rows: Sequence[Row]) -> list[Claim]:
    row = max(rows, key=lambda row: abs(float(row["throughput_change"])))
    text = "throughput less round robin's, where they differ most"
    where = f"{LABELS[row['policy']]}, alpha {row['x']:g}"
    return [claim(row, "throughput_change_most", text, "%", 0.0, "throughput_change", where)]


def _charts_5(rows: Sequence[Row]) -> dict[str, Chart]:
    return {"": chart(rows, "throughput_per_s", "Fig. 5: throughput", ALPHA, "tuples/s", LABELS)}


# -- figure 6: over-provisioning


def _claims_6(rows: Sequence[Row]) -> list[Claim]:
    def percent(x: float) -> str:
        return f"{x:.0f}%"

    sized = [
        claim(
            min(of(rows, policy, 100, 108), key=lambda row: float(row["speedup"])),
            f"osg_speedup_least_100_108{suffix}",
            f"{LABELS[policy]}, at worst",
            "x",
            1.14,
            "speedup",
            "100 to 108%",
        )
        for policy, suffix in SUFFIXES.items()
    ]
    return [
        *_speedups(rows, "osg_speedup", "k = 5, Zipf-1, 100%", 1.23, 100, ABLATIONS),
        *_speedups(rows, "osg_speedup_105", "105%", 1.29, 105, ABLATIONS),
        *_speedups(rows, "osg_speedup_115", "115%", 1.06, 115, ABLATIONS),
        *sized,
        _peak(rows, "full_knowledge", "full_speedup_peak", 3.6, percent),
        *_speedups(rows, "full_speedup_115", "115%", 1.57, 115, {"full_knowledge": ""}),
        *_speedups(rows, "full_speedup_95", "95%", None, 95, {"full_knowledge": ""}),
        *_speedups(rows, "osg_speedup_95", "95%", None, 95, SUFFIXES),
        _peak(rows, "pull", "pull_speedup_peak", None, percent),
        _peak(rows, "least_work", "least_work_speedup_peak", None, percent),
    ]


def _charts_6(rows: Sequence[Row]) -> dict[str, Chart]:
    title, x_label, y_label = "Fig. 6: speed-up over round robin", "over-provisioning, %", "mean of round robin / mean"
    said = [(100, 1.23), (105, 1.29), (115, 1.06)]
    others = ("full_knowledge", "pull", "least_work", "osg_mended", "osg")
    return {
        "a": chart(rows, "speedup", title, x_label, y_label, ABLATIONS, said),
        "b": chart(rows, "speedup", title, x_label, y_label, others),
    }


# -- figures 7 to 10: costs, their number, tasks, columns


def _claims_7(rows: Sequence[Row]) -> list[Claim]:
    most = max(row["x"] for row in rows)
    where = f"max_w {most:,.1f} ms"
    return [
        *_speedups(rows, "osg_speedup_max_w", where, 1.25, most, SUFFIXES),
        *_speedups(rows, "full_speedup_max_w", where, 3.4, most, {"full_knowledge": ""}),
        *_speedups(rows, "osg_speedup_equal_costs", "max_w 0.1 ms", 1.0, 0.1, SUFFIXES),
    ]


def _charts_7(rows: Sequence[Row]) -> dict[str, Chart]:
    title, x_label = "Fig. 7: speed-up over round robin", "most a tuple takes, ms; least 0.1 ms"
    y_label, said = "mean of round robin / mean", [(102.4, 1.25), (409.6, 1.25)]
    return {"": chart(rows, "speedup", title, x_label, y_label, LABELS, said, log_x=True)}


def _claims_8(rows: Sequence[Row]) -> list[Claim]:
    """The mean of intervals is a wide one for the mean of points, which share their streams."""
    found = []
    for policy, suffix in SUFFIXES.items():
        points = of(rows, policy)
        gain, low, high = (_mean_of(points, column) for column in ("gain", "gain_low", "gain_high"))
        assert gain is not None
        found.append(
            Claim(f"osg_gain_costs{suffix}", f"{LABELS[policy]}, gain", "%", 0.19, gain, low, high, "mean over n(w)")
        )
    return found


def _mean_of(points: Sequence[Row], column: str) -> float | None:
    values = [row[column] for row in points]
    return None if None in values else fmean(values)


def _charts_8(rows: Sequence[Row]) -> dict[str, Chart]:
    title, x_label = "Fig. 8: mean completion time", "n(w), different execution times"
    return {"": chart(rows, "mean_ms", title, x_label, "ms", LABELS, log_x=True)}


SAID_OF_TASKS = ((2, 1.14), (5, 1.23), (12, 1.09), (20, 1.06))


def _claims_9(rows: Sequence[Row]) -> list[Claim]:
    return [
        *(
            found
            for tasks, theirs in SAID_OF_TASKS
            for found in _speedups(rows, f"osg_speedup_k{tasks}", f"k = {tasks}", theirs, tasks, SUFFIXES)
        ),
        _peak(rows, "full_knowledge", "full_speedup_k_peak", 4.0, lambda x: f"k = {x:g}; theirs at 11"),
        *_speedups(rows, "full_speedup_k20", "k = 20", 2.7, 20, {"full_knowledge": ""}),
        _peak(rows, "pull", "pull_speedup_k_peak", None, lambda x: f"k = {x:g}"),
    ]


def _charts_9(rows: Sequence[Row]) -> dict[str, Chart]:
    title, x_label, y_label = "Fig. 9: speed-up over round robin", "k, tasks", "mean of round robin / mean"
    return {
        "a": chart(rows, "speedup", title, x_label, y_label, SUFFIXES, SAID_OF_TASKS),
        "b": chart(rows, "speedup", title, x_label, y_label, ("full_knowledge", "pull", "osg_mended", "osg")),
    }


def _claims_10(rows: Sequence[Row]) -> list[Claim]:
    found = []
    for policy, suffix in SUFFIXES.items():
        coarse, fine = at(rows, policy, 1.0), at(rows, policy, 0.001)
        growth = (fine["speedup"] / coarse["speedup"]) ** (1 / 3) - 1
        least = min(row["speedup_min"] for row in of(rows, policy, high=0.09))
        found += [
            Claim(
                f"osg_growth_per_decade{suffix}",
                f"{LABELS[policy]}, more speed-up by a tenth of epsilon",
                "%",
                0.25,
                growth,
                where=f"epsilon 1: {coarse['speedup']:.2f}, 0.001: {fine['speedup']:.2f}",
            ),
            Claim(
                f"osg_speedup_least_run{suffix}",
                f"{LABELS[policy]}, least of all runs; theirs is above",
                "x",
                1.0,
                least,
                where="epsilon 0.09 and less",
            ),
        ]
    return found


def _charts_10(rows: Sequence[Row]) -> dict[str, Chart]:
    title, x_label = "Fig. 10: speed-up over round robin", "epsilon; columns are e / epsilon"
    return {"": chart(rows, "speedup", title, x_label, "mean of round robin / mean", SUFFIXES, log_x=True)}


def _claims_late(rows: Sequence[Row]) -> list[Claim]:
    of_full = [
        found
        for tasks, theirs in ((5, 3.4), (11, 4.0), (20, 2.7))
        for found in _speedups(
            rows, f"full_speedup_late_k{tasks}", f"k = {tasks}", theirs, tasks, {"full_knowledge": ""}
        )
    ]
    of_osg = [
        found
        for tasks, theirs in SAID_OF_TASKS
        for found in _speedups(rows, f"osg_speedup_late_k{tasks}", f"k = {tasks}", theirs, tasks, SUFFIXES)
    ]
    return [*of_full, *of_osg]


def _charts_late(rows: Sequence[Row]) -> dict[str, Chart]:
    title, x_label, y_label = "Fig. 9 if every wait is a little late", "k, tasks", "mean of round robin / mean"
    full = chart(rows, "speedup", title, x_label, y_label, ("full_knowledge",), ((5, 3.4), (11, 4.0), (20, 2.7)))
    return {"_a": full, "_b": chart(rows, "speedup", title, x_label, y_label, SUFFIXES, SAID_OF_TASKS)}


# -- all of them

SWEEPS: dict[int, tuple[str, str, Callable[[Sequence[Row]], list[Claim]], Callable[[Sequence[Row]], dict[str, Chart]]]]
SWEEPS = {
    4: ("mean completion time over the skew", sweep_sql("alpha", "mean_ms", "gain", "vs_full"), _claims_4, _charts_4),
    5: ("throughput", sweep_sql("alpha", "throughput_per_s", "throughput_change"), _claims_5, _charts_5),
    6: (
        "speed-up over the percentage of over-provisioning",
        sweep_sql("round(100 * over_provisioning)", "speedup", "mean_ms", "p99_ms"),
        _claims_6,
        _charts_6,
    ),
    7: ("speed-up over the longest execution time", sweep_sql("high_ms", "speedup", "mean_ms"), _claims_7, _charts_7),
    8: (
        "mean completion time over the number of execution times",
        sweep_sql("costs", "mean_ms", "gain"),
        _claims_8,
        _charts_8,
    ),
    9: ("speed-up over the number of tasks", sweep_sql("tasks", "speedup", "mean_ms"), _claims_9, _charts_9),
    10: ("speed-up over epsilon", sweep_sql("epsilon", "speedup", "mean_ms"), _claims_10, _charts_10),
}


def sweep_figure(number: int, cells: Cells) -> Figure:
    title, sql, claims, charts = SWEEPS[number]
    return Figure(str(number), title, cells, sql, claims, charts)


def figure_late(cells: Cells) -> Figure:
    title = "figure 9 if every wait is a little late, not in the paper"
    return Figure("late", title, cells, sweep_sql("tasks", "speedup", "mean_ms"), _claims_late, _charts_late)
