"""A fingerprint of the code that results depend on: some modules, and all that they import of either distribution.

Modules of this package are followed only where they are named: the others sum up and draw what cells have found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

HERE = __name__.rpartition(".")[0]
OURS = ("tailrace.", "tailrace_research.")


def fingerprint(modules: Iterable[str]) -> str:
    digest = blake2b(digest_size=8)
    for name in sorted(code_below(modules)):
        digest.update(_file(name).read_bytes())
    return digest.hexdigest()


def code_below(modules: Iterable[str]) -> set[str]:
    """Names of these modules and of all that they import, directly or not."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(other for other in _imported(name) if not other.startswith(HERE))
    return found


def _imported(name: str) -> Iterator[str]:
    """A name that a package hands on is taken for the module that defines it."""
    for node in ast.walk(ast.parse(_file(name).read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(OURS):
            module = import_module(node.module)
            for alias in node.names:
                defined = str(getattr(getattr(module, alias.name), "__module__", node.module))
                yield defined if defined.startswith(OURS) else node.module


def _file(name: str) -> Path:
    file = import_module(name).__file__
    assert file is not None, f"a module without a file: module={name}"
    return Path(file)
