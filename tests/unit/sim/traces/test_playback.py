"""Playing a recording: what is found out about the engine, what may be asked, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from tailrace.errors import OptionError
from tailrace.policy.hashing import stable_hash
from tailrace.sim.traces.calibration import calibrate
from tailrace.sim.traces.playback import Playback
from tailrace.sim.traces.run_trace import EdgeShape, OperatorShape, RunTrace, Shape
from tailrace.sim.traces.stage_units import units_of
from tailrace.topology import Port, Role

HOP_NS = 50_000
BETWEEN_NS = 20_000
ACK_NS = 7_000


def edge(upstream: int, downstream: int, grouping: str = "shuffle", **changes: object) -> EdgeShape:
    keyed = grouping == "fields"
    facts = {"keyed": keyed, "has_key": keyed, "port": Port.MAIN, "salt": 0, "fused": False, "by_lineage": False}
    return EdgeShape(upstream, downstream, grouping, **{**facts, **changes})  # type: ignore[arg-type]


def shape(tasks: int, grouping: str = "shuffle", role: Role = Role.MAP, **changes: object) -> Shape:
    """source -> work, of so many tasks -> out, of one."""
    operators = (
        OperatorShape("source", Role.SOURCE, 1, 0, 1),
        OperatorShape("work", role, tasks, 1, 1),
        OperatorShape("out", Role.SINK, 1, 1 + tasks, 1),
    )
    return Shape("one", operators, (edge(0, 1, grouping, **changes), edge(1, 2)), (0,) * (2 + tasks))


def run(
    kind: Shape, due_ns: Sequence[int], works_ns: Sequence[int], *, slow: Sequence[float] = (), keys: Sequence[int] = ()
) -> RunTrace:
    """What an engine with constant costs would have recorded: one work after the other, round robin."""
    tasks = kind.operators[1].tasks
    count = len(due_ns)
    trace = RunTrace(kind, due_ns=list(due_ns), complete_ns=[0] * count, sources=[0] * count)
    trace.operators = [1] * count + [2] * count
    trace.tasks = [1 + root % tasks for root in range(count)] + [1 + tasks] * count
    trace.keys = list(keys or range(1, 1 + count)) * 2
    trace.durations_ns = [int(work * (slow[root % tasks] if slow else 1)) for root, work in enumerate(works_ns)]
    trace.durations_ns += [1_000] * count
    trace.begun_ns = [0] * 2 * count
    trace.roots = [[root] for root in range(count)]
    trace.children = [[count + root] for root in range(count)] + [[] for _ in range(count)]
    free_ns = [0] * (tasks + 2)

    def execute(row: int, sent_ns: int) -> int:
        task = trace.tasks[row]
        trace.begun_ns[row] = max(sent_ns + HOP_NS, free_ns[task] + BETWEEN_NS if free_ns[task] else 0)
        free_ns[task] = trace.begun_ns[row] + trace.durations_ns[row]
        return free_ns[task]

    sent_ns = [(execute(root, due), root) for root, due in enumerate(due_ns)]
    for at_ns, root in sorted(sent_ns):
        trace.complete_ns[root] = execute(count + root, at_ns) + ACK_NS
    trace.received_ns = list(trace.begun_ns)
    return trace


def busy_run(tasks: int = 3, **kind: object) -> RunTrace:
    rng = Random(3)
    works_ns = [rng.choice([1, 2, 8]) * 1_000_000 + rng.randrange(500_000) for _ in range(900)]
    return run(shape(tasks, **kind), [index * 1_600_000 for index in range(900)], works_ns)  # type: ignore[arg-type]


def test_the_costs_of_an_engine_are_found_in_what_it_did() -> None:
    trace = busy_run()
    units = units_of(trace)
    costs = calibrate(trace, units)
    assert costs.link_ns == HOP_NS - BETWEEN_NS
    assert {*costs.acks_ns} == {ACK_NS}
    assert {*costs.delays_ns} == {BETWEEN_NS} and not any(costs.lags_ns)
    assert costs.speeds == ((1.0, 1.0, 1.0), (1.0,))


def test_a_recording_leads_to_its_own_latencies() -> None:
    playback = Playback(busy_run())
    seen, again = playback.recorded(), playback.play()
    assert list(again.done_ns) == list(seen.done_ns)
    assert again.latencies_ns == seen.latencies_ns
    assert again.policy == "shuffle again" and again.executed == seen.executed == (300, 300, 300, 900)


def test_another_policy_is_played_on_the_same_tuples() -> None:
    playback = Playback(busy_run())
    assert playback.play("pull").percentile_ns(0.99) < playback.recorded().percentile_ns(0.99)
    assert playback.play("pull", seed=4).latencies_ns == playback.play("pull", seed=4).latencies_ns


def test_a_slow_task_is_slow_whoever_it_works_for() -> None:
    rng = Random(5)
    keys = [rng.randrange(1, 9) for _ in range(600)]
    slow = (1.0, 3.0, 1.0)
    trace = run(shape(3), [n * 2_000_000 for n in range(600)], [key * 200_000 for key in keys], slow=slow, keys=keys)
    playback = Playback(trace)
    (first, second, third), _ = playback.costs.speeds
    assert (first, third) == (1.0, 1.0) and second == pytest.approx(1 / 3, rel=0.05)
    played = playback.play("pull")
    assert played.executed[1] < 170 < 200 == playback.recorded().executed[1]


def test_fields_deals_keys_as_a_run_would() -> None:
    hashes = [stable_hash(word) for word in ("the", "wheel", "turns", "the", "water", "and", "the", "wheel", "turns")]
    trace = run(shape(3), [n * 9_000_000 for n in range(9)], [1_000_000] * 9, keys=hashes)
    expected = [sum(one % 3 == task for one in hashes) for task in range(3)]
    assert list(Playback(trace).play("fields").executed[:3]) == expected


def test_what_is_fused_is_part_of_its_leaders_work_and_a_bundle_leaves_together() -> None:
    kind = Shape(
        "fused",
        (
            OperatorShape("source", Role.SOURCE, 1, 0, 1),
            OperatorShape("split", Role.FLAT_MAP, 1, 1, 1),
            OperatorShape("check", Role.FILTER, 1, 2, 1),
            OperatorShape("count", Role.MAP, 1, 3, 1),
            OperatorShape("out", Role.SINK, 1, 4, 1),
        ),
        (edge(0, 1), edge(1, 2, "local", fused=True), edge(2, 3), edge(3, 4)),
        (0,) * 5,
    )
    trace = RunTrace(kind, due_ns=[0], complete_ns=[100], sources=[0], roots=[[0]])
    trace.operators = [1, 2, 2, 3, 3, 4]
    trace.tasks = [1, 2, 2, 3, 3, 4]
    trace.keys = [0] * 6
    trace.received_ns = [1, 0, 0, 50, 50, 80]
    trace.begun_ns = [1, 11, 16, 50, 60, 90]
    trace.durations_ns = [10, 5, 5, 10, 20, 1]
    trace.children = [[1, 2], [3], [4], [5], [], []]
    units = units_of(trace)
    assert [unit.operator.name for unit in units.stages] == ["split", "count", "out"]
    assert units.rows == [0, 3, 4, 5]
    assert units.children == [[1, 2], [3], [], []]
    assert units.works_ns == [20, 10, 20, 1]
    assert units.left_ns == [21, 80, 80, 91], "both of the bundle at 50 leave when the second has been run"


@pytest.mark.parametrize(
    ("kind", "edges", "policy", "text"),
    [
        ({}, ("wrok",), "pull", r"^no such edge: edge=wrok: did you mean work\?$"),
        ({}, (), "pul", r"^unknown policy: policy=pul: did you mean pull\?$"),
        (
            {"grouping": "fields"},
            ("work",),
            "pull",
            r"^equal keys must meet in one task: edge=work policy=pull: it was recorded with fields; is its operator",
        ),
        (
            {"grouping": "fields"},
            (),
            "pull",
            r"^no tuple may go to any of several tasks: which edge is it about\? edge=work, out$",
        ),
        ({"grouping": "broadcast"}, ("work",), "pull", "^the edge takes no other grouping: edge=work: every task gets"),
        ({"by_lineage": True}, ("work",), "pull", "^the edge takes no other grouping: edge=work: two incarnations"),
    ],
)
def test_refusals(kind: dict[str, object], edges: tuple[str, ...], policy: str, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        Playback(busy_run(**kind), edges).play(policy)


def test_a_policy_that_needs_keys_is_refused_where_none_were_recorded() -> None:
    trace = run(shape(2), [0, 1_000_000], [1_000_000] * 2, keys=[0, 0])
    with pytest.raises(OptionError, match=r"^the recording has no keys for this policy: edge=work policy=osg: "):
        Playback(trace).play("osg")
    assert Playback(trace).play("pull").executed[2] == 2
