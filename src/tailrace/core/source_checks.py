"""Checks of what a source returns: a source that breaks the law of offsets would lose rows silently."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from tailrace.connector import Record
from tailrace.errors import TailraceError, TopologyError, shorten

_OFFSET = itemgetter(0)
READER = ("poll", "ready_ns", "done", "close")


def split_names(source: str, given: Any) -> list[str]:
    """The names of a source's splits. Raises TopologyError unless they are different strings."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TopologyError(
            f"splits() did not return names: source={source} returned={shorten(given)} type={type(given).__name__}, "
            "did you mean a list of strings?"
        )
    seen: set[str] = set()
    for name in given:
        if not isinstance(name, str):
            raise TopologyError(
                f"name of a split is not a string: source={source} split={shorten(name)} type={type(name).__name__}, "
                "did you mean str(…)?"
            )
        if name in seen:
            raise TopologyError(
                f"two splits have one name: source={source} split={name!r} splits={len(given)}, "
                "does splits() return each name once?"
            )
        seen.add(name)
    return list(given)


def check_reader(source: str, split: str, reader: Any) -> None:
    """Raise TailraceError unless the object that ``open`` returned is a reader."""
    missing = [attribute for attribute in READER if not hasattr(reader, attribute)]
    if missing:
        raise TailraceError(
            f"not a reader: source={source} split={split} type={type(reader).__name__} missing={','.join(missing)}, "
            "does open() return an object with poll, ready_ns, done and close?"
        )


def checked(source: str, split: str, records: Any, limit: int) -> Sequence[Record]:
    """The records that ``poll`` returned. Raises TailraceError unless they are records with integer offsets, at most
    ``limit`` of them. The source task checks that offsets increase.

    This is on the path of every record, so it looks at all types at once.
    """
    if not isinstance(records, Sequence) or isinstance(records, str | bytes):
        raise _not_records(source, split, records)
    if len(records) > limit:
        raise TailraceError(
            f"poll() returned more records than were asked for: source={source} split={split} records={len(records)} "
            f"limit={limit}, does it keep the rest for the next call?"
        )
    if records:
        for kind in set(map(type, records)):
            if not issubclass(kind, tuple):
                raise _not_records(source, split, next(one for one in records if type(one) is kind))
        for kind in set(map(type, map(_OFFSET, records))):
            if kind is not int:
                wrong = next(record[0] for record in records if type(record[0]) is kind)
                raise TailraceError(
                    f"offset is not an integer: source={source} split={split} offset={shorten(wrong)} "
                    f"type={kind.__name__}, did you mean int(…)?"
                )
    return records


def _not_records(source: str, split: str, given: Any) -> TailraceError:
    return TailraceError(
        f"poll() did not return records: source={source} split={split} returned={shorten(given)} "
        f"type={type(given).__name__}, did you mean a list of Record(offset, due_ns, value), which may be empty?"
    )


def not_increasing(source: str, split: str, offset: int, low: int) -> TailraceError:
    """The error for an offset that is below the lowest that could follow."""
    return TailraceError(
        f"offsets do not increase: source={source} split={split} offset={offset} lowest={low}, "
        "does each record have a higher offset than the one before, from where open() was told to begin?"
    )
