"""Every public class and function says what it is, what its arguments are, and shows an example that runs.

No docstring at all begins as a sentence without a subject.

Examples that need worker processes run in ``tests/processes``, those that need Spark in ``tests/spark``.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import tailrace
from kit.examples import run_example
from kit.pages import ROOT
from tailrace import connector, policy, sim, testing

SOURCE = ROOT / "src" / "tailrace"
LABORATORY = ROOT / "research" / "src" / "tailrace_research"

ELSEWHERE = {
    "Topology.run",
    "watch",
    "from_data_source",
    "from_dataframe",
    "local_session",
    "map_rows",
}
ELSEWHERE |= {"Topology.apply", "from_stream", "read_stream", "to_data_source", "udf"}
"""Run in other folders; so are all examples of ``Run``."""

MADE = re.compile(r"``\w+\(.*?\)`` makes one\.")
"""A class that a function makes refers to it, which has the arguments and the example."""

NO_SUBJECT = re.compile(r"(Of|So|What|Who|Whose)\b")
"""Docstrings that begin so are fragments, or sentences that have to be read twice."""

OPENED = (tailrace.Topology, tailrace.Stream, tailrace.Run, tailrace.Tail)
"""Classes whose methods users call."""


def public_objects() -> dict[str, Any]:
    """Public classes and functions by name, and the methods of those classes that users hold."""
    found: dict[str, Any] = {}
    for module in (tailrace, policy, sim, testing):
        for name in module.__all__:
            thing = getattr(module, name)
            same = found.get(name, thing) is thing
            found[name if same else f"{module.__name__}.{name}"] = thing
    interfaces = "Record SplitStart Reader ReaderExtras Source FeedContext Feed FedSource"
    interfaces += " Entry SinkContext Writer Sink DriverSink FileSink"
    for name in interfaces.split():
        found[name] = getattr(connector, name)
    objects = {name: found[name] for name in found if inspect.isclass(found[name]) or inspect.isfunction(found[name])}
    for cls in OPENED:
        for name, member in vars(cls).items():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                objects[f"{cls.__name__}.{name}"] = member
    return objects


OBJECTS = public_objects()
PARAMETERS = [name for name, thing in OBJECTS.items() if inspect.isfunction(thing) or inspect.isclass(thing)]


def arguments_of(thing: Any) -> list[str]:
    """Names of what the caller may give: a function's parameters, or those of making an instance of a class."""
    if inspect.isclass(thing):
        if (
            getattr(thing, "_is_protocol", False)
            or issubclass(thing, Exception | dict)
            or hasattr(thing, "__members__")
        ):
            return []
        if inspect.isabstract(thing) or thing is tailrace.Stream:
            return []  # users get these, and do not make them
    return [name for name in inspect.signature(thing).parameters if name != "self"]


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_it_says_what_it_is_and_shows_an_example(name: str) -> None:
    text = inspect.getdoc(OBJECTS[name]) or ""
    first, _, rest = text.partition("\n")
    assert first.rstrip().endswith((".", ".**")), f"{name}: the first line is no sentence: {first}"
    assert not re.match(r"See\b", first), f"{name}: the first line has no subject: {first}"
    assert ">>> " in rest or MADE.search(text), f"{name} has no example"


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_it_explains_its_arguments(name: str) -> None:
    text = inspect.getdoc(OBJECTS[name]) or ""
    if MADE.search(text):
        return
    explained = re.findall(r"^    (\w+): \S", text, re.MULTILINE)
    assert set(arguments_of(OBJECTS[name])) <= set(explained), f"{name} explains only {explained}"


@pytest.mark.parametrize(
    "name", sorted(name for name in OBJECTS if name not in ELSEWHERE and name.partition(".")[0] != "Run")
)
def test_its_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_example(name, OBJECTS[name])


def fragments(source: str) -> list[str]:
    """First lines, without a subject, of the docstrings of modules, classes, functions and names."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            first = node.value.value.strip().partition("\n")[0]
            if NO_SUBJECT.match(first):
                found.append(f"line {node.lineno}: {first}")
    return found


@pytest.mark.parametrize("folder", [SOURCE, LABORATORY], ids=["tailrace", "research"])
def test_no_docstring_is_a_fragment(folder: Path) -> None:
    paths = sorted(folder.rglob("*.py"))
    found = [f"{path.relative_to(folder)}: {one}" for path in paths for one in fragments(path.read_text("utf-8"))]
    assert paths and not found, "\n".join(found)


@pytest.mark.parametrize("text", ["Of one task.", "So many rows are enough.", "What it has read.", "Whose turn it is."])
@pytest.mark.parametrize("place", ["{}", "x = 1\n{}", "class C:\n    {}", "def f():\n    {}"])
def test_a_fragment_is_found(place: str, text: str) -> None:
    assert len(fragments(place.format(f'"""{text}"""'))) == 1


def test_sentences_pass() -> None:
    assert not fragments('"""Softly. What comes later does not matter."""\nprint("What?")\ntext = "So what"')
