"""The sink that docs/connectors.md shows keeps runs apart, and shuts out all tasks of earlier runs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tailrace.testing.connectors import SinkTrial, check_runs, check_tasks

PAGE = Path(__file__).parents[3] / "docs" / "connectors.md"


@pytest.fixture
def new_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], SinkTrial]:
    code = next(block for block in PAGE.read_text().split("```python\n") if "class ToTable" in block)
    module: Any = ModuleType("tables_of_the_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # its sinks are pickled
    exec(code.partition("\ndatabase = connect(")[0], module.__dict__)
    numbers = itertools.count()

    def read_back(sink: Any) -> list[int]:
        return [row for (row,) in module.connect(sink.path).execute("SELECT body FROM results")]

    return lambda: SinkTrial(module.ToTable(str(tmp_path / f"{next(numbers)}.db")), read_back, lambda n: n)


def test_runs_keep_apart(new_trial: Callable[[], SinkTrial]) -> None:
    check_runs(new_trial)


def test_a_new_run_shuts_out_all_tasks_of_the_one_before(new_trial: Callable[[], SinkTrial]) -> None:
    check_tasks(new_trial)
