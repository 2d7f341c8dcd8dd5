"""OSG's simulations (Middleware 2016, section 5.2) cell by cell: a setting, a policy, a stream, a hash seed.

A *stream* decides which items cost what and in which order they come; a *hash seed* decides the sketches' functions.
The paper runs 100 streams with 50 hash seeds each for every point of a figure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any

from tailrace.clock import MILLISECOND_NS
from tailrace.policy import Grouping, full_knowledge, least_work, osg, power_of_two, pull, shuffle
from tailrace.sim.load.models.arrivals import Paced
from tailrace.sim.load.models.model import Model, Node, Slowdown, Uplink
from tailrace.sim.load.models.service import ByContent
from tailrace.sim.load.policies import itself
from tailrace.sim.load.report import Report
from tailrace.sim.load.simulate import simulate

MS = MILLISECOND_NS

BASELINE = "shuffle"
ORACLES = ("full_knowledge", "least_work_left")
"""They know all that all senders send, so they are one sender however many the others are."""

CHANGED_TUPLES = 150_000
BEFORE = (1.05, 1.025, 1.0, 0.975, 0.95)
AFTER = (0.90, 0.95, 1.0, 1.05, 1.10)
"""Figure 11: how many times as long tuples take each of the five tasks, in the first and in the second half."""

WINDOW = 2_000
"""Figure 11: tuples that a point of the time series is the mean of."""

STEP = 100
"""Figure 11: tuples from point to point."""

WORSE = 1.25
"""Figure 11: a mean above so many times what it would be without the change counts as disturbed."""

AFTERMATH = 10_000
"""Figure 11: tuples after the change over which its cost is taken. The paper's OSG recovers after 9,912."""

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
    changes: int = 0  # 1: the tasks' speeds change in the middle, as in figure 11

    def model(self) -> Model:
        low_ns, high_ns = int(self.low_ms * MS), int(self.high_ms * MS)
        service = ByContent(self.items, self.alpha, self.costs, low_ns, high_ns)
        return Model(
            Paced(load=1 / self.over_provisioning),
            service,
            tuples=self.tuples,
            tasks=self.tasks,
            senders=self.senders,
            link=Uplink(int(self.latency_us * 1_000)),
        )


SETTING: dict[str, type] = {field.name: {"int": int, "float": float}[str(field.type)] for field in fields(Setting)}
"""The part of a cell's parameters that is a setting: names and types."""

PARAMETERS: dict[str, type] = {**SETTING, "policy": str, "stream": int, "seed": int}
MEASURES: dict[str, Any] = {
    "mean_ms": float,
    "p99_ms": float,
    "p999_ms": float,
    "throughput_per_s": float,
    "messages": int,
    "series_ms": list[float],  # the last four are for figure 11 alone
    "series_max_ms": list[float],
    "recovery_tuples": int,
    "change_cost": float,
}


def policies(setting: Setting, hash_seed: int) -> dict[str, Grouping]:
    """All that a cell can compare. ``osg`` is the paper's by its text alone; the others of its name take it apart."""

    def variant(pooled: bool = False, idle_counts: bool = False, resync: bool = False) -> Grouping:
        options = {"pooled": pooled, "idle_counts": idle_counts, "resync": resync}
        return osg(itself, epsilon=setting.epsilon, seed=hash_seed, **options)

    return {
        "shuffle": shuffle(),
        "osg": variant(),
        "osg_pooled": variant(pooled=True),
        "osg_idle_counts": variant(idle_counts=True),
        "osg_published": variant(idle_counts=True, resync=True),
        "osg_mended": variant(pooled=True, idle_counts=True),
        "least_work": least_work(itself),
        "power_of_two": power_of_two(),
        "pull": pull(),
        "full_knowledge": full_knowledge(),
        "least_work_left": full_knowledge(cumulated=False),
    }


def run_policy(setting: Setting, policy: str, stream: int, hash_seed: int) -> Report:
    """A pure function of its arguments, on any machine."""
    model = replace(setting.model(), senders=1) if policy in ORACLES else setting.model()
    return simulate(model, policies(setting, hash_seed)[policy], seed=stream)


def run_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """``MEASURES`` of the cell with these ``PARAMETERS``."""
    setting = Setting(**{name: cell[name] for name in SETTING})
    policy, stream, hash_seed = cell["policy"], cell["stream"], hash_seed_of(cell["stream"], cell["seed"])
    if setting.changes:
        return _measures(*run_change(setting, policy, stream, hash_seed))
    return _measures(run_policy(setting, policy, stream, hash_seed))


def hash_seed_of(stream: int, seed: int) -> int:
    """Streams do not share hash functions, however few of these each gets."""
    return 1_000 * stream + seed


def _measures(report: Report, undisturbed: Report | None = None) -> dict[str, Any]:
    return {
        "mean_ms": report.mean_ns / MS,
        "p99_ms": report.percentile_ns(0.99) / MS,
        "p999_ms": report.percentile_ns(0.999) / MS,
        "throughput_per_s": report.throughput_per_s,
        "messages": report.messages,
        **_series(report, undisturbed),
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


def run_change(setting: Setting, policy: str, stream: int, hash_seed: int) -> tuple[Report, Report]:
    """Tasks whose speeds change when half of the tuples have been due; and, on the same stream, those that do not."""
    grouping = policies(setting, hash_seed)[policy]
    model = replace(setting.model(), tasks=len(BEFORE))
    steady = simulate(replace(model, nodes=_nodes(NEVER)), grouping, seed=stream)
    half_ns = steady.due_ns[setting.tuples // 2]
    return simulate(replace(model, nodes=_nodes(half_ns)), grouping, seed=stream), steady


def _nodes(change_ns: int) -> tuple[Node, ...]:
    return tuple(
        Node(slowdowns=(Slowdown(0, change_ns, before), Slowdown(change_ns, 2 * NEVER, after)))
        for before, after in zip(BEFORE, AFTER, strict=True)
    )


def _series(report: Report, undisturbed: Report | None) -> dict[str, Any]:
    if undisturbed is None:
        return {"series_ms": [], "series_max_ms": [], "recovery_tuples": 0, "change_cost": 1.0}
    means, usual = windowed_ms(report), windowed_ms(undisturbed)
    return {
        "series_ms": means[STEP - 1 :: STEP],
        "series_max_ms": _windowed_max_ms(report)[STEP - 1 :: STEP],
        "recovery_tuples": recovery_tuples(means, usual),
        "change_cost": change_cost(report, undisturbed),
    }


def _latencies_ns(report: Report) -> list[int]:
    """In the order in which tuples were due."""
    return [done - due for done, due in zip(report.done_ns, report.due_ns, strict=True)]


def windowed_ms(report: Report, window: int = WINDOW) -> list[float]:
    """At every tuple, the mean latency of the last ``window`` tuples due; of fewer at the beginning."""
    sums = [0, *accumulate(_latencies_ns(report))]
    return [(sums[index] - sums[max(0, index - window)]) / min(index, window) / MS for index in range(1, len(sums))]


def _windowed_max_ms(report: Report, window: int = WINDOW) -> list[float]:
    largest: deque[tuple[int, int]] = deque()  # (position, latency), falling; the first is the largest of the window
    found = []
    for position, latency_ns in enumerate(_latencies_ns(report)):
        while largest and largest[-1][1] <= latency_ns:
            largest.pop()
        largest.append((position, latency_ns))
        if largest[0][0] <= position - window:
            largest.popleft()
        found.append(largest[0][1] / MS)
    return found


def recovery_tuples(
    series: Sequence[float], undisturbed: Sequence[float], window: int = WINDOW, onset: int = AFTERMATH
) -> int:
    """How many tuples after the change in the middle a policy's windowed mean is back where it would be without it.

    It is held against itself, on the same stream without the change. It is disturbed if it exceeds ``WORSE`` times that
    within ``onset`` tuples, and back once it has not for a whole window. 0 if it never was; all tuples left if it never
    is: at full load there is no time to make up for what was lost.
    """
    change = len(series) // 2
    bad = [ours > WORSE * usual for ours, usual in zip(series[change:], undisturbed[change:], strict=True)]
    if not any(bad[:onset]):
        return 0
    good_since = bad.index(True)
    for index in range(good_since, len(bad)):
        if bad[index]:
            good_since = index + 1
        elif index - good_since >= window:
            return good_since
    return len(bad)


def change_cost(report: Report, undisturbed: Report, tuples: int = AFTERMATH) -> float:
    """Mean latency of the tuples that follow the change, over that of the same tuples without it. No threshold."""
    middle = len(report.due_ns) // 2
    after, usual = (sum(_latencies_ns(one)[middle : middle + tuples]) for one in (report, undisturbed))
    return after / usual
