"""Without pyspark the engine runs on plain processes, and what needs Spark says in one sentence what to install."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tailrace as tr
from tailrace.cli import main

SENTENCE = "Spark is not installed: pip install 'tailrace[spark]', or run on plain processes, without a session"
TOPOLOGY = """
import tailrace as tr

topology = tr.Topology("numbers")
topology.source("numbers", tr.from_iterable(range(3))).sink("out", tr.to_list())
"""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if pyspark were not there, and nothing of ours that needs it had been imported."""
    for name in list(sys.modules):
        if name.split(".")[0] == "pyspark" or name.startswith("tailrace.spark"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    yield


def a_topology() -> tr.Topology:
    topology = tr.Topology("numbers")
    topology.source("numbers", tr.from_iterable(range(3))).sink("out", tr.to_list())
    return topology


def test_a_run_on_a_session_says_what_to_install() -> None:
    with pytest.raises(tr.SparkMissing) as caught:
        a_topology().run(object())
    assert str(caught.value).startswith(SENTENCE)
    assert isinstance(caught.value, ImportError)


def test_apply_says_what_to_install() -> None:
    topology = tr.Topology("copy")
    topology.input("rows").output("copies")
    frame: Any = object()
    with pytest.raises(tr.SparkMissing) as caught:
        topology.apply(frame, "id long")
    assert str(caught.value).startswith(SENTENCE)


NEED_SPARK = [
    "from_data_source",
    "from_dataframe",
    "from_stream",
    "local_session",
    "map_rows",
    "read_stream",
    "to_data_source",
]
NEED_SPARK += ["udf"]


@pytest.mark.parametrize("name", NEED_SPARK)
def test_functions_that_need_spark_can_be_imported_and_say_so_when_called(name: str) -> None:
    with pytest.raises(tr.SparkMissing) as caught:
        getattr(tr, name)("anything", at="all")
    assert str(caught.value).startswith(SENTENCE)


@pytest.mark.parametrize("command", [("run",), ("demo",), ("doctor",), ("doctor", "--json")])
def test_the_command_says_what_to_install(command: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "numbers.py"
    file.write_text(TOPOLOGY)
    result = CliRunner().invoke(main, [*command, str(file)] if command == ("run",) else command)
    assert result.exit_code == 1
    assert result.output == f"Error: {SENTENCE} (on the command line: --host process)\n"


def test_the_package_and_all_its_names_import_without_spark() -> None:
    script = "import sys; sys.modules['pyspark'] = sys.modules['pandas'] = None; from tailrace import *; print(shuffle)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "shuffle" in done.stdout
