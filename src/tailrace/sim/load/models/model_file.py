"""Reads models from TOML. The names of times end with their unit, s, ms or us; other names are those of ``Model``."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from tailrace.errors import OptionError, did_you_mean, shorten
from tailrace.policy.hashing import stable_hash
from tailrace.sim.load.models.arrivals import Arrivals, Paced, Poisson, Recorded
from tailrace.sim.load.models.model import Model, Node, Order, Queue, Scope, Slowdown, Stage, Stalls, Uplink
from tailrace.sim.load.models.service import ByContent, Constant, Exponential, Lognormal, Service, Trace, Uniform
from tailrace.sim.load.policies import named_policy

_UNITS = {"_s": SECOND_NS, "_ms": MILLISECOND_NS, "_us": MICROSECOND_NS}
_ENUMS: dict[str, type[Enum]] = {"scope": Scope, "order": Order}

Table = dict[str, Any]


def read_model(path: Path) -> Model:
    """Read a model from a TOML file, as ``tailrace sim`` takes it.

    Args:
        path: the file. Files that it names are looked for beside it.

    Example:
        >>> from pathlib import Path
        >>> from tailrace.sim import read_model
        >>> read_model(Path("missing.toml"))
        Traceback (most recent call last):
        tailrace.errors.OptionError: no model: file=missing.toml: ...
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"no model: file={path}: {error}") from error
    return parse_model(table, path.parent)


def parse_model(table: Table, folder: Path) -> Model:
    """The model that a table describes, as it stands in a TOML file.

    Args:
        table: the table.
        folder: where files that the table names are looked for.

    Example:
        >>> from pathlib import Path
        >>> from tailrace.sim import parse_model
        >>> table = {"arrivals": {"kind": "poisson", "load": 0.8}, "service": {"kind": "exponential", "mean_ms": 1}}
        >>> parse_model({"tasks": 3, **table}, Path()).tasks
        3
    """
    given = dict(table)
    parts: Table = {"arrivals": _kind("arrivals", given.pop("arrivals", None), _arrivals_by_kind(folder))}
    if "service" in given or not given.get("stages"):
        parts["service"] = _kind("service", given.pop("service", None), _service_by_kind(folder))
    if "nodes" in given:
        parts["nodes"] = tuple(_node(node) for node in given.pop("nodes"))
    for name, made in (("link", Uplink), ("local", Uplink), ("queue", Queue), ("stalls", Stalls)):
        if name in given:
            parts[name] = _made(made, name, given.pop(name))
    if "stages" in given:
        parts["stages"] = tuple(_stage(stage, folder) for stage in given.pop("stages"))
    if "sender_nodes" in given:
        given["sender_nodes"] = tuple(given["sender_nodes"])
    model: Model = _made(Model, "model", {**given, **parts})
    return model


def _stage(table: Any, folder: Path) -> Stage:
    if not isinstance(table, dict):
        raise OptionError(f"a stage is a table: stage={shorten(table)}: did you mean [[stages]]?")
    given: Table = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    if "service" in given:
        given["service"] = _kind("service", given["service"], _service_by_kind(folder))
    for name, made in (("queue", Queue), ("stalls", Stalls)):
        if name in given:
            given[name] = _made(made, name, given[name])
    if "grouping" in given:
        named_policy(given["grouping"])
    stage: Stage = _made(Stage, "stage", given)
    return stage


def _arrivals_by_kind(folder: Path) -> dict[str, Callable[[Table], Arrivals]]:
    return {
        "paced": lambda table: _made(Paced, "arrivals", table),
        "poisson": lambda table: _made(Poisson, "arrivals", table),
        "recorded": lambda table: _recorded(folder, table),
    }


def _service_by_kind(folder: Path) -> dict[str, Callable[[Table], Service]]:
    made = {
        "constant": Constant,
        "exponential": Exponential,
        "uniform": Uniform,
        "lognormal": Lognormal,
        "by_content": ByContent,
    }
    found: dict[str, Callable[[Table], Service]] = {
        kind: lambda table, cls=cls: _made(cls, "service", table)  # type: ignore[misc]
        for kind, cls in made.items()
    }
    found["trace"] = lambda table: _trace(folder, table)
    return found


def _kind(part: str, table: Any, by_kind: dict[str, Callable[[Table], Any]]) -> Any:
    if not isinstance(table, dict) or table.get("kind") not in by_kind:
        kind = shorten(table.get("kind") if isinstance(table, dict) else table)
        raise OptionError(f"a model needs [{part}] with a kind: kind={kind}: {did_you_mean(kind, by_kind)}")
    return by_kind[table["kind"]]({name: value for name, value in table.items() if name != "kind"})


def _node(table: Table) -> Node:
    given = dict(table)
    slowdowns = tuple(_made(Slowdown, "slowdown", slow) for slow in given.pop("slowdowns", ()))
    node: Node = _made(Node, "node", {**given, "slowdowns": slowdowns})
    return node


def _made(cls: type[Any], part: str, table: Table) -> Any:
    known = {field.name for field in fields(cls)}
    given = dict(_converted(part, name, value, known) for name, value in table.items())
    try:
        return cls(**given)
    except TypeError as error:
        raise OptionError(f"something is missing or of the wrong type: part={part}: {error}") from error


def _converted(part: str, name: str, value: Any, known: set[str]) -> tuple[str, Any]:
    if name in _ENUMS and name in known:
        try:
            return name, _ENUMS[name](value)
        except ValueError:
            hint = did_you_mean(value, [str(member.value) for member in _ENUMS[name]], "{!r}")
            raise OptionError(f"unknown {name}: {name}={shorten(value)}: {hint}") from None
    if name in known:
        return name, value
    for unit, factor in _UNITS.items():
        stem = name.removesuffix(unit)
        if stem != name and f"{stem}_ns" in known and isinstance(value, int | float):
            return f"{stem}_ns", int(value * factor)
    raise OptionError(f"unknown setting: part={part} name={name}: {did_you_mean(name, sorted(known))}")


def _rows(folder: Path, part: str, table: Table, columns: int) -> list[list[str]]:
    if set(table) != {"file"}:
        raise OptionError(f"a recording is in a file: part={part} given={', '.join(table)}: did you mean file = …?")
    path = folder / table["file"]
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.reader(lines) if row]
    except OSError as error:
        raise OptionError(f"no recording: part={part} file={path}: {error}") from error
    for number, row in enumerate(rows, 1):
        if len(row) != columns:
            raise OptionError(f"a row has another number of columns: file={path} row={number} columns={len(row)}")
    return rows


def _recorded(folder: Path, table: Table) -> Recorded:
    """One column: seconds since the first tuple."""
    rows = _rows(folder, "arrivals", table, 1)
    return Recorded(tuple(int(float(seconds) * SECOND_NS) for (seconds,) in rows))


def _trace(folder: Path, table: Table) -> Trace:
    """Two columns: key and milliseconds."""
    rows = _rows(folder, "service", table, 2)
    values = tuple(stable_hash(key) for key, _ in rows)
    return Trace(values, tuple(max(1, int(float(ms) * MILLISECOND_NS)) for _, ms in rows))
