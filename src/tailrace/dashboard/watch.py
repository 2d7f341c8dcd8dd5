"""Watches a run: polls its progress, and shows it as a table or as lines until the run ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from rich.console import Console

from tailrace.dashboard.live import LiveTable
from tailrace.dashboard.plain import plain_line
from tailrace.errors import OptionError, shorten
from tailrace.signals import terminable

POLL_S = 0.1
"""How soon the end of a run is noticed, however long the interval."""

Show = Callable[[dict[str, Any]], None]


class Watchable(Protocol):
    """The part of a run handle that watching needs."""

    @property
    def isActive(self) -> bool: ...

    @property
    def lastProgress(self) -> dict[str, Any] | None: ...

    def awaitTermination(self, timeout: float | None = None) -> bool: ...

    def stop(self, timeout: float | None = None) -> None: ...


def watch(
    run: Watchable,
    interval_s: float = 1.0,
    console: Console | None = None,
    sleep: Callable[[float], None] = time.sleep,
    *,
    summary_follows: bool = False,
) -> None:
    """Show the progress of a run until it ends: a live table on a terminal, lines elsewhere.

    Raises what the run has failed with. Ctrl-C and SIGTERM drain the run, as they do in ``awaitTermination``.

    Args:
        run: the handle of the run.
        interval_s: seconds between two looks.
        console: where to show it. ``None``: standard output.
        sleep: waits for some seconds; for tests.
        summary_follows: whether a summary of the finished run is printed next: the table then makes room for it.

    Example:
        >>> topology = tr.Topology("numbers")
        >>> topology.source("numbers", tr.from_iterable(range(10))).sink("out", tr.to_list())
        >>> tr.watch(topology.run(workers=1))
        20... numbers finished ...
    """
    if not hasattr(run, "lastProgress"):
        raise OptionError(f"not a run: run={shorten(run)}; did you mean what topology.run() returns?")
    console = console or Console()
    with terminable():
        try:
            follow(run, interval_s, console, sleep, summary_follows=summary_follows)
        except KeyboardInterrupt:
            try:  # includes the message: a second Ctrl-C may follow at once
                console.print("draining: what was read still arrives (Ctrl-C again to give up)", highlight=False)
                run.stop()
            except KeyboardInterrupt:
                run.stop(0)
                raise
            raise
        run.awaitTermination()


def follow(
    run: Watchable,
    interval_s: float = 1.0,
    console: Console | None = None,
    sleep: Callable[[float], None] = time.sleep,
    *,
    summary_follows: bool = False,
) -> None:
    """Show each new progress until the run is over, and leave its error and Ctrl-C to the caller."""
    if not isinstance(interval_s, int | float) or not interval_s > 0:
        raise OptionError(f"interval must be positive: interval_s={shorten(interval_s)}; is it a number of seconds?")
    console = console or Console()
    if console.is_terminal and not console.is_dumb_terminal:
        with LiveTable(console, summary_follows=summary_follows) as table:
            poll(run, table.update, interval_s, sleep)
    else:
        poll(run, _printer(console), interval_s, sleep)


def _printer(console: Console) -> Show:
    def show(progress: dict[str, Any]) -> None:
        console.print(plain_line(progress), soft_wrap=True, markup=False, highlight=False)

    return show


def poll(run: Watchable, show: Show, interval_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Call ``show`` with each new progress, every ``interval_s`` and at the end of the run, then return."""
    shown = None
    left_s = 0.0
    while True:
        active = run.isActive  # read before the progress, so that the last progress shown is the final one
        if left_s <= 0 or not active:
            progress = run.lastProgress
            if progress is not None and progress != shown:
                show(progress)
                shown = progress
            left_s = interval_s
        if not active:
            return
        sleep(min(left_s, POLL_S))
        left_s -= POLL_S
