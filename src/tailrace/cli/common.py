"""Shared by several commands: options, a Spark session, a file for figures, and readable errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from tailrace import TailraceError, TaskError
from tailrace.signals import Terminated, exit_code

MIN_SECONDS = 1.0  # shorter benchmarks and demos would end during their warm-up
SPARE_SLOTS = 1  # in a local Spark, so that a lost worker can restart before its old task is gone

Conf = dict[str, str]
Command = TypeVar("Command", bound=Callable[..., Any])


def parse_conf(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Conf:
    """A callback of click: pairs ``key=value`` as a dict."""
    for value in values:
        if "=" not in value.strip("="):
            raise click.BadParameter(f"{value!r} is not of the form key=value; for example spark.executor.memory=2g")
    return {key.strip(): text.strip() for key, _, text in (value.partition("=") for value in values)}


def host_option_of(default: str) -> Callable[[Command], Command]:
    """The option ``--host``, with this default."""
    return click.option(
        "--host",
        type=click.Choice(["spark", "process"]),
        default=default,
        show_default=True,
        help="What hosts the workers: Spark, or plain processes on this machine, which need no Java.",
    )


host_option = host_option_of("spark")
master_option = click.option(
    "--master", metavar="URL", help="Spark master, such as spark://host:7077 or yarn. Without it: a local Spark."
)
conf_option = click.option(
    "--conf",
    metavar="KEY=VALUE",
    multiple=True,
    callback=parse_conf,
    help="A Spark setting, such as spark.log.level=WARN. May be repeated.",
)


def check_spark_options(host: str, master: str | None, conf: Conf) -> None:
    """Raise BadParameter if options of Spark are given for plain processes."""
    if host == "process" and (master is not None or conf):
        raise click.BadParameter("only Spark has it; did you mean --host spark?", param_hint="--master, --conf")


def check_folder_of(file: Path | None) -> None:
    """Raise BadParameter if the folder of a file to be written is not there."""
    if file is not None and not file.absolute().parent.is_dir():
        raise click.BadParameter(f"no such folder: {file.absolute().parent}", param_hint="--json")


@contextmanager
def session(host: str, master: str | None, conf: Conf, slots: int | None) -> Iterator[Any]:
    """A Spark session, stopped at the end; None if ``host`` is not Spark. ``slots``: of a local session."""
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
def errors_for_people() -> Iterator[None]:
    """Print errors that Tailrace raises on purpose without a traceback: their text says enough."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        click.echo("terminated" if isinstance(interrupt, Terminated) else "interrupted", err=True)
        sys.exit(exit_code(interrupt))
    except TaskError as error:
        click.echo(str(error), err=True)  # it includes the traceback of the user's function
        sys.exit(1)
    except TailraceError as error:
        raise click.ClickException(str(error)) from error


def write_figures(json_file: Path | None, result: Any) -> None:
    """Write the figures of a command as JSON, if a file was named."""
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
        click.echo(f"\nwritten to {json_file}")
