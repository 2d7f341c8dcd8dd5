"""Plays a recorded run again under other groupings, to find out what would have happened.

Roots are due when they were, become the same trees, and each call takes as long as it took, corrected by the speed of
the task that ran it. What the engine added is taken from the recording too: see ``calibration``. Stages that are not
studied keep each tuple at its task if their grouping requires it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

from tailrace.errors import OptionError, did_you_mean
from tailrace.policy.groupings.api import Grouping
from tailrace.policy.hedging.api import MOST_HEDGES
from tailrace.policy.keys import Key
from tailrace.sim.load.forest import Forest
from tailrace.sim.load.models.arrivals import Recorded
from tailrace.sim.load.models.model import SOURCE, Model, Node, Queue, Scope, Stage, Uplink
from tailrace.sim.load.policies import itself, named_policy
from tailrace.sim.load.report import Report
from tailrace.sim.load.simulate import simulate
from tailrace.sim.traces.calibration import Costs, calibrate
from tailrace.sim.traces.run_trace import RunTrace
from tailrace.sim.traces.stage_units import Unit, Units, units_of
from tailrace.topology import Role

RECORDED = "recorded"

FIXED = {"local": "it is local", "broadcast": "every task gets every tuple"}


class _Given:
    def choose_many(self, values: Sequence[int]) -> Sequence[int]:
        return list(values)


@dataclass(frozen=True)
class AsRecorded:
    """Each tuple goes to the task that ran it, whose number is its value."""

    keyed = False

    @property
    def name(self) -> str:
        return RECORDED

    def bind(self, tasks: int, rng: Random) -> _Given:
        return _Given()


class _Remainders:
    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def choose_many(self, values: Sequence[int]) -> Sequence[int]:
        return [value % self._tasks for value in values]


@dataclass(frozen=True)
class ByHash:
    """The same choices as ``fields``. A recording has only hashes of keys; to hash them again would change choices."""

    name = "fields"
    keyed = True

    key: Key = itself

    def bind(self, tasks: int, rng: Random) -> _Remainders:
        return _Remainders(tasks)


class Playback:
    """A recording of a run, ready to be played again under other groupings on virtual time.

    Args:
        trace: the recording, from ``read_trace``.
        edges: the operators whose input is under study. Empty: all whose tuples may go to any task.

    Example:
        >>> from tailrace.sim import Playback, read_trace
        >>> def compare(folder: str) -> list[float]:
        ...     playback = Playback(read_trace(folder))
        ...     return [playback.play(policy).mean_ns for policy in (None, "least_work", "pull")]
    """

    def __init__(self, trace: RunTrace, edges: Sequence[str] = ()) -> None:
        """``edges``: the operators whose inputs are studied; empty: all whose tuples may go to any task."""
        self.trace = trace
        self.units: Units = units_of(trace)
        self.costs: Costs = calibrate(trace, self.units)
        self.studied = self._studied(edges)

    def _studied(self, names: Sequence[str]) -> list[Unit]:
        by_name = {unit.operator.name: unit for unit in self.units.stages}
        for name in names:
            if name not in by_name:
                raise OptionError(f"no such edge: edge={name}: {did_you_mean(name, by_name)}")
            why = _why_fixed(by_name[name])
            if why is not None:
                raise OptionError(f"the edge takes no other grouping: edge={name}: {why}")
        return [by_name[name] for name in names] or [unit for unit in self.units.stages if _free(unit)]

    def recorded(self) -> Report:
        """The report of the run itself."""
        trace = self.trace
        executed = [0] * len(trace.shape.home)
        busy_ns = [0] * len(trace.shape.home)
        for number, row in enumerate(self.units.rows):
            executed[trace.tasks[row]] += 1
            busy_ns[trace.tasks[row]] += self.units.works_ns[number]
        tasks = [task for unit in self.units.stages for task in unit.task_numbers]
        return Report(
            policy=RECORDED,
            seed=0,
            due_ns=trace.due_ns,
            done_ns=trace.complete_ns,
            latencies_ns=self._latencies_ns(trace.complete_ns),
            executed=tuple(executed[task] for task in tasks),
            busy_ns=tuple(busy_ns[task] for task in tasks),
            messages=0,
        )

    def _latencies_ns(self, done_ns: Sequence[int]) -> list[int]:
        """In the order in which roots were done."""
        return [done - due for done, due in sorted(zip(done_ns, self.trace.due_ns, strict=True))]

    @property
    def policy(self) -> str:
        """The groupings that the studied edges were recorded with."""
        return "+".join(sorted({_grouping(unit) for unit in self.studied})) or RECORDED

    def play(self, policy: str | None = None, *, seed: int = 0) -> Report:
        """The run under this policy. ``None``: with the recorded choices, which shows how well the model fits."""
        if policy is not None and not self.studied:
            names = ", ".join(unit.operator.name for unit in self.units.stages)
            raise OptionError(f"no tuple may go to any of several tasks: which edge is it about? edge={names}")
        groupings = [self._grouping_of(unit, policy) for unit in self.units.stages]
        model = self._model(groupings)
        report = simulate(model, seed=seed, forest=self._forest(groupings))
        done_ns = [run_ns + ack_ns for run_ns, ack_ns in zip(report.done_ns, self.costs.acks_ns, strict=True)]
        return replace(
            report, policy=policy or f"{self.policy} again", done_ns=done_ns, latencies_ns=self._latencies_ns(done_ns)
        )

    def _grouping_of(self, unit: Unit, policy: str | None) -> Grouping:
        if policy is None or unit not in self.studied:
            return AsRecorded()
        grouping = ByHash() if policy == "fields" else named_policy(policy)
        if any(edge.keyed for edge in unit.inputs) and not grouping.keyed:
            raise OptionError(
                f"equal keys must meet in one task: edge={unit.operator.name} policy={policy}: "
                f"it was recorded with {_grouping(unit)}; is its operator stateful?"
            )
        if hasattr(grouping, "key") and not any(self.trace.keys[self.units.rows[one]] for one in unit.members):
            raise OptionError(
                f"the recording has no keys for this policy: edge={unit.operator.name} policy={policy}: "
                "did its tuples have no key, and were they too large to be hashed?"
            )
        return grouping

    def _model(self, groupings: Sequence[Grouping]) -> Model:
        stages: list[Stage] = []
        nodes: list[Node] = []
        operators, leaders = self.trace.shape.operators, self.units.leaders
        for unit, grouping in zip(self.units.stages, groupings, strict=True):
            upstreams = dict.fromkeys(
                SOURCE if operators[edge.upstream].role is Role.SOURCE else operators[leaders[edge.upstream]].name
                for edge in unit.inputs
            )
            workers = tuple(range(len(nodes), len(nodes) + unit.operator.tasks))
            nodes += [Node(speed=speed) for speed in self.costs.speeds[unit.position]]
            stages.append(
                Stage(
                    unit.operator.name,
                    tasks=unit.operator.tasks * unit.operator.concurrency,
                    queue=Queue(Scope.WORKER) if unit.operator.concurrency > 1 else None,
                    inputs=tuple(upstreams),
                    grouping=grouping,
                    workers=workers,
                )
            )
        return Model(
            Recorded((0,)),
            tuples=len(self.trace.due_ns),
            senders=len(self._senders),
            workers=len(nodes),
            nodes=tuple(nodes),
            link=Uplink(latency_ns=self.costs.link_ns),
            local=Uplink(latency_ns=self.costs.link_ns),
            stages=tuple(stages),
        )

    @cached_property
    def _senders(self) -> dict[int, int]:
        """Number of a source task -> sender."""
        return {task: sender for sender, task in enumerate(sorted(set(self.trace.sources)))}

    def _forest(self, groupings: Sequence[Grouping]) -> Forest:
        trace, units = self.trace, self.units
        stages: list[int] = []
        values: list[int] = []
        works_ns: list[int] = []
        for number, row in enumerate(units.rows):
            position = units.stage_of[number]
            unit = units.stages[position]
            task = trace.tasks[row] - unit.operator.first_task
            stages.append(position)
            values.append(task if isinstance(groupings[position], AsRecorded) else trace.keys[row])
            work_ns = units.works_ns[number] + self.costs.delays_ns[number]
            works_ns.append(max(1, int(work_ns * self.costs.speeds[position][task])))
        senders = [self._senders[task] for task in trace.sources]
        return Forest(
            trace.due_ns,
            units.roots,
            stages,
            values,
            works_ns,
            [works_ns] * MOST_HEDGES,
            units.children,
            senders,
            self.costs.lags_ns,
        )


def _grouping(unit: Unit) -> str:
    names = {edge.grouping for edge in unit.inputs}
    return names.pop() if len(names) == 1 else RECORDED


def _free(unit: Unit) -> bool:
    """Whether a tuple may go to any of several tasks."""
    return unit.operator.tasks > 1 and not any(edge.keyed for edge in unit.inputs) and _why_fixed(unit) is None


def _why_fixed(unit: Unit) -> str | None:
    """Why the tuples of this stage must stay at their tasks; ``None`` if they need not."""
    if unit.operator.concurrency > 1 or unit.operator.role is Role.MAP_BATCH:
        return "its tasks have several tuples under way at once, and no policy has been made for that"
    for edge in unit.inputs:
        if edge.fused or edge.grouping in FIXED:
            return FIXED.get(edge.grouping, "it is fused")
        if edge.by_lineage:
            return "two incarnations of a row must meet in one task of a committing sink"
    return None
