"""The metrics endpoint: valid by a strict parser of our own, and by that of Prometheus."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import parser

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.metrics.counters import EdgeState, TaskCounters
from tailrace.metrics.edges import WatchedEdge
from tailrace.metrics.exposition import CONTENT_TYPE
from tailrace.metrics.families import FAMILIES, render
from tailrace.metrics.progress import Progress, ProgressBuilder, WorkerStatus
from tailrace.metrics.prometheus import serve_metrics

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
OPERATORS = [("lines", "source", 1), ("count", "map", 2), ("out", "sink", 1)]
TOPOLOGY = frozenset({("topology", "wordcount")})
HOSTILE = 'quote " back\\slash new\nline } # {é'

# -- a strict parser of the text format 0.0.4

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
HELP = re.compile(rf"# HELP (?P<name>{NAME}) (?P<text>(?:[^\\\n]|\\\\|\\n)+)")
TYPE = re.compile(rf"# TYPE (?P<name>{NAME}) (?P<kind>counter|gauge|histogram|summary|untyped)")
LABEL_NAME, LABEL_VALUE = r"[a-zA-Z_][a-zA-Z0-9_]*", r'(?:[^"\\\n]|\\\\|\\"|\\n)*'
LABEL = re.compile(rf'(?P<name>{LABEL_NAME})="(?P<value>{LABEL_VALUE})"')
LABELS = rf'{LABEL_NAME}="{LABEL_VALUE}"(?:,{LABEL_NAME}="{LABEL_VALUE}")*'
LINE = re.compile(rf"(?P<name>{NAME})(?:\{{(?P<labels>{LABELS})\}})? (?P<value>\S+)")
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Inf)|NaN")
SUFFIXES = {"summary": ("", "_sum", "_count"), "histogram": ("_bucket", "_sum", "_count")}
UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Key = tuple[str, frozenset[tuple[str, str]]]


@dataclass
class Parsed:
    """One family: its kind, and its samples by full name and labels."""

    kind: str
    help: str
    samples: dict[Key, float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Parsed]:
    """Every family by name. Raises AssertionError at the first line that is not exactly as the format wants it."""
    assert text == "" or text.endswith("\n"), "the last line must end too"
    families: dict[str, Parsed] = {}
    lines = iter(text.splitlines())
    current = ""
    for line in lines:
        announced = HELP.fullmatch(line)
        if announced:
            kind = TYPE.fullmatch(next(lines, ""))
            assert kind and kind["name"] == announced["name"], f"no TYPE after: {line}"
            current = announced["name"]
            assert current not in families, f"announced twice: {current}"
            families[current] = Parsed(kind["kind"], announced["text"])
        else:
            name, labels, value = parse_sample(line)
            family = families[current]
            assert name.removeprefix(current) in SUFFIXES.get(family.kind, ("",)), f"not of {current}: {line}"
            assert name.startswith(current), f"not of {current}: {line}"
            key = (name, frozenset(labels.items()))
            assert key not in family.samples, f"twice: {line}"
            family.samples[key] = value
    for name, family in families.items():
        check_family(name, family)
    return families


def parse_sample(line: str) -> tuple[str, dict[str, str], float]:
    match = LINE.fullmatch(line)
    assert match, f"not a sample: {line!r}"
    assert NUMBER.fullmatch(match["value"]), f"not a number: {line!r}"
    pairs = [(label["name"], unescape(label["value"])) for label in LABEL.finditer(match["labels"] or "")]
    assert len(dict(pairs)) == len(pairs), f"a label twice: {line!r}"
    return match["name"], dict(pairs), float(match["value"])


def unescape(value: str) -> str:
    return re.sub(r"\\.", lambda match: UNESCAPED[match[0]], value)


def check_family(name: str, family: Parsed) -> None:
    """Counters end in _total and never are negative; buckets ascend up to +Inf, which equals the count."""
    assert family.samples, f"no samples: {name}"
    assert name.endswith("_total") == (family.kind == "counter"), name
    if family.kind == "counter":
        assert min(family.samples.values()) >= 0
    if family.kind == "histogram":
        for (sample, labels), count in family.samples.items():
            if sample == f"{name}_count":
                check_buckets(name, family, labels, count)


def check_buckets(name: str, family: Parsed, labels: frozenset[tuple[str, str]], count: float) -> None:
    found = []
    for (sample, own), value in family.samples.items():
        bound = dict(own).get("le")
        if sample == f"{name}_bucket" and bound is not None and own - {("le", bound)} == labels:
            found.append((float(bound), value))
    values = [value for _, value in found]
    assert [bound for bound, _ in found] == sorted({bound for bound, _ in found}), found
    assert values == sorted(values), found
    assert found[-1] == (float("inf"), count), found


@pytest.mark.parametrize(
    "text",
    [
        "a 1",  # no newline
        "a 1\n",  # no family
        "# HELP a b\na 1\n",
        "# HELP a b\n# TYPE b gauge\nb 1\n",
        "# HELP a b\n# TYPE a gauge\n",
        "# HELP a b\n# TYPE a gauge\na 1\na 1\n",
        "# HELP a b\n# TYPE a gauge\na_sum 1\n",
        "# HELP a b\n# TYPE a gauge\na None\n",
        "# HELP a b\n# TYPE a gauge\na 1 \n",
        '# HELP a b\n# TYPE a gauge\na{b="c"d"} 1\n',
        '# HELP a b\n# TYPE a gauge\na{b="\\t"} 1\n',
        "# HELP a b\n# TYPE a counter\na 1\n",
        '# HELP a b\n# TYPE a histogram\na_bucket{le="+Inf"} 1\na_sum 1\na_count 2\n',
    ],
)
def test_the_parser_is_strict(text: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        parse(text)


# -- rendering


def a_run(name: str = "wordcount", operators: list[tuple[str, str, int]] = OPERATORS) -> Progress:
    """A run of 75 s with a bit of everything; of the second count task nothing was heard yet."""
    source, counter, _ = (operator for operator, _, _ in operators)
    edges = {0: WatchedEdge(source, counter, "least_work")}
    builder = ProgressBuilder("run-1", "job-1", name, operators, started_ns=0, edges=edges, calling=[counter])
    lines, count, out = (TaskCounters(operator, 0, worker=i % 2) for i, (operator, _, _) in enumerate(operators))
    lines.received = lines.emitted = 1_000
    lines.completed, lines.durable, lines.pending, lines.reemitted = 900, 800, 200, 50
    lines.complete.record_many([2 * MILLISECOND_NS] * 90 + [40 * MILLISECOND_NS] * 9 + [700 * MILLISECOND_NS])
    lines.durable_latency.record_many([100 * MILLISECOND_NS] * 80)
    count.received, count.emitted, count.queued, count.skipped, count.dead_letters = 990, 980, 7, 6, 5
    count.busy_ns, count.blocked_ns, count.cpu_ns = SECOND_NS, 250 * MILLISECOND_NS, 700 * MILLISECOND_NS
    count.execution.record_many([MILLISECOND_NS, 3 * MILLISECOND_NS])
    count.calls, count.call_retries, count.limit_wait_ns = 980, 12, 1_500 * MILLISECOND_NS
    out.duplicates = 4
    lines.hedges, lines.hedges_won, lines.hedges_wasted = 30, 20, 9
    lines.timeout_ns, lines.hedges_left = 12 * MILLISECOND_NS, 3.5
    count.unrun, count.unrun_hedges = 18, 7
    lines.edges = (EdgeState(0, 11, 2, 5, 10 * MILLISECOND_NS),)
    for task in (lines, count, out):
        builder.update(task.worker, 1, [task.snapshot()])
    workers = [
        WorkerStatus(0, 1, 11, "node-a", 0, 40.0, "running"),
        WorkerStatus(1, 3, None, None, 2, 20.5, "lost"),
    ]
    return builder.build(75 * SECOND_NS, "2026-01-01T00:01:15Z", workers, 2, ["count"])


def value(families: dict[str, Parsed], name: str, family: str = "", **labels: str) -> float:
    wanted = frozenset({"topology": "wordcount", **labels}.items())
    return families[family or name].samples[name, wanted]


def test_what_a_load_aware_grouping_does_is_told_by_edge() -> None:
    families = parse(render(a_run()))
    labels = {"from": "lines", "to": "count", "grouping": "least_work"}
    names = ("held_tuples", "credits", "estimate_seconds", "measured_seconds", "least_share_ratio", "most_share_ratio")
    found = [value(families, f"tailrace_edge_{name}", **labels) for name in names]
    assert found == [11, 2, 0.002, pytest.approx(1 / 990), 0, 1]


def test_every_metric_is_there_and_valid() -> None:
    families = parse(render(a_run()))
    assert [(name, found.kind, found.help) for name, found in families.items()] == [
        (family.name, family.kind, family.help) for family in FAMILIES
    ]
    for family in FAMILIES:
        for _, labels in families[family.name].samples:
            assert {name for name, _ in labels} - {"le", "quantile"} == set(family.labels)


def test_numbers_of_the_run() -> None:
    families = parse(render(a_run()))
    found = {name: value(families, name) for name in families if list(families[name].samples) == [(name, TOPOLOGY)]}
    assert found == {
        "tailrace_run_active": 1,
        "tailrace_run_elapsed_seconds": 75,
        "tailrace_roots_pending": 200,
        "tailrace_roots_completed_total": 900,
        "tailrace_roots_durable_total": 800,
        "tailrace_roots_reemitted_total": 50,
        "tailrace_recoveries_total": 2,
        "tailrace_hedges_total": 30,
        "tailrace_hedges_won_total": 20,
        "tailrace_hedges_wasted_total": 9,
        "tailrace_cancelled_tuples_total": 25,
        "tailrace_hedge_timeout_seconds": 0.012,
        "tailrace_hedges_left": 3.5,
        "tailrace_state_lost_operators": 1,
        "tailrace_recent_complete_latency_p99_seconds": pytest.approx(0.04, rel=1 / 32),
        "tailrace_recent_durable_latency_p99_seconds": 0.1,
    }
    assert value(families, "tailrace_run_info", id="job-1", run_id="run-1") == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("received_total", 990),
        ("emitted_total", 980),
        ("skipped_total", 6),
        ("dead_letters_total", 5),
        ("duplicates_total", 0),
        ("queued_tuples", 7),
        ("busy_seconds_total", 0.004),  # the sum of execution times
        ("blocked_seconds_total", 0.25),
        ("cpu_seconds_total", 0.7),
    ],
)
def test_numbers_of_a_task(name: str, expected: float) -> None:
    families = parse(render(a_run()))
    assert value(families, f"tailrace_{name}", operator="count", task="0", worker="1") == expected
    tasks = {dict(labels)["task"] for _, labels in families[f"tailrace_{name}"].samples}
    assert tasks == {"0"}  # the one that has not reported is on no worker


def test_numbers_of_the_workers() -> None:
    families = parse(render(a_run()))
    names = ("up", "restarts_total", "cpu_seconds_total")
    found = [[value(families, f"tailrace_worker_{name}", worker=worker) for name in names] for worker in "01"]
    assert found == [[1, 0, 40], [0, 2, 20.5]]


def test_latency_as_a_summary() -> None:
    name = "tailrace_complete_latency_seconds"
    families = parse(render(a_run()))
    quantiles = [value(families, name, quantile=quantile) for quantile in ("0.5", "0.9", "0.99", "0.999")]
    assert quantiles == pytest.approx([0.002, 0.002, 0.04, 0.7], rel=1 / 32)
    assert value(families, f"{name}_count", name) == 100
    assert value(families, f"{name}_sum", name) == pytest.approx(0.18 + 0.36 + 0.7)


def test_a_summary_of_nothing_has_no_quantiles() -> None:
    families = parse(render(a_run()))
    found = families["tailrace_execution_seconds"].samples
    assert {name for name, labels in found if ("operator", "out") in labels} == {
        "tailrace_execution_seconds_sum",
        "tailrace_execution_seconds_count",
    }


@pytest.mark.parametrize(
    ("latency", "counts", "total"),
    [
        # 2 ms lies in a fine bucket that ends above 2 ms: it counts below the bound after
        ("complete", [0, 0, 90, 90, 99, 99, 100, 100, 100], 0.18 + 0.36 + 0.7),
        ("durable", [0, 0, 0, 0, 0, 80, 80, 80, 80], 8),
    ],
)
def test_latency_as_a_histogram(latency: str, counts: list[int], total: float) -> None:
    name = f"tailrace_{latency}_latency_histogram_seconds"
    families = parse(render(a_run()))
    bounds = ("0.001", "0.002", "0.005", "0.02", "0.05", "0.5", "1", "500", "+Inf")
    assert [value(families, f"{name}_bucket", name, le=bound) for bound in bounds] == counts
    assert value(families, f"{name}_count", name) == counts[-1]
    assert value(families, f"{name}_sum", name) == pytest.approx(total)


def test_a_latency_beyond_all_bounds_counts_below_infinity() -> None:
    builder, source = ProgressBuilder("r", "j", "wordcount", OPERATORS, started_ns=0), TaskCounters("lines", 0, 0)
    source.complete.record_many([480 * SECOND_NS, 501 * SECOND_NS])
    builder.update(0, 1, [source.snapshot()])
    families = parse(render(builder.build(SECOND_NS, "", [], 0, [])))
    name = "tailrace_complete_latency_histogram_seconds"
    assert [value(families, f"{name}_bucket", name, le=bound) for bound in ("200", "500", "+Inf")] == [0, 1, 2]


def test_nothing_that_grows_steps_back_when_a_worker_dies() -> None:
    """Its successor counts from zero, is elsewhere on the time axis, and hears of slower and quicker roots."""
    builder = ProgressBuilder("r", "j", "wordcount", OPERATORS, started_ns=0)
    scrapes = []
    for epoch, latencies in enumerate(([2, 900], [1], [0.05, 200_000], [950]), start=1):
        source, count = TaskCounters("lines", 0, worker=0), TaskCounters("count", 0, worker=0)
        for ms in latencies:  # a scrape after each, so that the largest moves within its bucket too
            source.complete.record(round(ms * MILLISECOND_NS))
            source.durable_latency.record(round(2 * ms * MILLISECOND_NS))
            count.execution.record(round(ms * MILLISECOND_NS))
            source.received, source.completed, source.durable, count.cpu_ns = 1, 1, 1, 1_000
            builder.update(0, epoch, [source.snapshot(), count.snapshot()])
            progress = builder.build(epoch * SECOND_NS, "", [WorkerStatus(0, epoch, 1, "a", epoch - 1, 1, "up")], 0, [])
            scrapes.append(grown(parse(render(progress))))
    for earlier, later in pairwise(scrapes):
        assert earlier.keys() <= later.keys()
        assert not [key for key in earlier if later[key] < earlier[key]]
    assert scrapes[-1]["tailrace_complete_latency_histogram_seconds_count", TOPOLOGY] == 6


def grown(families: dict[str, Parsed]) -> dict[Key, float]:
    """Everything that may only grow: counters, and of distributions all but the quantiles."""
    return {
        key: number
        for name, family in families.items()
        for key, number in family.samples.items()
        if family.kind == "counter" or key[0] != name
    }


def test_label_values_are_escaped() -> None:
    operators = [(HOSTILE, "source", 1), ("count", "map", 1), ("out", "sink", 1)]
    families = parse(render(a_run(HOSTILE, operators)))
    labels = {tuple(sorted(labels)) for _, labels in families["tailrace_received_total"].samples}
    assert (("operator", HOSTILE), ("task", "0"), ("topology", HOSTILE), ("worker", "0")) in labels


def test_a_name_that_has_no_utf8_does_not_end_the_scrape() -> None:
    text = render({"name": "bad \udc80 name"})
    assert 'topology="bad ? name"' in text
    text.encode("utf-8")


def test_no_progress_yet() -> None:
    assert list(parse(render({"name": "wordcount", "id": "a", "runId": "b"}))) == [
        "tailrace_run_info",
        "tailrace_run_active",
    ]


def test_an_ended_run_is_not_active() -> None:
    assert value(parse(render(a_run(), active=False)), "tailrace_run_active") == 0


def test_prometheus_agrees() -> None:
    operators = [(HOSTILE, "source", 1), ("count", "map", 1), ("out", "sink", 1)]
    text = render(a_run(HOSTILE, operators))
    theirs = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert theirs == {key: value for family in parse(text).values() for key, value in family.samples.items()}


# -- documentation


def test_the_docs_list_every_metric_as_it_is() -> None:
    rows = re.findall(r"^\| `(tailrace_\w+)` \| (\w+) \| ([^|]*) \| (.*) \|$", DOCS.read_text("utf-8"), re.MULTILINE)
    documented = [(name, kind, labels.replace("`", "").split(", ")) for name, kind, labels, _ in rows]
    assert documented == [(family.name, family.kind, list(family.labels)) for family in FAMILIES]
    assert [meaning for *_, meaning in rows] == [family.help for family in FAMILIES]


# -- serving


class FakeRun:
    name, id, runId, isActive = "wordcount", "job-1", "run-1", True

    def __init__(self, progress: Progress | None = None) -> None:
        self.lastProgress = progress


@pytest.fixture
def get() -> Iterator[Any]:
    servers = []

    def serve(run: Any) -> Any:
        server = serve_metrics(run, 0)
        servers.append(server)

        def fetch(path: str) -> Any:
            return urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10)

        return fetch

    yield serve
    for server in servers:
        server.close()


def test_serves_what_render_gives(get: Any) -> None:
    run = FakeRun(a_run())
    with get(run)("/metrics") as response:
        assert response.headers["Content-Type"] == CONTENT_TYPE
        assert response.read().decode("utf-8") == render(a_run())


def test_serves_before_the_first_progress_and_after_the_end(get: Any) -> None:
    run = FakeRun()
    fetch = get(run)
    families = parse(fetch("/metrics").read().decode("utf-8"))
    assert value(families, "tailrace_run_info", id="job-1", run_id="run-1") == 1
    assert "tailrace_roots_pending" not in families
    run.lastProgress, run.isActive = a_run(), False
    families = parse(fetch("/metrics?again").read().decode("utf-8"))
    assert (value(families, "tailrace_run_active"), value(families, "tailrace_roots_pending")) == (0, 200)


def test_serves_anything_with_a_last_progress(get: Any) -> None:
    class Bare:
        lastProgress = None

    assert 'tailrace_run_active{topology=""} 1' in get(Bare())("/metrics").read().decode("utf-8")


def test_the_root_leads_to_the_metrics(get: Any) -> None:
    assert b'href="/metrics"' in get(FakeRun())("/").read()


@pytest.mark.parametrize("path", ["/metrics/", "/favicon.ico", "/../etc/passwd"])
def test_nothing_else_is_there(get: Any, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(FakeRun())(path)


def test_port_is_taken() -> None:
    with serve_metrics(FakeRun(), 0) as server, pytest.raises(OSError) as caught:
        serve_metrics(FakeRun(), server.port)
    assert str(caught.value) == f"port is taken: port={server.port}; is another run using it?"


@pytest.mark.parametrize(("port", "address"), [(70_000, "127.0.0.1"), (0, "192.0.2.1"), (0, "no such host")])
def test_cannot_listen(port: int, address: str) -> None:
    with pytest.raises(OSError, match=f"cannot listen: address={address} port={port}; "):
        serve_metrics(FakeRun(), port, address)


def test_closing_frees_the_port_and_may_be_repeated() -> None:
    server = serve_metrics(FakeRun(), 0)
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), 1)
    serve_metrics(FakeRun(), server.port).close()


def test_a_silent_client_does_not_hold_up_others() -> None:
    with serve_metrics(FakeRun(), 0) as server, socket.create_connection(("127.0.0.1", server.port), 1):
        assert urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5).status == 200
