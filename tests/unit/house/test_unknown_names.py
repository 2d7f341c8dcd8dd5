"""A name that is not known is answered with the known one that is closest, wherever names are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tailrace as tr
from kit.examples import run_example
from tailrace import errors, sim
from tailrace.cli import main
from tailrace.errors import did_you_mean
from tailrace.policy.hedging.by_name import named_hedge
from tailrace.policy.send_order.by_name import named_send
from tailrace.spark.run import options_in


def topology() -> tr.Topology:
    made = tr.Topology("numbers")
    made.source("numbers", tr.from_iterable(range(3))).sink("out", tr.to_list())
    return made


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "run option": (
        lambda: topology().run(chekpoint="state/"),  # type: ignore[call-arg]
        "unknown option: chekpoint=…: did you mean checkpoint=…?",
    ),
    "operator": (
        lambda: topology().stream("numbers").map("x", str, taks=2),  # type: ignore[call-overload]
        "unknown parameter: operator=x taks=…: did you mean tasks=…?",
    ),
    "choice": (
        lambda: topology().stream("numbers").map("x", str, on_error="dead-letter"),  # type: ignore[call-overload]
        "unknown on_error: operator=x on_error='dead-letter': did you mean 'dead_letter'?",
    ),
    "operator's name": (
        lambda: topology().stream("nmubers"),
        "no such operator: topology=numbers operator='nmubers': did you mean numbers?",
    ),
    "technique": (
        lambda: tr.Tail(shared_queue="worker"),  # type: ignore[call-arg]
        "unknown technique: shared_queue=…: did you mean shared_queues=…?",
    ),
    "option of calls": (
        lambda: tr.Calls(max_retries=3),  # type: ignore[call-arg]
        "unknown option of tr.Calls: max_retries=…: did you mean retries=…?",
    ),
    "time limit of calls": (
        lambda: replace(tr.Calls(), time_out=3),  # type: ignore[call-arg]
        "unknown option of tr.Calls: time_out=…: did you mean timeout_s=…?",
    ),
    "limit": (
        lambda: tr.limit("api", per_sec=3),  # type: ignore[call-arg]
        "unknown option of tr.limit: per_sec=…: did you mean per_s=…?",
    ),
    "step of a DataFrame": (
        lambda: tr.map_rows(str, "id long", order=True),  # type: ignore[call-arg]
        "unknown option of tr.map_rows: order=…: did you mean ordered=…?",
    ),
    "option of calls for a step": (
        lambda: tr.map_rows(str, "id long", concurrency=3),  # type: ignore[call-arg]
        "unknown option of tr.map_rows: concurrency=…: did you mean calls=tr.Calls(concurrency=…)?",
    ),
    "option of calls for a column": (
        lambda: tr.udf("long", timeout_s=3),  # type: ignore[call-arg]
        "unknown option of tr.udf: timeout_s=…: did you mean calls=tr.Calls(timeout_s=…)?",
    ),
    "rule": (
        lambda: named_hedge("adaptive_timout"),
        "unknown hedging rule: hedge=adaptive_timout: did you mean adaptive_timeout?",
    ),
    "rule with a number": (
        lambda: named_send("lfb_work=50"),
        "unknown send scheduler: send=lfb_work=50: did you mean lbf_work=NUMBER?",
    ),
    "Spark configuration": (
        lambda: options_in({"spark.tailrace.workrs": "5"}),
        "unknown option in the Spark configuration: spark.tailrace.workrs=5: did you mean spark.tailrace.workers?",
    ),
    "policy": (lambda: sim.named_policy("suffle"), "unknown policy: policy=suffle: did you mean shuffle?"),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_closest_name_is_told(case: str) -> None:
    call, text = CASES[case]
    with pytest.raises(tr.TailraceError) as caught:
        call()
    assert str(caught.value) == text


def test_the_command_line_tells_it_too() -> None:
    model = str(Path(__file__).parents[3] / "examples" / "models" / "content.toml")
    for option, name, meant in (
        ("--policy", "lest_work", "least_work"),
        ("--hedge", "replicat=0.2", "replicate=NUMBER"),
    ):
        done = CliRunner().invoke(main, ["sim", model, option, name])
        assert f"did you mean {meant}?" in done.output
        assert done.exit_code == 1


def test_without_a_close_name_all_are_told() -> None:
    assert did_you_mean("colour", ["workers", "state"]) == "did you mean one of workers, state?"
    assert did_you_mean("colour", []) == "is there none yet?"
    assert did_you_mean(7, ["6", "8"]) == "did you mean one of 6, 8?"
    assert did_you_mean("x" * 10_000_000, ["state"]) == "did you mean one of state?"  # and takes no time


def test_case_does_not_matter() -> None:
    assert did_you_mean("CheckPoint", ["checkpoint"], "{}=…") == "did you mean checkpoint=…?"


@pytest.mark.parametrize("name", ["cut", "did_you_mean", "message_of", "refuse_doubled", "refuse_unknown"])
def test_examples_run(name: str) -> None:
    run_example(name, getattr(errors, name), {name: getattr(errors, name)})
