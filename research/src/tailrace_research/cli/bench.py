"""``tailrace bench``: benchmarks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from tailrace.cli import common
from tailrace.cli.common import (
    MIN_SECONDS,
    SPARE_SLOTS,
    Conf,
    check_folder_of,
    conf_option,
    errors_for_people,
    host_option,
    host_option_of,
    write_figures,
)
from tailrace.errors import OptionError

DATAFRAME_SLOTS = 8
"""Slots of the session of ``bench dataframe``: as many tasks as the skewed row and the stream have."""


@click.group()
def bench() -> None:
    """Measure, beside baselines that are hard to beat."""


@bench.command()
@host_option
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here."
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option(
    "--sentences", type=click.IntRange(min=1_000), default=100_000, show_default=True, help="To count words of."
)
@click.option(
    "--seconds", type=click.FloatRange(min=MIN_SECONDS), default=5.0, show_default=True, help="Of hops, at each rate."
)
def engine(host: str, json_file: Path | None, repeats: int, sentences: int, seconds: float) -> None:
    """Throughput against Bytewax, latency against bare sockets and against Spark's micro-batches.

    \b
      tailrace bench engine --json figures.json
      tailrace bench engine --host process    without Spark, and not compared with it
    """
    check_folder_of(json_file)
    from tailrace_research.bench.engine.run import WORKERS, Sizes, render_table, run_engine_benchmark

    with errors_for_people(), common.session(host, None, {}, WORKERS) as spark:
        sizes = Sizes(sentences, seconds, repeats)
        result = run_engine_benchmark(sizes, lambda line: click.echo(line, err=True), spark)
    click.echo(f"\n{render_table(result)}")
    write_figures(json_file, result)


@bench.command()
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here."
)
@click.option("--repeats", type=click.IntRange(min=1), help="[default: 5, or 1 with --quick]")
@click.option(
    "--seconds", type=click.FloatRange(min=0.1), help="Of each measurement.  [default: 0.5, or 0.15 with --quick]"
)
@click.option("--quick", is_flag=True, help="Half a minute instead of six: to see that it works.")
@click.option(
    "--plots",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also measure and draw Figure 8 of the TurboStream paper, into this folder.",
)
def ipc(json_file: Path | None, repeats: int | None, seconds: float | None, quick: bool, plots: Path | None) -> None:
    """Latency, speed and CPU time of the rings, TCP, Unix sockets, multiprocessing.Queue and ZeroMQ.

    \b
      tailrace bench ipc --json figures.json
      tailrace bench ipc --quick
      tailrace bench ipc --plots figure8/
    """
    check_folder_of(json_file)
    from tailrace_research.bench.ipc.run import QUICK, IpcSizes, run_ipc_benchmark
    from tailrace_research.bench.ipc.table import render_table

    given = {name: value for name, value in {"repeats": repeats, "seconds": seconds}.items() if value is not None}
    sizes = replace(QUICK if quick else IpcSizes(), **given)  # type: ignore[arg-type]
    say = partial(click.echo, err=True)
    with errors_for_people():
        result = run_ipc_benchmark(sizes, say)
        click.echo(f"\n{render_table(result)}")
        write_figures(json_file, result)
        if plots is not None:
            from tailrace_research.bench.ipc.figure8 import draw_figure8

            drawn = draw_figure8(plots, sizes, say)
            for path in drawn:
                click.echo(f"drawn: {path}")


@bench.command()
@host_option_of("process")
@click.option(
    "--master",
    metavar="URL",
    help="Of a Spark on this machine, such as local-cluster[2,1,1024]. Without it: local, in one process.",
)
@conf_option
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="A row to measure: grouping, balance, replay, shared_queue, lbf, feedback or off. May be repeated.",
)
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here."
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--tuples", type=click.IntRange(min=100), default=10_000, show_default=True, help="Of each run.")
@click.option(
    "--unit", type=click.FloatRange(min=0.01), default=0.25, show_default=True, metavar="MS", help="Of work, in ms."
)
@click.option(
    "--baseline",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="The engine that the row off compares with, if not from this clone's history.",
)
def tail(
    host: str,
    master: str | None,
    conf: Conf,
    only: tuple[str, ...],
    json_file: Path | None,
    repeats: int,
    tuples: int,
    unit: float,
    baseline: str | None,
) -> None:
    """Measure what each technique does to the tail of latencies, live and simulated, beside the plain default.

    \b
      tailrace bench tail --json figures.json
      tailrace bench tail --only grouping --unit 0.1
      tailrace bench tail --host spark --master 'local-cluster[2,1,1024]'
    """
    check_folder_of(json_file)
    common.check_spark_options(host, master, conf)
    from tailrace_research.bench.tail.groupings import WORKERS
    from tailrace_research.bench.tail.rows import ROWS
    from tailrace_research.bench.tail.run import TailSizes, chosen_rows, run_tail_benchmark
    from tailrace_research.bench.tail.table import render_table

    with errors_for_people():
        _check_one_machine(master)
        rows = chosen_rows(ROWS, only, on_spark=host == "spark")
        sizes = TailSizes(tuples, repeats, unit, baseline)
        with common.session(host, master, conf, WORKERS + SPARE_SLOTS) as spark:
            result = run_tail_benchmark(rows, sizes, lambda line: click.echo(line, err=True), spark)
    click.echo(f"\n{render_table(rows, result)}")
    write_figures(json_file, result)


@bench.command()
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="A row to measure: window, even, limit, journal, skewed or stream. May be repeated.",
)
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here."
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--calls", type=click.IntRange(min=100), default=20_000, show_default=True, help="Of the row window.")
@click.option("--rows", type=click.IntRange(min=100), default=200_000, show_default=True, help="Of the row even.")
@click.option("--paid", type=click.IntRange(min=60), default=2_000, show_default=True, help="Calls of the row journal.")
@click.option(
    "--seconds", type=click.FloatRange(min=6), default=30.0, show_default=True, help="Of the row limit, at each rate."
)
@click.option(
    "--skewed",
    type=click.FloatRange(min=0.5),
    default=35.0,
    show_default=True,
    help="Seconds for which the row skewed keeps all slots busy, at best.",
)
@click.option(
    "--streamed",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Seconds of the row stream, at each trigger.",
)
@click.option(
    "--plots",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also draw calls and rows, into this folder.",
)
def dataframe(
    only: tuple[str, ...],
    json_file: Path | None,
    repeats: int,
    calls: int,
    rows: int,
    paid: int,
    seconds: float,
    skewed: float,
    streamed: float,
    plots: Path | None,
) -> None:
    """Slow, limited and paid calls, skewed rows and streams in a Spark job, beside what one writes without Tailrace.

    \b
      tailrace bench dataframe --json figures.json
      tailrace bench dataframe --only window --repeats 5
    """
    check_folder_of(json_file)
    from tailrace_research.bench.dataframe.rows import ROWS
    from tailrace_research.bench.dataframe.run import DataFrameSizes, render_table, run_dataframe_benchmark
    from tailrace_research.bench.turns import chosen

    with errors_for_people():
        asked = chosen(ROWS, only)
        sizes = DataFrameSizes(calls, rows, paid, seconds, repeats, skewed_s=skewed, streamed_s=streamed)
        with common.session("spark", None, {}, DATAFRAME_SLOTS) as spark:
            result = run_dataframe_benchmark(asked, sizes, lambda line: click.echo(line, err=True), spark)
    click.echo(f"\n{render_table(asked, result)}")
    write_figures(json_file, result)
    if plots is not None:
        from tailrace_research.bench.dataframe.plots import draw

        for path in draw(plots, sizes.traces):
            click.echo(f"drawn: {path}")


@bench.command()
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures here."
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--rate", type=click.FloatRange(min=10), default=300.0, show_default=True, help="Roots a second.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Of a busy machine on which workers stop now and then; 0: not at all.",
)
def hosts(json_file: Path | None, repeats: int, rate: float, minutes: float) -> None:
    """For how long nothing is completed when a host, an executor or a process is lost.

    \b
      tailrace bench hosts --json figures.json
      tailrace bench hosts --minutes 0    only the losses

    Hosts are network namespaces of this machine: it takes root and iproute2.
    """
    check_folder_of(json_file)
    from tailrace_research.bench.hosts.run import HostsSizes, render_table, run_hosts_benchmark

    with errors_for_people():
        result = run_hosts_benchmark(HostsSizes(repeats, rate, minutes), partial(click.echo, err=True))
    click.echo(f"\n{render_table(result)}")
    write_figures(json_file, result)


def _check_one_machine(master: str | None) -> None:
    from tailrace.spark.slots import is_local

    if master is not None and not is_local(master):
        raise OptionError(
            f"latencies are taken by one machine's clock: master={master}: did you mean local[3] or "
            "local-cluster[2,1,1024]?"
        )
