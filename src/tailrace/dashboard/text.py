"""Formats numbers for people: three significant digits, a suitable unit, a dash for no value."""

from __future__ import annotations

NOTHING = "–"

_COUNT_UNITS = ((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))
_TIME_UNITS_MS = ((1e-6, " ns"), (1e-3, " µs"), (1.0, " ms"), (1e3, " s"))
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400


def count(number: int) -> str:
    """``950``, ``12.3k``, ``4.56M``."""
    return str(number) if abs(number) < 1_000 else _scaled(number, _COUNT_UNITS)


def rate(per_second: float) -> str:
    """``0/s``, ``2.50/s``, ``12.3k/s``."""
    return f"{_scaled(per_second, _COUNT_UNITS) if per_second else '0'}/s"


def latency(ms: float | None) -> str:
    """``850 µs``, ``1.24 ms``, ``2.00 s``, ``1 min 15 s``."""
    if ms is None:
        return NOTHING
    if ms >= (_MINUTE_S - 0.05) * 1e3:
        return elapsed(ms)
    return _scaled(ms, _TIME_UNITS_MS) if ms else "0 ms"


def bound(ms: float) -> str:
    """A round number without trailing zeros: ``1.5 ms``, ``200 µs``."""
    scale, unit = next(pair for pair in reversed(_TIME_UNITS_MS) if ms >= pair[0] * 0.9995)
    return f"{ms / scale:.4g}{unit}"


def elapsed(ms: float) -> str:
    """``4.2 s``, ``1 min 05 s``, ``2 h 07 min``, ``3 d 04 h``."""
    seconds = ms / 1e3
    if seconds < _MINUTE_S - 0.05:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02} s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S:02} h"


def ratio(fraction: float) -> str:
    """``0%``, ``45%``, ``180%``."""
    return f"{fraction * 100:.0f}%"


def listed(words: list[str], most: int = 3) -> str:
    """``a, b, c and 4 more``."""
    rest = len(words) - most
    return ", ".join(words[:most]) + (f" and {rest} more" if rest > 0 else "")


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    """Three digits, in the largest unit in which the value is at least 1 after rounding."""
    fitting = [pair for pair in units if value >= pair[0] * 0.9995] or [units[0]]
    scale, unit = fitting[-1]
    scaled = value / scale
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{digits}f}{unit}"
