"""The ``tailrace`` command. Options are checked here; what they mean is elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from tailrace import TailraceError, __version__

MIN_SECONDS = 1.0  # below that nothing is left of a benchmark after its warm-up, and of the demo after its start


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tailrace")
def main() -> None:
    """Python stream topologies, record by record, with a short latency tail."""


@main.command()
@click.option("--seconds", type=click.FloatRange(min=MIN_SECONDS), default=12.0, show_default=True)
@click.option("--workers", type=click.IntRange(1, 64), default=3, show_default=True, help="Worker processes.")
@click.option("--kill/--no-kill", default=True, show_default=True, help="Kill a worker with SIGKILL half-way.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Keep the output in this new or empty folder."
)
def demo(seconds: float, workers: int, kill: bool, out: Path | None) -> None:
    """Count words on this machine, lose a worker half-way, and check that no row was lost or doubled.

    Ctrl-C drains: what was read still arrives.
    """
    if out is not None and out.exists() and any(out.iterdir()):
        raise click.BadParameter(f"folder is not empty: {out}; is it the output of an earlier run?", param_hint="--out")
    from tailrace.demo import run_demo

    with _errors_for_people():
        code = run_demo(seconds, workers, kill, out, Console())
    sys.exit(code)


@main.group()
def bench() -> None:
    """Measure, beside a baseline that is hard to beat."""


@bench.command()
@click.option(
    "--host",
    type=click.Choice(["process"]),
    default="process",
    show_default=True,
    help="What hosts the workers. Spark is on the way.",
)
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
    """Throughput against Bytewax, and latency against bare sockets."""
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise click.BadParameter(f"no such folder: {json_file.absolute().parent}", param_hint="--json")
    from tailrace.bench.engine import Sizes, render_table, run_engine_benchmark

    with _errors_for_people():
        result = run_engine_benchmark(Sizes(sentences, seconds, repeats), lambda line: click.echo(line, err=True))
    click.echo(f"\n{render_table(result)}")
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
        click.echo(f"\nwritten to {json_file}")


@contextmanager
def _errors_for_people() -> Iterator[None]:
    """What Tailrace raises on purpose says enough: no traceback of ours around it."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except TailraceError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
