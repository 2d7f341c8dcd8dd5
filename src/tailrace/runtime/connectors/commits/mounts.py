"""Detects folders on NFS mounts that cache names, where fencing may fail.

Fencing relies on names: a successor renames a directory, then lists what was committed. An NFS client caches names and
listings for up to a minute, so a process on another machine may still commit under the old name, or a successor may
miss a recent commit. With the mount option ``noac`` the client asks the server each time.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

_log = logging.getLogger(__name__)
_MOUNTS = Path("/proc/mounts")
_LOCAL = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}


def warn_of_cached_names(directory: Path) -> None:
    """Log a warning if workers on several machines could see different names in this folder."""
    try:
        mounts = _MOUNTS.read_text()
    except OSError:  # not on Linux
        return
    mount = mount_with_cached_names(directory.resolve(), mounts)
    if mount is not None:
        _log.warning(
            "file system may show workers names that are gone: directory=%s mount=%s, is it mounted with noac? "
            "Without that a worker that was declared dead, on another machine, may double rows.",
            directory,
            mount,
        )


def mount_with_cached_names(path: Path, mounts: str) -> Path | None:
    """The NFS mount that holds the path, if it caches names; otherwise None. ``mounts``: the text of /proc/mounts."""
    mount, kind, options = _mount_of(path, mounts)
    return mount if kind in ("nfs", "nfs4") and "noac" not in options.split(",") else None


def local_file_system(directory: Path) -> str | None:
    """The kind of file system that holds a folder, if that is one that other machines do not see; otherwise None."""
    try:
        mounts = _MOUNTS.read_text()
    except OSError:  # not on Linux
        return None
    _, kind, _ = _mount_of(directory.resolve(), mounts)
    return kind if kind in _LOCAL else None


def _mount_of(path: Path, mounts: str) -> tuple[Path, str, str]:
    """The mount that holds the path, its kind, and its options."""
    found, found_kind, found_options = Path("/"), "", ""
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split(" ")
        mount = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place))
        if path.is_relative_to(mount) and len(mount.parts) >= len(found.parts):  # a later one hides those below it
            found, found_kind, found_options = mount, kind, options
    return found, found_kind, found_options
