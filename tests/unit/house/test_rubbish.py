"""Whatever a public function is given, it takes it or answers with a sentence of ours, and a short one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.errors import TailraceError
from tailrace.runtime.options import RunSettings

RUBBISH: list[Any] = [
    *(None, 0, -1, 10**30, True, 1.5, float("nan"), float("inf"), "", "no", "日本", b"b", [], (), {}, {1}),
    *(object(), object, len, lambda: 1, lambda a, b: 1, Exception("e"), "a" * 1000),
]
OPTIONS = ("tasks", "grouping", "kind", "stateful", "mergeable", "idempotent", "on_error", "concurrency")


def stream() -> tr.Stream:
    return tr.Topology("t").source("s", tr.from_iterable([1]))


def calls(value: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "Topology", lambda: tr.Topology(value)
    yield "source name", lambda: tr.Topology("t").source(value, tr.from_iterable([1]))
    yield "source", lambda: tr.Topology("t").source("s", value)
    yield "source tasks", lambda: tr.Topology("t").source("s", tr.from_iterable([1]), tasks=value)
    for method in ("map", "flat_map", "filter", "map_batch"):
        yield f"{method} name", lambda method=method: getattr(stream(), method)(value, str)
        yield f"{method} fn", lambda method=method: getattr(stream(), method)("m", value)
        for option in OPTIONS:
            yield (
                f"{method} {option}",
                lambda method=method, option=option: getattr(stream(), method)("m", str, **{option: value}),
            )
    yield "max_size", lambda: stream().map_batch("m", list, max_size=value)
    yield "max_wait_ms", lambda: stream().map_batch("m", list, max_wait_ms=value)
    yield "sink", lambda: stream().sink("o", value)
    for option in ("tasks", "grouping", "on_error"):
        yield f"sink {option}", lambda option=option: stream().sink("o", tr.to_list(), **{option: value})
    yield "connect", lambda: stream().topology.connect(value, "s")
    yield "connected", lambda: stream().topology.connect("s", value)
    yield "stream", lambda: stream().topology.stream(value)
    yield "union", lambda: tr.union(stream(), value)
    for keyed in (tr.fields, tr.osg, tr.least_work, tr.partial_key):
        yield keyed.__name__, lambda keyed=keyed: keyed(value)
    for rule in (tr.lbf, tr.lbf_work, tr.round_robin, tr.fixed_timeout, tr.replicate):
        yield rule.__name__, lambda rule=rule: rule(value)
    for technique in ("replay", "shared_queues", "send"):
        yield f"Tail {technique}", lambda technique=technique: tr.Tail(**{technique: value})
    for option in (field.name for field in fields(RunSettings)):
        yield f"run {option}", lambda option=option: RunSettings.of({option: value})
    yield "from_iterable", lambda: tr.from_iterable(value)
    yield "at_rate", lambda: tr.at_rate(value, 10)
    yield "at_rate rate", lambda: tr.at_rate([1], value)
    yield "to_call", lambda: tr.to_call(value)
    yield "watch", lambda: tr.watch(value)


@pytest.mark.parametrize("value", RUBBISH, ids=lambda value: repr(value)[:20])
def test_rubbish_is_taken_or_answered_in_a_sentence(
    value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for what, call in calls(value):
        try:
            call()
        except TailraceError as error:
            told = str(error)
            assert len(told) < 700 and "\n" not in told, what
            assert told.rstrip().endswith("?") or "known=" in told, f"{what}: {told}"
        except Exception as error:
            raise AssertionError(f"a raw error: {what}: {error!r}") from error
    assert not list(tmp_path.iterdir()), "nothing is made before a run"


@pytest.mark.parametrize("value", [None, 5, "run", object()])
def test_what_is_no_run_cannot_be_watched(value: Any) -> None:
    with pytest.raises(tr.OptionError, match=r"not a run: run=.*; did you mean what topology.run\(\) returns\?"):
        tr.watch(value)
