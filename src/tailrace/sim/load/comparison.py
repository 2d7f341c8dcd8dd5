"""Reports side by side, as tables and as two charts."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.chart import Chart, Point, Series
from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.sim.load.report import PERCENTILES, Report

CDF_POINTS = 100


def render_comparison(reports: Sequence[Report]) -> str:
    """A table of latencies in milliseconds, one row for each report.

    The speed-up is that of the mean over the first report's. Below follow the stages, if there are several.

    Args:
        reports: outcomes of one model under several policies.

    Example:
        >>> from tailrace.sim import Constant, Model, Paced, render_comparison, simulate
        >>> model = Model(Paced(load=0.5), Constant(1_000_000), tuples=100)
        >>> print(render_comparison([simulate(model)]).splitlines()[0].split()[:2])
        ['policy', 'mean']
    """
    hedged = any(report.hedge for report in reports)
    header = ["policy", "mean", *(f"p{q * 100:g}" for q in PERCENTILES), "max", "speed-up", "messages"]
    rows = [header + (["hedges", "won", "extra work"] if hedged else [])]
    for report in reports:
        quantiles = [report.percentile_ns(q) for q in PERCENTILES]
        times = [report.mean_ns, *quantiles, report.max_ns]
        rows.append(
            [
                _label(report),
                *(f"{time_ns / MILLISECOND_NS:,.1f}" for time_ns in times),
                f"{reports[0].mean_ns / report.mean_ns:.2f}",
                f"{report.messages:,}",
                *([f"{report.hedges:,}", f"{report.hedges_won:,}", f"{report.extra_work:.1%}"] if hedged else []),
            ]
        )
    staged = any(len(report.stages) > 1 for report in reports)
    return _table(rows) + ("\n\n" + _stages(reports) if staged else "")


def _stages(reports: Sequence[Report]) -> str:
    """A table by stage: utilisation of all tasks and of the busiest one, and milliseconds in queues."""
    rows = [["policy", "stage", "executed", "busy", "busiest", "mean wait", "p99 wait"]]
    for report in reports:
        for stage in report.stages:
            shares = [busy_ns / report.end_ns for busy_ns in stage.busy_ns]
            waits = [stage.mean_wait_ns, stage.wait_percentile_ns(0.99)]
            rows.append(
                [
                    _label(report) if stage is report.stages[0] else "",
                    stage.name,
                    f"{sum(stage.executed):,}",
                    f"{sum(shares) / len(shares):.0%}",
                    f"{max(shares):.0%}",
                    *(f"{wait_ns / MILLISECOND_NS:,.1f}" for wait_ns in waits),
                ]
            )
    return _table(rows, words=2)


def _label(report: Report) -> str:
    return f"{report.policy} + {report.hedge}" if report.hedge else report.policy


def _table(rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Align the first ``words`` columns to the left and all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def latency_chart(reports: Sequence[Report]) -> Chart:
    """A chart of the share of roots that took longer than a given latency, with both axes logarithmic.

    Args:
        reports: outcomes of one model under several policies.

    Example:
        >>> from tailrace.sim import Constant, Model, Paced, latency_chart, simulate
        >>> latency_chart([simulate(Model(Paced(load=0.5), Constant(1_000_000), tuples=100))]).title
        'Latency'
    """
    series = [
        Series(
            _label(report),
            [
                Point(max(1, report.percentile_ns(1 - left)) / MILLISECOND_NS, left)
                for left in (10 ** (-4 * step / CDF_POINTS) for step in range(CDF_POINTS + 1))
            ],
        )
        for report in reports
    ]
    return Chart("Latency", "ms", "share of roots that took longer", series, log_x=True, log_y=True)


def backlog_chart(reports: Sequence[Report]) -> Chart:
    """A chart of the roots that are due and not done, over time.

    Args:
        reports: outcomes of one model under several policies.

    Example:
        >>> from tailrace.sim import Constant, Model, Paced, backlog_chart, simulate
        >>> backlog_chart([simulate(Model(Paced(load=0.5), Constant(1_000_000), tuples=100))]).title
        'Backlog'
    """
    series = [
        Series(_label(report), [Point(at_ns / SECOND_NS, tuples) for at_ns, tuples in report.backlog()])
        for report in reports
    ]
    return Chart("Backlog", "s", "tuples", series)
