"""A testbed: a paper's measurements again, on worker processes of this machine.

A *trial* is one live run: a point of an experiment under a technique. The trials of a figure take turns, repeat by
repeat, and each repeat draws another stream. Its samples are summed up into rows like those of simulations, so that
claims and charts of a study serve both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import NamedTuple, cast

from tailrace.chart import Chart
from tailrace.errors import OptionError
from tailrace_research import reproduce
from tailrace_research.bench.turns import Figures
from tailrace_research.reproduce.fingerprint import fingerprint
from tailrace_research.reproduce.intervals import median_interval
from tailrace_research.reproduce.study import Claim, Row

Samples = Mapping[str, Sequence[float]]
"""All repeats of each figure, by its key."""

MODULE = "testbed"
"""The module of a study's package that has its ``TESTBED``."""


class Trial(NamedTuple):
    experiment: str
    at: float
    technique: str

    def key(self, measure: str) -> str:
        return "/".join((self.experiment, repr(float(self.at)), self.technique, measure))

    @staticmethod
    def of_key(key: str) -> tuple[Trial, str]:
        experiment, at, technique, measure = key.split("/")
        return Trial(experiment, float(at), technique), measure


@dataclass(frozen=True)
class LiveFigure:
    """One figure or table of a paper, measured. Like a study's figure, but for where its rows come from."""

    name: str
    title: str
    trials: Sequence[Trial]  # of a repeat, in the order of their turns
    claims: Callable[[Sequence[Row]], Sequence[Claim]]
    charts: Callable[[Sequence[Row]], Mapping[str, Chart]]
    scaled: Sequence[str]  # how it differs from what the paper ran, a sentence each
    length: float = 1.0  # of its streams, beside the usual of their experiments
    judged_by: str = "p99_ms"  # the measure by which a technique loses: one of bench.tail's STEMS


@dataclass(frozen=True)
class LiveStudy:
    """Law: trials with the same experiment, point and repeat draw the same stream; what differs is the technique."""

    study: str
    default: str  # the technique that the others are held against
    measure: Callable[[Trial, int, float], Figures]  # a trial, a repeat, and how long the stream is beside the usual
    seconds: Callable[[Trial], float]  # that the usual stream of a trial lasts
    figures: Sequence[LiveFigure]
    modules: Sequence[str]  # whose code the results depend on, with all that they import
    derive: Callable[[Samples], Samples] = dict  # what follows from the samples, repeat by repeat, with the samples

    def figure(self, name: str) -> LiveFigure:
        for figure in self.figures:
            if figure.name == name:
                return figure
        names = ", ".join(figure.name for figure in self.figures)
        raise OptionError(f"no such testbed figure: study={self.study} figure={name!r}: did you mean one of {names}?")

    def fingerprint(self) -> str:
        return fingerprint(self.modules)

    def rows(self, samples: Samples) -> list[Row]:
        """One a point, technique and measure: the median of its repeats, and of the cuts against the default's."""
        derived = self.derive(samples)
        found = []
        for key, values in derived.items():
            trial, measure = Trial.of_key(key)
            base = derived.get(trial._replace(technique=self.default).key(measure))
            found.append(_row(measure, trial, values, base))
        return sorted(found, key=lambda row: (row["measure"], row["experiment"], row["at"], row["technique"]))


def _row(measure: str, trial: Trial, values: Sequence[float], base: Sequence[float] | None) -> Row:
    row = {"measure": measure, **trial._asdict(), "runs": len(values)}
    row |= dict(zip(("value", "value_low", "value_high"), median_interval(values), strict=True))
    row |= {"value_least": min(values), "value_most": max(values)}
    cuts = [1 - value / usual for value, usual in zip(values, base or (), strict=bool(base)) if usual]
    cut = median_interval(cuts) if cuts else (None, None, None)
    return row | dict(zip(("cut", "cut_low", "cut_high"), cut, strict=True))


def live_studies() -> list[str]:
    """Names of the studies that have a testbed."""
    packages = [module.name for module in iter_modules(reproduce.__path__) if module.ispkg]
    return [name for name in packages if find_spec(_module(name)) is not None]


def live_study(study: str) -> LiveStudy:
    if study not in live_studies():
        raise OptionError(f"no testbed figures: study={study}: did you mean one of {', '.join(live_studies())}?")
    return cast(LiveStudy, import_module(_module(study)).TESTBED)


def _module(study: str) -> str:
    return f"{reproduce.__name__}.{study}.{MODULE}"
