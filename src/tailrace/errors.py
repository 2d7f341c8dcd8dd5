"""Every error a user can meet, in one place.

Messages are lower case: the fault, then ``name=value``, then the likely cause as a question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from os import PathLike, fspath
from typing import Any


class TailraceError(Exception):
    """The base of all errors that Tailrace raises on purpose.

    Example:
        >>> try:
        ...     tr.Topology("no spaces, please")
        ... except tr.TailraceError as error:
        ...     print(type(error).__name__)
        TopologyError
    """


class TopologyError(TailraceError):
    """The topology cannot run as it was written.

    Example:
        >>> tr.Topology("empty").run()
        Traceback (most recent call last):
        tailrace.errors.TopologyError: no source: topology=empty: did you forget topology.source(…)?
    """


class OptionError(TailraceError, ValueError):
    """An option of a connector, an operator or a run has an unknown name, or a value that makes no sense.

    Example:
        >>> tr.from_lines("")
        Traceback (most recent call last):
        tailrace.errors.OptionError: pattern is empty: glob='', did you mean '*'?
    """


class SparkMissing(TailraceError, ImportError):
    """Something needs Spark, and pyspark is not installed.

    Example:
        >>> issubclass(tr.SparkMissing, tr.TailraceError)
        True
    """


class TaskError(TailraceError):
    """A user's function raised, and its operator has ``on_error="fail"``.

    ``str()`` puts the user's own traceback on top and the place in the topology below it.

    Example:
        >>> def failed_operator(run: tr.Run) -> str | None:
        ...     error = run.exception()
        ...     return error.operator if isinstance(error, tr.TaskError) else None
    """

    def __init__(self, operator: str, task: int, value: str, traceback: str) -> None:
        super().__init__(operator, task, value, traceback)
        self.operator = operator
        self.task = task
        self.value = value
        self.traceback = traceback

    def __str__(self) -> str:
        place = f"operator={self.operator} task={self.task} tuple={self.value}"
        return f"{self.traceback.rstrip()}\n\noperator failed: {place}"


class WorkersMissing(TailraceError):
    """Not all workers came up in time: ``start_timeout_s`` says how long they may take.

    Example:
        >>> def came_up(run: tr.Run) -> bool:
        ...     return not isinstance(run.exception(), tr.WorkersMissing)
    """


class WorkerLost(TailraceError):
    """A worker died more often in a row than ``max_deaths`` allows.

    Example:
        >>> def survived(run: tr.Run) -> bool:
        ...     return not isinstance(run.exception(), tr.WorkerLost)
    """


class NotRepeatable(TailraceError):
    """A source gave other records when it was read a second time.

    Example:
        >>> from tailrace.connector import SplitStart
        >>> tr.from_iterable(["the"]).open(SplitStart("0/1", offset=5))
        Traceback (most recent call last):
        tailrace.errors.NotRepeatable: source gave something else when read again: split=0/1 offset=4 ...
    """


class Fenced(TailraceError):
    """Someone with a higher epoch has taken over; what a lower epoch wrote is refused."""


class ProtocolError(TailraceError):
    """A peer sent bytes that are not a frame of ours; its connection is closed."""


class Refused(ProtocolError):
    """A peer that knows the secret does not want to talk to us."""


class AuthenticationError(ProtocolError):
    """A peer does not know the run's secret."""


class Tampered(AuthenticationError, ConnectionError):
    """Bytes on an encrypted connection are not its peer's. To the code that uses the connection, it has broken."""


class RingError(TailraceError):
    """A ring in shared memory cannot take this record, or holds what no ring holds."""


class RingClosed(RingError):
    """The ring takes no more records, and holds none."""


class SegmentError(RingError):
    """There is no shared memory here, or it is not what it should be. Links then go over TCP."""


def did_you_mean(name: object, known: Iterable[str], form: str = "{}") -> str:
    """The question that ends an error about an unknown name: the known name that is closest, or all if none is close.

    Args:
        name: what was given.
        known: what could have been given.
        form: how a known name is written in the question: ``"{}=…"`` for an option, ``"{!r}"`` for a value.

    Example:
        >>> did_you_mean("chekpoint", ["workers", "checkpoint"], "{}=…")
        'did you mean checkpoint=…?'
        >>> did_you_mean("colour", ["workers", "checkpoint"])
        'did you mean one of workers, checkpoint?'
    """
    names = {known_name.lower(): known_name for known_name in known}
    if not names:
        return "is there none yet?"
    close = get_close_matches(str(name)[:_LONGEST_NAME].lower(), names, n=1)
    if close:
        return f"did you mean {form.format(names[close[0]])}?"
    return f"did you mean one of {', '.join(form.format(known_name) for known_name in names.values())}?"


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str], place: str = "") -> None:
    """Raise ``OptionError`` for the first of the given names that is not known.

    Args:
        what: what the names are, such as ``"option"``.
        given: the names that were given.
        known: all names there are.
        place: ``name=value`` of where they were given, or nothing.

    Example:
        >>> refuse_unknown("option", {"chekpoint": "state/"}, ["workers", "checkpoint"])
        Traceback (most recent call last):
        tailrace.errors.OptionError: unknown option: chekpoint=…: did you mean checkpoint=…?
    """
    names = list(known)
    unknown = sorted(set(given) - set(names))
    if unknown:
        where = f"{place} " if place else ""
        hint = did_you_mean(unknown[0], names, "{}=…")
        raise OptionError(f"unknown {what}: {where}{unknown[0]}=…: {hint}")


def refuse_uri(option: str, folder: str | PathLike[str]) -> None:
    """Raise ``OptionError`` for a URI where a folder is wanted: as a path it is a new folder of this machine.

    Args:
        option: the name of what was given.
        folder: a path, which may be relative.

    Example:
        >>> refuse_uri("checkpoint", "state/words")
        >>> refuse_uri("checkpoint", "s3://bucket/words")
        Traceback (most recent call last):
        tailrace.errors.OptionError: not a folder but a URI: checkpoint='s3://bucket/words': could it be a path, ...
    """
    if _URI.match(str(fspath(folder))):
        raise OptionError(
            f"not a folder but a URI: {option}={shorten(folder)}: could it be a path, on a disk or on a network file "
            "system that all workers see? Object stores have no locks and renames"
        )


_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")  # a Path has one slash left of two


def refuse_doubled(names: Sequence[str], place: str) -> None:
    """Raise ``OptionError`` for columns that Spark takes for one, as it does not look at the case.

    Args:
        names: of columns.
        place: ``name=value`` of where they were given.

    Example:
        >>> refuse_doubled(["id", "name"], "df=users")
    """
    lowered = [name.lower() for name in names]
    doubled = [name for name in names if lowered.count(name.lower()) > 1]
    if doubled:
        raise OptionError(
            f"names differ in case only, or not at all: {place} columns={','.join(doubled)}: "
            "could one of them have another name?"
        )


_LONGEST_NAME = 100  # characters of a name that are compared: the comparison takes quadratic time


def shorten(value: Any, limit: int = 200) -> str:
    """``repr(value)`` that never raises and never floods a log."""
    try:
        if isinstance(value, str | bytes | bytearray | list | tuple) and len(value) > limit:
            return f"{repr(value[:limit])[:limit]}… (length {len(value)})"
        text = repr(value)
    except Exception as error:  # a broken __repr__ must not hide the error being reported
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return cut(text, limit)


LONGEST_MESSAGE = 10_000
"""Characters of an error's message that are kept: a service may answer with megabytes, and each row has its error."""


def message_of(error: BaseException) -> str:
    """``str(error)`` that never raises and never fills a table. Empty if the error has no words of its own.

    Example:
        >>> message_of(ValueError("no such user"))
        'no such user'
    """
    try:
        return cut(str(error))
    except Exception:  # a broken __str__ must not hide the error being reported
        return ""


def cut(text: str, limit: int = LONGEST_MESSAGE) -> str:
    """The text, or its beginning and how long it was.

    Example:
        >>> cut("not found", 3)
        'not… (9 characters)'
    """
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def headline(error: Exception) -> str:
    """An error in one line. That of a function begins with a traceback, whose last line says what happened."""
    if isinstance(error, TaskError):
        *_, cause = error.traceback.strip().splitlines() or [""]
        return f"{cause.strip()} (operator={error.operator} task={error.task})"
    return next(iter(message_of(error).splitlines()), type(error).__name__)
