"""Imports point one way, and decisions stay pure: the table below is the architecture.

All imports count: relative ones, those inside functions, those under ``TYPE_CHECKING``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = "tailrace"
LABORATORY = "tailrace_research"
SOURCE = Path(__file__).parents[2] / "src" / PACKAGE
ROOT = "__init__"  # tailrace/__init__.py, as a layer of its own

BASE = {"errors", "clock", "connector", "signals", "version"}
BELOW_RUNTIME = BASE | {"metrics", "policy", "topology", "core"}
BELOW_SPARK = BELOW_RUNTIME | {"ring", "runtime"}
BELOW_DEMO = BELOW_SPARK | {"sim", "dashboard", "testing", "spark", "launch", "chart", ROOT}

# layer -> what it may import besides itself; a dotted name allows that part of a layer only
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "signals": set(),
    "version": set(),
    "chart": set(),
    "connector": {"errors", "clock"},
    "metrics": {"clock"},
    "ring": {"errors", "clock"},
    "policy": BASE,
    "topology": BASE | {"policy"},
    "core": BASE | {"policy", "topology", "metrics"},
    "sim": BELOW_RUNTIME | {"chart"},
    "runtime": BELOW_RUNTIME | {"ring"},
    "dashboard": {"metrics", "errors", "clock", "signals"},
    "testing": BASE | {"policy", "topology", "core", "runtime.connectors"},
    "spark": BELOW_SPARK,
    "launch": BELOW_SPARK | {"spark"},
    "demo": BELOW_DEMO,
    "cli": BELOW_DEMO | {"demo"},
    "__main__": {"cli"},
    ROOT: BELOW_DEMO - {ROOT},
}
# exceptions inside what the table allows
NEVER: dict[str, set[str]] = {ROOT: {"sim.faults"}}

PURE = {"policy", "core"}
IMPURE = {"asyncio", "concurrent", "logging", "multiprocessing", "os"}
IMPURE |= {"selectors", "socket", "subprocess", "threading", "time"}
PYSPARK_LAYER = "spark"


class Import(NamedTuple):
    """One imported thing: ``from module import name``, or ``import module`` with an empty name."""

    line: int
    module: str
    name: str

    @property
    def dotted(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


def imports_of(tree: ast.AST, package: str) -> Iterator[Import]:
    """Every import anywhere in ``tree``, made absolute; ``package`` is what a single leading dot means."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                module = ".".join([*parents, module]) if module else ".".join(parents)
            yield from (Import(node.lineno, module, alias.name) for alias in node.names)


def within(path: str, allowed: set[str]) -> bool:
    """Is the dotted ``path`` one of ``allowed``, or inside one of them?"""
    return any(path == name or path.startswith(f"{name}.") for name in allowed)


def broken_rule(layer: str, imported: Import, layers: set[str]) -> str | None:
    """Why ``layer`` may not have this import, or None."""
    top = imported.module.split(".")[0]
    if top == PACKAGE:
        path = imported.dotted.partition(".")[2]
        if path.split(".")[0] not in layers:
            path = ROOT  # `import tailrace`, or a name that the package itself exports
        if path.split(".")[0] == layer:
            return None
        if not within(path, MAY_IMPORT[layer]):
            allowed = ", ".join(sorted(MAY_IMPORT[layer])) or "nothing of the package"
            return f"{layer} may import only {allowed}"
        if within(path, NEVER.get(layer, set())):
            return f"{layer} may never import {', '.join(sorted(NEVER[layer]))}"
    elif top == LABORATORY:
        return f"nothing of the engine imports {LABORATORY}: it plugs in by entry points"
    elif top == "pyspark" and layer != PYSPARK_LAYER:
        return f"only {PYSPARK_LAYER} may import pyspark"
    elif layer in PURE and top in IMPURE:
        return f"{layer} is pure: no {top}; is `now_ns` or a command to the runtime what it needs?"
    elif layer in PURE and top == "random" and imported.name != "Random":
        return f"{layer} is pure: `from random import Random` for the type only, and be handed a seeded one"
    return None


def violations(source: str, path: Path, layers: set[str]) -> list[str]:
    """One line per forbidden import in a module; ``path`` is relative to the package's folder."""
    layer = path.parts[0].removesuffix(".py")
    if layer not in MAY_IMPORT:
        return [f"{path}:1: {layer} has no row in MAY_IMPORT; what may it import?"]
    package = ".".join([PACKAGE, *path.parts[:-1]])
    return [
        f"{path}:{imported.line}: imports {imported.dotted}: {rule}"
        for imported in imports_of(ast.parse(source, str(path)), package)
        if (rule := broken_rule(layer, imported, layers)) is not None
    ]


def layers_in(folder: Path) -> set[str]:
    """Names of the modules and packages right below ``folder``, whether or not they have a row."""
    return {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path.is_dir() and path.suffix == "")}


def test_imports_point_one_way() -> None:
    layers = layers_in(SOURCE) | set(MAY_IMPORT)
    found = [
        line
        for path in sorted(SOURCE.rglob("*.py"))
        for line in violations(path.read_text("utf-8"), path.relative_to(SOURCE), layers)
    ]
    assert not found, "\n" + "\n".join(found)


def test_the_table_has_no_cycle() -> None:
    """A layer that is reachable from itself would make "one way" an empty phrase; the root package only re-exports."""
    reached: dict[str, set[str]] = {layer: {name.split(".")[0] for name in MAY_IMPORT[layer]} for layer in MAY_IMPORT}
    for _ in MAY_IMPORT:
        for layer, names in reached.items():
            names.update(*(reached[name] for name in list(names)))
            assert layer not in names, f"{layer} is reachable from itself"


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("metrics/a.py", "from tailrace.core import x", "metrics may import only clock"),
        ("policy/a.py", "from ..topology import graph", "policy may import only clock, connector, errors"),
        ("policy/a.py", "def f():\n    import tailrace.core.ledger", "policy/a.py:2: imports tailrace.core.ledger"),
        ("core/a.py", "if TYPE_CHECKING:\n    from ..runtime.worker import W", "core/a.py:2:"),
        ("core/sub/a.py", "from ...sim import engine", "imports tailrace.sim.engine"),
        ("sim/a.py", "from tailrace import runtime", "imports tailrace.runtime"),
        ("runtime/a.py", "from ..testing import ListSource", "runtime may import only"),
        ("testing/a.py", "from ..runtime.worker import W", "runtime.connectors"),
        ("core/a.py", "from tailrace import Topology", "core may import only"),
        ("__init__.py", "from .sim import faults", "__init__ may never import sim.faults"),
        ("__init__.py", "from . import cli", "__init__ may import only"),
        ("runtime/a.py", "import pyspark.sql", "only spark may import pyspark"),
        ("policy/a.py", "from time import monotonic_ns", "policy is pure: no time"),
        ("core/a.py", "import os.path", "core is pure: no os"),
        ("policy/a.py", "import random", "policy is pure: `from random import Random`"),
        ("policy/a.py", "from random import choice", "imports random.choice"),
        ("cli/a.py", "from tailrace_research.cli import bench", "nothing of the engine imports tailrace_research"),
        ("newcomer.py", "", "newcomer has no row in MAY_IMPORT"),
    ],
)
def test_a_violation_is_caught(path: str, source: str, expected: str) -> None:
    (line,) = violations(source, Path(path), set(MAY_IMPORT))
    assert line.startswith(f"{path}:")
    assert expected in line


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("policy/a.py", "from random import Random\nfrom ..errors import OptionError\nfrom .grouping import G"),
        ("testing/a.py", "from ..runtime.connectors import listing\nfrom ..runtime.connectors.listing import L"),
        ("spark/a.py", "import pyspark\nfrom tailrace.runtime import coordinator"),
        ("sim/a.py", "from . import faults\nfrom ..core.ledger import Ledger"),
        ("cli.py", "import tailrace as tr\nfrom .demo import words"),
    ],
)
def test_what_is_allowed_passes(path: str, source: str) -> None:
    assert violations(source, Path(path), set(MAY_IMPORT)) == []
