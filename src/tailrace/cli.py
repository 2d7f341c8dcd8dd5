"""The ``tailrace`` command. Options are checked here; what they mean is elsewhere."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import click
import cloudpickle
from rich.console import Console

import tailrace
from tailrace import Run, TailraceError, TaskError, Topology, __version__
from tailrace.dashboard import render_summary, watch

MIN_SECONDS = 1.0  # below that nothing is left of a benchmark after its warm-up, and of the demo after its start
GLANCE_S = 0.1  # how soon a new progress is written down; there is one a second
SPARE_SLOTS = 1  # of a local Spark: a worker that is lost can come back before its old task is cleared away
FILE_MODULE = "__tailrace_file__"  # no module that workers could import: what the file defines travels by value

Conf = dict[str, str]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tailrace")
def main() -> None:
    """Python stream topologies on Spark executors, record by record, with a short latency tail.

    \b
    New here?
      tailrace demo               watch a word count survive the loss of a worker
      tailrace run words.py       run the topology in a file
      tailrace doctor             something is wrong: find out what
    """


# -- options that several commands share


def _parse_conf(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Conf:
    for value in values:
        if "=" not in value.strip("="):
            raise click.BadParameter(f"{value!r} is not of the form key=value; for example spark.executor.memory=2g")
    return {key.strip(): text.strip() for key, _, text in (value.partition("=") for value in values)}


host_option = click.option(
    "--host",
    type=click.Choice(["spark", "process"]),
    default="spark",
    show_default=True,
    help="What hosts the workers: Spark, or plain processes on this machine, which need no Java.",
)
master_option = click.option(
    "--master", metavar="URL", help="Spark master, such as spark://host:7077 or yarn. Without it: a local Spark."
)
conf_option = click.option(
    "--conf",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_parse_conf,
    help="A Spark setting, such as spark.log.level=WARN. May be repeated.",
)


# -- run


@main.command()
@click.argument("file", metavar="FILE.py[:NAME]")
@host_option
@master_option
@conf_option
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    help="Each takes a slot of Spark.  [default: spark.tailrace.workers, or else 2]",
)
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Remember here how far the run got. The next run with the same folder goes on from there.",
)
@click.option("--metrics-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve Prometheus metrics here.")
@click.option("--json", "as_json", is_flag=True, help="Write each progress as a line of JSON, and nothing else.")
def run(
    file: str,
    host: str,
    master: str | None,
    conf: Conf,
    workers: int | None,
    checkpoint: str | None,
    metrics_port: int | None,
    as_json: bool,
) -> None:
    """Run the topology that a Python file defines.

    If the file defines several topologies, name the variable after a colon. Code of the file that is to run with plain
    python only belongs under `if __name__ == "__main__"`.

    \b
      tailrace run words.py
      tailrace run words.py:topology --workers 4 --checkpoint state/
      tailrace run words.py --master spark://host:7077 --conf spark.executor.memory=2g
      tailrace run words.py --json | jq .latencyMs.complete.p99

    Ctrl-C drains: nothing more is read, and what was read still arrives. A second Ctrl-C gives up. Exit codes: 0 when
    all is done, 1 after an error, 130 after Ctrl-C.
    """
    if host == "process" and (master is not None or conf):
        raise click.BadParameter("only Spark has it; did you mean --host spark?", param_hint="--master, --conf")
    topology = load_topology(file)
    with ExitStack() as stack:
        stack.enter_context(_errors_for_people())
        out = sys.stdout
        if as_json:
            stack.enter_context(redirect_stdout(sys.stderr))  # what workers print must not get between the lines
        slots = workers + SPARE_SLOTS if workers is not None else None
        spark = stack.enter_context(_session(host, master, conf, slots))
        options: dict[str, Any] = {"workers": workers, "checkpoint": checkpoint}
        handle: Run = topology.run(spark, **{name: value for name, value in options.items() if value is not None})
        stack.enter_context(_stopped_at_the_end(handle))
        if metrics_port is not None:
            stack.enter_context(_metrics(handle, metrics_port))
        code = _attend(handle, out if as_json else None)
    sys.exit(code)


def load_topology(place: str) -> Topology:
    """The topology of ``FILE.py`` or ``FILE.py:NAME``. Complains the way a command does."""
    path, name = _split(place)
    if not path.is_file():
        raise click.BadParameter(f"no such file: {path}; are you in the right folder?", param_hint="FILE.py")
    found = {key: value for key, value in vars(_load(path)).items() if isinstance(value, Topology)}
    names = ", ".join(found) or "none"
    if name:
        if name not in found:
            raise click.BadParameter(f"no such topology: {path}:{name}; topologies={names}", param_hint="FILE.py")
        return found[name]
    if not found:
        raise click.BadParameter(
            f"no topology in {path}; is it inside a function? It must be a variable of the file.", param_hint="FILE.py"
        )
    if len({id(topology) for topology in found.values()}) > 1:
        raise click.BadParameter(
            f"several topologies in {path}: {names}; which one? Say {path}:{next(iter(found))}", param_hint="FILE.py"
        )
    return next(iter(found.values()))


def _split(place: str) -> tuple[Path, str]:
    file, colon, name = place.rpartition(":")
    return (Path(file), name) if colon and name.isidentifier() and not Path(place).is_file() else (Path(place), "")


def _load(path: Path) -> ModuleType:
    """Execute the user's file much as ``python FILE.py`` would, except that it is not ``__main__``."""
    module = ModuleType(FILE_MODULE)
    module.__file__ = str(path)
    sys.path.insert(0, str(path.absolute().parent))
    sys.modules[FILE_MODULE] = module  # dataclasses look their module up
    cloudpickle.register_pickle_by_value(module)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except Exception as error:
        click.echo(users_traceback(error), err=True, nl=False)
        sys.exit(1)
    finally:
        # What a module holds that cannot be looked up is pickled by value, also by workers that pass it on.
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[FILE_MODULE]
    return module


def users_traceback(error: BaseException) -> str:
    """The traceback without the frames that are ours."""
    ours = str(Path(tailrace.__file__).parent) + os.sep
    story = traceback.TracebackException.from_exception(error)
    told: traceback.TracebackException | None = story
    while told is not None:
        frames = [frame for frame in told.stack if not frame.filename.startswith(ours)]
        told.stack = traceback.StackSummary.from_list(frames)
        told = told.__cause__ or told.__context__
    return "".join(story.format())


def _attend(handle: Run, json_out: TextIO | None) -> int:
    """Show the run until it ends, and tell how it ended. Returns the exit code."""
    from tailrace.demo import attend

    console = Console(stderr=json_out is not None)
    if json_out is None:
        show = partial(watch, handle, console=console, summary_follows=True)
    else:
        show = partial(_write_json, handle, json_out)
    ending = attend(handle, show, console)
    if json_out is not None and ending != "ended":
        _write_json(handle, json_out)
    error = handle.exception()
    if error is not None and ending != "gave up":
        raise error
    if error is None and json_out is None and handle.lastProgress is not None:
        console.print(f"\n{render_summary(handle.lastProgress)}", markup=False, highlight=False, soft_wrap=True)
    return 0 if ending == "ended" else 130


def _write_json(handle: Run, out: TextIO) -> None:
    """Every progress until the run is over, the last one included."""
    shown = None
    active = True
    while active:
        active = handle.isActive  # asked before the progress is read: the last one read is then final
        progress = handle.lastProgress
        if progress is not None and progress is not shown:
            print(json.dumps(progress), file=out, flush=True)
            shown = progress
        if active:
            time.sleep(GLANCE_S)


@contextmanager
def _stopped_at_the_end(handle: Run) -> Iterator[None]:
    """Whatever goes wrong in here, no worker stays behind."""
    try:
        yield
    finally:
        if handle.isActive:
            handle.stop(0)


@contextmanager
def _metrics(handle: Run, port: int) -> Iterator[None]:
    from tailrace.metrics.prometheus import serve_metrics

    try:
        server = serve_metrics(handle, port)
    except OSError as error:
        raise TailraceError(f"no metrics: {error}") from error
    with server:
        click.echo(f"metrics: http://127.0.0.1:{server.port}/metrics", err=True)
        yield


# -- doctor


@main.command()
@master_option
@conf_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object: all checks, and a list of all executors.")
def doctor(master: str | None, conf: Conf, as_json: bool) -> None:
    """Check that topologies can run here: Java, Spark, and every executor.

    \b
      tailrace doctor
      tailrace doctor --master spark://host:7077 --conf spark.executor.memory=2g
      tailrace doctor --json | jq '.executors[] | select(.ok | not)'

    Exit code 1 if anything is wrong.
    """
    diagnosis = _diagnose(master, conf)
    if as_json:
        click.echo(json.dumps(diagnosis.to_json(), indent=2))
    else:
        for finding in diagnosis:
            mark = click.style("✓", fg="green") if finding.ok else click.style("✗", fg="red", bold=True)
            click.echo(f"{mark} {finding.what}: {finding.detail}")
        click.echo("\nall is well" if diagnosis.ok else "\nnot everything is well: see ✗ above")
    sys.exit(0 if diagnosis.ok else 1)


def _diagnose(master: str | None, conf: Conf) -> Any:
    from tailrace.spark.doctor import Diagnosis, Finding, check_java, examine

    java = check_java()
    if not java.ok:
        return Diagnosis([java], [])  # there can be no session
    try:
        with _session("spark", master, conf, slots=None) as spark:
            return examine(spark)
    except TailraceError as error:
        return Diagnosis([java, Finding(False, "session", str(error))], [])


# -- demo


@main.command()
@host_option
@click.option("--seconds", type=click.FloatRange(min=MIN_SECONDS), default=12.0, show_default=True)
@click.option("--workers", type=click.IntRange(1, 64), default=3, show_default=True)
@click.option("--kill/--no-kill", default=True, show_default=True, help="Kill a worker with SIGKILL half-way.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Keep the output in this new or empty folder."
)
def demo(host: str, seconds: float, workers: int, kill: bool, out: Path | None) -> None:
    """Count words on this machine, lose a worker half-way, and check that no row was lost or doubled.

    \b
      tailrace demo
      tailrace demo --seconds 60 --workers 4 --out rows/
      tailrace demo --host process            no Java here? it needs none

    Ctrl-C drains: what was read still arrives.
    """
    if out is not None and out.exists() and any(out.iterdir()):
        raise click.BadParameter(f"folder is not empty: {out}; is it the output of an earlier run?", param_hint="--out")
    from tailrace.demo import run_demo

    with _errors_for_people(), _session(host, None, {}, workers + SPARE_SLOTS) as spark:
        code = run_demo(seconds, workers, kill, out, Console(), spark)
    sys.exit(code)


# -- sim


@main.command("sim")
@click.argument("file", metavar="MODEL.toml", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME",
    help="May be repeated; speed-ups are over the first.  [default: shuffle, osg, least_work, pull]",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of tuples and arrivals.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write reports here.")
@click.option(
    "--plots",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Draw latency.svg and backlog.svg in this folder.",
)
def what_if(file: Path, policies: tuple[str, ...], seed: int, json_file: Path | None, plots: Path | None) -> None:
    """Simulate a workload under several groupings: the code that runs, on virtual time.

    \b
      tailrace sim model.toml
      tailrace sim model.toml --policy shuffle --policy osg --policy pull --json reports.json --plots plots/

    A model says how tuples arrive, what they cost, and what tasks, nodes and links there are: see docs/what-if.md.
    """
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise click.BadParameter(f"no such folder: {json_file.absolute().parent}", param_hint="--json")
    from tailrace.chart import render_chart
    from tailrace.sim import backlog_chart, latency_chart, named_policy, read_model, render_comparison, simulate

    with _errors_for_people():
        model = read_model(file)
        groupings = [named_policy(name) for name in policies or ("shuffle", "osg", "least_work", "pull")]
        reports = [simulate(model, grouping, seed=seed) for grouping in groupings]
    click.echo(render_comparison(reports))
    if json_file is not None:
        json_file.write_text(json.dumps([report.to_json() for report in reports], indent=2) + "\n", "utf-8")
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        (plots / "latency.svg").write_text(render_chart(latency_chart(reports)), "utf-8")
        (plots / "backlog.svg").write_text(render_chart(backlog_chart(reports)), "utf-8")


# -- bench


@main.group()
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
    _check_folder_of(json_file)
    from tailrace.bench.engine import WORKERS, Sizes, render_table, run_engine_benchmark

    with _errors_for_people(), _session(host, None, {}, WORKERS) as spark:
        sizes = Sizes(sentences, seconds, repeats)
        result = run_engine_benchmark(sizes, lambda line: click.echo(line, err=True), spark)
    click.echo(f"\n{render_table(result)}")
    _write_figures(json_file, result)


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
    _check_folder_of(json_file)
    from tailrace.bench.ipc import QUICK, IpcSizes, run_ipc_benchmark
    from tailrace.bench.ipc_table import render_table

    given = {name: value for name, value in {"repeats": repeats, "seconds": seconds}.items() if value is not None}
    sizes = replace(QUICK if quick else IpcSizes(), **given)  # type: ignore[arg-type]
    say = partial(click.echo, err=True)
    with _errors_for_people():
        result = run_ipc_benchmark(sizes, say)
        click.echo(f"\n{render_table(result)}")
        _write_figures(json_file, result)
        if plots is not None:
            from tailrace.bench.ipc_figure8 import draw_figure8

            drawn = draw_figure8(plots, sizes, say)
            for path in drawn:
                click.echo(f"drawn: {path}")


def _check_folder_of(json_file: Path | None) -> None:
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise click.BadParameter(f"no such folder: {json_file.absolute().parent}", param_hint="--json")


def _write_figures(json_file: Path | None, result: dict[str, Any]) -> None:
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
        click.echo(f"\nwritten to {json_file}")


# -- reproduce


@main.group()
def reproduce() -> None:
    """Run the papers' simulations again: what they claim, what we find, and the difference.

    \b
      tailrace reproduce hone
      tailrace reproduce hone --figure 6 --json figures.json

    A grid of simulations runs on Spark, this machine's or a cluster's. A run that was interrupted goes on where it was.
    """


def _study_options(
    figures: list[str], streams: int, seeds: int
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """What the commands of all studies have in common."""
    options = [
        click.option("--figure", type=click.Choice(figures), help="This one only.  [default: all]"),
        click.option("--streams", type=click.IntRange(1), default=streams, show_default=True, help="Random inputs."),
        click.option(
            "--seeds", type=click.IntRange(1), default=seeds, show_default=True, help="Of the schedulers, an input."
        ),
        click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write claims here."),
        click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            help="For CSV and SVG.  [default: reproduce/<paper>/results]",
        ),
        click.option(
            "--cells",
            metavar="URL",
            help="Parquet folder of single results, for executors too.  [default: reproduce/<paper>/cells]",
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
      tailrace reproduce hone                           all figures, about two minutes on 2 cores
      tailrace reproduce hone --figure 8 --streams 5    a first look
      tailrace reproduce hone --streams 1000 --master spark://host:7077 --cells hdfs:///tmp/hone

    A work-conserving round robin, FIFO, and LBF by work are added to what the paper compares.
    """
    from tailrace.reproduce.hone import HONE

    _reproduce(HONE, **options)


def _reproduce(
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
    _check_folder_of(json_file)
    from tailrace.reproduce.run import reproduce as run_study

    home = Path("reproduce") / study.name
    slots = os.cpu_count() or 1  # cells compute all the time: more slots than cores would only take turns
    with _errors_for_people(), _session("spark", master, conf, slots) as spark:
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
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
        click.echo(f"\nwritten to {json_file}")


def _show_cells(done: int, total: int, seconds: float) -> None:
    click.echo(f"{done:>7,} of {total:,} simulations, {seconds:.0f} s", err=True)


# -- common ground


def _check_folder_of(file: Path | None) -> None:
    if file is not None and not file.absolute().parent.is_dir():
        raise click.BadParameter(f"no such folder: {file.absolute().parent}", param_hint="--json")


@contextmanager
def _session(host: str, master: str | None, conf: Conf, slots: int | None) -> Iterator[Any]:
    """A Spark session, stopped at the end; a local one has so many slots. None if Spark is not to host the workers."""
    if host != "spark":
        yield None
        return
    if sys.stderr.isatty():
        click.echo("starting Spark …", err=True)
    from tailrace.spark.session import local_session, open_session

    spark = local_session(slots, conf=conf) if master is None else open_session(master, conf)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _errors_for_people() -> Iterator[None]:
    """What Tailrace raises on purpose says enough: no traceback of ours around it."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except TaskError as error:
        click.echo(str(error), err=True)  # begins with the user's traceback
        sys.exit(1)
    except TailraceError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
