"""``tailrace demo`` and ``tailrace doctor``: show that Tailrace works here, or why it does not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from tailrace import TailraceError
from tailrace.cli import common
from tailrace.cli.common import (
    MIN_SECONDS,
    SPARE_SLOTS,
    Conf,
    conf_option,
    errors_for_people,
    host_option,
    master_option,
)
from tailrace.signals import terminable


@click.command()
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
    with errors_for_people():
        diagnosis = _diagnose(master, conf)
    if as_json:
        click.echo(json.dumps(diagnosis.to_json(), indent=2))
    else:
        for finding in diagnosis:
            mark = click.style("✓", fg="green") if finding.ok else click.style("✗", fg="red", bold=True)
            if finding.advice:
                mark = click.style("!", fg="yellow", bold=True)
            click.echo(f"{mark} {finding.what}: {finding.detail}")
        well = "all is well, but see ! above" if any(finding.advice for finding in diagnosis) else "all is well"
        click.echo(f"\n{well}" if diagnosis.ok else "\nnot everything is well: see ✗ above")
    sys.exit(0 if diagnosis.ok else 1)


def _diagnose(master: str | None, conf: Conf) -> Any:
    from tailrace.spark.doctor import Diagnosis, Finding, check_java, check_plain_python, examine
    from tailrace.spark.slots import is_local

    java = check_java()
    if not java.ok:
        return Diagnosis([java], [])  # without Java there is no session
    # Executors on a cluster are probed with their own Python. A local session started by Tailrace uses this
    # interpreter, so the one that other local sessions would use is checked separately.
    others = [check_plain_python(conf)] if master is None or is_local(master) else []
    try:
        with common.session("spark", master, conf, slots=None) as spark:
            found = examine(spark)
            return Diagnosis([*found.checks, *others], found.executors)
    except TailraceError as error:
        return Diagnosis([java, Finding(False, "session", str(error)), *others], [])


@click.command()
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

    with terminable(), errors_for_people(), common.session(host, None, {}, workers + SPARE_SLOTS) as spark:
        code = run_demo(seconds, workers, kill, out, Console(), spark)
    sys.exit(code)
