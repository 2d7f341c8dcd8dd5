"""The laboratory stands above the engine: what its parts may import of each other, and which of them knows Spark."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import click

import tailrace_research
from tailrace.cli.plugins import ADDED_BY, GROUP
from tailrace.version import VERSION

PACKAGE = "tailrace_research"
SOURCE = Path(tailrace_research.__file__).parent
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
ENGINE = PROJECT.parents[1] / "src" / "tailrace"

# part -> what it may import of the laboratory besides itself
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "bench": set(),
    "ring": set(),
    "reproduce": {"bench"},
    "cli": {"bench", "reproduce"},
    "__main__": {"cli"},
}
USES_SPARK = {"bench/dataframe/window.py", "bench/hosts/driver.py", "reproduce/sweep.py"}


def imported(path: Path) -> Iterator[str]:
    """Dotted names of all that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_parts_import_only_what_is_below_them() -> None:
    for path in modules():
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for name in imported(path):
            if name.split(".")[0] == PACKAGE and name != PACKAGE:
                of = name.split(".")[1]
                assert of == part or of in MAY_IMPORT[part], f"{path}: imports {name}"


def test_few_modules_know_spark() -> None:
    found = {str(path.relative_to(SOURCE)) for path in modules() for name in imported(path) if "pyspark" in name}
    assert found == USES_SPARK


def test_the_engine_does_not_know_the_laboratory() -> None:
    for path in sorted(ENGINE.rglob("*.py")):
        assert PACKAGE not in path.read_text("utf-8"), f"{path} speaks of {PACKAGE}"


def test_entry_points_lead_to_the_commands_that_the_engine_speaks_of() -> None:
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    points = project["entry-points"][GROUP]
    assert points.keys() == ADDED_BY.keys()
    assert {project["name"]} == set(ADDED_BY.values())
    for name, value in points.items():
        command = EntryPoint(name, value, GROUP).load()
        assert isinstance(command, click.Command)
        assert command.name == name


def test_the_laboratory_wants_the_engine_of_its_version() -> None:
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    assert project["version"] == VERSION
    assert f"tailrace[spark]=={VERSION}" in project["dependencies"]
