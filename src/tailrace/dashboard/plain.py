"""One line per progress, for logs, pipes and CI: nothing is aligned, and warnings come last."""

from __future__ import annotations

from typing import Any

from tailrace.dashboard import text
from tailrace.metrics.progress import RUNNING

MOST_EDGES = 4

TAIL = {"p50": "p50", "p99": "p99", "p999": "p99.9", "max": "max"}
"""The percentiles that are shown: key in the progress, and label."""


def plain_line(progress: dict[str, Any]) -> str:
    """A progress in one line without colours. Latencies are those of the interval."""
    parts = [
        f"{progress['timestamp']} {progress['name']} {progress['status']}",
        text.elapsed(progress["elapsedMs"]),
        f"in {text.rate(progress['inputRowsPerSecond'])}",
        f"done {text.rate(progress['processedRowsPerSecond'])}",
        f"pending {text.count(progress['pending'])}",
        f"complete {latency_words(progress['latencyMs']['interval']['complete'])}",
        f"workers {workers_running(progress)}",
        *replay_words(progress),
        *edge_words(progress),
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


def replay_words(progress: dict[str, Any]) -> list[str]:
    """The effect of hedging, in one entry; empty if it was never on."""
    replay = progress.get("replay", {})
    rule = progress.get("tail", {}).get("replay")
    if not (rule or replay.get("hedges")):
        return []
    counts = {"hedges": "hedges", "won": "won", "wasted": "wasted", "cancelledTuples": "tuples cancelled"}
    words = [f"{name} {text.count(replay[key])}" for key, name in counts.items()]
    if rule:
        words.append(f"timeout {text.latency(replay['timeoutMs'])}")
        if replay["hedgesLeft"] is not None:
            words.append(f"left {replay['hedgesLeft']:.0f}")
    return [" ".join([*words, f"({rule or 'off'})"])]


def edge_words(progress: dict[str, Any]) -> list[str]:
    """One entry for each edge with a load-aware grouping. After the first few, only their number."""
    edges = progress.get("edges", [])
    rest = len(edges) - MOST_EDGES
    return [*map(_edge, edges[:MOST_EDGES]), *([f"and {rest} more edges"] if rest > 0 else [])]


def _edge(edge: dict[str, Any]) -> str:
    words = [f"{edge['from']} → {edge['to']} ({edge['grouping']})"]
    if edge["mostShare"] is not None:
        words.append(f"shares {text.ratio(edge['leastShare'])}..{text.ratio(edge['mostShare'])}")
    if edge["estimateMs"] is not None:
        words.append(f"estimate {text.latency(edge['estimateMs'])}, measured {text.latency(edge['measuredMs'])}")
    if edge["held"] or edge["credits"]:
        words.append(f"held {text.count(edge['held'])}, credits {text.count(edge['credits'])}")
    return " ".join(words)


def troubles(progress: dict[str, Any]) -> list[str]:
    """The troubles so far, worst first, in a few words each."""
    names = {
        "recoveries": "recoveries",
        "reemitted": "re-emitted",
        "duplicatesDropped": "duplicates dropped",
        "skipped": "skipped",
        "deadLetters": "dead letters",
    }
    words = [f"{name} {text.count(progress[key])}" for key, name in names.items() if progress[key]]
    words += [
        f"threads given up in {operator['name']} {text.count(operator['calls']['givenUpThreads'])}"
        for operator in progress["operators"]
        if operator.get("calls") and operator["calls"]["givenUpThreads"]
    ]
    lost = progress["stateLost"]
    worst = [f"failed: {progress['error']}"] if progress.get("error") else []
    return [*worst, *([f"state lost: {text.listed(lost)}"] if lost else []), *words]
