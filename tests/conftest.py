"""For all tests: Ctrl-C must mean something, also to what they start, and no example is late on a busy machine."""

from __future__ import annotations

import doctest
import inspect
import signal
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

import tailrace


def pytest_configure() -> None:
    settings.register_profile("tailrace", deadline=None)
    settings.load_profile("tailrace")
    # A shell starts what it puts in the background with SIGINT ignored, and children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def run_example() -> Callable[..., None]:
    """Runs the example in the docstring of a thing, as in a script that imports tailrace as tr."""

    def run(name: str, thing: Any, names: dict[str, Any] | None = None) -> None:
        names = {} if names is None else names
        names |= {"tr": tailrace, "__name__": "__main__"}  # functions of __main__ travel to workers by value
        text = inspect.getdoc(thing) or ""
        test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
        told: list[str] = []
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append, clear_globs=False)
        names.update(test.globs)  # an example may go on with what the one before has made
        assert not told, "".join(told)

    return run
