"""Examples in docstrings, run as in a script that begins with ``import tailrace as tr``."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import tailrace


def run_example(name: str, thing: Any, names: dict[str, Any] | None = None) -> None:
    """Run the example of a class, function or property. ``names`` holds its variables, before and after."""
    names = {} if names is None else names
    names |= {"tr": tailrace, "__name__": "__main__"}  # functions of __main__ travel to workers by value
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", names, name, None, None)
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append, clear_globs=False)
    names.update(test.globs)
    assert not told, "".join(told)
