"""Not a figure of OSG's paper: policies that know nothing beforehand against Full Knowledge, which knows all costs.

Nine cells, three loads by three skews. A ratio is Full Knowledge's latency over the policy's on the same stream: 1 is
equal, more is better. What counts is the worst cell.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.chart import Chart, Point, Series
from tailrace_research.reproduce.intervals import JOIN_T, interval_sql, statistics_sql
from tailrace_research.reproduce.osg.figures import LABELS
from tailrace_research.reproduce.study import Cells, Claim, Figure, Row

POINT = ("over_provisioning", "alpha", "latency_us", "stream")
RATIOS = ("mean_vs_full", "p99_vs_full")

BEST_SQL = f"""
    WITH exact AS (
        SELECT {", ".join(POINT)}, mean_ms AS exact_mean_ms, p99_ms AS exact_p99_ms
        FROM cells WHERE policy = 'full_knowledge'
    ), runs AS (
        SELECT senders, over_provisioning, alpha, latency_us, policy, stream, mean_ms, p99_ms,
            exact_mean_ms / mean_ms AS mean_vs_full, exact_p99_ms / p99_ms AS p99_vs_full
        FROM (SELECT * FROM cells) JOIN exact USING ({", ".join(POINT)})
    ), streams AS (
        SELECT senders, over_provisioning, alpha, latency_us, policy, stream,
            {", ".join(f"avg({name}) AS {name}" for name in ("mean_ms", "p99_ms", *RATIOS))}
        FROM runs GROUP BY senders, over_provisioning, alpha, latency_us, policy, stream
    ), points AS (
        SELECT senders, latency_us, over_provisioning, alpha, policy, count(*) AS runs,
            avg(mean_ms) AS mean_ms, avg(p99_ms) AS p99_ms, {", ".join(map(statistics_sql, RATIOS))}
        FROM streams GROUP BY senders, latency_us, over_provisioning, alpha, policy
    )
    SELECT policy, senders, latency_us, round(100 * over_provisioning) AS percent, alpha, runs, mean_ms, p99_ms,
        {", ".join(map(interval_sql, RATIOS))}
    FROM points {JOIN_T} ORDER BY policy, senders, latency_us, percent, alpha
"""


def _group(rows: Sequence[Row], policy: str, senders: int, latency_us: float) -> list[Row]:
    return [row for row in rows if (row["policy"], row["senders"], row["latency_us"]) == (policy, senders, latency_us)]


def best_policy(rows: Sequence[Row]) -> str:
    """The one whose worst cell is best, in mean and p99, with one sender and with four, without latency."""

    def worst(policy: str) -> float:
        found = [row for senders in (1, 4) for row in _group(rows, policy, senders, 0.0)]
        return min(float(row[ratio]) for row in found for ratio in RATIOS)

    others: set[str] = {row["policy"] for row in rows} - {"full_knowledge"}
    return max(sorted(others), key=worst)


def _worst(rows: Sequence[Row], key: str, policy: str, ratio: str, senders: int, latency_us: float) -> Claim:
    row = min(_group(rows, policy, senders, latency_us), key=lambda row: float(row[ratio]))
    text = f"{LABELS[policy]}, {ratio.partition('_')[0]} of Full Knowledge over its own, at worst"
    link = ", links of 0.1 ms" if latency_us else ""
    plural = "" if senders == 1 else "s"
    where = f"{row['percent']:.0f}%, alpha {row['alpha']:g}, {senders} sender{plural}{link}; {row['runs']} streams"
    return Claim(key, text, "x", None, row[ratio], row[f"{ratio}_low"], row[f"{ratio}_high"], where)


def _claims(rows: Sequence[Row]) -> list[Claim]:
    best = best_policy(rows)
    groups = ((1, 0.0, ""), (4, 0.0, "_4"))
    far = ((1, 100.0, "_links"), (4, 100.0, "_4_links"))
    named = [("best", best, groups), ("pull", "pull", far)]
    named += [(policy, policy, groups) for policy in ("pull", "least_work", "osg_mended") if policy != best]
    return [
        _worst(rows, f"{name}_{ratio}_min{suffix}", policy, ratio, senders, latency_us)
        for name, policy, wanted in named
        for senders, latency_us, suffix in wanted
        for ratio in RATIOS
    ]


def _chart(rows: Sequence[Row], ratio: str, senders: int) -> Chart:
    curves = [
        Series(
            f"{LABELS[policy]}{', links of 0.1 ms' if latency_us else ''}",
            [
                Point(place, row[ratio], row[f"{ratio}_low"], row[f"{ratio}_high"])
                for place, row in enumerate(_group(rows, policy, senders, latency_us), start=1)
            ],
            dashed=bool(latency_us),
        )
        for policy, latency_us in (("pull", 0.0), ("pull", 100.0), ("least_work", 0.0), ("osg_mended", 0.0))
    ]
    return Chart(
        f"Against Full Knowledge, {ratio.partition('_')[0]}, {senders} sender{'' if senders == 1 else 's'}",
        "cell: 100, 105, 115% over-provisioned, each uniform, Zipf-1, Zipf-2",
        "Full Knowledge's latency / the policy's",
        curves,
        notes=["bars: 95% confidence; above 1: better than Full Knowledge"],
    )


def _charts(rows: Sequence[Row]) -> dict[str, Chart]:
    parts = (("a", 1, "mean_vs_full"), ("b", 1, "p99_vs_full"), ("c", 4, "mean_vs_full"), ("d", 4, "p99_vs_full"))
    return {f"_{part}": _chart(rows, ratio, senders) for part, senders, ratio in parts}


def figure_best(cells: Cells) -> Figure:
    return Figure(
        "best", "no prior knowledge against Full Knowledge, not in the paper", cells, BEST_SQL, _claims, _charts
    )
