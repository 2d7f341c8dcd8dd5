"""``tailrace sim``: simulates a workload under other policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tailrace.cli.common import check_folder_of, errors_for_people, write_figures


@click.command("sim")
@click.argument(
    "file", metavar="[MODEL.toml]", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--trace",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Instead of a model: what tailrace run --record wrote.",
)
@click.option(
    "--edge",
    "edges",
    multiple=True,
    metavar="OPERATOR",
    help="Of a trace: whose input policies are for. May be repeated.  [default: all that may go to any task]",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="May be repeated; speed-ups are over the first.  [default: shuffle, osg, least_work, pull]",
)
@click.option(
    "--hedge",
    "--replay",
    metavar="RULE",
    help="Emit late roots again: adaptive_timeout, du_timeout, fixed_timeout=MS or replicate=SHARE.  [default: none]",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of tuples and arrivals.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write reports here.")
@click.option(
    "--plots",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Draw latency.svg and backlog.svg in this folder.",
)
def what_if(
    file: Path | None,
    trace: Path | None,
    edges: tuple[str, ...],
    policies: tuple[str, ...],
    hedge: str | None,
    seed: int,
    json_file: Path | None,
    plots: Path | None,
) -> None:
    """Simulate a workload under several groupings: the code that runs, on virtual time.

    \b
      tailrace sim model.toml
      tailrace sim model.toml --policy shuffle --policy osg --policy pull --json reports.json --plots plots/
      tailrace sim model.toml --policy shuffle --hedge adaptive_timeout
      tailrace sim --trace DIR --policy osg --policy pull

    A model says how tuples arrive, what they cost, and what tasks, nodes and links there are: see docs/what-if.md.
    With a trace, the first line is what the run saw, and the second the same choices played again: if they differ, the
    model of the run is off.
    """
    check_folder_of(json_file)
    if (file is None) == (trace is None):
        raise click.UsageError("a model or a trace, one of the two; did you mean tailrace sim --trace DIR?")
    if edges and trace is None:
        raise click.BadParameter("only a trace has edges to choose from", param_hint="--edge")
    if hedge and trace is not None:
        raise click.BadParameter("a trace cannot say how long a tuple takes the second time", param_hint="--hedge")
    from tailrace.chart import render_chart
    from tailrace.sim import (
        backlog_chart,
        latency_chart,
        named_hedge,
        named_policy,
        read_model,
        render_comparison,
        simulate,
    )

    with errors_for_people():
        rule = None if hedge is None else named_hedge(hedge)
        if trace is not None:
            reports = _play(trace, edges, policies or ("osg", "least_work", "pull"), seed)
        else:
            assert file is not None
            model = read_model(file)
            groupings = [named_policy(name) for name in policies or ("shuffle", "osg", "least_work", "pull")]
            reports = [simulate(model, grouping, hedge=rule, seed=seed) for grouping in groupings]
    click.echo(render_comparison(reports))
    write_figures(json_file, [report.to_json() for report in reports])
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        (plots / "latency.svg").write_text(render_chart(latency_chart(reports)), "utf-8")
        (plots / "backlog.svg").write_text(render_chart(backlog_chart(reports)), "utf-8")


def _play(folder: Path, edges: tuple[str, ...], policies: tuple[str, ...], seed: int) -> list[Any]:
    from tailrace.sim.traces.playback import Playback
    from tailrace.sim.traces.run_trace import read_trace

    trace = read_trace(folder)
    for note in trace.notes:
        click.echo(note, err=True)
    playback = Playback(trace, edges)
    return [playback.recorded(), playback.play(seed=seed), *(playback.play(name, seed=seed) for name in policies)]
