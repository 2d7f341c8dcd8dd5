"""Names that say whose a namespace, a control group or a folder is, and what is left of owners that were killed.

A name holds the owner's process id and when that process began, so that another process with its id is not taken
for it.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tailrace.errors import TailraceError

PREFIX = "tailrace-box"
NAMESPACES = Path("/run/netns")
END_S = 20.0

_numbers = itertools.count()


def new_mark() -> str:
    """The beginning of all names of one box."""
    return f"{PREFIX}-{os.getpid()}-{_begun(os.getpid())}-{next(_numbers)}"


def is_left_behind(name: str) -> bool:
    """Whether this is the name of something in a box whose owner is gone."""
    found = re.match(rf"{PREFIX}-(\d+)-(\d+)-\d+(-|$)", name)
    return found is not None and _begun(int(found[1])) != int(found[2])


def sweep() -> list[str]:
    """Remove what owners left behind that were killed. Returns the names."""
    left = [name for name in _names(NAMESPACES) if is_left_behind(name)]
    for name in left:
        end_all(lambda name=name: pids_in(name))  # type: ignore[misc]
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    for root in group_roots():
        for name in filter(is_left_behind, _names(root)):
            left.append(name)
            remove_group(root / name)
    for name in filter(is_left_behind, _names(Path(tempfile.gettempdir()))):
        left.append(name)
        shutil.rmtree(Path(tempfile.gettempdir(), name), ignore_errors=True)
    return left


def remains(mark: str) -> list[str]:
    """Everything with this mark that still exists: namespaces, control groups and folders."""
    roots = [NAMESPACES, *group_roots(), Path(tempfile.gettempdir())]
    return [str(root / name) for root in roots for name in _names(root) if name.startswith(f"{mark}-") or name == mark]


def group_roots() -> Iterator[Path]:
    """Where control groups that limit processor time may be made: of either version."""
    for path in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")):
        if (path / "cgroup.procs").exists():
            yield path


def remove_group(group: Path) -> None:
    """Its processes must be gone, or are about to be."""
    deadline_s = time.monotonic() + END_S
    while group.exists():
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def pids_in(namespace: str) -> list[int]:
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
    return [int(pid) for pid in done.stdout.split()]


def end_all(pids: Callable[[], list[int]]) -> None:
    """Kill processes, and those that they start meanwhile, until there is none."""
    deadline_s = time.monotonic() + END_S
    while left := pids():
        assert os.getpid() not in left, "this process is none of theirs"
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if time.monotonic() > deadline_s:
            raise TailraceError(f"processes do not end: pids={left}")
        time.sleep(0.02)


def _begun(pid: int) -> int:
    """When a process began, in ticks since the machine did; 0 if there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []
