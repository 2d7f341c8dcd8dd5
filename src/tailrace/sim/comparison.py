"""Reports side by side: as a table, and as two charts."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.chart import Chart, Point, Series
from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.sim.report import PERCENTILES, Report

CDF_POINTS = 100


def render_comparison(reports: Sequence[Report]) -> str:
    """Milliseconds of latency; the speed-up is that of the mean over the first policy's."""
    header = ["policy", "mean", *(f"p{q * 100:g}" for q in PERCENTILES), "max", "speed-up", "messages"]
    rows = [header]
    for report in reports:
        quantiles = [report.percentile_ns(q) for q in PERCENTILES]
        times = [report.mean_ns, *quantiles, report.max_ns]
        rows.append(
            [
                report.policy,
                *(f"{time_ns / MILLISECOND_NS:,.1f}" for time_ns in times),
                f"{reports[0].mean_ns / report.mean_ns:.2f}",
                f"{report.messages:,}",
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(zipped))
        for zipped in (list(zip(row, widths, strict=True)) for row in rows)
    )


def latency_chart(reports: Sequence[Report]) -> Chart:
    """How many tuples took longer, both axes logarithmic: the tail is where the line ends."""
    series = [
        Series(
            report.policy,
            [
                Point(max(1, report.percentile_ns(1 - left)) / MILLISECOND_NS, left)
                for left in (10 ** (-4 * step / CDF_POINTS) for step in range(CDF_POINTS + 1))
            ],
        )
        for report in reports
    ]
    return Chart("Latency", "ms", "share of tuples that took longer", series, log_x=True, log_y=True)


def backlog_chart(reports: Sequence[Report]) -> Chart:
    """Tuples that are due and not done."""
    series = [
        Series(report.policy, [Point(at_ns / SECOND_NS, tuples) for at_ns, tuples in report.backlog()])
        for report in reports
    ]
    return Chart("Backlog", "s", "tuples", series)
