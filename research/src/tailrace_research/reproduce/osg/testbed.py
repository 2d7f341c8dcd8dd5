"""OSG's prototype figures on live workers (Middleware 2016, Sec. 5.3): Figs. 12, 13 and 14.

Theirs ran on Storm with a machine for each worker; here work is sleep, which costs no processor time, and two workers
stand for any number. MENTION and REACH are generated to the sizes, ranges and means that the paper gives. ``pull`` is
added to what the paper compares; OSG is that of its authors' code, which is ``osg(key)``. On REACH it also runs by the
number of the author's followers: of a single author sketches say next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import fmean

from tailrace.clock import MILLISECOND_NS as MS
from tailrace.policy import Grouping, osg, pull, shuffle
from tailrace_research.bench.turns import Figures
from tailrace_research.bench.workloads import Draw, Outcome, Workload, content, mention, reaching, run_workload
from tailrace_research.bench.workloads.tweets import followers_of
from tailrace_research.reproduce.osg.testbed_figures import change_chart, change_claims, use_case_chart, use_case_claims
from tailrace_research.reproduce.testbed.study import LiveFigure, LiveStudy, Samples, Trial

WORKERS = 2
DEFAULT, OSG, FOLLOWERS, PULL = "shuffle", "osg_published", "osg_followers", "pull"

WINDOW, THEIR_WINDOW = 128, 1_024
TOLERANCE = 0.14
"""An eighth of the tuples vary by the root of eight times theirs, 0.05: by this OSG is as quick to trust a sketch."""


def _osg(workload: Workload) -> Grouping:
    return osg(workload.key, window=WINDOW, tolerance=TOLERANCE)


POLICIES: Mapping[str, Callable[[Workload], Grouping]] = {
    DEFAULT: lambda workload: shuffle(),
    OSG: _osg,
    FOLLOWERS: lambda workload: _osg(replace(workload, key_of=followers_of)),
    PULL: lambda workload: pull(),
}
EVERYWHERE = tuple(policy for policy in POLICIES if policy != FOLLOWERS)

LOAD = 0.95
"""The paper's 100% would be an overload here, where a tuple takes a worker a moment besides its work."""

# -- figure 12

CHANGE = "change"
TASKS = 5
TUPLES = 150_000 // 8
BEFORE, AFTER = (1.05, 1.025, 1.0, 0.975, 0.95), (0.9, 0.95, 1.0, 1.05, 1.1)
CHANGE_UNIT_NS = MS // 10
CHANGE_S = 12.8
"""About: each stream deals out its own costs."""

STEP = 2_000 // 8
"""Tuples whose mean is a point."""

AFTERMATH = 10 * WINDOW
"""Tuples on either side of the change that are compared."""

# -- figures 13 and 14

USE_CASES: Mapping[str, tuple[Callable[[Draw], Workload], float, int]] = {
    "mention": (mention, 7.0, MS // 2),
    "reach": (reaching, 20.0, MS // 5),
}
"""By workload: the function that makes the stream, the mean cost of a tuple in units, and a unit."""

INSTANCES = (2, 4, 8)
USE_CASE_S = 7.0
LEARNT = 0.5
"""From which share of a use case's stream on latencies count. Before, OSG learns, theirs for a few hundredths."""

SPEEDUPS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "speedup": fmean,
    "speedup_least": min,
    "speedup_most": max,
}


def workload_of(trial: Trial, repeat: int, length: float) -> Workload:
    if trial.experiment == CHANGE:
        tuples = int(length * TUPLES)
        return content(Draw(repeat + 1, tuples, LOAD, CHANGE_UNIT_NS, TASKS, slowness=BEFORE, later=AFTER))
    make, mean_units, unit_ns = USE_CASES[trial.experiment]
    tasks = int(trial.at)
    tuples = int(length * USE_CASE_S * LOAD * tasks * 1_000 * MS / (mean_units * unit_ns))
    return make(Draw(repeat + 1, tuples, LOAD, unit_ns, tasks))


def measure(trial: Trial, repeat: int, length: float) -> Figures:
    workload = workload_of(trial, repeat, length)
    outcome = run_workload(workload, POLICIES[trial.technique](workload), workers=WORKERS)
    if trial.experiment != CHANGE:
        return {"mean_ms": fmean(outcome.latencies_ns[int(LEARNT * len(workload.due_ns)) :]) / MS}
    figures = {"mean_ms": fmean(outcome.latencies_ns) / MS}
    figures |= series(outcome.latencies_ns) | change(outcome.latencies_ns)
    if trial.technique == OSG:
        figures["first_choice"] = first_choice(outcome) / WINDOW
    return figures


def series(latencies_ns: Sequence[int]) -> Figures:
    """The mean of every ``STEP`` tuples, by the number of the last."""
    return {
        f"until_{end}_ms": fmean(latencies_ns[end - STEP : end]) / MS
        for end in range(STEP, len(latencies_ns) + 1, STEP)
    }


def change(latencies_ns: Sequence[int]) -> Figures:
    """How much longer tuples take after the change than before it."""
    middle = len(latencies_ns) // 2
    span = min(AFTERMATH, middle)
    before, after = latencies_ns[middle - span : middle], latencies_ns[middle : middle + span]
    return {"change_cost": fmean(after) / fmean(before)}


def first_choice(outcome: Outcome) -> int:
    """The first tuple that goes elsewhere than round robin would have it; all of them if none does."""
    task_of = {execution.root: execution.task for execution in outcome.executions}
    start = task_of[0]
    return next((root for root in sorted(task_of) if task_of[root] != (start + root) % TASKS), len(task_of))


def derive(samples: Samples) -> Samples:
    """Besides: each policy's speed-up over round robin, repeat by repeat; over all numbers of instances, at 0."""
    trials = [trial for trial, measured in map(Trial.of_key, samples) if measured == "mean_ms"]
    speedups = {trial: _speedups(samples, trial) for trial in trials if trial.technique != DEFAULT}
    found = dict(samples) | {trial.key("speedup"): of_repeats for trial, of_repeats in speedups.items()}
    for every in dict.fromkeys(trial._replace(at=0) for trial in speedups if trial.experiment in USE_CASES):
        points = [of_repeats for trial, of_repeats in speedups.items() if trial._replace(at=0) == every]
        repeats = list(zip(*points, strict=True))
        found |= {every.key(name): list(map(over, repeats)) for name, over in SPEEDUPS.items()}
    return found


def _speedups(samples: Samples, trial: Trial) -> list[float]:
    usual = samples[trial._replace(technique=DEFAULT).key("mean_ms")]
    return [base / value for base, value in zip(usual, samples[trial.key("mean_ms")], strict=True)]


SCALED = (
    "Scaled to two cores: 2 workers; work is sleep, which costs no processor time.",
    f"A load of {LOAD}: 105% over-provisioned. N = {WINDOW}, an eighth of theirs, and a tolerance of {TOLERANCE}.",
)


WALKS = "Walks are real: of a tweet's time they take about a tenth of a millisecond, and the rest is slept."


def _use_case(
    use_case: str, number: int, tuples: int, policies: Iterable[str], besides: Sequence[str] = ()
) -> LiveFigure:
    _, _, unit_ns = USE_CASES[use_case]
    return LiveFigure(
        str(number),
        f"{use_case.upper()}, mean latency by the number of instances k, live",
        [Trial(use_case, k, policy) for k, policy in product(INSTANCES, policies)],
        partial(use_case_claims, use_case, number, INSTANCES),
        partial(use_case_chart, use_case, number),
        (
            *SCALED,
            f"Generated tweets, {USE_CASE_S:g} s of them instead of {tuples:,}, of which the second half counts.",
            f"A millisecond of the paper's is {unit_ns / MS:g} ms here.",
            *besides,
        ),
        judged_by="mean_ms",
    )


TESTBED = LiveStudy(
    study="osg",
    default=DEFAULT,
    measure=measure,
    seconds=lambda trial: USE_CASE_S if trial.experiment in USE_CASES else CHANGE_S,
    figures=(
        LiveFigure(
            "12",
            "the speeds of tasks change in the middle of a stream, live",
            [Trial(CHANGE, TASKS, policy) for policy in EVERYWHERE],
            partial(change_claims, WINDOW, THEIR_WINDOW),
            partial(change_chart, STEP),
            (*SCALED, f"{TUPLES:,} tuples, an eighth of theirs, that cost 0.1 to 6.4 ms."),
            judged_by="mean_ms",
        ),
        _use_case("mention", 13, 500_000, EVERYWHERE),
        _use_case("reach", 14, 2_114_269, POLICIES, [WALKS]),
    ),
    modules=("tailrace_research.reproduce.osg.testbed",),
    derive=derive,
)
