"""Gives the processes of a machine in the box less processor time: by a control group, or by stopping them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from tailrace.testing.cluster.leftovers import group_roots, remove_group

PERIOD_S = 0.1


class Slowness:
    """A slow machine: its processes, which ``pids`` lists, get at most ``cores`` all together while this is on."""

    def __init__(self, name: str, pids: Callable[[], list[int]]) -> None:
        self._name, self._pids = name, pids
        self._group: Path | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def limit(self, cores: float | None) -> None:
        """None: no limit. Processes that are started later are limited if those are that start them."""
        self._end_thread()
        if self._group is None and cores is not None:
            self._group = _new_group(self._name)
        if self._group is not None:
            _set_quota(self._group, cores)
            if cores is not None:
                self._fill(self._group)
        elif cores is not None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._stop_and_go, args=(min(cores, 1.0),), daemon=True)
            self._thread.start()

    def close(self) -> None:
        """When its processes are gone."""
        self._end_thread()
        if self._group is not None:
            remove_group(self._group)
            self._group = None

    def _fill(self, group: Path) -> None:
        inside: set[int] = set()
        while new := set(self._pids()) - inside:
            for pid in new:
                try:
                    (group / "cgroup.procs").write_text(str(pid))
                except OSError:  # it is gone
                    pass
            inside |= new

    def _stop_and_go(self, share: float) -> None:
        while not self._stop.is_set():
            pids = self._pids()
            _signal(pids, signal.SIGSTOP)
            self._stop.wait(PERIOD_S * (1 - share))
            _signal(pids, signal.SIGCONT)
            self._stop.wait(PERIOD_S * share)

    def _end_thread(self) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None


def _new_group(name: str) -> Path | None:
    for root in group_roots():
        group = root / name
        try:
            group.mkdir()
            _set_quota(group, None)
        except OSError:
            if group.exists():
                group.rmdir()
            continue
        return group
    return None


def _set_quota(group: Path, cores: float | None) -> None:
    period = round(PERIOD_S * 1e6)
    if (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_period_us").write_text(str(period))
        (group / "cpu.cfs_quota_us").write_text(str(-1 if cores is None else round(cores * period)))
    else:
        (group / "cpu.max").write_text("max" if cores is None else f"{round(cores * period)} {period}")


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
