"""The figures of ``bench tail`` as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace_research.bench.tail.run import SIMULATED, STEMS, Result, Row
from tailrace_research.bench.turns import aligned, machine_line, range_of

ENOUGH_REPEATS = 3

PEERS_ROW, PEERS_UNIT_MS = "grouping", 0.1
PEERS = {
    "Flink 2.3, adaptive": "15 / 45",
    "Flink 2.3, round robin": "38 / 111",
    "Bytewax": "125 / 285",
    "Pathway": "870 / 2,120",
    "Ray": "3,400 / 5,600",
    "Spark, micro-batches": "12,700 / 16,600",
    "bare processes, round robin": "22 / 107",
    "bare processes, one queue": "9-22 / 29-72",
}
"""Mean / p99 in ms for the same costs at units of 0.1 ms, each measured apart, in other runs than these."""


def render_table(rows: Sequence[Row], result: Result) -> str:
    """A block for each row: medians, and the range of the repeats in brackets."""
    lines = [line for row in rows for line in (*_block(row, result), "")]
    return "\n".join([*lines, *_footnotes(result)])


def _block(row: Row, result: Result) -> Sequence[str]:
    return row.table(result) if row.name in result["rows"] else [f"{row.name}: not on Spark: {row.not_on_spark}"]


def groupings_table(name: str, prefix: str, policies: Sequence[str], title: str, result: Result) -> list[str]:
    """Live latencies, how they compare with shuffle's, and the simulator's for the same stream."""
    names = (f"{title}, ms", *(cell for stem in STEMS.values() for cell in (stem, "")))
    rows: list[Sequence[str]] = [
        (*names, "mean / shuffle", "p99 / shuffle", "of ideal", "simulated", "live / simulated", "feedback, us")
    ]
    for policy in policies:
        keys = [f"{name}_{policy}_{stem}" for stem in STEMS]
        cells = [cell for key in keys for cell in (f"{result[key]:,.1f}", range_of(result, key, "{:,.1f}"))]
        against = [f"{result[f'{prefix}{policy}_{figure}']:.2f}" for figure in ("mean_ratio", "p99_ratio")]
        ideal = f"{_own_share(prefix, policy, result):.2f}"
        simulated = f"{result[f'{name}{SIMULATED}{policy}_mean_ms']:,.1f}"
        agreement, feedback = result[f"{prefix}{policy}_agreement"], result[f"{name}_{policy}_feedback_us"]
        rows.append((policy, *cells, *against, ideal, simulated, f"{agreement:.2f}", f"{feedback:.0f}"))
    rows.append(_full_knowledge(name, result))
    return [*aligned(rows), *(_peers() if name == PEERS_ROW and result["unit_ms"] == PEERS_UNIT_MS else [])]


def replay_table(settings: Mapping[str, str], tails: Sequence[str], result: Result) -> list[str]:
    """Latencies with and without hedging in each setting, executions a root took, and the simulator's p99.9."""
    names = (cell for stem in STEMS.values() for cell in (stem, ""))
    rows: list[Sequence[str]] = [("1% of executions stall, ms", *names, "executions a root", "simulated", "p99.9")]
    for place, title in settings.items():
        for tail in tails:
            prefix, simulated = f"replay_{place}_{tail}", f"replay{SIMULATED}{place}_{tail}"
            keys = [f"{prefix}_{stem}" for stem in STEMS]
            cells = [cell for key in keys for cell in (f"{result[key]:,.1f}", range_of(result, key, "{:,.1f}"))]
            runs = [f"{result[f'{key}_executions']:.3f}" for key in (prefix, simulated)]
            rows.append((f"{title}, {tail}", *cells, *runs, f"{result[f'{simulated}_p999_ms']:,.1f}"))
    words = [
        f"Hedging, {where}: p99.9 lower by {result[f'replay_{key}p999_cut']:.0%} for "
        f"{result[f'replay_{key}extra_work']:.1%} more executions; simulated "
        f"{result[f'replay_sim_{key}p999_cut']:.0%} for {result[f'replay_sim_{key}extra_work']:.1%}."
        for key, where in (("", "30% load"), ("middle_", "40% load"), ("chain_", "a chain"))
    ]
    loss, simulated = result["replay_high_load_loss"], result["replay_sim_high_load_loss"]
    return [*aligned(rows), *words, f"At 80% load p99 changes by {loss:+.0%}; simulated {simulated:+.0%}."]


def _own_share(prefix: str, policy: str, result: Result) -> float:
    """The share of the ideal. Late binding is compared with it in two ways; the better appears as the first."""
    own = f"{prefix}{policy}_only_vs_full"
    share: float = result[own if own in result else f"{prefix}{policy}_vs_full"]
    return share


def _full_knowledge(name: str, result: Result) -> Sequence[str]:
    figures = [f"{result[f'{name}{SIMULATED}full_knowledge_{stem}']:,.1f}" for stem in STEMS]
    return (
        "full knowledge, simulated",
        *(cell for figure in figures for cell in (figure, "")),
        "",
        "",
        "",
        figures[0],
        "",
        "",
    )


def _peers() -> list[str]:
    rows = aligned([("measured apart, on other runs, ms", "mean / p99"), *PEERS.items()])
    return ["", *rows]


def _footnotes(result: Result) -> list[str]:
    few = ["These are few repeats: too few to tell a difference from noise."]
    return [
        *(few if result["repeats"] < ENOUGH_REPEATS else []),
        f"Medians of repeats [least..most]: {result['repeats']} of {result['tuples']:,} tuples, taking turns; each "
        "repeat is another stream, the same for all.",
        f"Work is sleep, in units of {result['unit_ms']:g} ms: it costs no processor time, so 2 workers stand for any.",
        "Latency: from when a tuple was due (open loop) until it has been executed.",
        "Ratios are medians of those of each repeat. Simulated: the same stream and policy without an engine.",
        "Of ideal: the mean that exact knowledge of all calls would have had, over that of the run.",
        "Feedback: of load-aware groupings, a tuple, in the worker that has most; 10 us are 1% of a core at 1,000/s.",
        *([] if result["host"] == "process" else [f"Workers are tasks of Spark, {result['host']}."]),
        machine_line(result),
    ]
