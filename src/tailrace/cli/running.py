"""``tailrace run``: runs the topology that a file defines."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import click
import cloudpickle
from rich.console import Console

import tailrace
from tailrace import Run, Tail, TailraceError, Topology
from tailrace.cli import common
from tailrace.cli.common import SPARE_SLOTS, Conf, conf_option, errors_for_people, host_option, master_option
from tailrace.dashboard import follow, render_summary
from tailrace.dashboard.watch import POLL_S, poll
from tailrace.errors import did_you_mean
from tailrace.policy.hedging.by_name import named_hedge
from tailrace.policy.send_order.by_name import named_send
from tailrace.policy.techniques import PLAIN, checked_scope
from tailrace.signals import terminable

FILE_MODULE = "__tailrace_file__"  # not importable by workers, so that the file's definitions are pickled by value


@click.command()
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
@click.option(
    "--state",
    type=click.Choice(["restart"]),
    help="Start stateful operators with empty state when a checkpoint is resumed: it holds no state.",
)
@click.option(
    "--record",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Write down here what every tuple did, for tailrace sim --trace.",
)
@click.option(
    "--hedge",
    "--replay",
    metavar="RULE",
    help="Send late records once more: adaptive_timeout, fixed_timeout=MS, replicate=SHARE.",
)
@click.option(
    "--shared-queues",
    metavar="WHERE",
    help="Let tasks of an operator draw from one queue: those in one worker, or on one node.",
)
@click.option("--send", metavar="ORDER", help="Have tuples leave a worker in order: lbf, lbf_work, round_robin, fifo.")
@click.option(
    "--encrypt",
    is_flag=True,
    help="Encrypt what goes over the network, also where Spark does not: takes pip install 'tailrace[encrypt]'.",
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
    state: str | None,
    record: str | None,
    hedge: str | None,
    shared_queues: str | None,
    send: str | None,
    encrypt: bool,
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
      tailrace run words.py --record trace/ && tailrace sim --trace trace/
      tailrace run words.py --json | jq .recentLatencyMs.complete.p99

    Ctrl-C and SIGTERM drain: nothing more is read, and what was read still arrives. The second one gives up. Exit
    codes: 0 when all is done, 1 after an error, 130 after Ctrl-C, 143 after SIGTERM.
    """
    common.check_spark_options(host, master, conf)
    topology = load_topology(file)
    with ExitStack() as stack:
        stack.enter_context(terminable())
        stack.enter_context(errors_for_people())
        out = sys.stdout
        if as_json:
            stack.enter_context(redirect_stdout(sys.stderr))  # standard output is for JSON only
        slots = workers + SPARE_SLOTS if workers is not None else None
        spark = stack.enter_context(common.session(host, master, conf, slots))
        rule = None if hedge is None else named_hedge(hedge)
        scheduler = None if send is None else named_send(send)
        scope = None if shared_queues is None else checked_scope(shared_queues)
        chosen = Tail(rule, scope, scheduler)
        tail = None if chosen == PLAIN else chosen
        options: dict[str, Any] = {"workers": workers, "checkpoint": checkpoint, "state": state, "record": record}
        options |= {"tail": tail, "encrypt": encrypt or None}
        handle: Run = topology.run(spark, **{name: value for name, value in options.items() if value is not None})
        stack.enter_context(stopped_at_the_end(handle))
        if metrics_port is not None:
            stack.enter_context(_metrics(handle, metrics_port))
        code = _attend(handle, out if as_json else None)
    sys.exit(code)


def load_topology(place: str) -> Topology:
    """The topology in ``FILE.py`` or ``FILE.py:NAME``. Raises click's usage errors."""
    path, name = _split(place)
    if not path.is_file():
        raise click.BadParameter(f"no such file: {path}; are you in the right folder?", param_hint="FILE.py")
    found = {key: value for key, value in vars(_load(path)).items() if isinstance(value, Topology)}
    names = ", ".join(found) or "none"
    if name:
        if name not in found:
            hint = did_you_mean(name, found) if found else "is it inside a function?"
            fault = f"no such topology: {path}:{name}; topologies={names}; {hint}"
            raise click.BadParameter(fault, param_hint="FILE.py")
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
    """Execute the user's file as ``python FILE.py`` would, except that its module is not ``__main__``."""
    module = ModuleType(FILE_MODULE)
    module.__file__ = str(path)
    sys.path.insert(0, str(path.absolute().parent))
    sys.modules[FILE_MODULE] = module  # dataclasses look up their module
    cloudpickle.register_pickle_by_value(module)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except Exception as error:
        click.echo(users_traceback(error), err=True, nl=False)
        sys.exit(1)
    finally:
        # Definitions of a module that is not in sys.modules are pickled by value, also by workers that pass them on.
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[FILE_MODULE]
    return module


def users_traceback(error: BaseException) -> str:
    """The traceback without frames of Tailrace."""
    ours = str(Path(tailrace.__file__).parent) + os.sep
    report = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = report
    while part is not None:
        frames = [frame for frame in part.stack if not frame.filename.startswith(ours)]
        part.stack = traceback.StackSummary.from_list(frames)
        part = part.__cause__ or part.__context__
    return "".join(report.format())


def _attend(handle: Run, json_out: TextIO | None) -> int:
    """Show the run until it ends, and print its summary or raise its error. Returns the exit code."""
    from tailrace.demo import attend

    console = Console(stderr=json_out is not None)
    if json_out is None:
        show = partial(follow, handle, console=console, summary_follows=True)
    else:
        show = partial(_write_json, handle, json_out)
    ending = attend(handle, show, console)
    if json_out is not None and ending.how != "ended":
        _write_json(handle, json_out)
    error = handle.exception()
    if error is not None and ending.how != "gave up":
        raise error
    if error is None and json_out is None and handle.lastProgress is not None:
        console.print(f"\n{render_summary(handle.lastProgress)}", markup=False, highlight=False, soft_wrap=True)
    return ending.code


def _write_json(handle: Run, out: TextIO) -> None:
    """Write every progress as a line of JSON until the run is over, including the last one."""
    poll(handle, lambda progress: print(json.dumps(progress), file=out, flush=True), POLL_S)


@contextmanager
def stopped_at_the_end(handle: Run) -> Iterator[None]:
    """Stop the run when the block is left, so that no worker stays behind after an error."""
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
