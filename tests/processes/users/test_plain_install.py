"""``pip install`` into a fresh environment: without extras it is the engine alone, and enough to run a topology.

Needs what ``make setup`` needs: a registry to install the dependencies from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SQUARES = """
import tailrace as tr


def row(number):
    return {"number": number, "square": number * number}


topology = tr.Topology("squares")
numbers = topology.source("numbers", tr.from_iterable(range(500)), tasks=2)
rows = tr.to_list()
numbers.map("row", row, tasks=2).sink("out", rows)
with topology.run(workers=2) as run:
    run.awaitTermination(60)
print(len(rows.values), sum(row["square"] for row in rows.values))
"""


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=variables)


def install(python: Path, folder: Path, project: Path, *options: str | Path) -> None:
    """Of a copy without build products: pip would take what an earlier build has left for a part of this one."""
    copy = folder / f"copy-of-{project.name}"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "*.so", "__pycache__", "tests", "docs")
    shutil.copytree(project, copy, ignore=ignored)
    done = run(python, "-m", "pip", "install", "--disable-pip-version-check", *options, copy)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with a plain installation of the engine."""
    folder = tmp_path_factory.mktemp("plain")
    done = run(sys.executable, "-m", "venv", folder / "venv")
    assert done.returncode == 0, done.stderr
    python = folder / "venv" / "bin" / "python"
    install(python, folder, ROOT)
    return python


@pytest.mark.slow
def test_a_plain_installation_is_the_engine_alone(python: Path) -> None:
    done = run(python, "-c", "import tailrace; print(tailrace.__path__[0])")
    assert done.returncode == 0, done.stderr
    engine = Path(done.stdout.strip())
    assert python.parents[1] in engine.parents
    assert (engine / "topology").is_dir()
    assert [name for name in ("bench", "reproduce") if (engine / name).exists()] == []
    brought = {path.name for path in engine.parent.iterdir()}
    assert brought & {"pyspark", "py4j", "pandas", "numpy", "tailrace_research", "bytewax"} == set()


@pytest.mark.slow
def test_a_topology_runs_on_plain_processes_there(python: Path, tmp_path: Path) -> None:
    file = tmp_path / "squares.py"
    file.write_text(SQUARES)
    done = run(python, file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"500 {sum(number * number for number in range(500))}\n"


@pytest.mark.slow
def test_the_laboratory_is_named_until_it_is_installed_and_then_plugs_in(python: Path, tmp_path: Path) -> None:
    command = python.with_name("tailrace")
    done = run(command, "bench", "engine")
    assert (done.returncode, done.stderr) == (
        2,
        "Error: tailrace bench is not installed: pip install tailrace-research\n",
    )
    added = tmp_path / "added"
    install(python, tmp_path, ROOT / "research", "--no-deps", "--target", added)
    listed = run(command, "--help", PYTHONPATH=str(added)).stdout
    assert "\n  bench " in listed and "\n  reproduce " in listed
    done = run(command, "bench", "engine", "--repeats", "0", PYTHONPATH=str(added))
    assert done.returncode == 2
    assert "'--repeats': 0 is not in the range x>=1" in done.stderr
