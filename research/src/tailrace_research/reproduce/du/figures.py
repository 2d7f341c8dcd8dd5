"""Du's figures and tables: how results are summed up, what the paper claims, what we draw.

Every technique is compared with the default stream by stream, on the same roots, and the cuts are then averaged. A cut
of 0.2 is a fifth less than the default; a negative one is a loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.chart import Chart, Point, Series
from tailrace.sim.load.erlang import mean_wait
from tailrace_research.reproduce.intervals import JOIN_T, interval_sql, statistics_sql
from tailrace_research.reproduce.study import Cells, Claim, Figure, Row

LAMBDA, MU, SERVERS_A_WORKER = 350, 450, 4
SHARED_LOAD = LAMBDA / MU
SERVER_LOADS = (0.5, 0.7, 0.8, 0.9, 0.95)
QUEUE_LOADS = (0.2, 0.36, 0.5, 0.58, 0.7, 0.78, 0.9)
UNEQUAL_LOADS = (0.2, 0.3, 0.41, 0.49, 0.57, 0.7, 0.89)
TABLE_2_LOADS = (0.1, 0.3)
"""The paper does not say. Theirs was low: 100% replication, which doubles the load, still cut p99 by 39%."""
TABLE_3_LOADS = {"scenario_a": 0.8, "scenario_b": 0.6, "scenario_c": 0.55}
"""Chosen so that the slow tasks just keep up with an equal split, as theirs must have: their latencies were finite."""
TABLE_5_LOADS = {
    "timeouts": {"page_load_timeouts": 0.3, "processing_timeouts": 0.3},
    "queues": {"page_load_queues": 0.8, "processing_queues": 0.8},
    "unequal": {"page_load_unequal": 0.55, "processing_unequal": 0.55},
}
LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
CONTENT_LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)
SLOW_LOADS = (0.25, 0.6)
"""A fifth of the traffic takes the slow task to 85% at the one, and to twice what it can do at the other."""
EQUAL_LOADS = (0.3, 0.5, 0.7, 0.9)
EQUAL_LOAD = 0.5

LABELS = {
    "adaptive_timeout": "adaptive timeout, ours",
    "du_timeout": "adaptive timeout, the paper's",
    "shared_queue": "shared queue",
    "latency_balanced": "balancing by latency, the paper's",
    "latency_balanced_fast": "balancing by latency, ours",
}
OURS = ("adaptive_timeout", "latency_balanced_fast")
MEASURED = ("mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "wait_ms", "work_s", "hedges", "won", "converged_s")
NAMES = {"p90_ms": "p90", "p99_ms": "p99", "p999_ms": "p99.9"}

SQL = f"""
    WITH long AS (
        SELECT experiment, at, technique, stream,
            stack({len(MEASURED)}, {", ".join(f"'{name}', {name}" for name in MEASURED)}) AS (measure, value)
        FROM cells
    ), streams AS (
        SELECT measure, experiment, at, technique, stream, avg(value) AS value FROM long
        GROUP BY measure, experiment, at, technique, stream
    ), paired AS (
        SELECT it.*, 1 - try_divide(it.value, none.value) AS cut
        FROM streams AS it JOIN streams AS none USING (measure, experiment, at, stream)
        WHERE none.technique = 'none'
    ), points AS (
        SELECT measure, experiment, at, technique, count(*) AS runs, {statistics_sql("value")}, {statistics_sql("cut")}
        FROM paired GROUP BY measure, experiment, at, technique
    )
    SELECT measure, experiment, at, technique, runs, {interval_sql("value")}, {interval_sql("cut")}
    FROM points {JOIN_T} ORDER BY measure, experiment, at, technique
"""


# -- picking points


def _row(rows: Sequence[Row], experiment: str, at: float, technique: str, measure: str) -> Row:
    wanted = (experiment, at, technique, measure)
    for row in rows:
        if (row["experiment"], row["at"], row["technique"], row["measure"]) == wanted:
            return row
    raise AssertionError(f"no such point: {wanted}")


def _value(key: str, text: str, theirs: float | None, row: Row, unit: str = "", where: str = "") -> Claim:
    return Claim(key, text, unit, theirs, row["value"], row["value_low"], row["value_high"], where)


def _cut(key: str, text: str, theirs: float | None, row: Row, where: str = "") -> Claim:
    return Claim(key, text, "%", theirs, row["cut"], row["cut_low"], row["cut_high"], where)


def _loss(key: str, text: str, row: Row, where: str, theirs: float | None = None) -> Claim:
    """A cut, the other way round."""
    low, high = (None if row[end] is None else -row[end] for end in ("cut_high", "cut_low"))
    return Claim(key, text, "%", theirs, -row["cut"], low, high, where)


def _worst(rows: Sequence[Row], experiment: str, technique: str, measure: str) -> Row:
    of = [r for r in rows if (r["experiment"], r["technique"], r["measure"]) == (experiment, technique, measure)]
    return min(of, key=lambda row: float(row["cut"]))


def _before_and_after(
    rows: Sequence[Row], key: str, experiment: str, at: float, technique: str, measure: str, theirs: tuple[float, float]
) -> Claim:
    before = _row(rows, experiment, at, "none", measure)
    after = _row(rows, experiment, at, technique, measure)
    where = f"{before['value']:.3g} -> {after['value']:.3g} ms, theirs {theirs[0]:g} -> {theirs[1]:g}"
    text = f"{experiment.replace('_', ' ')}: {NAMES[measure]}, {LABELS[technique]}"
    return _cut(key, text, 1 - theirs[1] / theirs[0], after, where)


# -- charts


def _curve(rows: Sequence[Row], experiment: str, technique: str, measure: str, column: str = "cut") -> Series:
    found = [r for r in rows if (r["experiment"], r["technique"], r["measure"]) == (experiment, technique, measure)]
    points = [
        Point(row["at"], row[column], row[f"{column}_low"], row[f"{column}_high"])
        for row in sorted(found, key=lambda row: float(row["at"]))
    ]
    return Series(LABELS.get(technique, technique), points, dashed=technique in OURS)


NOTE = "bars: 95% confidence of the mean; solid: the paper's techniques; dashed: ours"


def _cuts(
    rows: Sequence[Row], title: str, x_label: str, experiment: str, techniques: Sequence[str], measure: str
) -> Chart:
    curves = [_curve(rows, experiment, technique, measure) for technique in techniques]
    shown = [_floored(curve) for curve in curves]
    return Chart(
        f"Du, {title}", x_label, f"cut of {NAMES[measure]}, as a share; below 0 a loss", shown, notes=[NOTE, FLOORED]
    )


LOWEST = -1.0
FLOORED = "losses beyond 100% are drawn at -1"


def _floored(series: Series) -> Series:
    """A rule that runs away loses many times over, which would flatten everything else."""
    points = [
        Point(x, max(LOWEST, y), None if low is None else max(LOWEST, low), None if high is None else max(LOWEST, high))
        for x, y, low, high in series.points
    ]
    return Series(series.label, points, series.dashed)


# -- figure 3, and the shared queue of Sec. 5.1.2


def _erlang_ms(servers: int, load: float) -> float:
    return 1_000 * mean_wait(servers, load * servers * MU, MU)


def shared_queue_claims(rows: Sequence[Row]) -> list[Claim]:
    """The claims of Sec. 5.1.2."""
    claims = []
    for experiment, suffix, words in (("bolt", "", "exponential"), ("sleeping_bolt", "_constant", "constant")):
        own, shared = (_row(rows, experiment, SHARED_LOAD, t, "wait_ms") for t in ("none", "shared_queue"))
        claims += [
            _value(f"shared_queue_delay_own{suffix}_ms", f"ms in a task's own queue, {words} durations", 2.07, own),
            _value(f"shared_queue_delay_shared{suffix}_ms", f"ms in a worker's, {words} durations", 0.516, shared),
        ]
        for measure, theirs in (("p90_ms", 0.355), ("p99_ms", 0.249), ("p999_ms", 0.362)):
            key = f"shared_queue_{measure[:-3]}_cut{suffix}"
            row = _row(rows, experiment, SHARED_LOAD, "shared_queue", measure)
            claims.append(_cut(key, f"{NAMES[measure]}, {words} durations", theirs, row))
    return claims


def _claims_3(rows: Sequence[Row]) -> list[Claim]:
    held = [
        row["value_low"] is not None
        and row["value_low"] <= _erlang_ms(int(row["at"]), round(row["at"] % 1, 6)) <= row["value_high"]
        for row in rows
        if (row["experiment"], row["measure"]) == ("servers", "wait_ms")
    ]
    own_ms, shared_ms = _erlang_ms(1, SHARED_LOAD), _erlang_ms(SERVERS_A_WORKER, SHARED_LOAD)
    return [
        *shared_queue_claims(rows),
        Claim("shared_queue_delay_own_erlang_ms", "ms, M/M/1 by formula", "", 2.07, own_ms),
        Claim("shared_queue_delay_shared_erlang_ms", "ms, M/M/4 by formula", "", 0.516, shared_ms),
        Claim(
            "erlang_within_interval",
            "one queue, simulated: points whose interval holds Erlang's value",
            "%",
            None,
            sum(held) / len(held),
            where=f"{len(held)} points; 95% are to be expected",
        ),
    ]


def _charts_3(rows: Sequence[Row]) -> dict[str, Chart]:
    series = []
    for colour, servers in enumerate((1, 2, 4, 8)):
        loads = [0.3 + 0.01 * step for step in range(66)]
        series.append(
            Series(f"{servers} servers", [Point(load, _erlang_ms(servers, load)) for load in loads], True, colour)
        )
        found = [
            Point(row["at"] - servers, row["value"], row["value_low"], row["value_high"])
            for row in rows
            if (row["experiment"], row["measure"], int(row["at"])) == ("servers", "wait_ms", servers)
        ]
        series.append(Series("simulated", found, colour=colour, line=False))
    notes = ["lines: Erlang's formula; marks: simulated, with 95% confidence"]
    return {
        "": Chart(
            "Du, Fig. 3: one queue for several servers", "utilisation", "mean wait, ms", series, False, True, notes
        )
    }


def figure_3(cells: Cells) -> Figure:
    return Figure("3", "mean queueing delay by number of servers, and of Sec. 5.1.2", cells, SQL, _claims_3, _charts_3)


# -- table 2

TABLE_2 = {
    "adaptive_timeout": (24.1, 66.4, 0.0292),
    "du_timeout": (24.1, 66.4, 0.0292),
    "replicate_20": (25.5, 87.8, 0.2),
    "replicate_50": (22.1, 107.7, 0.5),
    "replicate_100": (17.9, 78.1, 1.0),
}
TABLE_2_DEFAULT = (29.2, 76.6)


def _claims_2(rows: Sequence[Row]) -> list[Claim]:
    return [claim for load in TABLE_2_LOADS for claim in _claims_2_at(rows, load)]


def _claims_2_at(rows: Sequence[Row], load: float) -> list[Claim]:
    claims, suffix, at = [], f"_{load * 100:.0f}", f"load {load}"
    for measure, theirs in zip(("p99_ms", "p999_ms"), TABLE_2_DEFAULT, strict=True):
        default = _row(rows, "exclamation", load, "none", measure)
        claims.append(
            _value(f"table2_default_{measure}{suffix}", f"default: {NAMES[measure]}, ms", theirs, default, where=at)
        )
    for technique, (p99, p999, cost) in TABLE_2.items():
        name = LABELS.get(technique, technique.replace("_", " ") + "%")
        for measure, before, after in (("p99_ms", TABLE_2_DEFAULT[0], p99), ("p999_ms", TABLE_2_DEFAULT[1], p999)):
            row = _row(rows, "exclamation", load, technique, measure)
            key = f"table2_{technique}_{measure[:-3]}_cut{suffix}"
            where = f"{at}: {row['value']:.3g} ms, theirs {after:g}"
            claims.append(_cut(key, f"{name}: {NAMES[measure]}", 1 - after / before, row, where))
        work = _row(rows, "exclamation", load, technique, "work_s")
        claims.append(_loss(f"table2_{technique}_cost{suffix}", f"{name}: extra work", work, at, cost))
    return claims


def _charts_2(rows: Sequence[Row]) -> dict[str, Chart]:
    return {}


def table_2(cells: Cells) -> Figure:
    title = "timeouts and replication on the Exclamation topology"
    return Figure("table2", title, cells, SQL, _claims_2, _charts_2)


# -- table 3

TABLE_3: dict[str, dict[str, tuple[float, float]]] = {
    "scenario_a": {"p90_ms": (11.15, 10.9), "p99_ms": (29.9, 23.5), "p999_ms": (104.5, 57.1)},
    "scenario_b": {"p90_ms": (21.05, 9.16), "p99_ms": (92.9, 36.4), "p999_ms": (204.3, 153.1)},
    "scenario_c": {"p90_ms": (9.3, 7.67), "p99_ms": (127.8, 62.4), "p999_ms": (598.6, 162.0)},
}


def _claims_of_table_3(rows: Sequence[Row]) -> list[Claim]:
    return [
        _before_and_after(
            rows,
            f"table3_{experiment[-1]}_{measure[:-3]}_cut{suffix}",
            experiment,
            TABLE_3_LOADS[experiment],
            technique,
            measure,
            theirs,
        )
        for technique, suffix in (("latency_balanced", ""), ("latency_balanced_fast", "_fast"))
        for experiment, measures in TABLE_3.items()
        for measure, theirs in measures.items()
    ]


def table_3(cells: Cells) -> Figure:
    title = "balancing among unequal machines, latencies after two minutes"
    return Figure("table3", title, cells, SQL, _claims_of_table_3, _charts_2)


# -- figures 4 and 5


def _claims_4(rows: Sequence[Row]) -> list[Claim]:
    claims = []
    for load, theirs in ((0.36, 0.128), (0.78, -0.06)):
        for technique, said in (("du_timeout", theirs), ("adaptive_timeout", None), ("shared_queue", None)):
            row = _row(rows, "sleeping_bolt", load, technique, "p99_ms")
            key = f"figure4_{technique}_p99_cut_{load * 100:.0f}"
            claims.append(_cut(key, f"p99, {LABELS[technique]}", said, row, f"utilisation {load:.2f}"))
    for load, theirs in ((0.36, 1 - 72 / 52), (0.9, 1 - 53 / 82)):
        row = _row(rows, "sleeping_bolt", load, "shared_queue", "p999_ms")
        key = f"figure4_shared_queue_p999_cut_{load * 100:.0f}"
        claims.append(_cut(key, "p99.9, shared queue", theirs, row, f"utilisation {load:.2f}"))
    return claims


def _charts_4(rows: Sequence[Row]) -> dict[str, Chart]:
    techniques = ("du_timeout", "shared_queue", "adaptive_timeout")
    x_label = "utilisation of an executor's queue"
    return {
        part: _cuts(rows, "Fig. 4: timeouts and shared queues", x_label, "sleeping_bolt", techniques, measure)
        for part, measure in (("a", "p99_ms"), ("b", "p999_ms"))
    }


def figure_4(cells: Cells) -> Figure:
    title = "timeouts and shared queues by utilisation; 20 executors, 4 a worker"
    return Figure("4", title, cells, SQL, _claims_4, _charts_4)


def _claims_5(rows: Sequence[Row]) -> list[Claim]:
    said = {
        ("latency_balanced", 0.2): -0.09,
        ("latency_balanced", 0.89): 0.76,
        ("du_timeout", 0.41): 0.19,
        ("du_timeout", 0.57): -0.277,
    }
    wanted = [*said, *((technique, load) for load in (0.2, 0.41, 0.57, 0.89) for technique in OURS)]
    return [
        _cut(
            f"figure5_{technique}_p99_cut_{load * 100:.0f}",
            f"p99, {LABELS[technique]}",
            said.get((technique, load)),
            _row(rows, "scenario_c", load, technique, "p99_ms"),
            f"load {load:.2f}",
        )
        for technique, load in wanted
    ]


def _charts_5(rows: Sequence[Row]) -> dict[str, Chart]:
    techniques = ("latency_balanced", "du_timeout", "latency_balanced_fast", "adaptive_timeout")
    return {"": _cuts(rows, "Fig. 5: one machine of five at half speed", "load", "scenario_c", techniques, "p99_ms")}


def figure_5(cells: Cells) -> Figure:
    return Figure(
        "5", "balancing and timeouts by load, one machine of five at half speed", cells, SQL, _claims_5, _charts_5
    )


# -- table 5

TABLE_5: dict[str, tuple[float, float]] = {
    "page_load_timeouts": (35, 24),
    "processing_timeouts": (66, 39),
    "page_load_queues": (137, 86),
    "processing_queues": (82, 47),
    "page_load_unequal": (182, 77),
    "processing_unequal": (211, 104),
}
TABLE_5_TECHNIQUES: Mapping[str, Sequence[tuple[str, str]]] = {
    "timeouts": (("du_timeout", "_du"), ("adaptive_timeout", "")),
    "queues": (("shared_queue", ""),),
    "unequal": (("latency_balanced", ""), ("latency_balanced_fast", "_fast")),
}


def _claims_of_table_5(rows: Sequence[Row]) -> list[Claim]:
    return [
        _before_and_after(rows, f"table5_{experiment}_p99_cut{suffix}", experiment, load, technique, "p99_ms", theirs)
        for group, loads in TABLE_5_LOADS.items()
        for experiment, load in loads.items()
        for technique, suffix in TABLE_5_TECHNIQUES[group]
        for theirs in (TABLE_5[experiment],)
    ]


def table_5(cells: Cells) -> Figure:
    return Figure("table5", "Yahoo's two topologies", cells, SQL, _claims_of_table_5, _charts_2)


# -- not in the paper: replay and balancing at every load


def _claims_replay(rows: Sequence[Row]) -> list[Claim]:
    claims = []
    for technique, prefix in (("adaptive_timeout", "replay"), ("du_timeout", "du_replay")):
        name, at = LABELS[technique], "load 0.30"
        worst, content = (_worst(rows, experiment, technique, "p99_ms") for experiment in ("stalls", "content"))
        claims += [
            _cut(f"{prefix}_p999_cut_30", f"p99.9, {name}", None, _row(rows, "stalls", 0.3, technique, "p999_ms"), at),
            _cut(f"{prefix}_p99_cut_30", f"p99, {name}", None, _row(rows, "stalls", 0.3, technique, "p99_ms"), at),
            _loss(f"{prefix}_extra_work_30", f"extra work, {name}", _row(rows, "stalls", 0.3, technique, "work_s"), at),
            _value(
                f"{prefix}_hedged_30",
                f"hedges, a root, {name}",
                None,
                _row(rows, "stalls", 0.3, technique, "hedges"),
                "%",
                at,
            ),
            _loss(f"{prefix}_worst_p99_loss", f"p99 loss at worst, {name}", worst, f"load {worst['at']:.2f}"),
            _loss(
                f"{prefix}_worst_p99_loss_content",
                f"the same where nothing stalls, {name}",
                content,
                f"load {content['at']:.2f}",
            ),
        ]
    return claims


def _charts_replay(rows: Sequence[Row]) -> dict[str, Chart]:
    techniques = ("du_timeout", "adaptive_timeout")
    stalls, content = "one execution in a hundred takes fifty times as long", "nothing stalls, work is exponential"
    return {
        "a": _cuts(rows, f"p99: {stalls}", "load", "stalls", techniques, "p99_ms"),
        "b": _cuts(rows, f"p99.9: {stalls}", "load", "stalls", techniques, "p999_ms"),
        "c": _cuts(rows, f"p99: {content}", "load", "content", techniques, "p99_ms"),
    }


def figure_replay(cells: Cells) -> Figure:
    title = "timeouts at every load, five tasks; 1% of executions take 50 times as long, or none do"
    return Figure("replay", title, cells, SQL, _claims_replay, _charts_replay)


def _claims_balance(rows: Sequence[Row]) -> list[Claim]:
    claims = []
    stable, overloaded = SLOW_LOADS
    for technique, prefix in (("latency_balanced", "balance"), ("latency_balanced_fast", "balance_fast")):
        name = LABELS[technique]
        worst = _worst(rows, "equal_tasks", technique, "p99_ms")
        claims += [
            _value(
                f"{prefix}_converged_s",
                f"seconds to converge, {name}",
                None,
                _row(rows, "slow_task", overloaded, technique, "converged_s"),
                where=f"load {overloaded}, one task of five four times slower",
            ),
            _cut(
                f"{prefix}_p99_cut_sim",
                f"p99 after two minutes, {name}",
                None,
                _row(rows, "slow_task", stable, technique, "p99_ms"),
                f"load {stable}, where round robin still keeps up",
            ),
            _loss(
                f"{prefix}_equal_loss",
                f"p99 loss where tasks are equal, {name}",
                _row(rows, "equal_tasks", EQUAL_LOAD, technique, "p99_ms"),
                f"load {EQUAL_LOAD}",
            ),
            _loss(f"{prefix}_equal_loss_worst", f"the same at worst, {name}", worst, f"load {worst['at']}"),
        ]
    return claims


def _charts_balance(rows: Sequence[Row]) -> dict[str, Chart]:
    techniques = ("latency_balanced", "latency_balanced_fast")
    return {
        "": _cuts(rows, "not in the paper: balancing among equal tasks", "load", "equal_tasks", techniques, "p99_ms")
    }


def figure_balance(cells: Cells) -> Figure:
    title = "balancing with one task of five four times slower, and with none"
    return Figure("balance", title, cells, SQL, _claims_balance, _charts_balance)
