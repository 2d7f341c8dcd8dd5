"""OSG's figure 11: the tasks' speeds change abruptly in the middle of a stream.

Two measures, neither of which is 0 by construction: how many tuples it takes until a policy is back where it
would be on the same stream without the change, and, without any threshold, how much longer the 10,000 tuples after the
change take. At exactly 100% no policy can make up for lost time, so both are also taken at 105%.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.chart import Chart, Point, Series
from tailrace_research.reproduce.intervals import JOIN_T, interval_sql, statistics_sql
from tailrace_research.reproduce.osg.figures import IN_PAPER, LABELS
from tailrace_research.reproduce.osg.simulations import CHANGED_TUPLES, STEP
from tailrace_research.reproduce.study import FORMATS, Cells, Claim, Figure, Row

COMPARED = {
    "osg_published": "osg",
    "osg": "osg_by_the_text",
    "osg_mended": "osg_mended",
    "least_work": "ours",
    "pull": "pull",
}
"""Policy to its name in keys."""

DRAWN = 1_000  # tuples from point to point

CHANGE_SQL = f"""
    WITH drawn AS (
        SELECT over_provisioning, policy, stream, posexplode(arrays_zip(series_ms, series_max_ms)) AS (step, point)
        FROM cells
    ), steps AS (
        SELECT over_provisioning, policy, stream, (step + 1) * {STEP} AS tuple,
            point.series_ms AS mean_ms, point.series_max_ms AS max_ms
        FROM drawn
    ), base AS (
        SELECT over_provisioning, stream, tuple, mean_ms AS base_ms FROM steps WHERE policy = 'shuffle'
    ), long AS (
        SELECT 'mean_ms' AS measure, over_provisioning, policy, stream, tuple, mean_ms AS value
        FROM steps WHERE tuple % {DRAWN} = 0
        UNION ALL
        SELECT 'max_ms', over_provisioning, policy, stream, tuple, max_ms FROM steps WHERE tuple % {DRAWN} = 0
        UNION ALL
        SELECT 'recovery_tuples', over_provisioning, policy, stream, 0, recovery_tuples FROM cells
        UNION ALL
        SELECT 'change_cost', over_provisioning, policy, stream, 0, change_cost FROM cells
        UNION ALL
        SELECT 'first_choice', over_provisioning, policy, stream, 0, min(tuple)
        FROM steps JOIN base USING (over_provisioning, stream, tuple)
        WHERE policy LIKE 'osg%' AND mean_ms <> base_ms GROUP BY over_provisioning, policy, stream
    ), points AS (
        SELECT measure, over_provisioning, policy, tuple, count(*) AS runs, {statistics_sql("value")},
            min(value) AS value_min, max(value) AS value_max
        FROM long GROUP BY measure, over_provisioning, policy, tuple
    )
    SELECT measure, round(100 * over_provisioning) AS percent, policy, tuple, runs, {interval_sql("value")},
        value_min, value_max
    FROM points {JOIN_T} ORDER BY measure, percent, policy, tuple
"""
"""``first_choice``: the first tuples, by hundreds, that fare otherwise than with round robin."""


def _claims(rows: Sequence[Row]) -> list[Claim]:
    by_point = {(row["measure"], row["policy"], row["percent"]): row for row in rows}

    def found(key: str, text: str, unit: str, theirs: float | None, measure: str, policy: str, percent: int) -> Claim:
        row = by_point[measure, policy, percent]
        digits = FORMATS[unit][1]
        where = f"{percent}%; {row['runs']} streams, runs {row['value_min']:{digits}}..{row['value_max']:{digits}}"
        return Claim(key, text, unit, theirs, row["value"], row["value_low"], row["value_high"], where)

    said = {"osg_published": 9_912.0, "osg": 9_912.0}
    return [
        *(
            found("first_choice_osg", "OSG leaves round robin, after tuples", "#", 10_690, *point)
            for point in [("first_choice", "osg", 100)]
            if point in by_point
        ),
        *(
            found(
                f"recovery_tuples_{name}{suffix}",
                f"{LABELS[policy]}, tuples to recover",
                "#",
                said.get(policy),
                "recovery_tuples",
                policy,
                percent,
            )
            for percent, suffix in ((105, ""), (100, "_full_load"))
            for policy, name in COMPARED.items()
        ),
        *(
            found(
                f"change_cost_{name}{suffix}",
                f"{LABELS[policy]}, mean of 10,000 tuples, with the change over without",
                "x",
                None,
                "change_cost",
                policy,
                percent,
            )
            for percent, suffix in ((105, ""), (100, "_full_load"))
            for policy, name in COMPARED.items()
        ),
    ]


def _chart(rows: Sequence[Row], measure: str, percent: int) -> Chart:
    curves = [
        Series(
            LABELS[policy],
            [
                Point(row["tuple"], row["value"], row["value_low"], row["value_high"])
                for row in rows
                if (row["measure"], row["policy"], row["percent"]) == (measure, policy, percent)
            ],
            dashed=policy not in IN_PAPER,
        )
        for policy in ("shuffle", *COMPARED)
    ]
    what = "mean" if measure == "mean_ms" else "longest"
    return Chart(
        f"OSG, Fig. 11: {what} of the last 2,000 tuples, {percent}%",
        "tuples",
        "ms",
        curves,
        log_y=True,
        notes=["mean over streams, bars 95%; solid: in the paper; shaded: after the change"],
        band=(CHANGED_TUPLES / 2, CHANGED_TUPLES),
    )


def _charts(rows: Sequence[Row]) -> dict[str, Chart]:
    parts = (("a", "mean_ms", 100), ("b", "mean_ms", 105), ("c", "max_ms", 105))
    return {part: _chart(rows, measure, percent) for part, measure, percent in parts}


def figure_11(cells: Cells) -> Figure:
    return Figure("11", "the speeds of tasks change after 75,000 tuples", cells, CHANGE_SQL, _claims, _charts)
