"""The techniques that are on are a value: refused when they make no sense, told to every worker, shown by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tailrace as tr
from tailrace.cli import main
from tailrace.core.protocol.coordinator import Coordinator, CoordinatorLimits
from tailrace.core.protocol.messages import Assign, Command, Ready, Registered, Send, Techniques
from tailrace.runtime.options import RunSettings

HEDGING = tr.Tail(hedge=tr.fixed_timeout(20))
LIMITS = CoordinatorLimits(10**9, 10**10, 10**8, 10**8, 10**9, 3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: tr.Tail(hedge=tr.adaptive_timeout),  # type: ignore[arg-type]
            "not a hedging rule: hedge=<function adaptive_timeout",
        ),
        (lambda: tr.Tail(hedge="soon"), "not a hedging rule: hedge='soon': did you mean adaptive_timeout()?"),  # type: ignore[arg-type]
        (lambda: RunSettings.of({"tail": 5}), "not a tail: tail=5: did you mean Tail(hedge=…)?"),
        (lambda: tr.Tail().changed({"reply": None}), "unknown technique: reply=…: did you mean replay=…?"),  # type: ignore[typeddict-unknown-key]
        (lambda: tr.Tail(reply=None), "unknown technique: reply=…: did you mean replay=…?"),  # type: ignore[call-arg]
        (
            lambda: tr.Tail(colour=None),  # type: ignore[call-arg]
            "unknown technique: colour=…: did you mean one of hedge=…, shared_queues=…, send=…, replay=…?",
        ),
        (
            lambda: tr.Tail(shared_queues="cluster"),
            "not a way to share queues: shared_queues='cluster': did you mean 'worker' or 'node'?",
        ),
        (lambda: tr.Tail(send=tr.lbf), "not a send scheduler: send=<function lbf"),  # type: ignore[arg-type]
        (
            lambda: tr.Tail(send=tr.round_robin(skip_empty=False)),
            "a scheduler that wastes turns is for simulations, where a turn has a length: send=round_robin_paper: "
            "did you mean round_robin()?",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, text: str) -> None:
    with pytest.raises(tr.OptionError) as refusal:
        make()
    assert str(refusal.value).startswith(text)


def test_techniques_are_shown_by_name() -> None:
    assert HEDGING.names()["replay"] == "fixed_timeout"
    assert set(tr.Tail().names().values()) == {None}
    assert HEDGING.changed({}) == HEDGING and HEDGING.changed({"hedge": None}) == tr.Tail()


def test_replay_is_another_name_of_hedge() -> None:
    rule = tr.fixed_timeout(20)
    assert tr.Tail(replay=rule) == HEDGING and HEDGING.replay == rule
    assert tr.Tail().changed({"replay": rule}) == HEDGING and HEDGING.changed({"replay": None}) == tr.Tail()
    with pytest.raises(tr.OptionError, match=r"a technique is given twice: hedge=… replay=…"):
        HEDGING.changed({"replay": rule, "hedge": None})
    with pytest.raises(tr.OptionError, match=r"a technique is given twice: hedge=… replay=…"):
        tr.Tail(hedge=rule, replay=rule)


def _told(commands: list[Command]) -> list[tuple[int, tr.Tail]]:
    return [(c.worker, c.message.tail) for c in commands if isinstance(c, Send) and isinstance(c.message, Techniques)]


def test_a_worker_that_opens_its_tasks_hears_of_a_switch_when_it_is_ready() -> None:
    coordinator = Coordinator(2, [], {}, {}, LIMITS, tail=tr.Tail())
    coordinator.start(0)
    for worker in (0, 1):
        (assigned,) = coordinator.handle(Registered(worker, worker + 1, ("", 0), 1, ""), 0)
        assert isinstance(assigned, Send) and isinstance(assigned.message, Assign)
        assert assigned.message.tail == tr.Tail()
    assert _told(coordinator.handle(Ready(0, 1), 0)) == []
    assert _told(coordinator.switch(HEDGING)) == [(0, HEDGING)]
    assert _told(coordinator.handle(Ready(1, 2), 0)) == [(1, HEDGING)]
    assert _told(coordinator.switch(tr.Tail())) == [(0, tr.Tail()), (1, tr.Tail())]


def test_a_worker_that_starts_after_a_switch_is_assigned_what_is_on() -> None:
    coordinator = Coordinator(1, [], {}, {}, LIMITS)
    coordinator.start(0)
    coordinator.switch(HEDGING)
    (assigned,) = coordinator.handle(Registered(0, 1, ("", 0), 1, ""), 0)
    assert isinstance(assigned, Send) and isinstance(assigned.message, Assign)
    assert assigned.message.tail == HEDGING
    assert _told(coordinator.handle(Ready(0, 1), 0)) == []


@pytest.mark.parametrize("option", ["--hedge", "--replay"])
def test_a_rule_on_the_command_line_that_is_none(tmp_path: Path, option: str) -> None:
    file = tmp_path / "topology.py"
    file.write_text(
        "import tailrace as tr\n"
        "topology = tr.Topology('t')\n"
        "topology.source('s', tr.from_iterable(range(3))).sink('out', tr.to_list())\n"
    )
    done = CliRunner().invoke(main, ["run", str(file), "--host", "process", option, "soon"])
    assert done.exit_code == 1
    assert "unknown hedging rule: hedge=soon: did you mean one of adaptive_timeout" in done.output
