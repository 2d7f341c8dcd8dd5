"""The summary of a run: its totals, its operators, and a chart of its latencies."""

from __future__ import annotations

import math
from collections import Counter
from itertools import accumulate
from typing import Any

from tailrace.dashboard import text
from tailrace.dashboard.plain import edge_words, latency_words, replay_words, troubles

_BAR_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def render_summary(progress: dict[str, Any]) -> str:
    """Several lines of plain text, without a newline at the end."""
    sections = [_totals(progress), _operators(progress["operators"]), _chart(progress["latencyHistogram"])]
    return "\n\n".join("\n".join(section) for section in sections if section)


def _workers(workers: list[dict[str, Any]]) -> str:
    """How many there are, and where, if they are on several hosts."""
    there = Counter(worker["host"] for worker in workers if worker["host"])
    places = ", ".join(f"{there[host]} on {host}" for host in sorted(there))
    return f"{len(workers)} ({places})" if len(there) > 1 else str(len(workers))


def _totals(progress: dict[str, Any]) -> list[str]:
    latency = progress["latencyMs"]
    durable = latency["durable"]
    seconds = progress["elapsedMs"] / 1e3
    mean_rate = progress["completed"] / seconds if seconds else 0.0
    cpu_s = sum(worker["cpuSeconds"] for worker in progress["workers"])
    roots = f"{text.count(progress['completed'])} complete, {text.count(progress['durable'])} durable"
    return [
        f"{progress['name']} after {text.elapsed(progress['elapsedMs'])}: {progress['status']}",
        f"  roots     {roots}, {text.count(progress['pending'])} pending, {text.rate(mean_rate)}",
        f"  complete  {latency_words(latency['complete'])}",
        *([f"  durable   {latency_words(durable)}"] if durable["count"] else []),
        f"  workers   {_workers(progress['workers'])}, {text.elapsed(cpu_s * 1e3)} of CPU time",
        *(f"  replay    {words}" for words in replay_words(progress)),
        *(f"  edge      {words}" for words in edge_words(progress)),
        "  trouble   " + f"\n{'':12}".join(troubles(progress) or ["none"]),
    ]


def _operators(operators: list[dict[str, Any]]) -> list[str]:
    rows = [("operator", "tasks", "received", "emitted", "p50", "p99", "max")]
    for operator in operators:
        execution = operator["executionMs"]
        times = [text.latency(execution[key]) for key in ("p50", "p99", "max")]
        flows = [text.count(operator[key]) for key in ("received", "emitted")]
        rows.append((operator["name"], str(len(operator["tasks"])), *flows, *times))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_aligned(row, widths) for row in rows]


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    first = f"  {row[0]:<{widths[0]}}"
    return first + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))


def _chart(buckets: list[list[float]]) -> list[str]:
    """One bar per bucket, with its count and the share of all roots that took no longer."""
    if not buckets:
        return []
    counts = [int(count) for _, count in buckets]
    labels = [text.bound(upper_ms) for upper_ms, _ in buckets]
    width = max(map(len, labels))
    lines = [f"  {'latency to complete':<{width + _BAR_WIDTH + 3}} {'count':>7} {'no longer':>10}"]
    for label, count, total in zip(labels, counts, accumulate(counts), strict=True):
        bar = _bar(count / max(counts))
        lines.append(
            f"  ≤ {label:>{width}} {bar:<{_BAR_WIDTH}} {text.count(count):>7} {_share(total, sum(counts)):>10}"
        )
    return lines


def _bar(fraction: float) -> str:
    """Full blocks and a partial one. Any fraction above 0 is visible."""
    eighths = math.ceil(fraction * _BAR_WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def _share(part: int, whole: int) -> str:
    """A percentage, rounded down: all but one of a million is not 100%."""
    return f"{part * 100_000 // whole / 1_000:.3f}%"
