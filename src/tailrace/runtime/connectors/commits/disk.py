"""Durable steps on a file system: what returns here survives a power cut, and what fails names its path."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write a whole new file and wait until it is on disk. Its name is durable after ``sync_directory``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except OSError as error:  # these calls know a number only
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: files created in it, renamed into it or out of it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create a directory and its parents where they are missing, durably."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a small file as a whole, durably. There is one writer."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)  # it may be a symbolic link to some other file
    write_file(fresh, data)
    fresh.replace(path)
    sync_directory(path.parent)


def remove_tree(path: Path) -> None:
    """Delete a directory of plain files. Another process may delete it, or add to it, at the same time."""
    try:
        for file in list(path.iterdir()):
            file.unlink(missing_ok=True)
        path.rmdir()
    except OSError:  # what is left over is found and deleted by the next recovery
        pass
