"""What a worker's process has asked of the system."""

from __future__ import annotations

import ctypes
import gc
import os

import pytest

import tailrace as tr
from kit.runs import finish, running

GET_TIMER_SLACK = 30  # what prctl calls it


def facts(number: int) -> tuple[int, int, bool]:
    modules = {id(one) for one in gc.get_objects()} & {id(one.__dict__) for one in (ctypes, os, tr)}
    return ctypes.CDLL(None).prctl(GET_TIMER_SLACK), os.getpgid(0), bool(modules)


@pytest.mark.parametrize("kind", ["auto", "blocking"])
def test_waits_end_in_time_and_modules_are_no_garbage_and_ctrl_c_is_not_for_workers(kind: str) -> None:
    topology = tr.Topology("facts")
    rows = tr.to_list()
    topology.source("numbers", tr.from_iterable(range(4))).map("facts", facts, tasks=2, kind=kind).sink("out", rows)
    with running(topology, workers=2) as run:
        finish(run)
    assert {slack_ns for slack_ns, _, _ in rows.values} == {1}
    assert os.getpgrp() not in {group for _, group, _ in rows.values}
    assert {looked_at for _, _, looked_at in rows.values} == {False}
