"""The rings' benchmark: bytes from one Python process to another, against everything else that could carry them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace_research.bench.ipc.channels import CONTESTANTS, why_left_out
from tailrace_research.bench.ipc.pairs import FLAT_OUT, RING_BYTES, Pairs
from tailrace_research.bench.turns import Contest, Figures, Say, machine_facts, summarise, take_turns

MESSAGE_BYTES = (100, 10_000, 40_000, 160_000, 320_000)
RATES = (100, 3_000)  # messages a second
CPU_RATE = 3_000  # at which `<name>_cpu_us_<bytes>` is
LATENCIES = ("p50_us", "p99_us")


@dataclass(frozen=True)
class IpcSizes:
    """How much is measured."""

    seconds: float = 0.5
    repeats: int = 5
    warm_up_s: float = 0.1


QUICK = IpcSizes(seconds=0.15, repeats=1, warm_up_s=0.05)


def run_ipc_benchmark(sizes: IpcSizes, say: Say) -> dict[str, Any]:
    """Measure everything, telling ``say`` how it goes. The result is flat: see ``summarise``."""
    names = contestants(say)
    facts = machine_facts()
    with Pairs(sizes.warm_up_s) as pairs:
        samples = take_turns(list(_contests(pairs, names, sizes.seconds)), sizes.repeats, say, _in_words)
    settings = {"seconds": sizes.seconds, "repeats": sizes.repeats, "ring_bytes": RING_BYTES}
    return {**summarise(samples), **settings, **facts}


def contestants(say: Say) -> list[str]:
    """Contestants that can run here; ``say`` gets a sentence about each of the others."""
    reasons = why_left_out()
    for reason in reasons.values():
        say(reason)
    missing = {name for names in reasons for name in names}
    return [name for name in CONTESTANTS if name not in missing]


def _contests(pairs: Pairs, names: Sequence[str], seconds: float) -> Iterator[Contest]:
    for size in MESSAGE_BYTES:
        for rate in (*RATES, FLAT_OUT):
            title = f"{size:,} bytes {'at ' + format(rate, ',') + '/s' if rate else 'flat out'}"
            yield Contest(title, lambda size=size, rate=rate: _all(pairs, names, size, rate, seconds))  # type: ignore[misc]


def _all(pairs: Pairs, names: Sequence[str], size: int, rate: int, seconds: float) -> Figures:
    figures: Figures = {}
    for name in names:
        measured = pairs.measure(name, size, rate, seconds)
        figures |= {key_of(name, stem, size, rate): value for stem, value in measured.items() if stem != "mean_us"}
    return figures


def key_of(name: str, stem: str, size: int, rate: int) -> str:
    """``ring_p50_us_100_3000``, ``ring_msgs_per_s_100``, ``ring_cpu_us_100`` (at 3,000/s), ``ring_cpu_us_100_100``."""
    if stem == "msgs_per_s" or (rate == CPU_RATE and stem not in LATENCIES):
        return f"{name}_{stem}_{size}"
    return f"{name}_{stem}_{size}_{rate or 'flat_out'}"


def _in_words(figures: Figures) -> str:
    """The one figure of each contestant that tells most."""
    parts = []
    for key, value in figures.items():
        name = key.partition("_")[0]
        if "_msgs_per_s_" in key:
            parts.append(f"{name} {value:,.0f}/s")
        elif "_p50_us_" in key:
            parts.append(f"{name} {value:,.0f} us")
    return ", ".join(parts)
