"""Hone's testbed figures: what the paper claims of them, and what we draw.

A cut is taken against no scheduler, repeat by repeat on the same stream. Rows of the technique ``signal`` are over all
intervals, and at 0 over all points too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from tailrace.chart import Chart, Point, Series
from tailrace_research.reproduce.study import Claim, Row
from tailrace_research.reproduce.testbed.study import Samples, Trial

SIGNAL = "signal"
EVERY = 0
LABELS = {"none": "no scheduler", "round_robin": "round robin", "lbf": "LBF, every parcel"}

MEAN_CUT, BEST_CUT, BEST_INTERVAL = 0.787, 0.922, 120
WORDS_CUT = 0.849
"""The paper's words on Figs. 10 and 13. Its best of Fig. 10 is at the lowest rate and this interval."""

NOTES = ["medians of repeats; flat lines: without a signal", "dashed: added here"]


def label(technique: str) -> str:
    kind, _, interval = technique.partition("_")
    return f"LBF, signal every {interval} ms" if kind == SIGNAL else LABELS[technique]


def cuts(default: str, samples: Samples) -> Samples:
    """Besides: the mean cut of a signal over all points and intervals, and the best; the share of tasks that gain."""
    found = dict(samples)
    of_signals: dict[Trial, list[list[float]]] = {}
    gaining: dict[Trial, list[list[float]]] = {}
    for key in samples:
        trial, measure = Trial.of_key(key)
        if trial.technique == default:
            continue
        if measure == "mean_ms" and trial.technique.startswith(SIGNAL):
            for at in (trial.at, EVERY):
                over = Trial(trial.experiment, at, SIGNAL)
                of_signals.setdefault(over, []).append(_cuts(samples, trial, measure, default))
        elif measure.startswith("task_"):
            gaining.setdefault(trial, []).append(_cuts(samples, trial, measure, default))
    for over, of_points in of_signals.items():
        repeats = list(zip(*of_points, strict=True))
        found |= {over.key("cut_mean"): list(map(fmean, repeats)), over.key("cut_best"): list(map(max, repeats))}
    for trial, of_tasks in gaining.items():
        repeats = list(zip(*of_tasks, strict=True))
        found[trial.key("tasks_gain")] = [fmean(cut > 0 for cut in of_repeat) for of_repeat in repeats]
    return found


def _cuts(samples: Samples, trial: Trial, measure: str, default: str) -> list[float]:
    usual = samples[trial._replace(technique=default).key(measure)]
    return [1 - value / base for value, base in zip(samples[trial.key(measure)], usual, strict=True)]


# -- claims


def _row(rows: Iterable[Row], trial: Trial, measure: str) -> Row:
    wanted = (*trial, measure)
    return next(row for row in rows if (row["experiment"], row["at"], row["technique"], row["measure"]) == wanted)


def _claim(
    rows: Sequence[Row],
    key: str,
    text: str,
    trial: Trial,
    measure: str,
    *,
    cut: bool = True,
    unit: str = "%",
    theirs: float | None = None,
    where: str = "",
) -> Claim:
    row, column = _row(rows, trial, measure), "cut" if cut else "value"
    values = (row[column], row[f"{column}_low"], row[f"{column}_high"])
    return Claim(f"testbed_{key}", text, unit, theirs, *values, where or f"at {trial.at:,.0f}")


def _over_all(
    rows: Sequence[Row], prefix: str, experiment: str, theirs: Mapping[str, float], at: float = EVERY
) -> list[Claim]:
    over = Trial(experiment, at, SIGNAL)
    return [
        _claim(
            rows,
            f"{prefix}_{name}_cut",
            f"LBF by signal: mean latency cut, {text}",
            over,
            f"cut_{name}",
            cut=False,
            theirs=theirs.get(name),
            where="all intervals" + (f", {at:,.0f}/s" if at != EVERY else " and points"),
        )
        for name, text in (("mean", "on average"), ("best", "at best"))
    ]


def _mean_cut(rows: Sequence[Row], prefix: str, trial: Trial, where: str, theirs: float | None = None) -> Claim:
    """With the means themselves: of what is many times as much a cut says little."""
    value, usual = (_row(rows, of, "mean_ms")["value"] for of in (trial, trial._replace(technique="none")))
    key, text = f"{prefix}_{trial.technique}_cut_{trial.at:g}", f"{label(trial.technique)}: mean cut"
    where = f"{where}: {value:.3g} instead of {usual:.3g} ms"
    return _claim(rows, key, text, trial, "mean_ms", theirs=theirs, where=where)


def rate_claims(rates: Sequence[int], intervals: Sequence[int], rows: Sequence[Row]) -> list[Claim]:
    """The claims of figure 10."""
    claims = _over_all(rows, "figure10", "word_count", {"mean": MEAN_CUT, "best": BEST_CUT})
    for rate in rates:
        for interval in intervals:
            theirs = BEST_CUT if (rate, interval) == (min(rates), BEST_INTERVAL) else None
            trial = Trial("word_count", rate, f"{SIGNAL}_{interval}")
            claims.append(_mean_cut(rows, "figure10", trial, f"{rate:,}/s", theirs))
        claims.append(_mean_cut(rows, "figure10", Trial("word_count", rate, "lbf"), where=f"{rate:,}/s"))
    return claims


def interval_claims(
    number: int, intervals: Sequence[int], theirs: Mapping[str, float], rows: Sequence[Row]
) -> list[Claim]:
    """The claims of figures 12 and 14."""
    prefix, experiment = f"figure{number}", rows[0]["experiment"]
    techniques = [*(f"{SIGNAL}_{interval}" for interval in intervals), "lbf", "round_robin"]
    claims = []
    for place, at in enumerate(_points(rows)):
        claims += _over_all(rows, f"{prefix}_{at:g}", experiment, {} if place else theirs, at)
        trials = [Trial(experiment, at, technique) for technique in techniques]
        claims += [_mean_cut(rows, prefix, trial, where=f"{at:,.0f}/s") for trial in trials]
    return claims


def _points(rows: Iterable[Row]) -> list[float]:
    """The paper's first."""
    return sorted({row["at"] for row in rows} - {EVERY})


def task_claims(tasks: int, rows: Sequence[Row]) -> list[Claim]:
    """The claims of figure 11."""
    techniques = sorted({row["technique"] for row in rows} - {"none", SIGNAL}, reverse=True)
    claims = []
    for place, at in enumerate(_points(rows)):
        where = f"{at:,.0f}/s"
        for technique in techniques:
            trial, key = Trial("word_count", at, technique), f"figure11_{technique}"
            theirs = None if place or not technique.startswith(SIGNAL) else 1.0
            text = f"{label(technique)}: share of {tasks} tasks that gain"
            gain = _claim(rows, f"{key}_gain_{at:g}", text, trial, "tasks_gain", cut=False, theirs=theirs, where=where)
            text = f"{label(technique)}: slowest task's cut"
            claims += [gain, _claim(rows, f"{key}_slowest_cut_{at:g}", text, trial, "slowest_ms", where=where)]
        for technique in ("none", *techniques):
            text = f"{label(technique)}: second half of the stream, over the first"
            trial, key = Trial("word_count", at, technique), f"figure11_{technique}_growth_{at:g}"
            claims.append(_claim(rows, key, text, trial, "growth", cut=False, unit="x", where=where))
    return claims


def words_claims(rows: Sequence[Row]) -> list[Claim]:
    """The claims of figure 13."""
    claims = _over_all(rows, "figure13", "words", {"mean": WORDS_CUT})
    claims += _over_all(rows, "figure13_matched", "words_matched", {})
    for prefix, experiment, how in (
        ("figure13", "words", "the same link"),
        ("figure13_matched", "words_matched", "a link that is as full"),
    ):
        points = _points(row for row in rows if row["experiment"] == experiment)
        techniques = sorted({row["technique"] for row in rows} - {"none", SIGNAL}, reverse=True)
        claims += [
            _mean_cut(rows, prefix, Trial(experiment, at, technique), where=f"{at:.0f} words, {how}")
            for technique in techniques
            for at in points
        ]
    return claims


SETTINGS = {
    "word_count": "nearly full link",
    "large_parcels": "nearly full, large parcels",
    "overfull": "overfull link",
    "batched": "overfull if small, large parcels",
    "small_queues": "overfull, small queues",
}


FACTS = (
    ("mean_ms", "mean of sentences, ms", ""),
    ("word_ms", "mean of words, ms", ""),
    ("blocked_ms", "tasks blocked, ms", ""),
    ("largest", "largest backlog", "#"),
)


def ablation_claims(rows: Sequence[Row]) -> list[Claim]:
    """Each source of a gain by itself: sentences wait for their last word, words do not."""
    techniques = sorted({row["technique"] for row in rows} - {"none", SIGNAL})
    claims = []
    for experiment, setting in SETTINGS.items():
        at = max(row["at"] for row in rows if row["experiment"] == experiment)
        for technique in techniques:
            trial, key = Trial(experiment, at, technique), f"ablation_{experiment}_{technique}"
            for measure, text in (("mean", "sentences"), ("word", "words"), ("slowest", "slowest task")):
                words = f"{label(technique)}: mean cut, {text}"
                claims.append(_claim(rows, f"{key}_{measure}_cut", words, trial, f"{measure}_ms", where=setting))
        for technique in ("none", *techniques):
            trial, key = Trial(experiment, at, technique), f"ablation_{experiment}_{technique}"
            for measure, text, unit in FACTS:
                words = f"{label(technique)}: {text}"
                claims.append(
                    _claim(rows, f"{key}_{measure}", words, trial, measure, cut=False, unit=unit, where=setting)
                )
    return claims


# -- charts


def _point(x: float, row: Row) -> Point:
    return Point(x, row["value"], row["value_least"], row["value_most"])


def interval_chart(number: int, rows: Sequence[Row]) -> dict[str, Chart]:
    means = [row for row in rows if row["measure"] == "mean_ms"]
    points = sorted({row["at"] for row in means})
    intervals = sorted({int(row["technique"].split("_")[1]) for row in means if row["technique"].startswith(SIGNAL)})
    curves = []
    for colour, at in enumerate(points):
        of_point = {row["technique"]: row for row in means if row["at"] == at}
        signals = [_point(interval, of_point[f"{SIGNAL}_{interval}"]) for interval in intervals]
        curves.append(Series(f"LBF by signal, {at:,.0f}/s", signals, colour=colour))
        flat = [_point(interval, of_point["none"]) for interval in (intervals[0], intervals[-1])]
        curves.append(Series(f"no scheduler, {at:,.0f}/s", flat, dashed=True, colour=colour))
    title = f"Hone, Fig. {number}: mean latency of sentences, live"
    return {"": Chart(title, "scheduling interval, ms", "ms", curves, log_y=True, notes=NOTES)}


def task_chart(rows: Sequence[Row]) -> dict[str, Chart]:
    charts = {}
    for part, at in zip("abc", _points(rows), strict=False):
        found: dict[str, list[Point]] = {}
        for row in rows:
            if row["measure"].startswith("task_") and row["at"] == at:
                found.setdefault(row["technique"], []).append(_point(int(row["measure"].split("_")[1]), row))
        curves = [
            Series(label(technique), sorted(points), dashed=technique in ("lbf", "round_robin"))
            for technique, points in found.items()
        ]
        title = f"Hone, Fig. 11: mean latency of sentences by split task, {at:,.0f}/s, live"
        charts[part] = Chart(title, "split task", "ms", curves, log_y=True, notes=NOTES[1:])
    return charts


def words_chart(rows: Sequence[Row]) -> dict[str, Chart]:
    means = [row for row in rows if row["measure"] == "mean_ms"]
    charts = {}
    for part, experiment, how in (("a", "words", "one link"), ("b", "words_matched", "a link that is as full")):
        techniques = dict.fromkeys(row["technique"] for row in means if row["experiment"] == experiment)
        curves = [
            Series(
                label(technique),
                [
                    _point(row["at"], row)
                    for row in means
                    if (row["experiment"], row["technique"]) == (experiment, technique)
                ],
                dashed=technique in ("lbf", "round_robin"),
            )
            for technique in techniques
        ]
        title = f"Hone, Fig. 13: mean latency of sentences, {how}, live"
        charts[part] = Chart(title, "most words in a sentence", "ms", curves, log_y=True, notes=NOTES[1:])
    return charts
