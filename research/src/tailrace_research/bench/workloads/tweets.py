"""The workloads of OSG's prototype (Middleware 2016), generated: MENTION and REACH.

The datasets are not to be had. These have their sizes, ranges and means: see the constants. A unit stands for a
millisecond of the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from random import Random
from typing import Any

from tailrace.topology import Stream
from tailrace_research.bench.workloads.content import constant
from tailrace_research.bench.workloads.followers import USERS, follower_graph, reach
from tailrace_research.bench.workloads.spending import Means, Sleeping
from tailrace_research.bench.workloads.walking import Reaching, prepare_walks
from tailrace_research.bench.workloads.workload import Declare, Draw, Workload, itself

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
SOME_WALKS = 100


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
    """Tweets whose reach is worked out by a walk through the author's followers, and theirs, three hops deep.

    Asleep, users reached stand for units, of which a walk takes a part. Computing or looking up, a walk costs what it
    takes: the load is right if ``unit_ns`` is ``walk_unit_ns``.
    """
    rng = draw.rng("authors")
    authors = list(range(USERS))
    rng.shuffle(authors)
    graph, reached = follower_graph(draw.seed), reach(draw.seed)
    cost_ns = partial(reach_ns, draw.unit_ns, max(reached))
    drawn = rng.choices(authors, cum_weights=_zipf(USERS, AUTHOR_ALPHA), k=draw.tuples)
    bodies = tuple((author, len(graph[author])) for author in drawn)
    works_ns = tuple(cost_ns(reached[author]) for author in drawn)
    due_ns = draw.due_by_load_ns(works_ns)
    return Workload("reach", draw, bodies, tuple(drawn), works_ns, due_ns, partial(_walk, cost_ns), author_of)


def reach_ns(unit_ns: int, most_users: int, users: int) -> int:
    least, most = REACH_UNITS
    return max(1, int(unit_ns * max(least, most * users / most_users)))


def walk_unit_ns(means: Means, seed: int, folder: str) -> int:
    """The time of a unit here where walks are all of the cost: the mean over walks from some authors."""
    walk = prepare_walks(means, seed, folder).open()
    some = Random(f"{seed} walks").sample(range(USERS), SOME_WALKS)
    began_ns = means.clock()
    users = sum(map(walk, some))
    took_ns = means.clock() - began_ns
    _, most = REACH_UNITS
    return max(1, int(took_ns * max(reach(seed)) / (most * users)))


def author_of(tweet: tuple[int, int]) -> int:
    return tweet[0]


def followers_of(tweet: tuple[int, int]) -> int:
    """As tweets have them with their authors."""
    return tweet[1]


def _walk(cost_ns: Callable[[int], int], stream: Stream, declare: Declare) -> None:
    draw, setup, means = declare.draw, declare.setup, declare.setup.means
    stands_for = cost_ns if isinstance(means, Sleeping) else partial(constant, 0)
    body = partial(Reaching, declare.work(stands_for, itself), prepare_walks(means, draw.seed, setup.folder))
    declare.end(stream.map("work", body, tasks=draw.tasks, grouping=setup.grouping, kind=means.kind))


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
