"""A live study from its trials to its report: whole repeats, in turns, kept as they are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.errors import OptionError
from tailrace.version import VERSION
from tailrace_research.bench.tail.run import STEMS, in_words
from tailrace_research.bench.tail.table import ENOUGH_REPEATS
from tailrace_research.bench.turns import Contest, Figures, machine_facts, machine_line, take_turns
from tailrace_research.reproduce.report import file_stem, flat_claims, render_claims, shown, write_figure
from tailrace_research.reproduce.study import Row
from tailrace_research.reproduce.testbed.kept import Kept
from tailrace_research.reproduce.testbed.study import LiveFigure, LiveStudy, Samples, Trial

Tell = Callable[[str], None]

START_S = 0.7
"""About what starting and stopping workers takes."""


@dataclass(frozen=True)
class LiveSizes:
    """How much is measured."""

    repeats: int = 3
    length: float = 1.0  # of streams, beside the usual

    def __post_init__(self) -> None:
        if self.repeats < 1 or self.length <= 0:
            raise OptionError(f"nothing to measure: repeats={self.repeats} length={self.length}: is either zero?")


QUICK = LiveSizes(repeats=1, length=0.2)


@dataclass(frozen=True)
class _Measuring:
    """A figure, what is kept of it, and how to measure the rest."""

    study: LiveStudy
    figure: LiveFigure
    sizes: LiveSizes
    kept: Kept

    @property
    def length(self) -> float:
        return self.sizes.length * self.figure.length

    def missing(self) -> list[int]:
        kept = self.kept.repeats()
        return [repeat for repeat in range(self.sizes.repeats) if repeat not in kept]

    def takes_s(self, trial: Trial) -> float:
        return self.study.seconds(trial) * self.length + START_S

    def left_s(self) -> float:
        return len(self.missing()) * sum(map(self.takes_s, self.figure.trials))

    def measure(self, repeat: int, others_s: float, tell: Tell) -> None:
        """One turn for each trial; a busy minute of the machine hurts all of them alike.

        ``others_s`` is left for other figures.
        """
        left_s = self.left_s() + others_s
        tell(f"{file_stem(self.figure.name)}, repeat {repeat + 1}: {_about(left_s)} left in all")

        def run(trial: Trial) -> Figures:
            nonlocal left_s
            measured = self.study.measure(trial, repeat, self.length)
            left_s -= self.takes_s(trial)
            return {trial.key(measure): value for measure, value in measured.items()}

        contests = [
            Contest(f"{trial.experiment} {trial.at:.4g}, {trial.technique}", partial(run, trial))
            for trial in self.figure.trials
        ]
        samples = take_turns(contests, 1, tell, lambda figures: f"{in_words(figures)}; {_about(left_s)} left")
        self.kept.add(repeat, {key: values[0] for key, values in samples.items()})

    def samples(self) -> Samples:
        """Samples of as many repeats as are asked for; more may be kept."""
        kept = self.kept.repeats()
        repeats = [kept[repeat] for repeat in range(self.sizes.repeats)]
        return {key: [figures[key] for figures in repeats] for key in repeats[0]}


def reproduce_live(
    study: LiveStudy,
    figures: Sequence[LiveFigure],
    sizes: LiveSizes,
    *,
    cells: Path,
    results: Path,
    say: Tell,
    tell: Tell,
) -> dict[str, Any]:
    """Measure what is missing, write each figure's files, ``say`` what was found and ``tell`` how it goes.

    All claims, as one flat dictionary.
    """
    facts, code = machine_facts(), study.fingerprint()
    waiting = [
        _Measuring(study, figure, sizes, Kept(cells / f"{file_stem(figure.name)}.jsonl", code, sizes.length))
        for figure in figures
    ]
    flat: dict[str, Any] = {"study": study.study, "testbed": True, "version": VERSION, "code": code}
    flat |= {"repeats": sizes.repeats, "length": sizes.length, **facts}
    while waiting:
        measuring = waiting.pop(0)
        others_s = sum(other.left_s() for other in waiting)
        for repeat in measuring.missing():
            measuring.measure(repeat, others_s, tell)
        flat |= _report(measuring, results, say)
    say(f"\n{machine_line(facts)}")
    return flat


def _report(measured: _Measuring, results: Path, say: Tell) -> dict[str, float]:
    figure = measured.figure
    rows = measured.study.rows(measured.samples())
    claims = figure.claims(rows)
    say(f"\n{render_claims(figure, claims)}")
    for line in (*losses(figure, rows), *figure.scaled):
        say(line)
    say(_repeats(measured.sizes.repeats))
    files = write_figure(figure, rows, claims, results)
    say(f"written: {', '.join(str(file) for file in files)}")
    return flat_claims(claims)


def _repeats(number: int) -> str:
    if number < ENOUGH_REPEATS:
        return f"Repeats: {number}, too few to tell a difference from noise."
    return f"Medians of {number} repeats, taking turns; each is another stream, the same for all techniques."


def losses(figure: LiveFigure, rows: Sequence[Row]) -> list[str]:
    """Where a technique is worse than the default by the measure that it is judged by."""
    lost = [row for row in rows if row["measure"] == figure.judged_by and row["cut"] is not None and row["cut"] < 0]
    words = [f"{row['technique']} at {row['experiment']} {row['at']:g} ({shown(row['cut'], '%')})" for row in lost]
    name = STEMS[figure.judged_by]
    return [f"Worse than the default by {name}: {', '.join(words)}." if words else f"Nowhere worse by {name}."]


def _about(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < 100 else f"about {seconds / 60:.0f} min"
