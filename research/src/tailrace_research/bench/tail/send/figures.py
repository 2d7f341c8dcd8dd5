"""Shared by the parts of the row about send schedulers: the stream, its figures, and their layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

from tailrace.clock import MILLISECOND_NS
from tailrace_research.bench.tail.run import SIMULATED, Result, Samples, TailSizes, ratios
from tailrace_research.bench.tail.send.bursts import BurstOutcome, Bursts, draw_bursts
from tailrace_research.bench.tail.send.worker_uplink import SendingResult
from tailrace_research.bench.turns import Contest, Figures, range_of

NAME = "lbf"
SLOT_UNITS = 3
"""Units of work that a tuple takes on the link: about a thousand tuples a second leave little to the processors."""

STEMS = {"largest": "largest backlog", "blocked_ms": "blocked, ms", "slowest_ms": "slowest task", "mean_ms": "all"}


def contests_of(
    names: Sequence[str], measure: Callable[[str, int, Bursts], Figures], sizes: TailSizes
) -> list[Contest]:
    """One for each name, all on the streams of the same seeds."""
    seeds = {name: count(1) for name in names}

    def run(name: str) -> Figures:
        seed = next(seeds[name])
        slot_ns = int(SLOT_UNITS * sizes.unit_ms * MILLISECOND_NS)
        return measure(name, seed, draw_bursts(seed, sizes.tuples, slot_ns))

    return [Contest(f"send, {name}", partial(run, name)) for name in names]


def live_figures(name: str, outcome: BurstOutcome) -> Figures:
    return _figures(f"{NAME}_{name}", outcome.latencies_ns, outcome.largest, sum(outcome.blocked_ms))


def simulated_figures(name: str, made: SendingResult) -> Figures:
    blocked_ms = sum(made.blocked_ns) / MILLISECOND_NS
    return _figures(f"{NAME}{SIMULATED}{name}", made.latencies_ns, made.largest, blocked_ms)


def _figures(prefix: str, latencies_ns: Sequence[Sequence[int]], largest: Sequence[int], blocked_ms: float) -> Figures:
    means_ms = [sum(one) / len(one) / MILLISECOND_NS for one in latencies_ns if one]
    everything = [latency_ns for one in latencies_ns for latency_ns in one]
    return {
        f"{prefix}_largest": float(max(largest)),
        f"{prefix}_blocked_ms": blocked_ms,
        f"{prefix}_slowest_ms": max(means_ms),
        f"{prefix}_mean_ms": sum(everything) / len(everything) / MILLISECOND_NS,
    }


def against(samples: Samples, infix: str, name: str, rivals: Sequence[str], stem: str) -> list[float]:
    """Repeat by repeat, the share that a figure is of its best rival's."""
    sides = [_shares(samples, f"{NAME}{infix}{name}_{stem}", f"{NAME}{infix}{rival}_{stem}") for rival in rivals]
    return [max(shares) for shares in zip(*sides, strict=True)]


def _shares(samples: Samples, above: str, below: str) -> list[float]:
    """A rival that was never held back leaves no ratio: a scheduler that was not either counts as equal."""
    if all(samples[below]):
        return ratios(samples, above, below)
    pairs = zip(samples[above], samples[below], strict=True)
    return [one / other if other else float(one > 0) for one, other in pairs]


def cuts(samples: Samples, infix: str, key: str, name: str, rivals: Sequence[str]) -> Samples:
    """How much lower backlog and the slowest task's mean are than the best rival's, and the share of time blocked."""
    return {
        f"{key}_backlog_cut": [1 - share for share in against(samples, infix, name, rivals, "largest")],
        f"{key}_blocked_ratio": against(samples, infix, name, rivals, "blocked_ms"),
        f"{key}_slowest_cut": [1 - share for share in against(samples, infix, name, rivals, "slowest_ms")],
    }


def rows_of(result: Result, title: str, titles: Mapping[str, str]) -> list[Sequence[str]]:
    """A heading, and a row for each name; beside live figures those of the simulator, if there are any."""
    simulated = any(f"{NAME}{SIMULATED}{name}_mean_ms" in result for name in titles)
    heading = [cell for stem in STEMS.values() for cell in (stem, "", *(["simulated"] if simulated else []))]
    rows: list[Sequence[str]] = [(title, *heading)]
    for name, words in titles.items():
        cells: list[str] = []
        for stem in STEMS:
            form = "{:,.0f}" if stem in ("largest", "blocked_ms") else "{:,.1f}"
            key = f"{NAME}_{name}_{stem}"
            cells += [form.format(result[key]), range_of(result, key, form)]
            cells += [form.format(result[f"{NAME}{SIMULATED}{name}_{stem}"])] if simulated else []
        rows.append((words, *cells))
    return rows
