"""Which sink of a run a table is read from: the one that is meant, or a sentence that says which there are."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import tailrace as tr
from tailrace.core.plan.plan import Plan
from tailrace.core.plan.planner import make_plan
from tailrace.errors import OptionError, TailraceError
from tailrace.runtime.driver.file_sinks import check_visible, choose_file_sink


def plan_of(**sinks: Any) -> Plan:
    topology = tr.Topology("pages")
    pages = topology.source("pages", tr.from_iterable(range(9)))
    for name, sink in sinks.items():
        pages.sink(name, sink)
    return make_plan(topology, 1)


def test_the_only_file_sink_needs_no_name(tmp_path: Path) -> None:
    plan = plan_of(all=tr.to_list(), good=tr.to_parquet(tmp_path))
    assert choose_file_sink(plan, None).name == choose_file_sink(plan, "good").name == "good"


def test_one_of_several_is_named(tmp_path: Path) -> None:
    plan = plan_of(good=tr.to_parquet(tmp_path / "good"), bad=tr.to_jsonl(tmp_path / "bad"))
    assert choose_file_sink(plan, "bad").operator.body.path == tmp_path / "bad"
    with pytest.raises(OptionError) as told:
        choose_file_sink(plan, None)
    assert str(told.value) == (
        "several sinks write files: run=pages sinks=good,bad: did you mean run.table(sink='good')?"
    )


def test_names_that_are_no_sinks(tmp_path: Path) -> None:
    plan = plan_of(good=tr.to_parquet(tmp_path))
    with pytest.raises(OptionError, match=r"no such sink: run=pages sink='god': did you mean good\?"):
        choose_file_sink(plan, "god")
    for other in ("pages", 5):
        with pytest.raises(OptionError, match=rf"no such sink: run=pages sink={other!r}: did you mean one of good\?"):
            choose_file_sink(plan, other)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [None, "out"])
def test_sinks_without_files(name: str | None) -> None:
    with pytest.raises(OptionError) as told:
        choose_file_sink(plan_of(out=tr.to_list()), name)
    assert str(told.value) == (
        "sink writes no files: run=pages sink=out type=ListSink: "
        "did you mean to_parquet(…) or to_jsonl(…), or, for to_list, spark.createDataFrame(sink.values)?"
    )
    with pytest.raises(OptionError, match="sink writes no files: run=pages sink=out type=CallSink: "):
        choose_file_sink(plan_of(out=tr.to_call(print)), name)


def test_a_driver_that_does_not_see_the_files_gives_no_empty_table(tmp_path: Path) -> None:
    plan = plan_of(out=tr.to_parquet(tmp_path))
    sink, job = choose_file_sink(plan, None), "0123456789abcdef"
    check_visible(sink, job, None)
    check_visible(sink, job, {"durable": 0})
    with pytest.raises(TailraceError) as told:
        check_visible(sink, job, {"durable": 7})
    assert str(told.value) == (
        f"the driver does not see what the sink has written: sink=out folder={tmp_path} host={socket.gethostname()}; "
        "is the file system mounted here, or was the folder deleted?"
    )
    (tmp_path / "_tailrace" / "out-01234567").mkdir(parents=True)
    check_visible(sink, job, {"durable": 7})
