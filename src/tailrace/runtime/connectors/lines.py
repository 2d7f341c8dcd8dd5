"""A source over lines of text files. Each file is a split, and the offset is the byte at which a line begins.

A file is read up to the end that it has when the reader gets there; a last line without a newline counts. In a ``.gz``
file, offsets count decompressed bytes.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from itertools import islice
from pathlib import Path
from typing import IO, cast

from tailrace.connector import Reader, Record, SplitStart
from tailrace.errors import NotRepeatable, OptionError, TailraceError, shorten
from tailrace.runtime.connectors.fingerprint import describe, matches

_STEP_BACK = 64 * 1024  # bytes; longer than nearly all lines, so that one read finds the start of the previous line


@dataclass(frozen=True)
class LinesSource:
    """See ``from_lines``."""

    pattern: str
    replayable: bool = True
    splits_may_go: bool = True

    def splits(self, tasks: int) -> Sequence[str]:
        # Not Path.glob, which also matches hidden files, unlike a shell or Spark.
        # A set, because a pattern with two ** may match a file several times.
        names = sorted(name for name in set(glob(self.pattern, recursive=True)) if Path(name).is_file())  # noqa: PTH207
        if names:
            return names
        hint = f"did you mean {self.pattern}/*?" if Path(self.pattern).is_dir() else "is the path right on the driver?"
        raise OptionError(f"no file matches: glob={self.pattern}, {hint}")

    def open(self, start: SplitStart) -> Reader[str]:
        return LinesReader(start)


class LinesReader:
    """Reads one file, from the first line at or after the start offset."""

    def __init__(self, start: SplitStart) -> None:
        self._path = start.split
        self._done = False
        self._file = _open(start.split)
        try:
            self._next = _seek(self._file, start)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._damaged(error) from error
        except BaseException:
            self._file.close()
            raise

    def poll(self, limit: int, now_ns: int) -> Sequence[Record[str]]:
        records = []
        offset = self._next
        try:
            for line in islice(self._file, limit):
                records.append(Record(offset, 0, _decode(line, self._path, offset)))
                offset += len(line)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._damaged(error) from error
        self._next = offset
        if len(records) < limit:
            self._done = True
        return records

    @property
    def ready_ns(self) -> int:
        return 0

    @property
    def done(self) -> bool:
        return self._done

    def close(self) -> None:
        self._file.close()

    def _damaged(self, error: Exception) -> TailraceError:
        self._file.close()
        return TailraceError(f"gzip file is damaged: file={self._path} fault={error}, was it copied completely?")


def from_lines(pattern: str | Path) -> LinesSource:
    """Read the lines of all files that match a pattern, as text in UTF-8, and end.

    Every worker must be able to read the files under the same path, and they must not change while the job lives.

    Args:
        pattern: a path with ``*``, ``?`` and ``**``, such as ``"logs/*.txt"`` or ``"logs/**/*.gz"``. Files that end
            in ``.gz`` are decompressed. Each file is a split.

    Example:
        >>> tr.Topology("logs").source("lines", tr.from_lines("logs/*.txt"), tasks=2)
        Stream(lines.main)
    """
    if not isinstance(pattern, str | Path):
        raise OptionError(
            f"not a pattern: from_lines={shorten(pattern)} type={type(pattern).__name__}, "
            "did you mean a path such as 'logs/*.txt'?"
        )
    text = str(pattern)
    if not text:
        raise OptionError("pattern is empty: glob='', did you mean '*'?")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise OptionError(f"not a name of files: glob={shorten(text)}, is there half a character in it?") from None
    path = Path(text).expanduser()
    return LinesSource(str(path.absolute() if has_magic(text) else path.resolve()))


def _open(path: str) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.endswith(".gz") else Path(path).open("rb")


def _seek(file: IO[bytes], start: SplitStart) -> int:
    """Seek to the first line that begins at or after the offset, and return its position."""
    if start.offset == 0:
        return 0
    file.seek(start.offset - 1)
    if file.tell() < start.offset - 1 or not file.read(1):
        raise NotRepeatable(
            f"file is shorter than what was read of it: file={start.split} offset={start.offset}, "
            "was it truncated or replaced?"
        )
    begin = _line_start(file, start.offset - 1)
    file.seek(begin)
    line = file.readline()
    if start.last is not None and not matches(start.last, _decode(line, start.split, begin)):
        raise NotRepeatable(
            f"file has another line than before: file={start.split} offset={begin} "
            f"before={shorten(describe(start.last))} now={shorten(line)}, was it changed or replaced?"
        )
    return begin + len(line)


def _line_start(file: IO[bytes], position: int) -> int:
    """Where the line that holds the byte at ``position`` begins."""
    end = position
    while end > 0:
        begin = max(0, end - _STEP_BACK)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def _decode(line: bytes, path: str, offset: int) -> str:
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise TailraceError(
            f"line is not utf-8: file={path} offset={offset} fault={error.reason} at byte {error.start} "
            f"line={shorten(line, 80)}, is the file binary or in another encoding?"
        ) from error
