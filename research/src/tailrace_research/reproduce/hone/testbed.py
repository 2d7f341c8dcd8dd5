"""Hone's testbed figures on live workers (TPDS 2021, Sec. 6): Figs. 10 to 14, and an ablation that the paper lacks.

Theirs had a node for each operator and a gigabit between them; here each worker has some tasks of every operator, and
what leaves it passes a limited link that the highest input rate nearly uses up. Everything is stretched in time, which
leaves loads and cuts as they are, and what is measured is divided by the stretch again; so are scheduling intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from random import Random
from statistics import fmean

from tailrace.clock import MICROSECOND_NS
from tailrace.clock import MILLISECOND_NS as MS
from tailrace.core.plan.planner import make_plan
from tailrace.policy import Grouping, SendScheduler, fields, lbf, local, partial_key, round_robin
from tailrace.policy.techniques import Tail
from tailrace.runtime.links.frames import encode
from tailrace.runtime.options import MEGABIT_BYTES
from tailrace_research.bench.turns import Figures
from tailrace_research.bench.workloads import Draw, Outcome, Setup, Workload, run_workload, word_count
from tailrace_research.bench.workloads.counting import Counting, word_of
from tailrace_research.reproduce.hone.testbed_figures import (
    ablation_claims,
    cuts,
    interval_chart,
    interval_claims,
    rate_claims,
    task_chart,
    task_claims,
    words_chart,
    words_claims,
)
from tailrace_research.reproduce.testbed.study import LiveFigure, LiveStudy, Trial

TASKS = 10
RATES = (1_170, 1_250, 1_330)
"""Sentences a second."""

STRETCH = 3.0
FULL = 0.98
"""The share of the time for which the link is used at the highest rate."""
OVERFULL = 1.1

INTERVALS = (10, 50, 80, 120)
"""Milliseconds: of the paper's 10 to 130, the least and those that its text names."""
MORE_INTERVALS = (10, 50, 80, 100, 120, 130)
FIGURE_11_INTERVAL = 80

STORM_QUEUE = 1_024
"""Tuples that Storm lets wait in the outgoing queue of an executor."""
SMALL_QUEUE = 64

WORD_NS = int(20 * MICROSECOND_NS * STRETCH)
"""Splitting a sentence costs this much for each word: tasks are busy for a twenty-fifth of the time."""

SECONDS = 3.0
"""Seconds that a stream lasts, its opening left out."""

OPENING, LULL_NS = 100, 400 * MS
"""Sentences for which connections are made, and a pause in which what waited for that leaves. They do not count: a
link that is nearly full would carry their backlog through the whole stream."""

DEFAULT = "none"
SCHEDULERS: Mapping[str, SendScheduler | None] = {
    DEFAULT: None,
    "lbf": lbf(),
    "round_robin": round_robin(),
    **{f"signal_{interval}": lbf(interval_ms=interval * STRETCH) for interval in MORE_INTERVALS},
}
"""Without any a limited link takes what comes first."""


@dataclass(frozen=True)
class Experiment:
    """A word count, where its tasks are, and how wide links are."""

    workers: int = 2
    grouping: Grouping = field(default_factory=partial(fields, word_of))  # of words
    counts: int = TASKS  # tasks that count
    queue: int = STORM_QUEUE
    full: float = FULL
    by_words: bool = False  # points are the most words in a sentence, not rates
    matched: bool = False  # the link is as full at every point
    link_of: Experiment | None = None  # whose link it has, if not one of its own

    def rate(self, at: float) -> float:
        return float(RATES[0]) if self.by_words else at

    def workload(self, at: float, repeat: int, length: float) -> Workload:
        rate = self.rate(at) / STRETCH
        tuples = OPENING + max(TASKS, round(length * SECONDS * rate))
        draw = Draw(repeat + 1, tuples, unit_ns=WORD_NS, tasks=TASKS, sources=TASKS)
        words = {"most_words": int(at)} if self.by_words else {}
        made = word_count(draw, Counting(grouping=self.grouping, tasks=self.counts, rate_per_s=rate, **words))
        later_ns = (due_ns + LULL_NS for due_ns in made.due_ns[OPENING:])
        return replace(made, due_ns=(*made.due_ns[:OPENING], *later_ns))

    def link_mbps(self, workload: Workload, at: float) -> float:
        """A link that the busiest worker uses for the share ``full`` of the time, at the highest rate.

        ``workload`` is that of a point.
        """
        if self.link_of is not None:
            rate = self.rate(at)
            return self.link_of.link_mbps(self.link_of.workload(rate, workload.draw.seed - 1, 1.0), rate)
        highest = self.rate(at) if self.matched else RATES[-1]
        sentence_bytes = max(crossing_bytes(workload, self)) / len(workload.bodies)
        return sentence_bytes * highest / STRETCH / self.full / MEGABIT_BYTES


def crossing_bytes(workload: Workload, experiment: Experiment) -> list[int]:
    """Bytes that leave each worker, if every bundle is a parcel of its own."""
    plan = make_plan(workload.topology(Setup("", local())), experiment.workers)
    operators = {operator.name: operator for operator in plan.operators}
    split_homes, count_homes = plan.homes(operators["split"]), plan.homes(operators["count"])
    choosers = [experiment.grouping.bind(experiment.counts, Random(task)) for task in range(TASKS)]
    tracked = () if experiment.grouping.keyed else ((1, 1, 1), None)
    leaving = [0] * experiment.workers
    for index, sentence in enumerate(workload.bodies):
        task = index % TASKS
        items = [(index, 1 << 50, (place, word)) for place, word in enumerate(sentence.split())]
        bundles: dict[int, list[object]] = {}
        for item, target in zip(items, choosers[task].choose_many(items), strict=True):
            bundles.setdefault(target, []).append(item)
        for target, some in bundles.items():
            if count_homes[target] != split_homes[task]:
                bundle = (1 << 16, task, index, 1 << 63, None, some, *tracked)
                leaving[split_homes[task]] += len(encode([bundle]))
    return leaving


PLAIN, OVERFULL_LINK = Experiment(), Experiment(full=OVERFULL)

EXPERIMENTS: Mapping[str, Experiment] = {
    "word_count": PLAIN,
    "partial_key": Experiment(grouping=partial_key(word_of)),
    "words": Experiment(by_words=True, link_of=PLAIN),
    "words_matched": Experiment(by_words=True, matched=True),
    "four_workers": Experiment(workers=4),
    "large_parcels": Experiment(counts=2),
    "overfull": OVERFULL_LINK,
    "batched": Experiment(counts=2, link_of=OVERFULL_LINK),
    "small_queues": Experiment(full=OVERFULL, queue=SMALL_QUEUE),
}


def measure(trial: Trial, repeat: int, length: float) -> Figures:
    experiment = EXPERIMENTS[trial.experiment]
    workload = experiment.workload(trial.at, repeat, length)
    outcome = run_workload(
        workload,
        local(),
        workers=experiment.workers,
        tail=Tail(send=SCHEDULERS[trial.technique]),
        outgoing_tuples=experiment.queue,
        link_mbps=experiment.link_mbps(workload, trial.at),
    )
    return measures(outcome)


def measures(outcome: Outcome) -> Figures:
    """Latencies of sentences, which end with their last word, and of words; of sentences by task; and of the queues."""
    counted = outcome.latencies_ns[OPENING:]
    words_ns = [arrival.done_ns - arrival.due_ns for arrival in outcome.arrivals if arrival.root >= OPENING]
    by_task = [_ms(outcome.latencies_ns[OPENING + task :: TASKS]) for task in range(TASKS)]  # it begins with the first
    half = len(counted) // 2
    tasks = [task for operator in outcome.progress["operators"] for task in operator["tasks"]]
    return {
        "mean_ms": _ms(counted),
        "word_ms": _ms(words_ns),
        "slowest_ms": max(by_task),
        "growth": _ms(counted[half:]) / _ms(counted[:half]),
        "largest": float(max(task["largestBacklog"] for task in tasks)),
        "blocked_ms": sum(task["blockedMs"] for task in tasks) / STRETCH,
        **{f"task_{task}_ms": mean_ms for task, mean_ms in enumerate(by_task)},
    }


def _ms(times_ns: Sequence[int]) -> float:
    return fmean(times_ns) / MS / STRETCH


def _trials(experiment: str, points: Iterable[float], *techniques: str) -> list[Trial]:
    return [Trial(experiment, at, technique) for at, technique in product(points, (DEFAULT, *techniques))]


def _signals(intervals: Iterable[int]) -> list[str]:
    return [f"signal_{interval}" for interval in intervals]


SCALED = (
    f"Scaled to two cores: everything takes {STRETCH:g} times as long, intervals too, and ms are divided by that.",
    "Tasks of all operators are in both workers, and half of the words cross a link; theirs had a node an operator.",
    f"A link, a token bucket, is used for {FULL:.0%} of the time at 1,330 sentences/s; theirs had a gigabit.",
    f"Generated sentences, {SECONDS:g} s of them or a few times that, instead of 30 minutes of Wikipedia.",
)
ENDS = (RATES[0], RATES[-1])
"""The paper has the first; at the other links are nearly full."""


def _by_interval(number: int, experiment: str, title: str, theirs: Mapping[str, float], *scaled: str) -> LiveFigure:
    return LiveFigure(
        str(number),
        title,
        _trials(experiment, ENDS, "round_robin", "lbf", *_signals(MORE_INTERVALS)),
        partial(interval_claims, number, MORE_INTERVALS, theirs),
        partial(interval_chart, number),
        (*SCALED, *scaled),
        judged_by="mean_ms",
    )


TESTBED = LiveStudy(
    study="hone",
    default=DEFAULT,
    measure=measure,
    seconds=lambda trial: SECONDS,
    figures=(
        LiveFigure(
            "10",
            "word count, mean latency by input rate and scheduling interval, live",
            _trials("word_count", RATES, "lbf", *_signals(INTERVALS)),
            partial(rate_claims, RATES, INTERVALS),
            partial(interval_chart, 10),
            SCALED,
            judged_by="mean_ms",
        ),
        LiveFigure(
            "11",
            "mean latency of each split task, live",
            _trials("word_count", ENDS, "round_robin", "lbf", f"signal_{FIGURE_11_INTERVAL}"),
            partial(task_claims, TASKS),
            task_chart,
            SCALED,
            length=2.4,
            judged_by="mean_ms",
        ),
        _by_interval(12, "partial_key", "the same under partial key grouping, live", {"mean": 0.942}),
        LiveFigure(
            "13",
            "mean latency by the most words in a sentence, live",
            [
                *_trials("words", (10, 20, 30), "round_robin", "lbf", f"signal_{FIGURE_11_INTERVAL}"),
                *_trials("words_matched", (10, 20, 30), "round_robin", "lbf", f"signal_{FIGURE_11_INTERVAL}"),
            ],
            words_claims,
            words_chart,
            (*SCALED, "The same link for all, as theirs; and beside it one that each stream fills to 98%."),
            length=0.8,
            judged_by="mean_ms",
        ),
        _by_interval(
            14,
            "four_workers",
            "the same on four workers, live",
            {"best": 0.794},
            "4 workers on two cores instead of 10 containers on 24; three quarters of the words cross a link.",
        ),
        LiveFigure(
            "ablation",
            "what the gain is made of: the signal, bounds, waiting for the last word, parcels; live",
            [
                trial
                for experiment in ("word_count", "large_parcels", "overfull", "batched", "small_queues")
                for trial in _trials(experiment, RATES[-1:], "round_robin", "lbf", "signal_10", "signal_80")
            ],
            ablation_claims,
            lambda rows: {},
            (
                *SCALED,
                "Large parcels: one task a worker counts, so that all words of a sentence that cross do so together.",
                f"Overfull: a link that would be used for {OVERFULL:.0%} of the time.",
                f"Queues of {STORM_QUEUE:,} tuples, as Storm's; small ones, at an overfull link, of {SMALL_QUEUE}.",
            ),
            judged_by="mean_ms",
        ),
    ),
    modules=("tailrace_research.reproduce.hone.testbed",),
    derive=partial(cuts, DEFAULT),
)
