"""What OSG measured on its prototype (Middleware 2016), generated: MENTION and REACH.

The datasets are not to be had. These have their sizes, ranges and means: see the constants. A unit stands for a
millisecond of the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from random import Random
from typing import Any

from tailrace.bench.workloads.followers import USERS, reach
from tailrace.bench.workloads.workload import Declare, Draw, Workload, itself
from tailrace.topology import Stream

ENTITIES = 35_000
ENTITY_ALPHA = 0.937  # of the Zipf law: the most frequent is 6.5% of all
ENTITY_UNITS = (0.1, 23.0)  # what a mention costs, 1 on average
ENTITY_SIGMA = 1.0
BASE_UNITS = 1.7  # what a tweet costs besides: the cheapest took 1.8 ms
MOST_UNITS = 36.0
MENTIONS_ALPHA = 0.87  # of the Pareto law of their number: 7 units a tweet on average
MOST_MENTIONS = 100

AUTHOR_ALPHA = 0.461  # the most frequent author wrote 0.38% of all tweets
REACH_UNITS = (0.01, 70.0)  # 20 on average


def mention(draw: Draw) -> Workload:
    """Tweets that mention users. Each mention is looked up: the more mentions, the longer it takes."""
    rng = draw.rng("mentions")
    low, high = ENTITY_UNITS
    units = [rng.lognormvariate(-(ENTITY_SIGMA**2) / 2, ENTITY_SIGMA) for _ in range(ENTITIES)]
    units = [min(high, max(low, cost)) for cost in units]
    weights = _zipf(ENTITIES, ENTITY_ALPHA)
    bodies = tuple(_mentions(rng, weights, units) for _ in range(draw.tuples))
    return _workload("mention", draw, bodies, len, partial(mention_ns, units, draw.unit_ns))


def _mentions(rng: Random, weights: Sequence[float], units: Sequence[float]) -> tuple[int, ...]:
    """As many as fit into what the costliest tweet took."""
    number = min(MOST_MENTIONS, int(rng.paretovariate(MENTIONS_ALPHA)))
    drawn = rng.choices(range(ENTITIES), cum_weights=weights, k=number)
    sums = accumulate((units[entity] for entity in drawn), initial=BASE_UNITS)
    fitting = sum(total <= MOST_UNITS for total in sums) - 1
    return tuple(drawn[:fitting])


def mention_ns(units: Sequence[float], unit_ns: int, mentions: tuple[int, ...]) -> int:
    return int((BASE_UNITS + sum(units[entity] for entity in mentions)) * unit_ns)


def reaching(draw: Draw) -> Workload:
    """Tweets whose reach is worked out by a walk through the author's followers, and theirs, three hops deep."""
    rng = draw.rng("authors")
    authors = list(range(USERS))
    rng.shuffle(authors)
    bodies = tuple(rng.choices(authors, cum_weights=_zipf(USERS, AUTHOR_ALPHA), k=draw.tuples))
    reached = reach(draw.seed)
    least, most = REACH_UNITS
    each = most / max(reached)
    works_ns = [max(1, int(draw.unit_ns * max(least, each * users))) for users in reached]
    return _workload("reach", draw, bodies, itself, works_ns.__getitem__)


def _zipf(items: int, alpha: float) -> list[float]:
    return list(accumulate((rank + 1) ** -alpha for rank in range(items)))


def _workload(
    name: str,
    draw: Draw,
    bodies: tuple[Any, ...],
    key_of: Callable[[Any], int],
    cost_ns: Callable[[Any], int],
) -> Workload:
    works_ns = tuple(map(cost_ns, bodies))
    keys = tuple(map(key_of, bodies))
    due_ns = draw.due_by_load_ns(works_ns)
    return Workload(name, draw, bodies, keys, works_ns, due_ns, partial(_build, cost_ns), key_of)


def _build(cost_ns: Callable[[Any], int], stream: Stream, declare: Declare) -> None:
    declare.end(declare.map(stream, "work", cost_ns))
