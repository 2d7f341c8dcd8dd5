"""Which files hold the rows of each micro-batch: one small file a batch, which is what hands the batch over.

The file at place ``i`` of batch ``N`` belongs to split ``(N + i) % splits``. A row's offset is ``(N << 32)`` and its
place among the rows of its split in that batch, so that the same offset leads to the same row for ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.runtime.connectors.commits.disk import write_file
from tailrace.spark.connectors.numbered_files import NumberedFiles, damaged

ROW_BITS = 32
"""4 billion rows of a split in a batch; the 31 bits that are left for batches last 6 years at ten a second."""

_ENDED = re.compile(r"ended-(\d+)")


def names_of(splits: int) -> list[str]:
    return [str(index) for index in range(splits)]


@dataclass(frozen=True)
class Manifest:
    """The files of a batch, with their numbers of rows."""

    number: int
    files: tuple[tuple[str, int], ...]

    def of_split(self, index: int, splits: int) -> tuple[tuple[str, int], ...]:
        return self.files[(index - self.number) % splits :: splits]

    def end_of(self, index: int, splits: int) -> int:
        """The offset behind the last row of a split in this batch."""
        return (self.number << ROW_BITS) + sum(rows for _, rows in self.of_split(index, splits))

    def rows_from(self, durable: Mapping[str, int], splits: int) -> int:
        """How many of its rows lie at or above these offsets."""
        first = self.number << ROW_BITS
        return sum(
            max(0, self.end_of(index, splits) - max(first, durable.get(name, 0)))
            for index, name in enumerate(names_of(splits))
        )


class Manifests:
    """The manifests of a handover, in a folder of their own, and the mark that no more will come.

    They are deleted from the lowest number on, and the newest one stays: so a missing number below it has been read.
    """

    def __init__(self, folder: Path) -> None:
        self._files = NumberedFiles(folder)

    def make(self) -> None:
        self._files.make()

    def read(self, number: int) -> Manifest | None:
        stored = self._files.read(number)
        return None if stored is None else self._manifest(number, stored)

    def publish(self, manifest: Manifest) -> Manifest:
        """Hand a batch over, unless that has been done. Returns what was handed over under this number."""
        content = {"files": [list(file) for file in manifest.files]}
        return self._manifest(manifest.number, self._files.write(manifest.number, content))

    def look(self) -> tuple[list[int], int | None]:
        """The numbers that are there, and the one before which the handover has ended, if it has."""
        numbers, others = self._files.look()
        ends = [int(match[1]) for name in others if (match := _ENDED.fullmatch(name))]
        return numbers, min(ends, default=None)

    def end(self, number: int) -> None:
        """Say that no batch of this number, or a higher one, will come in this run."""
        write_file(self._files.folder / f"ended-{number:012d}", b"")

    def go_on(self) -> None:
        """Take back what an earlier run said about its end, and delete what a crash left behind."""
        self._files.sweep()
        for path in self._files.folder.glob("ended-*"):
            path.unlink(missing_ok=True)

    def remove(self, number: int) -> None:
        self._files.remove(number)

    def _manifest(self, number: int, stored: Any) -> Manifest:
        try:
            return Manifest(number, tuple((str(name), int(rows)) for name, rows in stored["files"]))
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(self._files.path(number), error) from error
