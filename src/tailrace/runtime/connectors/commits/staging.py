"""Fencing of file sinks: a writer may commit as long as its staging directory has not been renamed.

Each task and epoch writes in ``staging/<task>-e<epoch>/`` and commits by renaming out of it. A successor fences a
predecessor by renaming that directory away, so that the predecessor's next rename finds nothing. This holds because

- a writer makes its directory *before* it looks for higher epochs, and a successor makes its own *before* it looks
  for lower ones: of two that meet, at least one sees the other;
- the directory of a task's highest epoch is never deleted, so that a writer that wakes up late sees it.

A new run of a job may have another number of tasks, or group rows differently: a row of an earlier run may come to
any of its tasks. Whichever of them recovers first therefore fences *all* tasks of earlier runs. The empty directory
``staging/run-e<epoch>/`` names the first epoch of a run, and stands for a higher epoch of every task before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tailrace.errors import Fenced
from tailrace.runtime.connectors.commits.disk import make_directory, remove_tree, sync_directory

_NAME = re.compile(r"(\d+|run)-e(\d+)(\.fenced-by-\d+-e\d+)?")
_RUN = -1  # in place of a task: the marker of a run
MANIFEST = ".manifest"


class Place(NamedTuple):
    """A staging directory that exists."""

    task: int
    epoch: int
    fenced: bool
    path: Path


def places_in(root: Path) -> list[Place]:
    """The staging directories in ``root``, and the marks of runs."""
    return [
        Place(_RUN if match[1] == "run" else int(match[1]), int(match[2]), match[3] is not None, path)
        for path in sorted(root.iterdir())
        if (match := _NAME.fullmatch(path.name))
    ]


class Staging:
    """The staging directory of one task and epoch, among those of all others."""

    def __init__(self, root: Path, task: int, tasks: int, epoch: int, first_epoch: int = 1) -> None:
        self.root = root
        self.task = task
        self.tasks = tasks
        self.epoch = epoch
        self.first_epoch = first_epoch  # of this run
        self.path = root / f"{task:05d}-e{epoch}"

    def enter(self) -> None:
        """Create this writer's directory. Raises Fenced if there is a higher epoch."""
        make_directory(self.root)
        if self.first_epoch > 1:  # the first run of a job has no predecessor
            (self.root / f"run-e{self.first_epoch}").mkdir(exist_ok=True)
        try:
            self.path.mkdir()
        except FileExistsError:
            raise Fenced(
                f"epoch has been used before: task={self.task} epoch={self.epoch} directory={self.path}, "
                "was a worker started twice?"
            ) from None
        try:
            self.check(self.places())
        except Fenced:
            with suppress(OSError):  # a successor that fences it at this moment deletes it too
                self.path.rmdir()
            raise
        sync_directory(self.root)

    def check(self, places: Sequence[Place]) -> None:
        """Raise ``Fenced`` if there is a higher epoch of this task or a later run, or if this directory was renamed."""
        for place in places:
            if place.task in (self.task, _RUN) and (
                place.epoch > self.epoch or (place.epoch == self.epoch and place.fenced)
            ):
                raise self.fenced(f"found={place.path.name}")

    def fenced(self, found: str) -> Fenced:
        return Fenced(
            f"a higher epoch has taken over: task={self.task} epoch={self.epoch} {found} directory={self.root}, "
            "was this worker declared dead?"
        )

    def owns(self, task: int) -> bool:
        """Whether this task cleans up after ``task``: itself, or one that this run no longer has."""
        return task % self.tasks == self.task

    def places(self) -> list[Place]:
        return places_in(self.root)

    def shut_out(self) -> list[Place]:
        """Fence all predecessors, so that none of them can commit any more. Returns the fenced directories."""
        places: list[Place] = []
        while True:
            before, places = places, self.places()
            self.check(places)
            active = [place for place in places if not place.fenced and self._replaces(place)]
            for place in active:
                name = f"{place.path.name}.fenced-by-{self.task:05d}-e{self.epoch}"
                with suppress(FileNotFoundError):  # another process was faster; the next listing shows its name
                    place.path.rename(place.path.with_name(name))
            # A listing taken during a rename may show neither name, so two successive ones must agree.
            if not active and places == before:
                break
        fenced = [place for place in places if place.fenced]
        for place in fenced:
            _revoke(place.path)
        sync_directory(self.root)
        return [place for place in fenced if self.owns(place.task)]

    def sweep(self, places: Sequence[Place]) -> None:
        """Delete fenced directories and the marks of earlier runs, except the highest epoch of each task."""
        newest: dict[int, int] = {}
        found = self.places()
        for place in found:
            newest[place.task] = max(place.epoch, newest.get(place.task, 0))
        for place in (*places, *(place for place in found if place.task == _RUN)):
            if place.epoch < newest.get(place.task, 0):
                remove_tree(place.path)

    def clear(self) -> None:
        """Delete what an unfinished commit left in this directory; the directory stays."""
        with suppress(OSError):
            for file in list(self.path.iterdir()):
                file.unlink(missing_ok=True)

    def _replaces(self, place: Place) -> bool:
        if place.task == self.task:
            return place.epoch < self.epoch
        return place.task != _RUN and place.epoch < self.first_epoch


def _revoke(directory: Path) -> None:
    """Delete the uncommitted manifests of a fenced directory.

    A rename by the predecessor that resolved the directory before it was fenced, but not yet the file in it, would
    still succeed. After this it finds no file; and if it was faster, the manifest is in place before it is listed.
    """
    with suppress(FileNotFoundError):
        for file in list(directory.iterdir()):
            if file.name.endswith(MANIFEST):
                file.unlink(missing_ok=True)
