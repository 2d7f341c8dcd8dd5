"""OSG's prototype figures: what the paper claims of them, and what we draw.

A speed-up is round robin's mean latency over a policy's, repeat by repeat on the same stream. Rows at 0 instances are
over all numbers of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.chart import Chart, Point, Series
from tailrace_research.reproduce.osg import figures as osg_figures
from tailrace_research.reproduce.osg.figures import IN_PAPER
from tailrace_research.reproduce.study import Claim, Row

LABELS = osg_figures.LABELS | {"osg_followers": "OSG by the number of followers"}
NAMES = {"shuffle": "shuffle", "osg_published": "osg", "osg_followers": "osg_followers", "pull": "pull"}
"""Policy to its name in keys."""

TEXTS = {
    "first_choice": ("leaves round robin, after windows", ""),
    "change_cost": ("mean of ten windows after the change, over ten before", "x"),
    "speedup": ("speed-up", "x"),
    "speedup_least": ("speed-up, the worst k", "x"),
    "speedup_most": ("speed-up, the best k", "x"),
}
"""Measure to its text and unit."""

FIRST_CHOICE, CHANGE, SYNCHRONIZED = 20_978, 75_000, 82_311
"""After so many tuples their OSG left round robin; tasks changed; and it began to recover."""

SAID = {
    "mention": {"speedup": 1.27, "speedup_least": 1.0, "speedup_most": 2.16},
    "reach": {"speedup": 1.5, "speedup_least": 1.05, "speedup_most": 3.4},
}
"""Over all numbers of instances."""


def _claim(
    rows: Sequence[Row], key: str, policy: str, at: float, measure: str, theirs: float | None, where: str
) -> Claim:
    wanted = (policy, at, measure)
    row = next(row for row in rows if (row["technique"], row["at"], row["measure"]) == wanted)
    text, unit = TEXTS[measure]
    values = (row["value"], row["value_low"], row["value_high"])
    return Claim(f"testbed_{key}", f"{LABELS[policy]}: {text}", unit, theirs, *values, where)


def change_claims(window: int, their_window: int, rows: Sequence[Row]) -> list[Claim]:
    """The claims of figure 12. A window is what a task sketches before it compares."""
    at = rows[0]["at"]
    left, recovered = FIRST_CHOICE / their_window, (SYNCHRONIZED - CHANGE) / their_window
    wheres = {"osg_published": f"theirs begins to recover after {recovered:.1f} windows"}
    measured = f"windows of {window}, theirs of {their_window:,}"
    return [
        _claim(rows, "figure12_first_choice", "osg_published", at, "first_choice", left, measured),
        *(
            _claim(rows, f"figure12_{NAMES[policy]}_speedup", policy, at, "speedup", None, "the whole stream")
            for policy in ("osg_published", "pull")
        ),
        *(
            _claim(rows, f"figure12_{name}_change_cost", policy, at, "change_cost", None, wheres.get(policy, ""))
            for policy, name in _measured(rows).items()
        ),
    ]


def _measured(rows: Sequence[Row]) -> dict[str, str]:
    """The techniques of ``NAMES`` that were measured."""
    measured = {row["technique"] for row in rows}
    return {policy: name for policy, name in NAMES.items() if policy in measured}


def change_chart(step: int, rows: Sequence[Row]) -> dict[str, Chart]:
    curves = [Series(LABELS[policy], _unfolding(rows, policy), dashed=_is_added(policy)) for policy in _measured(rows)]
    end = max(point.x for curve in curves for point in curve.points)
    notes = ["medians of repeats; solid: in the paper; dashed: added here; shaded: after the change"]
    title = f"OSG, Fig. 12: mean of every {step} tuples, live"
    return {"": Chart(title, "tuples", "ms", curves, log_y=True, notes=notes, band=(end / 2, end))}


def _unfolding(rows: Sequence[Row], policy: str) -> list[Point]:
    found = [row for row in rows if row["technique"] == policy and row["measure"].startswith("until_")]
    return sorted(Point(int(row["measure"].split("_")[1]), row["value"]) for row in found)


def _is_added(policy: str) -> bool:
    return policy not in (*IN_PAPER, "osg_published")


def use_case_claims(use_case: str, number: int, instances: Sequence[int], rows: Sequence[Row]) -> list[Claim]:
    """The claims of figures 13 and 14."""
    every = f"k = {', '.join(map(str, instances))}"
    claims = []
    for policy, name in list(_measured(rows).items())[1:]:
        key = f"figure{number}_{name}_"
        said = SAID[use_case] if policy == "osg_published" else {}
        claims += [
            _claim(rows, key + measure, policy, 0, measure, said.get(measure), every) for measure in SAID[use_case]
        ]
        claims += [_claim(rows, f"{key}speedup_{k}", policy, k, "speedup", None, f"k = {k}") for k in instances]
    return claims


def use_case_chart(use_case: str, number: int, rows: Sequence[Row]) -> dict[str, Chart]:
    curves = [
        Series(
            LABELS[policy],
            [
                Point(row["at"], row["value"], row["value_least"], row["value_most"])
                for row in rows
                if (row["technique"], row["measure"]) == (policy, "mean_ms")
            ],
            dashed=_is_added(policy),
        )
        for policy in _measured(rows)
    ]
    title = f"OSG, Fig. {number}: {use_case.upper()}, mean latency, live"
    notes = ["medians of repeats, bars from the least to the most, as in the paper", "dashed: added here"]
    return {"": Chart(title, "instances", "ms", curves, notes=notes)}
