"""Workers of which one has a disk of its own at the path that all are to share: a run ends before it writes there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import tailrace as tr
from kit.runs import read_jsonl, row
from tailrace.runtime.driver.host import SubprocessHost
from tailrace.runtime.driver.run import HostedRun
from tailrace.runtime.listening import LOOPBACK
from tailrace.runtime.options import RunSettings

NO_MOUNTS = os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode

pytestmark = pytest.mark.skipif(bool(NO_MOUNTS), reason="it takes root and the right to mount")


def with_own_disk(folder: Path) -> list[str]:
    """The beginning of a command line for a process that sees another disk at this place."""
    return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', str(folder)]


def test_a_worker_with_a_disk_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    topology = tr.Topology("disks")
    numbers = topology.source("numbers", tr.at_rate(range(10_000), 1000))
    numbers.map("row", row).sink("out", tr.to_jsonl(out, roll_seconds=0.05), tasks=2)
    host = SubprocessHost(prefixes={1: with_own_disk(out)})
    run = HostedRun(topology, RunSettings.of({"workers": 2}), host, LOOPBACK)
    with pytest.raises(
        tr.TaskError, match=f"machines do not share a folder: sink=out folder={out} filesystem="
    ) as told:
        run.awaitTermination(60)
    assert "operator=out task=1 tuple=(while opening)" in str(told.value)
    assert read_jsonl(out) == [], "nothing was read before the refusal"


def test_workers_that_share_a_disk(tmp_path: Path) -> None:
    """They have their own view of what is mounted, and the same folder in it."""
    topology = tr.Topology("disks")
    topology.source("numbers", tr.from_iterable(range(100))).map("row", row).sink("out", tr.to_jsonl(tmp_path), tasks=2)
    host = SubprocessHost(prefixes={1: ["unshare", "--mount"]})
    run = HostedRun(topology, RunSettings.of({"workers": 2}), host, LOOPBACK)
    assert run.awaitTermination(60)
    assert sorted(found["n"] for found in read_jsonl(tmp_path)) == list(range(100))
