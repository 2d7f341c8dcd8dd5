"""What `tailrace bench tail` makes of its measurements, which processes/test_bench_tail_run takes."""

from __future__ import annotations

import json
from dataclasses import replace
from math import factorial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tailrace import OptionError
from tailrace.policy import Grouping, Tail
from tailrace.sim import simulate
from tailrace_research.__main__ import main
from tailrace_research.bench.tail import feedback as tail_feedback
from tailrace_research.bench.tail import groupings as tail_groupings
from tailrace_research.bench.tail import off as tail_off
from tailrace_research.bench.tail import queues as tail_queues
from tailrace_research.bench.tail import replay as tail_replay
from tailrace_research.bench.tail.groupings import BALANCERS, GROUPINGS, LINK_NS, SETTLING_NS, SLOW_TASK, as_run
from tailrace_research.bench.tail.rows import ROWS
from tailrace_research.bench.tail.run import Row, TailSizes, chosen_rows, latency_figures, run_tail_benchmark
from tailrace_research.bench.tail.send import kernel as tail_send_kernel
from tailrace_research.bench.tail.send import node as tail_send_node
from tailrace_research.bench.tail.send import row as tail_send
from tailrace_research.bench.tail.send.bursts import TASKS, BurstOutcome, Bursts
from tailrace_research.bench.tail.table import render_table
from tailrace_research.bench.turns import Contest
from tailrace_research.bench.workloads import Draw, Outcome, Workload, content, hosting, micro
from tailrace_research.bench.workloads.working import Execution

SIZES = TailSizes(tuples=300, repeats=2)
SLOWER = 2  # times what the simulator says: what "live" runs take here

asked: list[tuple[str, str, int]] = []


def simulated_run(workload: Workload, grouping: Grouping, *, workers: int, tail: Tail) -> Outcome:
    """What a live run would tell if all took twice as long as in the simulator, and once as long with one queue."""
    asked.append((workload.name, grouping.name, workload.draw.seed))
    report = simulate(workload.model(LINK_NS), "shuffle")
    slower = SLOWER if tail == Tail() else SLOWER / 2
    latencies_ns = [slower * (done - due) for done, due in zip(report.done_ns, report.due_ns, strict=True)]
    slowness = workload.draw.slowness or (1,)
    executions = [Execution("work", 0, r, 0, 0, int(slowness[0] * w)) for r, w in enumerate(workload.works_ns)]
    roots = len(latencies_ns)
    spent = [{"feedback": {"ms": us * roots / 1000, "bytes": size * roots}} for us, size in ((3, 40), (7, 20))]
    return Outcome(latencies_ns, executions, {"workers": spent})


def hedged_run(workload: Workload, *, workers: int, tail: Tail) -> Outcome:
    """What a live run would tell if hedging halved latencies where there is room, for a tenth more executions."""
    asked.append((workload.name, str(tail.names()["replay"]), workload.draw.seed))
    roots, hedged = len(workload.due_ns), tail.hedge is not None
    took_ns = 1_000_000 if workload.draw.load > 0.5 else 4_000_000 if not hedged else 2_000_000
    executions = [Execution("work", 0, 0, 1, 0, 1)] * (roots + (roots // 10 if hedged else 0))
    return Outcome([took_ns] * roots, executions, {})


def simulated_queues(workload: Workload, *, workers: int, tail: Tail) -> Outcome:
    """The same for the row about queues: each execution took what it cost, and shared ones wait half as long."""
    report = simulate(replace(workload.model(LINK_NS), workers=workers), "shuffle")
    share = 1 if tail == Tail() else 2
    waits_ns = [d - due - w for d, due, w in zip(report.done_ns, report.due_ns, workload.works_ns, strict=True)]
    executed = [Execution("work", 0, root, work, 0, work) for root, work in enumerate(workload.works_ns)]
    return Outcome([w // share + e.work_ns for w, e in zip(waits_ns, executed, strict=True)], executed, {})


BEFORE = Path("before")


def costlier_now(engine: Path, topology: str, tuples: int) -> float:
    """A hundredth for words, two for the chain, none for others."""
    return 10.0 if engine == BEFORE else {"words": 10.1, "chain": 10.2}.get(topology, 10.0)


def dear_by_pace(grouping: Grouping, pace: tail_feedback.Pace, tuples: int) -> list[dict[str, Any]]:
    """What would be seen if each sender cost a hundredth of a core, and twice that with pull, in the first interval."""
    share = 0.01 * pace.senders * (2 if grouping.name == "pull" else 1)
    costs = [
        [{"feedback": {"share": each, "bytes": 3 * tuples, "messages": tuples // 2}} for each in (0.001, most)]
        for most in (share, 0.001)
    ]
    return [{"workers": workers, "latencyMs": {"complete": {"mean": 2.5}}} for workers in costs]


def scheduled_run(bursts: Bursts, tail: Tail, **options: Any) -> BurstOutcome:
    """What a live run would tell if largest backlog first did twice as well as all others but FIFO, which is better;
    and if it took workers that do not share the link four times as long."""
    worse = {"lbf": 2, "fifo": 3}.get(str(tail.names()["send"]), 4)
    if options.get("senders") == 2 and "link_scope" not in options:
        worse *= 4
    slow = [[1_000_000] * len(due_ns) for due_ns in bursts.due_ns]
    slow[3] = [worse * 1_000_000 for _ in slow[3]]
    return BurstOutcome(slow, [worse] * TASKS, [float(worse - 2)] * TASKS)


@pytest.fixture(autouse=True)
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked.clear()
    monkeypatch.setattr(tail_groupings, "run_workload", simulated_run)
    monkeypatch.setattr(tail_replay, "run_workload", hedged_run)
    monkeypatch.setattr(tail_queues, "run_workload", simulated_queues)
    monkeypatch.setattr(tail_feedback, "progress_of", dear_by_pace)
    monkeypatch.setattr(tail_off, "cpu_us", costlier_now)
    monkeypatch.setattr(tail_off, "folder_before", lambda given: BEFORE)
    for part in (tail_send, tail_send_node, tail_send_kernel):
        monkeypatch.setattr(part, "run_bursts", scheduled_run)
    monkeypatch.setattr(tail_send_kernel, "why_no_namespaces", lambda: "it takes root")


def test_the_keys_are_flat_and_complete() -> None:
    result = run_tail_benchmark(ROWS, SIZES, lambda line: None)
    keys = [
        f"grouping_{place}{p}_{q}_ms"
        for place in ("", "sim_")
        for p in GROUPINGS
        for q in ("mean", "p50", "p99", "p999")
    ]
    keys += [f"{place}{p}_{q}_ratio" for place in ("", "sim_") for p in GROUPINGS for q in ("mean", "p99")]
    keys += [f"{policy}_{what}" for policy in GROUPINGS for what in ("vs_full", "agreement")] + ["pull_only_vs_full"]
    keys += [f"balance_{place}{p}_p99_ms" for place in ("", "sim_") for p in BALANCERS]
    keys += [f"balance_{policy}_p99_cut" for policy in BALANCERS] + ["balance_p99_cut", "balance_fast_p99_cut"]
    settings = [f"{load}_{tail}" for load in ("low", "middle", "high", "chain") for tail in ("plain", "hedged")]
    keys += [f"replay_{place}{setting}_p999_ms" for place in ("", "sim_") for setting in settings]
    keys += [f"replay_{setting}_agreement" for setting in settings]
    cuts = ("p999_cut", "extra_work", "middle_p999_cut", "high_load_loss", "chain_p999_cut")
    keys += [f"replay_{place}{cut}" for place in ("", "sim_") for cut in cuts]
    keys += [
        f"shared_queue_{of}{place}{stem}_cut"
        for of in ("", "node_")
        for place in ("", "sim_")
        for stem in ("delay", "p99", "p999")
    ]
    keys += [f"lbf_{place}{key}" for place in ("", "sim_") for key in ("backlog_cut", "blocked_ratio", "slowest_cut")]
    keys += [f"lbf_node_{place}{key}" for place in ("", "sim_") for key in ("backlog_cut", "slowest_cut", "mean_cut")]
    keys += [f"feedback_{p}_{pace}_share" for p in tail_feedback.GROUPINGS for pace in tail_feedback.PACES]
    keys += ["feedback_share", *(f"feedback_{p}_long_mean_ms" for p in tail_feedback.GROUPINGS)]
    names = [*tail_send.SCHEDULERS, *tail_send_node.WAYS]
    keys += [f"lbf_{place}{name}_largest" for place in ("", "sim_") for name in names]
    for key in keys:
        assert len(result[f"{key}_spread"]) == 2, key
        assert isinstance(result[key], float), key
    assert (result["repeats"], result["tuples"], result["unit_ms"]) == (2, 300, 0.25)
    assert result["rows"] == ["grouping", "balance", "replay", "shared_queue", "lbf", "feedback", "off"]
    assert {"cores", "python", "platform", "load_before"} <= set(result)
    json.dumps(result)


def test_hedging_is_compared_with_nothing_where_there_is_room_and_where_there_is_not() -> None:
    result = run_tail_benchmark(chosen_rows(ROWS, ["replay"]), SIZES, lambda line: None)
    assert result["replay_p999_cut"] == pytest.approx(0.5)
    assert result["replay_extra_work"] == pytest.approx(0.1)
    assert result["replay_high_load_loss"] == 0.0
    assert [(rule, seed) for _, rule, seed in asked] == [
        (r, s) for s in (1, 2) for r in ("None", "adaptive_timeout") * 4
    ]
    shown = render_table(chosen_rows(ROWS, ["replay"]), result)
    assert "Hedging, a chain: p99.9 lower by 50% for 10.0% more executions; simulated " in shown
    assert "At 80% load p99 changes by +0%; simulated " in shown


def test_the_simulator_has_the_stalls_and_the_rule_of_the_live_run() -> None:
    """As many tuples as a rule needs to see before it hedges."""
    result = run_tail_benchmark(
        chosen_rows(ROWS, ["replay"]), replace(SIZES, tuples=6_000, repeats=1), lambda line: None
    )
    plain, hedged = (result[f"replay_sim_low_{name}_p999_ms"] for name in ("plain", "hedged"))
    assert plain > 100, "one execution in a hundred takes 100 ms"
    assert hedged < 0.6 * plain and result["replay_sim_p999_cut"] == pytest.approx(1 - hedged / plain)
    assert result["replay_sim_chain_plain_executions"] == 3 and 1 < result["replay_sim_low_hedged_executions"] < 1.05


def test_feedback_is_shown_at_its_worst() -> None:
    lines: list[str] = []
    rows = chosen_rows(ROWS, ["feedback"])
    result = run_tail_benchmark(rows, SIZES, lines.append)
    assert result["feedback_pull_flat_out_share"] == 0.02 and result["feedback_share"] == 0.06
    assert result["feedback_osg_slow_bytes"] == 6 and result["feedback_osg_slow_messages"] == 1
    assert lines[0].split(maxsplit=1)[1].split()[:3] == ["feedback,", "osg,", "1,000/s"]
    assert lines[0].endswith("mean 2.5 ms, 1.0% of a core"), lines[0]
    shown = render_table(rows, result)
    (pulled,) = (line for line in shown.splitlines() if line.startswith("pull"))
    assert pulled.split()[1::2][:4] == ["2.0%", "2.0%", "2.0%", "6.0%"]


def test_what_is_off_costs_what_the_dearer_topology_pays() -> None:
    lines: list[str] = []
    result = run_tail_benchmark(chosen_rows(ROWS, ["off"]), SIZES, lines.append)
    assert result["off_overhead"] == pytest.approx(0.02) and result["off_words_overhead"] == pytest.approx(0.01)
    assert lines[0].split() == ["1/6", "off,", "word", "count", "+1.0%"]
    shown = render_table(chosen_rows(ROWS, ["off"]), result)
    (chain,) = (line for line in shown.splitlines() if line.startswith("four short operators"))
    figures = chain.removeprefix("four short operators").split()
    assert figures == ["10.0", "10.2", "+2.0%", "[+2.0%..+2.0%]", "+2%..+2%"]


def test_without_the_engine_of_before_other_rows_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_off, "folder_before", lambda given: None)
    rows = chosen_rows(ROWS, ["off", "shared_queue"])
    result = run_tail_benchmark(rows, SIZES, lambda line: None)
    assert "off_overhead" not in result and "shared_queue_p99_cut" in result
    assert tail_off.UNKNOWN in render_table(rows, result)
    assert tail_off.UNKNOWN in render_table(rows[:1], run_tail_benchmark(rows[:1], SIZES, lambda line: None))


class Session:
    """All that is asked of one here."""

    class sparkContext:
        master = "local[3]"


def test_a_session_hosts_all_rows_that_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: list[Any] = []
    spark = Session()

    def noted(workload: Workload, **options: Any) -> Outcome:
        hosts.append(hosting.host())
        return simulated_queues(workload, **options)

    monkeypatch.setattr(tail_queues, "run_workload", noted)
    rows = chosen_rows(ROWS, ["off", "shared_queue"])
    result = run_tail_benchmark(rows, SIZES, lambda line: None, spark)
    assert hosts == [spark] * 6 and hosting.host() is None
    assert (result["rows"], result["host"]) == (["shared_queue"], "local[3]")
    shown = render_table(rows, result)
    assert "off: not on Spark: it compares two versions of the engine, each in processes of its own" in shown
    assert "Workers are tasks of Spark, local[3]." in shown
    plain = run_tail_benchmark(rows, SIZES, lambda line: None)
    assert "Spark" not in render_table(rows, plain) and plain["host"] == "process" and hosts[6:] == [None] * 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "spark", "--only", "off"], "Error: not a row for Spark: only=off: it compares two versions"),
        (
            ["--host", "spark", "--master", "yarn"],
            "Error: latencies are taken by one machine's clock: master=yarn: did you mean local[3] or",
        ),
        (["--master", "local[3]"], "only Spark has it; did you mean --host spark?"),
        (["--only", "nonsense"], "Error: no such row: only=nonsense: did you mean one of grouping, balance, "),
    ],
)
def test_what_cannot_be_measured_is_refused_before_a_session_starts(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["bench", "tail", *arguments])
    assert done.exit_code != 0 and message in done.output


def test_largest_backlog_first_is_compared_with_the_better_of_two() -> None:
    result = run_tail_benchmark(chosen_rows(ROWS, ["lbf"]), SIZES, lambda line: None)
    assert result["lbf_backlog_cut"] == result["lbf_slowest_cut"] == pytest.approx(1 / 3)
    assert result["lbf_blocked_ratio"] == 0.0
    assert result["lbf_sim_blocked_ratio"] == 0.0, "nobody is held back before the first burst"
    shown = render_table(chosen_rows(ROWS, ["lbf"]), result)
    assert "largest backlog 33% lower, blocked for 0.00 of the time, slowest task 33% lower" in shown


def test_one_order_for_a_node_is_compared_with_a_half_for_each_worker() -> None:
    result = run_tail_benchmark(chosen_rows(ROWS, ["lbf"]), SIZES, lambda line: None)
    assert result["lbf_node_backlog_cut"] == result["lbf_node_slowest_cut"] == pytest.approx(3 / 4)
    assert result["lbf_node_sim_mean_cut"] > 0.2, "halves lie idle while the other is used up"
    shown = render_table(chosen_rows(ROWS, ["lbf"]), result)
    assert "lbf() for both together beside half of the link for each: largest backlog 75% lower" in shown


def test_a_link_that_the_kernel_limits_is_measured_where_that_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    row = chosen_rows(ROWS, ["lbf"])
    without = run_tail_benchmark(row, SIZES, lambda line: None)
    assert "left out, a link that the kernel limits: it takes root" in render_table(row, without)
    limits: list[float] = []

    class Network:
        address = "nowhere"

        def __init__(self, machines: int) -> None:
            self.machines = [self]

        def limit(self, mbit: float) -> None:
            limits.append(mbit)

        def __enter__(self) -> Network:
            return self

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(tail_send_kernel, "why_no_namespaces", lambda: None)
    monkeypatch.setattr(tail_send_kernel, "Namespaces", Network)
    result = run_tail_benchmark(row, SIZES, lambda line: None)
    assert result["lbf_kernel_backlog_cut"] == pytest.approx(1 / 3)
    assert limits[2] > limits[0] == limits[1], "there link_mbps is what limits"
    assert "lbf() beside fifo() where tuples wait in sockets: largest backlog 33% lower" in render_table(row, result)


def test_ratios_compare_runs_of_the_same_stream() -> None:
    result = run_tail_benchmark(ROWS, SIZES, lambda line: None)
    assert result["pull_mean_ratio_spread"] == pytest.approx([1.0, 1.0])
    assert result["balance_pull_p99_cut_spread"] == pytest.approx([0.0, 0.0])
    assert result["shuffle_agreement"] == pytest.approx(SLOWER)
    assert result["balance_shuffle_agreement"] == pytest.approx(SLOWER, rel=0.1)
    assert result["sim_shuffle_p99_ratio_spread"] == [1.0, 1.0]
    assert result["sim_pull_mean_ratio"] < 0.9
    for repeat in range(2):
        pulled, shuffled = (result[f"grouping_sim_{name}_mean_ms_spread"][repeat] for name in ("pull", "shuffle"))
        assert result["sim_pull_mean_ratio_spread"][repeat] == pulled / shuffled
        full, live = (result[f"grouping_{name}_mean_ms_spread"][repeat] for name in ("sim_full_knowledge", "pull"))
        assert result["pull_only_vs_full_spread"][repeat] == full / live
        assert result["pull_vs_full_spread"][repeat] == result["node_queue_vs_full_spread"][repeat] == 2 * full / live
        assert (
            result["balance_sim_full_knowledge_mean_ms_spread"][repeat]
            == result["balance_pull_ideal_ms_spread"][repeat]
        )
    assert (result["grouping_pull_feedback_us"], result["grouping_pull_feedback_bytes"]) == (7, 40)


def test_an_ideal_run_has_the_calls_of_the_real_one() -> None:
    workload = content(Draw(tuples=200, slowness=(2.0, 1.0, 1.0, 1.0, 1.0)))
    late_ns = 5_000
    executions = [Execution("work", r % 5, r, 0, 7, 7 + w + late_ns) for r, w in enumerate(workload.works_ns)]
    found = as_run(workload, Outcome([], executions, {})).works_ns
    for root, work_ns in enumerate(workload.works_ns):
        assert found[root] == (work_ns + late_ns if root % 5 else (work_ns + late_ns) // 2)


def test_balance_is_measured_once_it_has_settled() -> None:
    """Ten seconds: five are left out, and a twentieth of the others as ever."""
    draw = replace(SLOW_TASK.draw, tuples=10_625)
    due_ns = micro(draw).due_ns
    assert 9.5e9 < due_ns[-1] < 10.5e9
    counted = [10**6 if due < SETTLING_NS else 2 * 10**6 for due in due_ns]
    figures = SLOW_TASK._figures("some", micro(draw), counted)
    assert figures["some_mean_ms"] == 2.0
    assert replace(SLOW_TASK, settling_ns=0)._figures("some", micro(draw), counted)["some_mean_ms"] < 1.6


def test_groupings_take_turns_on_one_stream_and_each_repeat_is_another() -> None:
    said: list[str] = []
    run_tail_benchmark(chosen_rows(ROWS, ["balance"]), SIZES, said.append)
    names = [BALANCERS[policy]("key").name for policy in BALANCERS]
    assert asked == [("micro", name, seed) for seed in (1, 2) for name in names]
    assert len(said) == len(asked) + 2  # and full knowledge, which needs no workers
    assert said[len(names)].split()[2:5] == ["full_knowledge", "simulated", "mean"]
    assert "balance, shuffle" in said[0] and "simulated mean" in said[0] and said[0].endswith("ms")


def test_the_table_has_a_line_for_each_grouping() -> None:
    result = run_tail_benchmark(ROWS, SIZES, lambda line: None)
    lines = render_table(ROWS, result).splitlines()
    begun = [line.split()[0] for line in lines if line]
    for policy in GROUPINGS:
        assert begun.count(policy) == 1 + (policy in BALANCERS) + (policy in tail_feedback.GROUPINGS), policy
    shuffled = next(line for line in lines if line.startswith("shuffle"))
    assert f"{result['grouping_shuffle_p999_ms']:,.1f}" in shuffled
    assert shuffled.split()[-2:] == ["2.00", "7"]
    assert sum(line.startswith("full knowledge, simulated") for line in lines) == 2
    assert not any("Flink" in line for line in lines)
    assert any("few repeats" in line for line in lines)


def test_queues_are_compared_by_delay_and_with_what_theory_says() -> None:
    rows = chosen_rows(ROWS, ["shared_queue"])
    result = run_tail_benchmark(rows, SIZES, lambda line: None)
    assert result["shared_queue_delay_cut_spread"] == pytest.approx([0.5, 0.5], abs=0.01)
    assert result["shared_queue_sim_delay_cut"] > 0.4
    lines = render_table(rows, result).splitlines()
    assert result["shared_queue_node_sim_delay_cut"] > result["shared_queue_sim_delay_cut"]
    shown = {line.split()[0]: line.split()[-1] for line in lines[1:4]}
    waits = [_erlang(servers) * 16 * 0.25 for servers in (1, 4, 8)]
    assert shown == {name: f"{wait:.1f}" for name, wait in zip(("own", "worker", "node"), waits, strict=True)}
    assert lines[4].startswith("lower by worker: delay 50%, p99 ")
    assert lines[5].startswith("lower by node: delay 50%, p99 ")


def _erlang(servers: int) -> float:
    """Erlang's C at 78% load, in mean calls."""
    a = servers * 0.78
    top = a**servers / factorial(servers) / 0.22
    return top / (sum(a**n / factorial(n) for n in range(servers)) + top) / (servers - a)


def test_peers_are_shown_where_units_are_theirs() -> None:
    rows = chosen_rows(ROWS, ["grouping"])
    lines = render_table(rows, run_tail_benchmark(rows, TailSizes(300, 1, 0.1), lambda line: None)).splitlines()
    (place,) = [index for index, line in enumerate(lines) if "measured apart" in line]
    assert lines[place + 1].split()[:2] == ["Flink", "2.3,"]


def test_the_first_twentieth_of_a_stream_is_left_out() -> None:
    figures = latency_figures("some", [10**12] * 5 + [number * 10**6 for number in range(1, 96)])
    assert figures == {"some_mean_ms": 48.0, "some_p50_ms": 48.0, "some_p99_ms": 95.0, "some_p999_ms": 95.0}


def test_a_row_of_ones_own_needs_no_other() -> None:
    def contests(sizes: TailSizes) -> list[Contest]:
        return [Contest("mine", lambda: {"mine_mean_ms": 1.0, "mine_sim_mean_ms": 2.0})]

    row = Row("mine", contests, lambda samples: {"half": [0.5]}, lambda result: [f"half {result['half']}"])
    result = run_tail_benchmark([row], SIZES, lambda line: None)
    assert (result["half"], result["mine_mean_ms_spread"]) == (0.5, [1.0, 1.0])
    assert render_table([row], result).startswith("half 0.5\n")


def test_a_row_that_is_not_there_is_told() -> None:
    with pytest.raises(OptionError, match=r"no such row: only=replays: did you mean replay\?$"):
        chosen_rows(ROWS, ["grouping", "replays"])


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["bench", "tail", *arguments])


def test_the_command_writes_json_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    file = tmp_path / "tail.json"
    done = run("--only", "balance", "--tuples", "200", "--repeats", "1", "--json", str(file))
    assert done.exit_code == 0, done.output
    assert json.loads(file.read_text())["rows"] == ["balance"]
    assert f"written to {file}" in done.output
    wrong = run("--only", "pigeons")
    assert wrong.exit_code == 1
    assert "no such row: only=pigeons" in wrong.output
    assert run("--tuples", "5").exit_code == 2
    assert "no such folder" in run("--json", "/no/where/tail.json").output
