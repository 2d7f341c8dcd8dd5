"""A study's results for people and for programs: tables of theirs and ours, CSV, SVG, flat JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tailrace.chart import render_chart
from tailrace_research.reproduce.study import FORMATS, Claim, Drawn, Row

HEADINGS = ("claim", "theirs", "ours [95%]", "difference", "at")


def shown(value: float | None, unit: str, sign: str = "") -> str:
    if value is None:
        return "-"
    factor, digits, suffix = FORMATS[unit]
    return f"{value * factor:{sign}{digits}}{suffix}"


def shown_ours(claim: Claim) -> str:
    text = shown(claim.ours, claim.unit)
    if claim.low is None or claim.high is None:
        return text
    low, high = (shown(end, claim.unit).removesuffix(FORMATS[claim.unit][2]) for end in (claim.low, claim.high))
    return f"{text} [{low}..{high}]"


def shown_difference(claim: Claim) -> str:
    """The difference of two shares is in percentage points."""
    return shown(claim.difference, claim.unit, "+").replace(" %", " points")


def render_claims(figure: Drawn, claims: Sequence[Claim]) -> str:
    name = f"Figure {figure.name}" if figure.name.isdecimal() else figure.name
    return render_table(f"{name}: {figure.title}", claims)


def file_stem(name: str) -> str:
    """``figure6`` for Figure 6; other names are their own."""
    return f"figure{name}" if name.isdecimal() else name


def render_table(heading: str, claims: Sequence[Claim]) -> str:
    rows = [
        (claim.text, shown(claim.theirs, claim.unit), shown_ours(claim), shown_difference(claim), claim.where)
        for claim in claims
    ]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in (HEADINGS, *rows)]
    return "\n".join([heading, *(line.rstrip() for line in lines)])


def flat_claims(claims: Iterable[Claim]) -> dict[str, float]:
    """Shares as numbers from 0 to 1. The ends of an interval are ``key_low`` and ``key_high``."""
    flat: dict[str, float] = {}
    for claim in claims:
        flat[claim.key] = claim.ours
        if claim.low is not None and claim.high is not None:
            flat[f"{claim.key}_low"], flat[f"{claim.key}_high"] = claim.low, claim.high
    return flat


def write_figure(figure: Drawn, rows: Sequence[Row], claims: Sequence[Claim], folder: Path) -> list[Path]:
    """``figure6.csv`` with the points, or ``table2.csv``; ``figure6.claims.csv``, and the charts."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_stem(figure.name)
    files = {f"{stem}.csv": _csv(rows), f"{stem}.claims.csv": _csv([_claim_row(claim) for claim in claims])}
    files |= {f"{stem}{part}.svg": render_chart(chart) for part, chart in figure.charts(rows).items()}
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in files]


def _claim_row(claim: Claim) -> dict[str, Any]:
    row: dict[str, Any] = {"key": claim.key, "claim": claim.text, "theirs": claim.theirs, "ours": claim.ours}
    return row | {"low": claim.low, "high": claim.high, "difference": claim.difference, "at": claim.where}


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Six digits are more than any interval leaves certain, and the same on every machine."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow(f"{value:.6g}" if isinstance(value, float) else value for value in row.values())
    return out.getvalue()
