"""The live table: the current state of a run, with one row per operator, within 100 columns.

Rates, execution times and busy ratios are those of the last interval; errors count from the start of the run.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tailrace.dashboard import text
from tailrace.dashboard.plain import TAIL, edge_words, replay_words, troubles, workers_running
from tailrace.metrics.progress import FINISHED

_NAME_WIDTH = 18
_BUSY_ALARM = 0.9  # a busier task has no reserve: its queue grows with the next burst
_COLUMNS = ("role", "tasks", "in/s", "out/s", "queued", "p50", "p99", "max", "busy", "errors")


class LiveTable:
    """A context manager that shows the latest progress on the terminal, and leaves the last one there.

    With ``summary_follows`` it leaves nothing after a finished run, because the caller prints a summary.
    """

    def __init__(self, console: Console | None = None, *, summary_follows: bool = False) -> None:
        self._summary_follows = summary_follows
        # Refreshed explicitly: a refresh thread would take time from the workers for nothing.
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, progress: dict[str, Any]) -> None:
        """Show ``progress`` in place of the one before."""
        self._live.transient = self._summary_follows and progress["status"] == FINISHED
        self._live.update(render(progress), refresh=True)


def render(progress: dict[str, Any]) -> RenderableType:
    """The header and the table of operators."""
    return Group(*_header(progress), _table(progress["operators"]))


def _header(progress: dict[str, Any]) -> list[Text]:
    latency = progress["latencyMs"]
    facts = [
        f"in {text.rate(progress['inputRowsPerSecond'])}",
        f"done {text.rate(progress['processedRowsPerSecond'])}",
        f"pending {text.count(progress['pending'])}",
        f"workers {workers_running(progress)}",
        f"recoveries {progress['recoveries']}",
    ]
    # Recoveries are always shown among the facts already.
    trouble = [words for words in troubles(progress) if not words.startswith("recoveries ")]
    return [
        _line((progress["name"], "bold"), f"  {progress['status']}  ", (text.elapsed(progress["elapsedMs"]), "dim")),
        _line("  ".join(facts)),
        *(_line(words) for words in replay_words(progress)),
        *(_line(words) for words in edge_words(progress)),
        *([Text("  ".join(trouble), style="yellow")] if trouble else []),  # wraps, so that no warning is cut off
        _latency_line("complete, now", latency["interval"]["complete"]),
        _latency_line("since the start", latency["complete"]),
        Text(),
    ]


def _latency_line(label: str, distribution: dict[str, Any]) -> Text:
    cells = [f"{name} {text.latency(distribution[key]):<9}" for key, name in TAIL.items()]
    return _line((f"{label:<17}", "dim"), "".join(cells).rstrip())


def _line(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _table(operators: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="dim", pad_edge=False)
    table.add_column("operator", max_width=_NAME_WIDTH, no_wrap=True, overflow="ellipsis", style="bold")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "role" else "right", no_wrap=True)
    for operator in operators:
        table.add_row(*_row(operator))
    return table


def _row(operator: dict[str, Any]) -> list[Text]:
    execution = operator["intervalExecutionMs"]
    busiest = max((task["busyRatio"] for task in operator["tasks"]), default=0.0)
    errors = operator["skipped"] + operator["deadLetters"]
    return [
        Text(operator["name"]),  # as Text, so that brackets in a name are not parsed as markup
        Text(operator["role"]),
        Text(str(len(operator["tasks"]))),
        Text(text.rate(operator["receivedPerSecond"]).removesuffix("/s")),
        Text(text.rate(operator["emittedPerSecond"]).removesuffix("/s")),
        Text(text.count(operator["queued"])),
        *(Text(text.latency(execution[key])) for key in ("p50", "p99", "max")),
        Text(text.ratio(operator["busyRatio"]), style="red" if busiest > _BUSY_ALARM else ""),
        Text(text.count(errors), style="red" if errors else ""),
    ]
