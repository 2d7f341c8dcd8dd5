"""Writes the Prometheus text format, version 0.0.4: families of samples, each with one header.

A family without samples is left out. The output is valid for any label values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
"""Names and values, in the order in which they are written."""

COUNTER, GAUGE, HISTOGRAM, SUMMARY = "counter", "gauge", "histogram", "summary"


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one metric name. ``labels`` are those that every sample has, for the documentation."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line. ``suffix`` is appended to the family's name: ``_sum``, ``_count``, ``_bucket`` or empty."""

    labels: Labels
    value: float
    suffix: str = ""


def render_family(family: Family, samples: Sequence[Sample]) -> Iterator[str]:
    """The lines of a family; none if it has no samples."""
    if samples:
        yield f"# HELP {family.name} {_escape_help(family.help)}"
        yield f"# TYPE {family.name} {family.kind}"
        for sample in samples:
            yield f"{family.name}{sample.suffix}{_braces(sample.labels)} {_number(sample.value)}"


def summary(labels: Labels, quantiles: Iterable[tuple[float, float]], count: int, total: float) -> Iterator[Sample]:
    """The samples of one summary; ``quantiles`` as ``(quantile, value)``."""
    for quantile, value in quantiles:
        yield Sample((*labels, ("quantile", _number(quantile))), value)
    yield Sample(labels, total, "_sum")
    yield Sample(labels, count, "_count")


def histogram(labels: Labels, cumulative: Iterable[tuple[float, int]], count: int, total: float) -> Iterator[Sample]:
    """The samples of one histogram; ``cumulative`` as ``(upper bound, values at or below it)``, ascending."""
    for upper, at_or_below in cumulative:
        yield Sample((*labels, ("le", _number(upper))), at_or_below, "_bucket")
    yield Sample((*labels, ("le", "+Inf")), count, "_bucket")
    yield Sample(labels, total, "_sum")
    yield Sample(labels, count, "_count")


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}" if labels else ""


def _escape(value: str) -> str:
    # A lone surrogate cannot be encoded in UTF-8, and would abort the scrape.
    clean = value.encode("utf-8", "replace").decode("utf-8")
    return clean.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
