"""Hone's testbed without workers: its streams, how wide links are, and what is made of samples."""

from __future__ import annotations

import pytest

from tailrace.clock import MILLISECOND_NS as MS
from tailrace.runtime.options import MEGABIT_BYTES
from tailrace_research.bench.workloads import Outcome
from tailrace_research.bench.workloads.counting import words_in
from tailrace_research.bench.workloads.working import Arrival
from tailrace_research.reproduce.hone.testbed import (
    EXPERIMENTS,
    FULL,
    LULL_NS,
    OPENING,
    RATES,
    SCHEDULERS,
    STRETCH,
    TASKS,
    TESTBED,
    crossing_bytes,
    measures,
)
from tailrace_research.reproduce.testbed.study import Samples, Trial


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_stream_follows_from_point_and_repeat(name: str) -> None:
    experiment = EXPERIMENTS[name]
    at = 20 if experiment.by_words else RATES[0]
    stream = experiment.workload(at, 0, 0.2)
    assert stream == experiment.workload(at, 0, 0.2)
    assert stream.bodies != experiment.workload(at, 1, 0.2).bodies
    assert max(map(words_in, stream.bodies)) == (20 if experiment.by_words else 32)
    gap_ns = STRETCH * 1e9 / RATES[0]
    assert stream.due_ns[OPENING] - stream.due_ns[OPENING - 1] == pytest.approx(LULL_NS + gap_ns, abs=2)
    assert stream.due_ns[-1] - stream.due_ns[-2] == pytest.approx(gap_ns, abs=2)


@pytest.mark.parametrize(("name", "at", "full"), [("word_count", 1_330, FULL), ("word_count", 1_170, 0.862)])
def test_the_highest_rate_nearly_fills_the_link(name: str, at: int, full: float) -> None:
    experiment = EXPERIMENTS[name]
    stream = experiment.workload(at, 0, 0.3)
    most_bytes = max(crossing_bytes(stream, experiment))
    lasts_s = len(stream.bodies) / at * STRETCH
    assert most_bytes / lasts_s / (experiment.link_mbps(stream, at) * MEGABIT_BYTES) == pytest.approx(full, abs=0.001)


def test_short_sentences_leave_a_link_idle_unless_it_is_matched() -> None:
    shared, matched = EXPERIMENTS["words"], EXPERIMENTS["words_matched"]
    stream = shared.workload(10, 0, 0.3)
    assert matched.link_mbps(stream, 10) < 0.5 * shared.link_mbps(stream, 10)
    others = [shared.link_mbps(shared.workload(words, 0, 0.3), words) for words in (20, 30)]
    assert others == [shared.link_mbps(stream, 10)] * 2


def test_large_parcels_unburden_the_link_that_small_ones_fill() -> None:
    small, large = EXPERIMENTS["overfull"], EXPERIMENTS["batched"]
    streams = [experiment.workload(RATES[-1], 0, 1.0) for experiment in (small, large)]
    assert streams[0].bodies == streams[1].bodies
    assert small.link_mbps(streams[0], RATES[-1]) == large.link_mbps(streams[1], RATES[-1])
    assert sum(crossing_bytes(streams[1], large)) < 0.75 * sum(crossing_bytes(streams[0], small))


def test_more_words_cross_where_there_are_more_workers() -> None:
    two, four = EXPERIMENTS["word_count"], EXPERIMENTS["four_workers"]
    stream = two.workload(RATES[0], 0, 0.5)
    assert sum(crossing_bytes(stream, four)) == pytest.approx(1.5 * sum(crossing_bytes(stream, two)), rel=0.1)


def test_intervals_are_stretched() -> None:
    scheduler = SCHEDULERS["signal_80"]
    assert scheduler is not None and scheduler.interval_ns == 80 * STRETCH * MS


def test_sentences_end_with_their_last_word_and_belong_to_the_task_that_split_them() -> None:
    roots = range(OPENING + 2 * TASKS)
    latencies_ns = [int(9_000 * MS if root < OPENING else (1 + root % TASKS) * STRETCH * MS) for root in roots]
    words = [Arrival("end", 0, root, place, 0, place * int(STRETCH) * MS) for root in roots for place in (1, 2, 3)]
    tasks = [{"largestBacklog": 3, "blockedMs": 6.0}, {"largestBacklog": 5, "blockedMs": 0.0}]
    found = measures(Outcome(latencies_ns, [], {"operators": [{"tasks": tasks}]}, words))
    assert found["mean_ms"] == 5.5
    assert (found["word_ms"], found["slowest_ms"], found["growth"]) == (2, 10, 1)
    assert (found["task_0_ms"], found["task_9_ms"]) == (1, 10)
    assert (found["largest"], found["blocked_ms"]) == (5, 6 / STRETCH)


def samples_of(figure: str, signal: list[float], other: list[float]) -> Samples:
    return {
        trial.key(measure): signal if trial.technique.startswith("signal") else other
        for trial in TESTBED.figure(figure).trials
        for measure in ("mean_ms", "word_ms", "slowest_ms", "growth", "largest", "blocked_ms", "task_0_ms", "task_1_ms")
    }


def test_theirs_stands_beside_ours_where_it_loses_too() -> None:
    figure = TESTBED.figure("10")
    claims = {claim.key: claim for claim in figure.claims(TESTBED.rows(samples_of("10", [8.0, 9.0], [4.0, 4.0])))}
    mean, best = claims["testbed_figure10_mean_cut"], claims["testbed_figure10_signal_120_cut_1170"]
    assert (mean.theirs, mean.ours) == (0.787, pytest.approx(1 - 17 / 8))
    assert (best.theirs, best.ours) == (0.922, pytest.approx(1 - 17 / 8))
    assert claims["testbed_figure10_lbf_cut_1330"].ours == 0
    assert len([key for key in claims if "signal" in key]) == 12


def test_a_task_gains_or_not() -> None:
    samples = dict(samples_of("11", [2.0], [4.0]))
    samples[Trial("word_count", RATES[0], "lbf").key("task_1_ms")] = [3.0]
    claims = {claim.key: claim for claim in TESTBED.figure("11").claims(TESTBED.rows(samples))}
    gains = [claims[f"testbed_figure11_{name}_gain_1170"] for name in ("signal_80", "lbf", "round_robin")]
    assert [(claim.theirs, claim.ours) for claim in gains] == [(1, 1), (None, 0.5), (None, 0)]
    assert claims["testbed_figure11_signal_80_gain_1330"].theirs is None
