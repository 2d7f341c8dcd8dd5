"""A checkpoint is a folder from which a later run goes on: how far each split is, and which epochs have been used.

It is one small JSON file, replaced as a whole, and a lock that keeps two drivers from using it at once.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tailrace.core.messages import Position
from tailrace.core.plan import Plan
from tailrace.errors import OptionError
from tailrace.topology import Role

VERSION = 1


class Checkpoint:
    """Where a run's prefixes are kept. Without a folder, only in memory."""

    def __init__(self, folder: str | os.PathLike[str] | None, plan: Plan) -> None:
        self._plan = plan
        self._keys = {split.index: split.key for split in plan.splits}
        self._folder = None if folder is None else Path(folder).absolute()
        self._lock: IO[str] | None = None
        self.job_id = uuid.uuid4().hex
        self.next_epoch = 1
        self._known: dict[str, Position] = {}
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lock = self._take_lock(self._folder)
            except OSError as error:
                raise OptionError(f"not a folder to write to: checkpoint={self._folder} cause={error}") from error
            try:
                self._load(self._folder / "checkpoint.json")
            except BaseException:
                self.close()
                raise

    def positions(self) -> dict[int, Position]:
        """Where to begin, by split index."""
        return {split.index: self._known.get(split.key, Position(0, None)) for split in self._plan.splits}

    @property
    def on_disk(self) -> bool:
        return self._folder is not None

    def store(self, positions: Mapping[int, Position], next_epoch: int) -> None:
        """How far splits are, and the lowest epoch that a later run may use."""
        self._known.update({self._keys[index]: position for index, position in positions.items()})
        self.next_epoch = max(self.next_epoch, next_epoch)
        self._write()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_lock(self, folder: Path) -> IO[str]:
        lock = (folder / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise OptionError(f"checkpoint is in use: checkpoint={folder}; does another run still go on?") from None
        return lock

    def _load(self, path: Path) -> None:
        if not path.exists():
            self._write()
            return
        try:
            stored: dict[str, Any] = json.loads(path.read_text())
            if stored["version"] != VERSION:
                raise ValueError(f"version {stored['version']}")
            self.job_id = stored["job_id"]
            self.next_epoch = stored["next_epoch"]
            self._known = {key: _load_position(value) for key, value in stored["positions"].items()}
        except (ValueError, KeyError, TypeError) as error:
            raise OptionError(f"checkpoint cannot be read: file={path} cause={error}; is it one of ours?") from error
        if stored["topology"] != self._plan.name:
            raise OptionError(
                f"checkpoint belongs to another topology: checkpoint={path.parent} topology={self._plan.name} "
                f"found={stored['topology']}; did you mean another folder?"
            )
        self._check_splits()

    def _check_splits(self) -> None:
        """A split that is not there any more would be read again under another name."""
        names = {split.key for split in self._plan.splits}
        for plan in self._plan.operators:
            if plan.operator.role is Role.SOURCE and not getattr(plan.operator.body, "splits_may_go", False):
                gone = [key for key in self._known if key.startswith(f"{plan.name}/") and key not in names]
                if gone:
                    raise OptionError(
                        f"checkpoint knows other splits: source={plan.name} missing={gone[0]} tasks={plan.tasks}; "
                        "did you change the number of its tasks?"
                    )

    def _write(self) -> None:
        if self._folder is None:
            return
        content = {
            "version": VERSION,
            "topology": self._plan.name,
            "job_id": self.job_id,
            "next_epoch": self.next_epoch,
            "positions": {key: _store_position(position) for key, position in self._known.items()},
        }
        path = self._folder / "checkpoint.json"
        fresh = path.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _store_position(position: Position) -> dict[str, Any]:
    last = None if position.last is None else base64.b64encode(position.last).decode()
    return {"offset": position.offset, "last": last}


def _load_position(stored: dict[str, Any]) -> Position:
    last = stored["last"]
    return Position(stored["offset"], None if last is None else base64.b64decode(last))
