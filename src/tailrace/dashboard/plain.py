"""One progress, one line: for logs, pipes and CI, so nothing is aligned and trouble comes last."""

from __future__ import annotations

from typing import Any

from tailrace.dashboard import text
from tailrace.metrics.progress import RUNNING

TAIL = {"p50": "p50", "p99": "p99", "p999": "p99.9", "max": "max"}
"""The percentiles worth a glance: key in the progress, name for people."""


def plain_line(progress: dict[str, Any]) -> str:
    """The whole progress in one line without colours. Latencies are those of the interval."""
    parts = [
        f"{progress['timestamp']} {progress['name']} {progress['status']}",
        text.elapsed(progress["elapsedMs"]),
        f"in {text.rate(progress['inputRowsPerSecond'])}",
        f"done {text.rate(progress['processedRowsPerSecond'])}",
        f"pending {text.count(progress['pending'])}",
        f"complete {latency_words(progress['latencyMs']['interval']['complete'])}",
        f"workers {workers_running(progress)}",
        *troubles(progress),
    ]
    return " | ".join(parts)


def latency_words(distribution: dict[str, Any]) -> str:
    """``p50 1.24 ms p99 … p99.9 … max …``, or a dash if nothing was measured."""
    if not distribution["count"]:
        return text.NOTHING
    return " ".join(f"{name} {text.latency(distribution[key])}" for key, name in TAIL.items())


def workers_running(progress: dict[str, Any]) -> str:
    """``3/4``."""
    states = [worker["state"] for worker in progress["workers"]]
    return f"{states.count(RUNNING)}/{len(states)}"


def troubles(progress: dict[str, Any]) -> list[str]:
    """What went wrong so far, the worst first, a few words each; empty if nothing did."""
    names = {
        "recoveries": "recoveries",
        "reemitted": "re-emitted",
        "duplicatesDropped": "duplicates dropped",
        "skipped": "skipped",
        "deadLetters": "dead letters",
    }
    words = [f"{name} {text.count(progress[key])}" for key, name in names.items() if progress[key]]
    lost = progress["stateLost"]
    return [f"state lost: {text.listed(lost)}", *words] if lost else words
