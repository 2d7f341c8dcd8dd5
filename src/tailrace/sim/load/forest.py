"""The forest of a simulation: everything about roots and tuples that does not depend on the policy, drawn beforehand.

A source emits *roots*. The tuples that it sends for a root, and those that operators make of them, are the tree of the
root, which is done when the last of them has run. Groupings, queues and nodes decide when that is; the forest decides
everything else, so that compared runs share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from random import Random

from tailrace.clock import SECOND_NS
from tailrace.errors import OptionError
from tailrace.policy.hedging.api import MOST_HEDGES
from tailrace.sim.load.models.model import SOURCE, Model, Stage, Stalls


@dataclass(frozen=True)
class Forest:
    """All roots of a simulation with the tuples that they become. ``grow()`` makes one.

    Roots and tuples are numbered from 0 on. A stage is its position in ``Model.operators``.

    Law: each tuple is listed once, by its root or by its parent, which is of an earlier stage.

    Args:
        due_ns: when each root is due, ascending.
        roots: the tuples that the source sends for each root.
        stages: the stage of each tuple.
        values: what groupings see of each tuple and may take for a key.
        works_ns: how long each tuple takes a task of speed 1.
        again_ns: the same for each further emission of its root.
        children: the tuples that each tuple becomes.
        senders: the source task of each root. Empty: round robin.
        lags_ns: how long after its parent each tuple leaves. Empty: 0.
    """

    due_ns: Sequence[int] = field(repr=False)
    roots: Sequence[Sequence[int]] = field(repr=False)
    stages: Sequence[int] = field(repr=False)
    values: Sequence[int] = field(repr=False)
    works_ns: Sequence[int] = field(repr=False)
    again_ns: Sequence[Sequence[int]] = field(repr=False)
    children: Sequence[Sequence[int]] = field(repr=False)
    senders: Sequence[int] = field(repr=False, default=())
    lags_ns: Sequence[int] = field(repr=False, default=())

    def validate(self, model: Model) -> None:
        """Raise ``OptionError`` if the law is broken, or if this is not a forest of the model."""
        tuples = len(self.stages)
        lengths = {len(column) for column in (self.values, self.works_ns, *self.again_ns, self.children)}
        if lengths != {tuples} or len(self.roots) != len(self.due_ns) or not self.roots:
            raise OptionError(f"a forest's columns differ in length: tuples={tuples} columns={sorted(lengths)}")
        if self.due_ns[0] < 0 or any(a > b for a, b in zip(self.due_ns, self.due_ns[1:], strict=False)):
            raise OptionError("roots are not due at ascending times from zero on: were they sorted?")
        if len(self.again_ns) != MOST_HEDGES:
            raise OptionError(f"a root may be emitted again: times={MOST_HEDGES} columns={len(self.again_ns)}")
        least_ns = min(map(min, (self.works_ns, *self.again_ns)))
        if least_ns < 1:
            raise OptionError(f"every tuple takes some time: least={least_ns}")
        if self.lags_ns and (len(self.lags_ns) != tuples or min(self.lags_ns) < 0):
            raise OptionError(f"a lag for each tuple, or none: tuples={tuples} lags={len(self.lags_ns)}")
        if self.senders and (len(self.senders) != len(self.roots) or not set(self.senders) <= {*range(model.senders)}):
            raise OptionError(f"a sender for each root, or none: roots={len(self.roots)} senders={model.senders}")
        self._check_trees(model)

    def _check_trees(self, model: Model) -> None:
        positions = {stage.name: position for position, stage in enumerate(model.operators)}
        ways = {(positions.get(name, -1), positions[stage.name]) for stage in model.operators for name in stage.inputs}
        listed = bytearray(len(self.stages))
        families = [*zip(repeat(-1), self.roots), *zip(self.stages, self.children, strict=True)]
        for parent_stage, family in families:
            for index in family:
                if not 0 <= index < len(listed) or listed[index]:
                    raise OptionError(f"a tuple that is not there, or has two parents: tuple={index}")
                if (parent_stage, self.stages[index]) not in ways:
                    raise OptionError(
                        f"no such way in the model: tuple={index} from={parent_stage} to={self.stages[index]}: "
                        "are the stages numbered as in the model?"
                    )
                listed[index] = True
        if not all(listed) or not all(map(len, self.roots)):
            raise OptionError("a tuple without a parent, or a root without tuples: is the forest complete?")


def grow(model: Model, seed: int) -> Forest:
    """Draw the roots and tuples that a model describes.

    Args:
        model: the model.
        seed: decides all random choices.

    Example:
        >>> from tailrace.sim import Exponential, Model, Poisson, grow
        >>> len(grow(Model(Poisson(load=0.8), Exponential(1_000_000), tuples=100), seed=1).due_ns)
        100
    """
    roots: list[Sequence[int]] = [()] * model.tuples
    children: list[Sequence[int]] = []
    stages: list[int] = []
    values: list[int] = []
    works_ns: list[int] = []
    again_ns: list[list[int]] = [[] for _ in range(MOST_HEDGES)]
    members = {SOURCE: range(model.tuples)}
    fan_outs = {SOURCE: 1.0, **{stage.name: stage.fan_out for stage in model.operators}}
    rates_per_s = []
    for position, stage in enumerate(model.operators):
        begin = end = len(works_ns)
        for name in stage.inputs:
            counts = _counts(fan_outs[name], len(members[name]), Random(f"{seed} {name} to {stage.name}"))
            end = _attach(roots if name == SOURCE else children, members[name], counts, end)
        members[stage.name] = range(begin, end)
        if stage.service is None:
            raise OptionError(f"a stage has no service: stage={stage.name}: how long do its tuples take?")
        label = f"{seed} service {stage.name}" if position else f"{seed} service"
        drawn = stage.service.draw(end - begin, Random(label))
        first_ns, *others_ns = _stalled(drawn[1], stage, seed)
        values += drawn[0]
        works_ns += first_ns
        for column, other_ns in zip(again_ns, others_ns, strict=True):
            column += other_ns
        stages += [position] * (end - begin)
        children += [()] * (end - begin)
        if begin < end:
            rates_per_s.append(model.capacity(stage) * SECOND_NS / (sum(first_ns) / model.tuples))
    due_ns = model.arrivals.times_ns(model.tuples, min(rates_per_s), Random(f"{seed} arrivals"))
    return Forest(due_ns, roots, stages, values, works_ns, again_ns, children)


def _counts(fan_out: float | tuple[int, int], parents: int, rng: Random) -> list[int] | None:
    """The number of children of each parent. ``None``: one each."""
    if isinstance(fan_out, tuple):
        return [rng.randint(*fan_out) for _ in range(parents)]
    if fan_out == 1:
        return None
    whole = int(fan_out)
    return [whole + (rng.random() < fan_out - whole) for _ in range(parents)]


def _attach(families: list[Sequence[int]], parents: range, counts: list[int] | None, first: int) -> int:
    """Number new tuples from ``first`` on, and add them to their parents. Returns the next number."""
    if counts is None and not any(families[parents.start : parents.stop]):
        families[parents.start : parents.stop] = zip(range(first, first + len(parents)))
        return first + len(parents)
    for parent, count in zip(parents, counts or repeat(1), strict=False):
        families[parent] = (*families[parent], *range(first, first + count))
        first += count
    return first


def _stalled(works_ns: list[int], stage: Stage, seed: int) -> list[list[int]]:
    """The durations of all tuples, for each emission of their root."""
    incarnations = range(1 + MOST_HEDGES)
    if stage.stalls is None:
        return [works_ns for _ in incarnations]
    rngs = (Random(f"{seed} stalls {stage.name} {incarnation}") for incarnation in incarnations)
    return [_prolonged(works_ns, stage.stalls, rng) for rng in rngs]


def _prolonged(works_ns: list[int], stalls: Stalls, rng: Random) -> list[int]:
    random, share, factor = rng.random, stalls.share, stalls.factor
    return [int(work_ns * factor) if random() < share else work_ns for work_ns in works_ns]
