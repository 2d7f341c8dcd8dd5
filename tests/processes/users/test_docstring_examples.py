"""Examples in docstrings that start workers: those of ``Run`` share one run."""

from __future__ import annotations

from typing import Any

import tailrace as tr
from kit.examples import run_example

NEED_SPARK = {"table"}
"""Run in ``tests/spark``."""


def test_examples_of_a_run() -> None:
    names: dict[str, Any] = {}
    try:
        run_example("Run", tr.Run, names)
        for name, member in vars(tr.Run).items():
            if not name.startswith("_") and member.__doc__ and name not in NEED_SPARK:
                run_example(f"Run.{name}", member, names)
        assert not names["run"].isActive, "the last example stops the run"
    finally:
        if "run" in names:
            names["run"].stop(timeout=0)


def test_example_of_running_a_topology() -> None:
    run_example("Topology.run", tr.Topology.run)


def test_example_of_watching_a_run() -> None:
    run_example("watch", tr.watch)
