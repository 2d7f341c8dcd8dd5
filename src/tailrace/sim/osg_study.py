"""OSG's simulations (Middleware 2016, section 5.2) cell by cell: a stream, a setting, and what policies make of it.

A *stream* decides which items cost what and in which order they come; a *hash seed* decides the sketches' functions.
The paper runs 100 streams with 50 hash seeds each for every point of a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from tailrace.clock import MILLISECOND_NS
from tailrace.policy import Grouping, full_knowledge, least_work, osg, power_of_two, pull, shuffle
from tailrace.sim.arrivals import Paced
from tailrace.sim.model import Link, Model, Node, Slowdown
from tailrace.sim.policies import itself
from tailrace.sim.report import Report
from tailrace.sim.service import ByContent
from tailrace.sim.simulate import simulate

MS = MILLISECOND_NS

BASELINE = "shuffle"
ORACLES = ("full_knowledge", "least_work_left")
"""They know all that all senders send, so they are one sender however many the others are."""

BEFORE = (1.05, 1.025, 1.0, 0.975, 0.95)
AFTER = (0.90, 0.95, 1.0, 1.05, 1.10)
"""Figure 11: how many times as long tuples take each of the five tasks, in the first and in the second half."""

WINDOW = 2_000
"""Figure 11: tuples that a point of the time series is the mean of."""

NEVER = 10**18  # ns; the end of a slowdown that does not end


@dataclass(frozen=True)
class Setting:
    """One point of a figure. The defaults are the paper's."""

    alpha: float = 1.0  # of the Zipf law; 0: uniform
    over_provisioning: float = 1.0  # what the tasks sustain over what they get
    tasks: int = 5
    low_ms: float = 1.0
    high_ms: float = 64.0
    costs: int = 64
    epsilon: float = 0.05
    tuples: int = 100_000
    items: int = 4096
    senders: int = 1
    latency_us: float = 0.0  # from sender to task; the paper has none

    def model(self) -> Model:
        low_ns, high_ns = int(self.low_ms * MS), int(self.high_ms * MS)
        service = ByContent(self.items, self.alpha, self.costs, low_ns, high_ns)
        return Model(
            Paced(load=1 / self.over_provisioning),
            service,
            tuples=self.tuples,
            tasks=self.tasks,
            senders=self.senders,
            link=Link(int(self.latency_us * 1_000)),
        )


def policies(setting: Setting, hash_seed: int) -> dict[str, Grouping]:
    """All that a cell can compare. ``osg`` is the paper's to the letter; the next three take its ablation apart."""
    epsilon = setting.epsilon
    return {
        "shuffle": shuffle(),
        "osg": osg(itself, epsilon=epsilon, seed=hash_seed),
        "osg_pooled": osg(itself, epsilon=epsilon, seed=hash_seed, pooled=True),
        "osg_idle_counts": osg(itself, epsilon=epsilon, seed=hash_seed, idle_counts=True),
        "osg_mended": osg(itself, epsilon=epsilon, seed=hash_seed, pooled=True, idle_counts=True),
        "least_work": least_work(itself),
        "power_of_two": power_of_two(),
        "pull": pull(),
        "full_knowledge": full_knowledge(),
        "least_work_left": full_knowledge(cumulated=False),
    }


def run_cell(setting: Setting, names: Sequence[str], stream: int, hash_seed: int) -> dict[str, dict[str, float]]:
    """Policy -> mean, p99 and p99.9 in ms, tuples a second, and the speed-up of the mean over round robin.

    A pure function of its arguments, on any machine.
    """
    known = policies(setting, hash_seed)
    models = {True: replace(setting.model(), senders=1), False: setting.model()}
    reports = {name: simulate(models[name in ORACLES], known[name], seed=stream) for name in (BASELINE, *names)}
    return {name: _figures(reports[name], reports[BASELINE]) for name in names}


def _figures(report: Report, baseline: Report) -> dict[str, float]:
    return {
        "mean_ms": report.mean_ns / MS,
        "p99_ms": report.percentile_ns(0.99) / MS,
        "p999_ms": report.percentile_ns(0.999) / MS,
        "throughput_per_s": report.throughput_per_s,
        "speedup": baseline.mean_ns / report.mean_ns,
        "messages": float(report.messages),
    }


def _vary(name: str, values: Sequence[Any], setting: Setting) -> dict[float, Setting]:
    return {value: replace(setting, **{name: value}) for value in values}


def figure_settings(figure: int, setting: Setting | None = None) -> Mapping[float, Setting]:
    """The x values of figures 4 to 10 with their settings. Figure 11 is a time series: see ``run_change``."""
    setting = setting or Setting()
    if figure in (4, 5):
        return _vary("alpha", (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0), setting)
    if figure == 6:
        return _vary("over_provisioning", [percent / 100 for percent in range(95, 116)], setting)
    if figure == 7:
        tenth = replace(setting, low_ms=0.1)
        return _vary("high_ms", [0.1 * 2**step for step in range(13)], tenth)
    if figure == 8:
        return _vary("costs", [2**step for step in range(1, 11)], setting)
    if figure == 9:
        return _vary("tasks", range(2, 21), setting)
    if figure == 10:
        return _vary("epsilon", (1.0, 0.5, 0.2, 0.1, 0.09, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001), setting)
    raise ValueError(f"not a sweep of the paper: figure={figure}: is it one of 4 to 10?")


# -- figure 11


def change_model(setting: Setting, stream: int) -> Model:
    """Five tasks whose speeds change when half of the tuples are due."""
    model = setting.model()
    steady = replace(model, tuples=setting.tuples // 2)
    half_ns = simulate(steady, shuffle(), seed=stream).due_ns[-1]
    nodes = tuple(
        Node(slowdowns=(Slowdown(0, half_ns, before), Slowdown(half_ns, NEVER, after)))
        for before, after in zip(BEFORE, AFTER, strict=True)
    )
    return replace(model, nodes=nodes, tasks=len(nodes))


def run_change(
    names: Sequence[str], stream: int, hash_seed: int, setting: Setting | None = None
) -> dict[str, list[float]]:
    """Policy -> mean latency in ms over the last ``WINDOW`` tuples, at every tuple, in the order they were due."""
    setting = setting or Setting(tuples=150_000)
    model, known = change_model(setting, stream), policies(setting, hash_seed)
    return {name: windowed_ms(simulate(model, known[name], seed=stream)) for name in names}


def windowed_ms(report: Report, window: int = WINDOW) -> list[float]:
    """Mean latency of the last ``window`` tuples due; of fewer at the beginning."""
    latencies = [done - due for done, due in zip(report.done_ns, report.due_ns, strict=True)]
    sums = [0, *accumulate(latencies)]
    return [(sums[index] - sums[max(0, index - window)]) / min(index, window) / MS for index in range(1, len(sums))]


def recovery_tuples(series: Sequence[float], reference: Sequence[float], window: int = WINDOW) -> int:
    """How many tuples after the change in the middle a policy needs until it is as good as before.

    Good is measured by what its windowed mean exceeds a reference's by, on the same stream: one queue for all tasks,
    say, which no change of speed can mislead. Before the change that excess has a mean; the policy is disturbed while
    it is above twice that, and above a tenth of the reference. 0 if it never is; all tuples left if it stays so.
    """
    change = len(series) // 2
    excess = [ours - theirs for ours, theirs in zip(series, reference, strict=True)]
    usual = sum(excess[change - 10 * window : change]) / (10 * window)
    disturbed = False
    for index in range(change, len(series)):
        bad = excess[index] > max(2 * usual, reference[index] / 10)
        if disturbed and not bad:
            return index - change
        disturbed = disturbed or bad
    return len(series) - change if disturbed else 0
