"""The word count on Bytewax, in two processes: a baseline that is meant to be hard to beat.

Two sources read the same sentences, half of ``count`` each. Every sentence is split into words, every word goes to
the process that owns it, a running count is kept per word, and every update ``(word, count)`` reaches a sink that
discards it. No recovery store: nothing is snapshotted, which is the faster way to run Bytewax.

Two flows. ``words`` is what its users write, at its best: each word is an item of the dataflow. ``bundles`` is the
ceiling: the user hashes words into buckets and ships lists of them, so that the engine sees few and large items; that
is hand-written batching and routing inside user code, with the latency of a whole source batch.
"""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Any, Literal

from tailrace.errors import TailraceError
from tailrace_research.bench.children import run_children
from tailrace_research.bench.engine.sentences import count_words

Flow = Literal["words", "bundles"]

PROCESSES = 2
SEED = 1
BATCH = 1_000  # sentences a poll; the best of 10, 100, 1,000 and 5,000, by one run each
EPOCH_S = 10.0  # Bytewax's default; 1 s and 100 s were alike, 0.1 s slower, by one run each


def why_unavailable() -> str | None:
    """One sentence on why Bytewax cannot run here, or None if it can."""
    if importlib.util.find_spec("bytewax") is None:
        return "bytewax is not installed (`pip install 'tailrace-research[bench]'`, on Pythons it has a wheel for)"
    return None


def run_bytewax(
    count: int, workdir: Path, *, flow: Flow = "words", batch: int = BATCH, timeout_s: float = 120.0
) -> dict[str, Any]:
    """Count the words of ``count`` sentences: ``words_per_s``, ``cpu_s``, ``words``.

    The time runs from the first poll of a source to the last write of a sink, over both processes. So does the CPU
    time: interpreter start-up is in neither. ``workdir`` must exist; the files in it are the caller's to delete.
    """
    reason = why_unavailable()
    if reason is not None:
        raise TailraceError(f"baseline skipped: {reason}")
    common = {
        "flow": flow,
        "sentences": count // PROCESSES,
        "seed": SEED,
        "batch": batch,
        "epoch_s": EPOCH_S,
        "addresses": _free_addresses(PROCESSES),
    }
    options = [{**common, "process": process} for process in range(PROCESSES)]
    results = run_children("tailrace_research.bench.engine.bytewax_process", options, workdir, timeout_s)
    words = sum(result["words"] for result in results)
    expected = PROCESSES * count_words(SEED, count // PROCESSES)
    if words != expected:
        raise TailraceError(f"bytewax lost or doubled words: expected={expected} counted={words}")
    elapsed_ns = max(result["last_ns"] for result in results) - min(result["first_ns"] for result in results)
    return {
        "words_per_s": words * 1e9 / elapsed_ns,
        "cpu_s": sum(result["cpu_s"] for result in results),
        "words": words,
    }


def _free_addresses(count: int) -> list[str]:
    """Loopback addresses that were free a moment ago: Bytewax wants to be told the ports of all processes."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    finally:
        for listener in listeners:
            listener.close()
