"""The cost of encryption: three hops over TCP, encrypted and in clear, in turns.

On loopback, where frames in clear carry no seals, and between two machines, which are network namespaces of this one
(root, iproute2), where they do. ``python -m tailrace_research.bench.engine.encrypted_hops``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from tailrace.runtime.driver.host import SubprocessHost
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.listening import LOOPBACK, Place
from tailrace.runtime.options import RunSettings
from tailrace.testing.namespaces import Namespaces, why_no_namespaces
from tailrace.topology import Run, Topology
from tailrace_research.bench.engine.hops import measure_hops
from tailrace_research.bench.turns import Contest, Figures, aligned, range_of, summarise, take_turns

RATES = (1_000, 5_000)
LATENCIES = {"p50_ms": "p50", "p99_ms": "p99", "cpu_us": "CPU us"}
REPEATS, SECONDS = 7, 4.0
WORKERS = 2

Start = Callable[[Topology, bool], Run]


def on_loopback(topology: Topology, encrypt: bool) -> Run:
    return HostedRun(topology, _settings(encrypt), SubprocessHost(), LOOPBACK)


def between_machines(network: Namespaces) -> Start:
    def start(topology: Topology, encrypt: bool) -> Run:
        host = SubprocessHost({worker: machine.prefix for worker, machine in enumerate(network.machines)})
        return HostedRun(topology, _settings(encrypt), host, Place(network.address, network.address))

    return start


def _settings(encrypt: bool) -> RunSettings:
    return RunSettings(workers=WORKERS, ring=False, encrypt=encrypt)


def contests(starts: dict[str, Start], seconds: float) -> Iterator[Contest]:
    for place, start in starts.items():
        for rate in RATES:
            for encrypt, words in ((False, "clear"), (True, "encrypted")):
                yield Contest(f"{place} at {rate:,}/s, {words}", _contest(start, place, rate, encrypt, seconds))


def _contest(start: Start, place: str, rate: int, encrypt: bool, seconds: float) -> Callable[[], Figures]:
    def run() -> Figures:
        figures = measure_hops(rate, seconds, lambda topology: start(topology, encrypt))
        return {_key(place, rate, encrypt, name): figures[name] for name in LATENCIES}

    return run


def _key(place: str, rate: int, encrypt: bool, name: str) -> str:
    return f"{place}/{rate}/{'encrypted' if encrypt else 'clear'}/{name}"


def table(result: dict[str, float], places: list[str]) -> list[str]:
    rows = [("three hops, ms", *(cell for name in LATENCIES.values() for cell in (name, "")))]
    for place in places:
        for rate in RATES:
            both = [[_key(place, rate, encrypt, name) for name in LATENCIES] for encrypt in (False, True)]
            for words, keys in zip(("clear", "encrypted"), both, strict=True):
                cells = [cell for key in keys for cell in (f"{result[key]:.3g}", range_of(result, key, "{:.3g}"))]
                rows.append((f"{place} at {rate:,}/s, {words}", *cells))
            ratios = [f"{result[hidden] / result[clear]:.2f} x" for clear, hidden in zip(*both, strict=True)]
            rows.append(("encrypted / clear", *(cell for ratio in ratios for cell in (ratio, ""))))
    return aligned(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        starts: dict[str, Start] = {"loopback": on_loopback}
        why_not = why_no_namespaces()
        if why_not is None:
            starts["two machines"] = between_machines(stack.enter_context(Namespaces(WORKERS)))
        else:
            print(f"two machines are left out: {why_not}")
        samples = take_turns(list(contests(starts, arguments.seconds)), arguments.repeats, print, _in_words)
    print("\n".join(["", *table(summarise(samples), list(starts))]))


def _in_words(figures: Figures) -> str:
    return ", ".join(f"{key.rpartition('/')[2]} {value:.3g}" for key, value in figures.items())


if __name__ == "__main__":
    main()
