"""The tables of ``docs/reference/``, made from the descriptions in the code.

``python tests/kit/reference.py`` writes them into the pages, between their marks.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import tailrace as tr
from tailrace.calls.options import DEFAULT_CONCURRENCY
from tailrace.runtime.options import RunSettings
from tailrace.topology.stream import DEFAULT_MAX_SIZE, DEFAULT_MAX_WAIT_MS

PAGES = Path(__file__).parents[2] / "docs" / "reference"
TABLE = re.compile(r"(?P<begin><!-- table: (?P<name>[\w ]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)

OF_OPERATORS = {"tasks": 1, "grouping": tr.shuffle(), "kind": "auto", "stateful": False, "mergeable": False}
OF_OPERATORS |= {"idempotent": True, "on_error": "fail", "concurrency": DEFAULT_CONCURRENCY, "calls": None}


def described(options: type) -> dict[str, tuple[str, str]]:
    """Type and description of each key of a TypedDict, those of its bases first."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(options))).body
    assert isinstance(body, ast.ClassDef)
    names = vars(sys.modules[options.__module__])
    found: dict[str, tuple[str, str]] = {}
    for base in body.bases:
        if ast.unparse(base) != "TypedDict":
            found |= described(names[ast.unparse(base)])
    for key, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(key.target, ast.Name)
            found[key.target.id] = (_kind(key.annotation, names), " ".join(str(text.value.value).split()))
    return found


def _kind(annotation: ast.expr, names: Mapping[str, Any]) -> str:
    """A type as one would say it: the values of literals, and other types by name."""
    if isinstance(annotation, ast.BinOp):
        return f"{_kind(annotation.left, names)} | {_kind(annotation.right, names)}"
    text = ast.unparse(annotation)
    values = get_args(eval(text, dict(names)))
    literal = bool(values) and all(isinstance(value, str) for value in values)
    return " | ".join(f'"{value}"' for value in values) if literal else text


def options_table(what: str, options: type, defaults: Mapping[str, Any]) -> list[str]:
    rows = [
        (f"`{name}`", f"`{kind}`", f"`{_shown(defaults[name])}`", text)
        for name, (kind, text) in described(options).items()
        if name in defaults
    ]
    return _table((what, "type", "default", "meaning"), rows)


def operators_table() -> list[str]:
    methods = [(tr.Topology, "source"), *((tr.Stream, name) for name in ("map", "flat_map", "filter", "map_batch"))]
    methods[1:1] = [(tr.Topology, "input")]
    rest = [(tr.Stream, name) for name in ("sink", "output", "dead_letters")]
    rows = [_method(cls, name) for cls, name in [*methods, *rest]]
    return _table(("declared by", "meaning"), [*rows, ("`tr.union(…)`", _first(tr.union))])


def batches_table() -> list[str]:
    text = inspect.getdoc(tr.Stream.map_batch) or ""
    defaults = {"max_size": DEFAULT_MAX_SIZE, "max_wait_ms": DEFAULT_MAX_WAIT_MS}
    found = {name: re.search(rf"^    {name}: (.*)$", text, re.MULTILINE) for name in defaults}
    rows = [(f"`{name}`", f"`{defaults[name]}`", _sentence(match[1])) for name, match in found.items() if match]
    return _table(("parameter", "default", "meaning"), rows)


def tables() -> dict[str, list[str]]:
    """All tables, by the names in the pages' marks."""
    settings = RunSettings()
    of_runs = {field.name: getattr(settings, field.name) for field in fields(settings)}
    off = dict.fromkeys(described(tr.Techniques))
    of_rows = {"folder": None, "splits": None, "watch": False}
    return {
        "run options": options_table("option", tr.RunOptions, {**of_runs, "tail": _Text("Tail()")}),
        "apply options": options_table("option", tr.ApplyOptions, of_rows),
        "techniques": options_table("technique", tr.Techniques, off),
        "operators": operators_table(),
        "operator parameters": options_table("parameter", tr.OperatorOptions, OF_OPERATORS),
        "source parameters": options_table("parameter", tr.SourceOptions, OF_OPERATORS),
        "batch parameters": batches_table(),
    }


class _Text(str):
    """A default that is shown as it stands."""


def _shown(default: Any) -> str:
    if default == tr.shuffle():
        return "shuffle()"
    return str(default) if isinstance(default, _Text) else repr(default).replace("'", '"')


def _method(cls: type, name: str) -> tuple[str, str]:
    owner = "topology" if cls is tr.Topology else "stream"
    call = "" if isinstance(inspect.getattr_static(cls, name), property) else "(…)"
    return f"`{owner}.{name}{call}`", _first(inspect.getattr_static(cls, name))


def _first(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [header, ("---",) * len(header), *rows]
    return ["| " + " | ".join(cell.replace("``", "`").replace("|", r"\|") for cell in line) + " |" for line in lines]


def with_tables(text: str) -> str:
    """A page with its tables as they should be."""
    made = tables()
    return TABLE.sub(lambda match: match["begin"] + "\n".join(made[match["name"]]) + "\n" + match["end"], text)


if __name__ == "__main__":
    for page in PAGES.glob("*.md"):
        page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
