"""Files of a recording, put together: incarnations, clocks of several machines, holes, and what is no recording."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tailrace as tr
from tailrace.cli import main
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.lineage import child_lineages, root_lineage
from tailrace.errors import OptionError
from tailrace.metrics.recording import END, ROOTS, TUPLES, VERSION, block, file_name, preamble
from tailrace.runtime.worker.recorder import describe
from tailrace.sim.traces.run_trace import RunTrace, read_trace

SECOND = 1_000_000_000


def a_plan() -> Any:
    topology = tr.Topology("two")
    topology.source("numbers", tr.from_iterable(range(9))).sink("out", tr.to_call(print), tasks=2)
    return make_plan(topology, 2, name_all=True)


PLAN = a_plan()


def header(worker: int = 0, epoch: int = 1, job: str = "job", **changes: Any) -> dict[str, Any]:
    clock = {"monotonic_ns": 0, "wall_ns": 1_000 * SECOND}
    return {**describe(PLAN, job, worker, epoch, lambda: 0), "machine": "one", "clock": clock, **changes}


def root(offset: int, emission: int, at_ns: int) -> bytes:
    """Due, emitted, and complete 500 ns later."""
    return block(ROOTS, [[value] for value in (0, 0, offset, emission, at_ns, at_ns, at_ns + 500)])


def row(offset: int, emission: int, begun_ns: int, task: int = 1) -> bytes:
    (lineage,) = child_lineages([root_lineage(PLAN.splits[0].salt, offset)], PLAN.edges[0].salt, None)
    return block(TUPLES, [[value] for value in (task, emission, lineage, 5, begun_ns, begun_ns, 300)])


def recording(folder: Path, *files: tuple[dict[str, Any], bytes]) -> RunTrace:
    for head, body in files:
        (folder / file_name(head["worker"], head["epoch"])).write_bytes(preamble(head) + body)
    return read_trace(folder)


END_BLOCK = block(END, ())


def test_only_the_incarnation_that_completed_counts(tmp_path: Path) -> None:
    body = row(0, 70, 100, task=1) + row(0, 71, 900, task=2) + root(0, 71, 50) + END_BLOCK
    trace = recording(tmp_path, (header(), body))
    assert (trace.tasks, trace.begun_ns, trace.due_ns, trace.complete_ns) == ([2], [850], [0], [500])


def test_machines_meet_on_the_walls_clock(tmp_path: Path) -> None:
    """The second machine was started seven seconds before the first."""
    far = {"machine": "two", "clock": {"monotonic_ns": 7 * SECOND, "wall_ns": 1_000 * SECOND}}
    trace = recording(
        tmp_path,
        (header(0), root(0, 70, 1_000) + END_BLOCK),
        (header(1, 2, **far), row(0, 70, 7 * SECOND + 1_200) + END_BLOCK),
    )
    assert trace.begun_ns == [200]


def test_files_of_one_machine_share_a_clock_whatever_the_wall_says(tmp_path: Path) -> None:
    stepped = {"clock": {"monotonic_ns": 10, "wall_ns": 2_000 * SECOND}}
    trace = recording(
        tmp_path, (header(0), root(0, 70, 1_000) + END_BLOCK), (header(1, 2, **stepped), row(0, 70, 1_200) + END_BLOCK)
    )
    assert trace.begun_ns == [200]


def test_roots_of_the_moments_that_a_killed_worker_took_with_it_are_left_out(tmp_path: Path) -> None:
    """Offset 1 completed after the last that was written, and before there was a successor."""
    roots = root(0, 70, 1_000) + root(1, 71, 2_000) + root(2, 72, 9_000)
    successor = {"clock": {"monotonic_ns": 8_000, "wall_ns": 1_000 * SECOND + 8_000}}
    trace = recording(
        tmp_path,
        (header(0), roots + row(1, 71, 2_100, task=1) + END_BLOCK),
        (header(1, 2), row(0, 70, 1_100, task=2) + row(8, 99, 1_400, task=2) + b"torn"),
        (header(1, 3, **successor), row(2, 72, 9_100, task=2) + END_BLOCK),
    )
    assert trace.due_ns == [0, 8_000]
    assert trace.notes == [
        "the recording of worker 1, epoch 2 ends without a word, and 4 torn bytes at the end were skipped",
        "1 of 3 roots are not whole and were left out",
    ]


def test_a_root_without_its_tuples_is_left_out(tmp_path: Path) -> None:
    trace = recording(tmp_path, (header(), root(0, 70, 0) + root(1, 71, 0) + row(1, 71, 10) + END_BLOCK))
    assert len(trace.roots) == 1 and trace.notes == ["1 of 2 roots are not whole and were left out"]


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ([(header(), END_BLOCK)], "no root of this recording has completed: did the run end before anything arrived?"),
        (
            [(header(), root(0, 70, 0) + END_BLOCK)],
            "no root of this recording is whole: roots=1; are files of some workers missing?",
        ),
        (
            [(header(), END_BLOCK), (header(1, 2, job="another"), END_BLOCK)],
            "recordings of two runs in one folder: trace={} file=worker-1-epoch-2.tailrace; which is it?",
        ),
        ([], "no recording in this folder: trace={}; is it where tailrace run --record wrote?"),
    ],
)
def test_what_cannot_be_put_together(files: list[tuple[dict[str, Any], bytes]], text: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError) as refusal:
        recording(tmp_path, *files)
    assert str(refusal.value) == text.format(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "a model or a trace, one of the two; did you mean tailrace sim --trace DIR?"),
        (["{}/model.toml", "--trace", "{}"], "a model or a trace, one of the two"),
        (["{}/model.toml", "--edge", "out"], "only a trace has edges to choose from"),
        (["--trace", "{}/none"], "no such folder: trace="),
        (["--trace", "{}"], f"a recording of another version: file=.* version={VERSION + 1} expected={VERSION}"),
    ],
)
def test_the_command_refuses(arguments: list[str], text: str, tmp_path: Path) -> None:
    (tmp_path / "model.toml").touch()
    start = bytearray(preamble(header()))
    start[8] = VERSION + 1
    (tmp_path / file_name(0, 1)).write_bytes(start)
    result = CliRunner().invoke(main, ["sim", *(one.format(tmp_path) for one in arguments)])
    assert result.exit_code != 0
    assert re.search(text.replace("?", r"\?"), " ".join(result.output.split())), result.output
