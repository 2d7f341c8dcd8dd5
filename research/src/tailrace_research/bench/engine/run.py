"""The engine's benchmark: word count against Bytewax; three hops against bare sockets and Spark's micro-batches.

Tailrace runs with rings in shared memory and without, where there are any: "over TCP" is what the rings replace.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.ring import why_unavailable as why_no_rings
from tailrace_research.bench.engine.bare_hops import run_bare_hops
from tailrace_research.bench.engine.bytewax_words import Flow, run_bytewax, why_unavailable
from tailrace_research.bench.engine.hops import run_hops
from tailrace_research.bench.engine.spark_query import run_spark_query
from tailrace_research.bench.engine.words import WORKERS as WORKERS
from tailrace_research.bench.engine.words import run_words
from tailrace_research.bench.turns import (
    Contest,
    Figures,
    Say,
    aligned,
    machine_facts,
    machine_line,
    range_of,
    summarise,
    take_turns,
)

RATES = (1_000, 5_000)  # tuples a second
QUERY_RATE = RATES[0]  # the rate of the Spark query, whose latency is that of its batches at any rate
MIN_REPEATS = 3
CPU = "cpu_us"  # processor time of all workers for each tuple
LATENCIES = {"p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9"}
HOSTS = {"spark": "Spark", "process": "this program"}
COUNTERS = {"Tailrace": "", "Tailrace over TCP": "tcp_", "Bytewax": "bytewax_"}
COUNTERS["Bytewax, bundled by hand"] = "bytewax_bundles_"
HOPPERS = {"Tailrace": "", "Tailrace over TCP": "tcp_", "bare sockets": "bare_", "Spark micro-batches": "spark_"}


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    sentences: int
    seconds: float
    repeats: int


def run_engine_benchmark(sizes: Sizes, say: Say, spark: Any = None) -> dict[str, Any]:
    """Measure everything, telling ``say`` how it goes. The result is flat: see ``summarise``.

    With a Spark session, workers are its tasks, and its micro-batches are measured as well.
    """
    reason = why_unavailable()
    if reason is not None:
        say(f"the comparison with Bytewax is skipped: {reason}")
    facts = machine_facts()
    no_rings = why_no_rings()
    if no_rings is not None:
        say(f"there are no rings, so all of this is over TCP: {no_rings}")
    contests = list(_contests(sizes, spark, with_bytewax=reason is None, with_rings=no_rings is None))
    samples = take_turns(contests, sizes.repeats, say, _in_words)
    return {**summarise(samples), **_settings(sizes, spark), **facts}


def _contests(sizes: Sizes, spark: Any, *, with_bytewax: bool, with_rings: bool) -> Iterator[Contest]:
    yield Contest("word count", lambda: _words("", run_words(sizes.sentences, spark)))
    if with_rings:
        yield Contest("word count, over TCP", lambda: _words("tcp_", run_words(sizes.sentences, spark, ring=False)))
    if with_bytewax:
        yield Contest("word count, Bytewax", lambda: _words("bytewax_", _bytewax(sizes.sentences, "words")))
        yield Contest(
            "word count, Bytewax bundles", lambda: _words("bytewax_bundles_", _bytewax(sizes.sentences, "bundles"))
        )
    for rate in RATES:
        yield Contest(f"hops at {rate:,}/s", lambda rate=rate: _hops("", rate, run_hops(rate, sizes.seconds, spark)))  # type: ignore[misc]
        if with_rings:
            yield Contest(
                f"hops at {rate:,}/s, over TCP",
                lambda rate=rate: _hops("tcp_", rate, run_hops(rate, sizes.seconds, spark, ring=False)),  # type: ignore[misc]
            )
        yield Contest(
            f"hops at {rate:,}/s, bare sockets",
            lambda rate=rate: _hops("bare_", rate, run_bare_hops(rate, sizes.seconds)),  # type: ignore[misc]
        )
        if spark is not None and rate == QUERY_RATE:
            yield Contest(
                f"hops at {rate:,}/s, micro-batches",
                lambda rate=rate: _hops("spark_", rate, run_spark_query(spark, rate, sizes.seconds)),  # type: ignore[misc]
            )


def _bytewax(sentences: int, flow: Flow) -> Figures:
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        return run_bytewax(sentences, Path(folder), flow=flow)


def _words(prefix: str, result: Figures) -> Figures:
    return {
        f"{prefix}words_per_s": result["words_per_s"],
        f"{prefix}cpu_s_per_mwords": result["cpu_s"] * 1e6 / result["words"],
    }


def _hops(prefix: str, rate: int, result: Figures) -> Figures:
    return {f"{prefix}{key}_{rate}": result[key] for key in (*LATENCIES, CPU) if key in result}


def _settings(sizes: Sizes, spark: Any) -> dict[str, Any]:
    host = "process" if spark is None else "spark"
    return {"sentences": sizes.sentences, "seconds": sizes.seconds, "repeats": sizes.repeats, "host": host}


def _in_words(figures: Figures) -> str:
    parts = []
    for key, value in figures.items():
        if key.endswith("words_per_s"):
            parts.append(f"{value:,.0f} words/s")
        elif "cpu_s" in key:
            parts.append(f"{value:.2f} s of CPU per million")
        elif CPU in key:
            parts.append(f"{value:.0f} us of CPU a tuple")
        else:
            name = next(name for stem, name in LATENCIES.items() if stem in key)
            parts.append(f"{name} {value:.2f} ms")
    return ", ".join(parts)


# -- the table


def render_table(result: dict[str, Any]) -> str:
    """Both comparisons as text: medians, ratios, and the range of the repeats in brackets."""
    lines = [*_words_table(result), "", *_hops_table(result), "", *_footnotes(result)]
    return "\n".join(lines)


def _words_table(result: dict[str, Any]) -> list[str]:
    rows: list[Sequence[str]] = [("word count", "words/s", "", "CPU s per million", "")]
    for title, prefix in COUNTERS.items():
        speed, cpu = f"{prefix}words_per_s", f"{prefix}cpu_s_per_mwords"
        if speed in result:
            rows.append((title, f"{result[speed]:,.0f}", range_of(result, speed, "{:,.0f}"), *_cpu(result, cpu)))
    for title, prefix in (("Tailrace / over TCP", "tcp_"), ("Tailrace / Bytewax", "bytewax_")):
        if f"{prefix}words_per_s" in result:
            speeds = result["words_per_s"] / result[f"{prefix}words_per_s"]
            cpus = result["cpu_s_per_mwords"] / result[f"{prefix}cpu_s_per_mwords"]
            rows.append((title, f"{speeds:.2f} x", "", f"{cpus:.2f} x", ""))
    return aligned(rows)


def _cpu(result: dict[str, Any], key: str) -> tuple[str, str]:
    return f"{result[key]:.2f}", range_of(result, key, "{:.2f}")


def _hops_table(result: dict[str, Any]) -> list[str]:
    names = (*LATENCIES.values(), "CPU us")
    rows: list[Sequence[str]] = [("three hops, ms", *(cell for name in names for cell in (name, "")))]
    for rate in RATES:
        for title, prefix in HOPPERS.items():
            keys = [f"{prefix}{key}_{rate}" for key in LATENCIES]
            if keys[0] in result:
                cells = [cell for key in keys for cell in (f"{result[key]:.2f}", range_of(result, key, "{:.2f}"))]
                rows.append((f"{title} at {rate:,}/s", *cells, *_hop_cpu(result, f"{prefix}{CPU}_{rate}")))
        if f"tcp_p50_ms_{rate}" in result:
            cpus = result[f"{CPU}_{rate}"] / result[f"tcp_{CPU}_{rate}"]
            rows.append(("Tailrace / over TCP", *_ratios(result, rate, "", "tcp_", "{:.2f} x"), f"{cpus:.2f} x", ""))
        rows.append(("Tailrace / bare sockets", *_ratios(result, rate, "", "bare_", "{:.2f} x"), "", ""))
        if f"spark_p50_ms_{rate}" in result:
            rows.append(("micro-batches / Tailrace", *_ratios(result, rate, "spark_", "", "{:,.0f} x"), "", ""))
    return aligned(rows)


def _hop_cpu(result: dict[str, Any], key: str) -> tuple[str, str]:
    return (f"{result[key]:.0f}", range_of(result, key, "{:.0f}")) if key in result else ("", "")


def _ratios(result: dict[str, Any], rate: int, above: str, below: str, form: str) -> list[str]:
    pairs = [(result[f"{above}{key}_{rate}"], result[f"{below}{key}_{rate}"]) for key in LATENCIES]
    return [cell for one, other in pairs for cell in (form.format(one / other), "")]


def _footnotes(result: dict[str, Any]) -> list[str]:
    few = ["These are few repeats: too few to tell a difference from noise."] if result["repeats"] < MIN_REPEATS else []
    query = "Micro-batches: a Structured Streaming query with three Python functions, as often as Spark can start one."
    micro_batches = [query] if f"spark_p50_ms_{QUERY_RATE}" in result else []
    return [
        *few,
        f"Medians of {result['repeats']} repeats [least..most]; {result['sentences']:,} sentences, "
        f"{result['seconds']:g} s a rate; two processes each, ours hosted by {HOSTS[result['host']]}.",
        machine_line(result),
        "Tailrace's CPU time includes the start of its workers and its time their end; Bytewax's include neither.",
        *micro_batches,
        "CPU us: of both workers, a tuple, start and end left out.",
        "Tailrace acknowledges every tuple; Bytewax runs without recovery, and bare sockets have none.",
    ]
