"""Fields of what travels have names, and emission numbers are opaque: both are written down in one module each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src" / "tailrace"
TRAVEL = {"bundle", "bundles", "item", "message", "origin", "run"}
"""Names of variables that hold what travels."""
ARITHMETIC = (ast.Mod, ast.FloorDiv, ast.LShift, ast.RShift, ast.Add, ast.Sub)


def faults(source: str) -> Iterator[str]:
    """Fields that are read by number, and arithmetic on emission numbers."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in TRAVEL:
            numbered = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int)
            if numbered and node.value.id != "bundles":
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            if "emission" in (ast.unparse(node.left), ast.unparse(node.right)):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Call):
            call = node.left
            if ast.unparse(call.func) == "len" and ast.unparse(call.args[0]) in TRAVEL - {"bundles"}:
                yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize(
    "folder", ["core", "runtime/execution", "runtime/links", "runtime/shared_queues", "sim/faults"]
)
def test_what_travels_is_read_by_name(folder: str) -> None:
    paths = [path for path in sorted((SOURCE / folder).rglob("*.py")) if path.name != "emissions.py"]
    found = [f"{path.relative_to(SOURCE)}: {fault}" for path in paths for fault in faults(path.read_text("utf-8"))]
    assert paths and not found, "\n".join(found)


@pytest.mark.parametrize("source", ["bundle[5]", "emission % 8", "turn = emission + STEP", "len(bundle) == 4"])
def test_a_fault_is_found(source: str) -> None:
    assert list(faults(source))


@pytest.mark.parametrize("source", ["bundle[VALUES]", "len(bundles) == 1", "original(emission)", "bundles[0]"])
def test_names_pass(source: str) -> None:
    assert not list(faults(source))
