"""Temporary folders of drivers: each deletes its own when it ends, and those of drivers that were killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

DRIVER = """
import sys, tempfile
from pathlib import Path
from tailrace.spark.temporary_folders import temporary_folder
tempfile.tempdir = sys.argv[1]
shared = Path(sys.argv[1]) if sys.argv[2] == "given" else None
folder = temporary_folder("test-", shared)
assert temporary_folder("test-", shared).parent == folder.parent
print(folder, flush=True)
sys.stdin.read()
"""


class Driver:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.folder = Path(process.stdout.readline().strip())


@contextmanager
def driver(place: Path, how: str) -> Iterator[Driver]:
    command = [sys.executable, "-c", DRIVER, str(place), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Driver(process)
        finally:
            if process.stdin is not None:
                process.stdin.close()
            process.wait(30)


@pytest.mark.parametrize("how", ["given", "default"])
def test_only_folders_of_the_dead_are_deleted(tmp_path: Path, how: str) -> None:
    """Whether a driver lives is for its lock to say: process ids of another container mean nothing here."""
    (tmp_path / "test-of-somebody-else").mkdir()
    with ExitStack() as stack:
        killed, living = (stack.enter_context(driver(tmp_path, how)) for _ in range(2))
        (living.folder / "rows").touch()
        killed.process.kill()
        killed.process.wait()
        assert killed.folder.is_dir()
        with driver(tmp_path, how) as third:
            assert third.folder.is_dir()
            assert not killed.folder.parent.exists()
            assert (living.folder / "rows").exists()
        assert not third.folder.parent.exists(), "it ends, and takes its own along"
        assert (living.folder / "rows").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["test-of-somebody-else"]
