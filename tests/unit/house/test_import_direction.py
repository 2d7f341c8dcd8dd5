"""Imports point one way, and decisions stay pure: the tables below are the architecture.

``MAY_IMPORT`` is about the packages and modules right below ``tailrace``, ``INSIDE`` about those one level below them.
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
CLONE = Path(__file__).parents[3]
SOURCE = CLONE / "src" / PACKAGE
ROOT = "__init__"  # tailrace/__init__.py, as a layer of its own

BASE = {"errors", "clock", "connector", "signals", "version"}
BELOW_RUNTIME = BASE | {"metrics", "policy", "calls", "topology", "core"}
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
    "calls": BASE | {"policy"},
    "topology": BASE | {"policy", "calls"},
    "core": BASE | {"policy", "calls", "topology", "metrics"},
    "sim": BELOW_RUNTIME | {"chart"},
    "runtime": BELOW_RUNTIME | {"ring"},
    "dashboard": {"metrics", "errors", "clock", "signals"},
    "testing": BASE | {"policy", "topology", "core", "runtime.connectors"},
    "spark": BELOW_SPARK,
    "launch": BELOW_SPARK | {"spark", "dashboard"},
    "demo": BELOW_DEMO,
    "cli": BELOW_DEMO | {"demo"},
    "__main__": {"cli"},
    ROOT: BELOW_DEMO - {ROOT},
}
# Inside these packages: what each part may import of its own package besides itself. ``__init__`` may import all of it.
INSIDE: dict[str, dict[str, set[str]]] = {
    "policy": {
        "hashing": set(),
        "names": set(),
        "numbers": set(),
        "signatures": set(),
        "keys": {"hashing", "signatures"},
        "groupings": {"hashing", "keys", "numbers"},
        "hedging": {"hashing", "names", "numbers"},
        "send_order": {"names", "numbers"},
        "placement": set(),
        "techniques": {"hedging.api", "send_order.api"},
    },
    "core": {
        "bundles": set(),
        "emissions": set(),
        "failures": set(),
        "source_checks": set(),
        "token_bucket": set(),
        "protocol": {"bundles", "emissions"},
        "plan": {"protocol", "source_checks"},
        "queues": {"bundles"},
        "send_order": {"token_bucket"},
        "routing": {"bundles", "emissions", "failures", "plan", "protocol"},
        "feedback": {"bundles", "failures", "plan", "protocol", "routing", "token_bucket"},
        "hedging": {"emissions", "plan", "protocol"},
        "tasks": {
            *("bundles", "emissions", "failures", "feedback", "hedging"),
            *("plan", "protocol", "queues", "routing", "source_checks"),
        },
        "assembly": {"feedback", "hedging", "plan", "protocol", "queues", "routing", "tasks"},
    },
    "runtime": {
        "current_task": set(),
        "encryption": set(),
        "listening": set(),
        "options": {"listening"},
        "links": {"encryption", "listening"},
        "calls": {"current_task", "encryption", "links", "listening"},
        "resource_needs": {"links"},
        "connectors": {"current_task"},
        "execution": {"connectors.fingerprint", "current_task", "links"},
        "shared_queues": {"encryption.connection", "execution", "links"},
        "send_order": {"encryption.connection", "execution", "links"},
        "worker": {
            *("calls", "connectors", "current_task", "encryption", "execution", "links", "listening", "options"),
            *("resource_needs", "send_order", "shared_queues"),
        },
        "driver": {
            *("calls", "connectors.commits", "encryption.certificate", "links", "listening", "options"),
            *("worker.interpreter", "worker.recorder"),
        },
        "__main__": {"links", "worker"},
    },
    "sim": {
        "faults": set(),
        "load": set(),
        "traces": {"load"},
        "__main__": {"faults"},
    },
}

MOST_MODULES = 15  # in one folder, without __init__.py

# exceptions inside what the table allows
NEVER: dict[str, set[str]] = {ROOT: {"sim.faults"}}

PURE = {"policy", "calls", "core"}
IMPURE = {"asyncio", "concurrent", "logging", "multiprocessing", "os"}
IMPURE |= {"selectors", "socket", "subprocess", "threading", "time"}
NAMES_OF_PATHS = {"os.PathLike", "os.fspath"}  # they touch no file
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
    elif layer in PURE and top in IMPURE and imported.dotted not in NAMES_OF_PATHS:
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


def broken_rules_inside(source: str, path: Path, parts: set[str]) -> Iterator[tuple[str, str]]:
    """(module, what it imports) for each import that the row of a part of a package forbids."""
    package, part = path.parts[0], path.parts[1].removesuffix(".py")
    module = ".".join(path.with_suffix("").parts)
    for imported in imports_of(ast.parse(source, str(path)), ".".join([PACKAGE, *path.parts[:-1]])):
        names = imported.dotted.split(".")
        if names[:2] != [PACKAGE, package] or part == ROOT:
            continue
        inner = ".".join(names[2:]) if len(names) > 2 and names[2] in parts else ROOT
        if inner.split(".")[0] != part and not within(inner, INSIDE[package][part]):
            yield module, imported.module.partition(".")[2]


def test_imports_point_one_way_inside_packages() -> None:
    found: set[tuple[str, str]] = set()
    for package, rows in INSIDE.items():
        paths = sorted((SOURCE / package).rglob("*.py"))
        parts = {path.relative_to(SOURCE).parts[1].removesuffix(".py") for path in paths} - {ROOT}
        assert parts == set(rows), f"part without a row, or row without a part: {package}: {sorted(parts ^ set(rows))}"
        for path in paths:
            found.update(broken_rules_inside(path.read_text("utf-8"), path.relative_to(SOURCE), parts))
    assert not found, "INSIDE does not allow:\n" + "\n".join(
        f"{module} imports {other}" for module, other in sorted(found)
    )


@pytest.mark.parametrize("rows", [MAY_IMPORT, *INSIDE.values()], ids=["tailrace", *INSIDE])
def test_the_tables_have_no_cycle(rows: dict[str, set[str]]) -> None:
    """A layer that is reachable from itself would make "one way" an empty phrase; the root package only re-exports."""
    reached: dict[str, set[str]] = {layer: {name.split(".")[0] for name in rows[layer]} for layer in rows}
    for _ in rows:
        for layer, names in reached.items():
            names.update(*(reached[name] for name in list(names)))
            assert layer not in names, f"{layer} is reachable from itself"


def modules_of(folder: Path) -> dict[str, Path]:
    """Every module of a package by its dotted name, ``tailrace`` for the package itself."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        names = [folder.name, *path.relative_to(folder).with_suffix("").parts]
        found[".".join(names[:-1] if names[-1] == ROOT else names)] = path
    return found


def imported_modules(modules: dict[str, Path]) -> dict[str, set[str]]:
    """What each module imports of the others. A name that is no module counts as its package."""
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        package = module if path.stem == ROOT else module.rpartition(".")[0]
        imported = imports_of(ast.parse(path.read_text("utf-8"), str(path)), package)
        named = {one.dotted if one.dotted in modules else one.module for one in imported}
        found[module] = named & set(modules) - {module}
    return found


def cycles_in(imports: dict[str, set[str]]) -> list[set[str]]:
    """Sets of modules that can all reach each other, without those of one module."""
    reach = {module: set(others) for module, others in imports.items()}
    growing = True
    while growing:
        growing = False
        for others in reach.values():
            further = set().union(*(reach[other] for other in others)) - others
            others |= further
            growing = growing or bool(further)
    found: list[set[str]] = []
    for module in sorted(reach):
        if module in reach[module] and not any(module in cycle for cycle in found):
            found.append({other for other in reach[module] if module in reach[other]})
    return found


def test_modules_do_not_import_each_other() -> None:
    for folder in (SOURCE, CLONE / "research" / "src" / LABORATORY):
        found = [sorted(cycle) for cycle in cycles_in(imported_modules(modules_of(folder)))]
        assert not found, f"modules that import each other: {found}"


def crowded(folder: Path) -> set[str]:
    """Folders, relative to this one, with more modules side by side than a reader takes in."""
    found = set()
    for inner in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        if sum(path.stem != ROOT for path in inner.glob("*.py")) > MOST_MODULES:
            found.add(str(inner.relative_to(folder)))
    return found


@pytest.mark.parametrize("folder", ["src/tailrace", f"research/src/{LABORATORY}", "tests", "research/tests"])
def test_no_folder_is_crowded(folder: str) -> None:
    assert crowded(CLONE / folder) == set()


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("core/protocol/a.py", "from tailrace.core.tasks.base import Task", ("core.protocol.a", "core.tasks.base")),
        ("core/protocol/a.py", "from tailrace.core import assembly", ("core.protocol.a", "core")),
        ("core/queues/a.py", "if TYPE_CHECKING:\n    from ..tasks.base import T", ("core.queues.a", "core.tasks.base")),
        ("policy/techniques.py", "from .hedging.du import D", ("policy.techniques", "policy.hedging.du")),
        ("policy/hedging/a.py", "from tailrace.policy import osg", ("policy.hedging.a", "policy")),
        ("runtime/links/deep/a.py", "import tailrace.runtime.worker.b", ("runtime.links.deep.a", "runtime.worker.b")),
    ],
)
def test_a_violation_inside_a_package_is_caught(path: str, source: str, expected: tuple[str, str]) -> None:
    assert list(broken_rules_inside(source, Path(path), set(INSIDE[path.split("/")[0]]))) == [expected]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/tasks/a.py", "from tailrace.core.tasks.base import Task\nfrom ..plan.plan import Plan"),
        ("policy/techniques.py", "from tailrace.policy.hedging.api import R\nfrom tailrace.errors import shorten"),
        ("policy/__init__.py", "from tailrace.policy.groupings.osg import osg"),
    ],
)
def test_what_is_allowed_inside_a_package_passes(path: str, source: str) -> None:
    assert list(broken_rules_inside(source, Path(path), set(INSIDE[path.split("/")[0]]))) == []


def test_a_cycle_is_found(tmp_path: Path) -> None:
    """Through three modules, one of which imports for its types only, and another in a function."""
    folder = tmp_path / "tailrace"
    (folder / "inner").mkdir(parents=True)
    files = {
        "__init__": "from tailrace.inner.a import A",
        "inner/__init__": "",
        "inner/a": "from tailrace.inner import b",
        "inner/b": "if TYPE_CHECKING:\n    from .c import C",
        "inner/c": "def f():\n    from tailrace.inner.a import A",
        "inner/d": "from tailrace.inner import a, b, c",
    }
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    cycle = {"tailrace.inner.a", "tailrace.inner.b", "tailrace.inner.c"}
    assert cycles_in(imported_modules(modules_of(folder))) == [cycle]


def test_a_crowded_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ["__init__", *(f"module{number}" for number in range(MOST_MODULES))]:
        (tmp_path / "inner" / f"{name}.py").touch()
    assert crowded(tmp_path) == set()
    (tmp_path / "inner" / "one_more.py").touch()
    assert crowded(tmp_path) == {"inner"}


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
