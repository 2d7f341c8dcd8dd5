"""``tailrace reproduce``: the papers' simulations and measurements again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tailrace.cli import common
from tailrace.cli.common import Conf, check_folder_of, conf_option, errors_for_people, master_option, write_figures


@click.group()
def reproduce() -> None:
    """Run the papers' simulations again: what they claim, what we find, and the difference.

    \b
      tailrace reproduce hone
      tailrace reproduce hone --figure 6 --json figures.json
      tailrace reproduce osg
      tailrace reproduce du --testbed

    A grid of simulations runs on Spark, this machine's or a cluster's. What a paper measured on a testbed is measured
    on live workers of this machine. A run that was interrupted goes on where it was.
    """


def _check_figure(
    simulated: list[str], context: click.Context, option: click.Parameter, name: str | None
) -> str | None:
    """A study's testbed has figures of its own."""
    known = simulated
    if context.params["testbed"]:
        from tailrace_research.reproduce.testbed.study import live_study

        with errors_for_people():
            known = [figure.name for figure in live_study(str(context.command.name)).figures]
    if name is not None and name not in known:
        raise click.BadParameter(f"{name!r} is not one of {', '.join(map(repr, known))}.")
    return name


def _study_options(
    figures: list[str], streams: int, seeds: int
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options that the commands of all studies have in common."""
    options = [
        click.option(
            "--testbed",
            is_flag=True,
            is_eager=True,
            help="Instead of simulations: what the paper measured, on worker processes of this machine.",
        ),
        click.option(
            "--figure",
            metavar=f"[{'|'.join(figures)}]",
            callback=partial(_check_figure, figures),
            help="This one only; a testbed has others.  [default: all]",
        ),
        click.option("--repeats", type=click.IntRange(1), help="Of a testbed's measurements.  [default: 3]"),
        click.option("--quick", is_flag=True, help="Of a testbed: one repeat of a fifth, to see that it works."),
        click.option("--streams", type=click.IntRange(1), default=streams, show_default=True, help="Random inputs."),
        click.option(
            "--seeds", type=click.IntRange(1), default=seeds, show_default=True, help="Of the schedulers, an input."
        ),
        click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write claims here."),
        click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            help="For CSV and SVG.  [default: reproduce/<paper>/results, or reproduce/<paper>_testbed/results]",
        ),
        click.option(
            "--cells",
            metavar="URL",
            help="Parquet folder of single results, for executors too; a testbed's repeats.  "
            "[default: reproduce/<paper>/cells, or reproduce/<paper>_testbed/cells]",
        ),
        master_option,
        conf_option,
    ]

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@reproduce.command()
@_study_options(["6", "7", "8"], streams=40, seeds=1)
def hone(**options: Any) -> None:
    """Largest backlog first against round robin (Hone, TPDS 2021, Sec. 4.4).

    \b
      tailrace reproduce hone                           all figures, 6,680 short simulations
      tailrace reproduce hone --figure 8 --streams 5    a first look
      tailrace reproduce hone --streams 1000 --master spark://host:7077 --cells hdfs:///tmp/hone
      tailrace reproduce hone --testbed                 measured on live workers: 10 to 14, ablation

    A work-conserving round robin, FIFO, and LBF by work are added to what the paper compares.
    """
    from tailrace_research.reproduce.hone.study import HONE

    _reproduce(HONE, **options)


@reproduce.command()
@_study_options(["cut", "table2", "9"], streams=40, seeds=1)
def turbostream(**options: Any) -> None:
    """Where tasks go, and what that leaves between nodes (TurboStream, ICDCS 2018, Sec. V).

    \b
      tailrace reproduce turbostream                    all, a minute of CPU and what Spark takes
      tailrace reproduce turbostream --figure 9         SOL and the Throughput Test only

    Round robin, the paper's scheduler, ours, and the best placement there is. Latencies are modelled from a placement.
    """
    from tailrace_research.reproduce.turbostream.study import TURBOSTREAM

    _reproduce(TURBOSTREAM, **options)


@reproduce.command()
@_study_options([*(str(number) for number in range(4, 12)), "late", "best"], streams=5, seeds=1)
def osg(**options: Any) -> None:
    """Online shuffle grouping against round robin and Full Knowledge (OSG, Middleware 2016, Sec. 5.2).

    \b
      tailrace reproduce osg                            all figures, 2,679 simulations of a second or so
      tailrace reproduce osg --figure 6 --streams 1     a first look
      tailrace reproduce osg --figure best              policies that know nothing against one that knows all
      tailrace reproduce osg --streams 100 --seeds 50 --master spark://host:7077 --cells hdfs:///tmp/osg
      tailrace reproduce osg --testbed                  measured on live workers: 12, 13, 14

    OSG as its authors published it, its ablations, pull and least_work are added to what the paper compares.
    """
    from tailrace_research.reproduce.osg.study import OSG

    _reproduce(OSG, **options)


@reproduce.command()
@_study_options(["3", "4", "5", "table2", "table3", "table5", "replay", "balance"], streams=10, seeds=1)
def du(**options: Any) -> None:
    """Replay by timeout, shared queues, balancing by latency (Du and Gupta, DCC 2016, and Du's thesis).

    \b
      tailrace reproduce du                             all, 16 minutes of CPU
      tailrace reproduce du --figure replay --streams 2
      tailrace reproduce du --testbed                   measured on live workers: 24 minutes of an idle machine
      tailrace reproduce du --testbed --figure table2   or table3, table5, shared_queue, 4, 5

    Simulated, where the paper measured; the project's own variants beside the paper's, and where each technique loses.
    """
    from tailrace_research.reproduce.du.study import DU

    _reproduce(DU, **options)


def _reproduce(study: Any, testbed: bool, repeats: int | None, quick: bool, **options: Any) -> None:
    check_folder_of(options["json_file"])
    if testbed:
        _refuse(SIMULATED_ONLY, "a testbed is measured on this machine, with --repeats and --quick")
        _measure(study.name, repeats, quick, options["figure"], options["json_file"], options["out"], options["cells"])
    else:
        _refuse(MEASURED_ONLY, "only a testbed has it; did you mean --testbed, or --streams?")
        _simulate(study, **options)


SIMULATED_ONLY = ("streams", "seeds", "master", "conf")
MEASURED_ONLY = ("repeats", "quick")


def _refuse(options: tuple[str, ...], why: str) -> None:
    context = click.get_current_context()
    for name in options:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.BadParameter(why, param_hint=f"--{name}")


def _measure(
    study: str,
    repeats: int | None,
    quick: bool,
    figure: str | None,
    json_file: Path | None,
    out: Path | None,
    cells: str | None,
) -> None:
    from tailrace_research.reproduce.testbed.run import QUICK, LiveSizes, reproduce_live
    from tailrace_research.reproduce.testbed.study import live_study

    home = Path("reproduce") / f"{study}_testbed"
    sizes = QUICK if quick else LiveSizes()
    with errors_for_people():
        live = live_study(study)
        found = reproduce_live(
            live,
            live.figures if figure is None else [live.figure(figure)],
            sizes if repeats is None else replace(sizes, repeats=repeats),
            cells=Path(cells or home / "cells"),
            results=out or home / "results",
            say=click.echo,
            tell=partial(click.echo, err=True),
        )
    write_figures(json_file, found)


def _simulate(
    study: Any,
    figure: str | None,
    streams: int,
    seeds: int,
    json_file: Path | None,
    out: Path | None,
    cells: str | None,
    master: str | None,
    conf: Conf,
) -> None:
    from tailrace_research.reproduce.run import reproduce as run_study

    home = Path("reproduce") / study.name
    slots = os.cpu_count() or 1  # cells compute all the time: more slots than cores would only take turns
    with errors_for_people(), common.session("spark", master, conf, slots) as spark:
        found = run_study(
            spark,
            study,
            study.figures if figure is None else [study.figure(figure)],
            streams=streams,
            seeds=seeds,
            cells_folder=cells or str((home / "cells").absolute()),
            results=out or home / "results",
            say=click.echo,
            progress=_show_cells,
        )
    write_figures(json_file, found)


def _show_cells(done: int, total: int, seconds: float) -> None:
    click.echo(f"{done:>7,} of {total:,} simulations, {seconds:.0f} s", err=True)
