"""A checkpoint is a folder that a later run can resume from. It stores the position of each split and the next epoch.

The folder holds one small JSON file, which is replaced atomically, and a lock file that keeps a second driver out.
"""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tailrace.core.plan.plan import Plan
from tailrace.core.protocol.messages import Position
from tailrace.errors import OptionError
from tailrace.runtime.connectors.commits.disk import make_directory, replace_file
from tailrace.runtime.driver.folder_lock import lock_folder
from tailrace.topology import Role

VERSION = 1


class Checkpoint:
    """Stores the durable prefix of each split: in a folder, or in memory only if ``folder`` is None."""

    def __init__(self, folder: str | os.PathLike[str] | None, plan: Plan) -> None:
        self._plan = plan
        self._keys = {split.index: split.key for split in plan.splits}
        self._folder = None if folder is None else Path(folder).absolute()
        self._lock: IO[bytes] | None = None
        self.job_id = uuid.uuid4().hex
        self.next_epoch = 1
        self._known: dict[str, Position] = {}
        if self._folder is not None:
            try:
                make_directory(self._folder)
                self._lock = lock_folder(
                    self._folder, f"checkpoint is in use: checkpoint={self._folder}; does another run still go on?"
                )
            except OSError as error:
                raise OptionError(f"not a folder to write to: checkpoint={self._folder} cause={error}") from error
            try:
                self._load(self._folder / "checkpoint.json")
            except BaseException:
                self.close()
                raise

    def lost_state(self, restart: bool) -> list[str]:
        """Names of the stateful operators whose state was lost with the previous run.

        Operator state is kept in memory only, so a run that resumes from the middle of a stream starts without it.
        Raises OptionError in that case unless ``restart`` allows it. A run that starts from offset 0 has lost nothing.
        """
        names = [plan.name for plan in self._plan.operators if plan.operator.stateful]
        if not names or not any(position.offset for position in self._known.values()):
            return []
        if not restart:
            raise OptionError(
                f"a checkpoint holds no state: checkpoint={self._folder} stateful={', '.join(names)}; "
                "shall operators start with empty state in the middle of the stream? Say state='restart'"
            )
        return names

    def positions(self) -> dict[int, Position]:
        """The position to start from, by split index."""
        return {split.index: self._known.get(split.key, Position(0, None)) for split in self._plan.splits}

    @property
    def on_disk(self) -> bool:
        return self._folder is not None

    def store(self, positions: Mapping[int, Position], next_epoch: int) -> None:
        """Write the positions of these splits, and the lowest epoch that a later run may use."""
        self._known.update({self._keys[index]: position for index, position in positions.items()})
        self.next_epoch = max(self.next_epoch, next_epoch)
        self._write()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _load(self, path: Path) -> None:
        if not path.exists():
            self._write()
            return
        try:
            stored = json.loads(path.read_text())
            version = _field(stored, "version", int)
            if version != VERSION:
                raise ValueError(f"version {version}")
            topology = _field(stored, "topology", str)
            self.job_id = _field(stored, "job_id", str)
            self.next_epoch = _field(stored, "next_epoch", int)
            positions = _field(stored, "positions", dict)
            self._known = {key: _load_position(value) for key, value in positions.items()}
        except ValueError as error:
            raise OptionError(f"checkpoint cannot be read: file={path} cause={error}; is it one of ours?") from error
        if topology != self._plan.name:
            raise OptionError(
                f"checkpoint belongs to another topology: checkpoint={path.parent} topology={self._plan.name} "
                f"found={topology}; did you mean another folder?"
            )
        self._check_splits()

    def _check_splits(self) -> None:
        """Raise OptionError if a stored split is gone: its records would be read again under another split name."""
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
        replace_file(self._folder / "checkpoint.json", json.dumps(content).encode())


def _store_position(position: Position) -> dict[str, Any]:
    last = None if position.last is None else base64.b64encode(position.last).decode()
    return {"offset": position.offset, "last": last}


def _load_position(stored: Any) -> Position:
    last = _field(stored, "last", str | None)
    return Position(_field(stored, "offset", int), None if last is None else base64.b64decode(last, validate=True))


def _field(stored: Any, name: str, kind: Any) -> Any:
    """The field ``name`` of the stored JSON. Raises ValueError if it is missing or has the wrong type."""
    if not isinstance(stored, dict) or name not in stored:
        raise ValueError(f"{name} is missing")
    value = stored[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name}={value!r}")
    return value
