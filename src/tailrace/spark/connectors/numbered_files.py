"""Small JSON files in a folder, by number. A file appears whole and never changes.

Its name is made by a hard link, which fails if the name exists: of two processes that write the same number, the first
wins and the other adopts what it wrote. A process that was declared dead and still writes therefore does no harm.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.runtime.connectors.commits.disk import make_directory, sync_directory, write_file

_NAME = re.compile(r"batch-(\d+)\.json")


class NumberedFiles:
    """The files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self) -> None:
        make_directory(self.folder)

    def numbers(self) -> list[int]:
        return self.look()[0]

    def look(self) -> tuple[list[int], list[str]]:
        """The numbers, in order, and the names of all other files, as one listing shows them."""
        names = [path.name for path in self.folder.iterdir()]
        found = {name: int(match[1]) for name in names if (match := _NAME.fullmatch(name))}
        return sorted(found.values()), [name for name in names if name not in found]

    def read(self, number: int) -> Any:
        """The content of the file of this number; None if there is none."""
        path = self.path(number)
        try:
            return json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise damaged(path, error) from error

    def write(self, number: int, content: Mapping[str, Any]) -> Any:
        """Make ``content`` durable under this number, unless there is a file. Returns what it holds then."""
        path = self.path(number)
        draft = self.folder / f".{path.name}.{uuid.uuid4().hex}"
        write_file(draft, json.dumps(content).encode())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink(missing_ok=True)
        sync_directory(self.folder)
        found = self.read(number)
        if found is None:
            raise TailraceError(f"batch was deleted from the log: file={path}, do two jobs share the folder?")
        return found

    def remove(self, number: int) -> None:
        self.path(number).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete drafts that a crash left behind. A process still writing one was declared dead."""
        for path in self.folder.glob(".batch-*"):
            path.unlink(missing_ok=True)

    def path(self, number: int) -> Path:
        return self.folder / f"batch-{number:012d}.json"


def damaged(path: Path, fault: Exception) -> TailraceError:
    return TailraceError(f"log is damaged: file={path} fault={fault!r}, did something else write to it?")
