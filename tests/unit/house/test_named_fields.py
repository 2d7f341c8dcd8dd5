"""Fields of what travels have names, and emission numbers are opaque: both are written down in one module each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src" / "tailrace"
TRAVEL = {"bundle", "item", "message", "origin", "parcel", "portion", "run"}
"""Names of variables that hold what travels."""
LISTS = {"bundles", "items", "messages", "parcels"}
"""Names of lists of them. Their own items may be read by number, but not the fields of these."""
ARITHMETIC = (
    ast.Mod,
    ast.FloorDiv,
    ast.Mult,
    ast.LShift,
    ast.RShift,
    ast.Add,
    ast.Sub,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
)


def name_of(node: ast.expr) -> str:
    """The variable or attribute that is read: ``bundle`` for ``bundle``, ``self.bundle`` and ``bundles[0]``."""
    if isinstance(node, ast.Subscript) and name_of(node.value) in LISTS:
        return name_of(node.value).removesuffix("s")
    return ast.unparse(node).rpartition(".")[2] if isinstance(node, ast.Name | ast.Attribute) else ""


def numbered(index: ast.expr | None) -> bool:
    """Whether an index, or an end of a slice, is a number."""
    if isinstance(index, ast.Slice):
        return numbered(index.lower) or numbered(index.upper)
    if isinstance(index, ast.UnaryOp):
        return numbered(index.operand)
    return isinstance(index, ast.Constant) and isinstance(index.value, int)


def faults(source: str) -> Iterator[str]:
    """Fields that are read by number, and arithmetic on emission numbers."""
    for node in ast.walk(ast.parse(source)):
        fault = False
        if isinstance(node, ast.Subscript):
            fault = name_of(node.value) in TRAVEL and numbered(node.slice)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
            fault = "emission" in (name_of(node.left), name_of(node.right))
        elif isinstance(node, ast.AugAssign):
            fault = name_of(node.target) == "emission"
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Call):
            call = node.left
            fault = ast.unparse(call.func) == "len" and name_of(call.args[0]) in TRAVEL
        if fault:
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("folder", ["core", "runtime", "sim"])
def test_what_travels_is_read_by_name(folder: str) -> None:
    paths = [path for path in sorted((SOURCE / folder).rglob("*.py")) if path.name != "emissions.py"]
    found = [f"{path.relative_to(SOURCE)}: {fault}" for path in paths for fault in faults(path.read_text("utf-8"))]
    assert paths and not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        *("bundle[5]", "bundle[-1]", "bundle[:2]", "self.bundle[5]", "bundles[0][5]", "messages[-1][4]"),
        *("emission % 8", "turn = emission + STEP", "root.emission & 3", "emission += 1", "len(bundle) == 4"),
    ],
)
def test_a_fault_is_found(source: str) -> None:
    assert list(faults(source))


@pytest.mark.parametrize(
    "source",
    ["bundle[VALUES]", "len(bundles) == 1", "original(emission)", "bundles[0]", "bundles[:2]", "emissions + 1"],
)
def test_names_pass(source: str) -> None:
    assert not list(faults(source))
