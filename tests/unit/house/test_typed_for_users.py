"""What a type checker tells users: mistakes are reported, good code passes without a cast.

One run of mypy checks two scripts written here, all examples, and all code in the documents.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python(?: spark)?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
REPORT = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$")

UNTYPED = {"no-untyped-def", "no-untyped-call", "no-any-return", "var-annotated", "type-arg", "import-untyped"}
"""Reports about functions without annotations, which code in the documents may have: it is read more than checked."""

GOOD = """
from collections.abc import Iterator
from functools import partial
from typing import Any, Unpack, assert_type

import tailrace as tr
from tailrace.connector import Record, SplitStart


class Frame:  # as pyspark's DataFrame, which needs not be there
    schema = None
    isStreaming = False
    sparkSession = None


class Columns:  # as pyspark's StructType
    def fieldNames(self) -> list[str]:
        return ["id"]


class Count:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def open(self, context: tr.Context) -> None:
        print(context.task)

    def process(self, word: str) -> tuple[str, int]:
        self.counts[word] = self.counts.get(word, 0) + 1
        return word, self.counts[word]


class LookUp:
    def __init__(self, path: str) -> None:
        self.path = path

    async def process(self, word: str) -> float:
        return len(word) / 2


class Numbers:
    replayable = True

    def splits(self, tasks: int) -> list[str]:
        return ["all"]

    def open(self, start: SplitStart) -> "NumbersReader":
        return NumbersReader()


class NumbersReader:
    ready_ns = 0
    done = False

    def poll(self, limit: int, now_ns: int) -> list[Record[int]]:
        return [Record(0, 0, 1)]

    def close(self) -> None:
        pass


async def ask(port: int, word: str) -> bytes:
    return word.encode()


def parts(word: str) -> Iterator[bytes]:
    yield word.encode()


def score(batch: list[str]) -> list[float]:
    return [0.5 for _ in batch]


def untyped(word):  # type: ignore[no-untyped-def]
    return word


def stage(stream: tr.Stream, name: str, kind: tr.TaskKind, grouping: tr.Grouping) -> tr.Stream:
    return stream.map(name, untyped, kind=kind, grouping=grouping)


def start(topology: tr.Topology, **options: Unpack[tr.RunOptions]) -> tr.Run:
    return topology.run(**options)


topology = tr.Topology("words")
lines = topology.source("lines", tr.from_iterable(["the mill"]), tasks=2)
assert_type(lines, tr.Stream[str])
words = lines.flat_map("split", str.split, tasks=2, on_error="dead_letter")
assert_type(words, tr.Stream[str])
assert_type(topology.source("files", tr.from_lines("*.txt")), tr.Stream[str])
assert_type(topology.source("rate", tr.at_rate(lambda split, splits: range(split, 9, splits), 5)), tr.Stream[int])
assert_type(topology.source("own", Numbers(), kind="blocking"), tr.Stream[int])
assert_type(words.map("count", Count, grouping=tr.fields(lambda word: word), stateful=True), tr.Stream[tuple[str, int]])
assert_type(words.map("look_up", partial(LookUp, "path"), concurrency=8), tr.Stream[float])
assert_type(words.map("ask", partial(ask, 80)), tr.Stream[bytes])
assert_type(words.map("len", len), tr.Stream[int])
assert_type(words.map("slow", len, calls=tr.Calls(timeout_s=2, retries=3)), tr.Stream[int])
assert_type(words.map("parse", int), tr.Stream[int])
assert_type(words.map("lambda", lambda word: word.upper()), tr.Stream[str])
assert_type(words.map("untyped", untyped), tr.Stream[Any])
assert_type(words.flat_map("parts", parts), tr.Stream[bytes])
assert_type(words.map_batch("score", score, max_size=8, tasks=2), tr.Stream[float])
assert_type(words.filter("long", lambda word: len(word) > 3), tr.Stream[str])
assert_type(words.dead_letters, tr.Stream[tr.DeadLetter])
assert_type(tr.union(words, words.map("size", len)), tr.Stream[str | int])
assert_type(stage(words, "x", "blocking", tr.shuffle()), tr.Stream[Any])

out: list[str] = []
words.sink("list", tr.to_list(out), grouping=tr.local())
words.sink("new", tr.to_list())
words.sink("print", tr.to_call(print))
words.sink("class", tr.to_call(Count))
words.sink("jsonl", tr.to_jsonl("rows/"))
words.sink("parquet", tr.to_parquet("rows/", schema="word string", compression="zstd"))

step = tr.Topology("step")
rows = step.input("rows", tasks=2)
assert_type(rows, tr.Stream[dict[str, Any]])
rows.filter("some", lambda row: row["id"] > 3, tasks=4).output("some", tasks=2, on_error="skip")
assert_type(step.apply(Frame(), "id long", workers=8, folder="/mnt/shared", splits=8, watch=True), Frame)
assert_type(step.apply(Frame(), Columns(), checkpoint="state/"), Frame)

with start(topology, workers=2, checkpoint="state/", tail=tr.Tail(hedge=tr.adaptive_timeout())) as run:
    assert_type(run, tr.Run)
    print(run.id, run.isActive, run.awaitTermination(1), run.lastProgress["latencyMs"]["complete"])
    print(run.tail(shared_queues="worker", send=None).names(), run.exception())
    tr.watch(run)
"""

BAD = """
from typing import Any

import tailrace as tr

frame: Any = None
topology = tr.Topology("words")
words = topology.source("words", tr.from_iterable(["the", "mill"]))
run = topology.run(workers=2)


def half(number: int) -> float:
    return number / 2


run.nosuchmethod()  # attr-defined
run.isActive()  # operator
run.tail(sned=None)  # call-arg
run.tail(shared_queues="rack")  # arg-type
topology.run(chekpoint="state/")  # call-arg
topology.run(workers="two")  # arg-type
topology.run(link_scope="rack")  # arg-type
topology.run(4)  # arg-type
topology.source("numbers", [1, 2, 3])  # arg-type
topology.source("files", tr.from_lines("*.txt"), kind="async")  # arg-type
words.map("x", 42)  # call-overload
words.map("x", half)  # arg-type
words.map("x", len, kind="gpu")  # call-overload
words.map("x", len, taks=2)  # call-overload
words.map("x", lambda word: word.nosuchmethod())  # attr-defined
words.flat_map("x", len)  # arg-type
words.sink("x", print)  # arg-type
words.sink("x", tr.to_call(half))  # arg-type
words.sink("x", tr.to_jsonl("rows/"), on_error="ignore")  # arg-type
topology.input("x", taks=2)  # call-arg
words.output("x", on_error="ignore")  # arg-type
topology.apply([1, 2, 3], "id long")  # type-var
topology.apply(frame, "id long", chekpoint="state/")  # call-arg
topology.apply(frame, 5)  # arg-type
tr.Tail(replai=None)  # call-arg
tr.Tail(shared_queues="rack")  # arg-type
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[tuple[int, str]]]:
    """Line and code of each error, by file."""
    folder = tmp_path_factory.mktemp("typed")
    (folder / "good.py").write_text(GOOD, "utf-8")
    (folder / "bad.py").write_text(BAD, "utf-8")
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
            (folder / f"page_{name}_{line}.py").write_text(match["code"], "utf-8")
    files = [*folder.glob("*.py"), *(ROOT / "examples").glob("*.py")]
    options = [
        "--strict",
        "--hide-error-context",
        "--no-error-summary",
        "--config-file=",
        f"--cache-dir={folder}/cache",
    ]
    command = [sys.executable, "-m", "mypy", *options, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=240)
    assert not done.stderr, done.stderr
    assert done.returncode in (0, 1), done.stdout
    found: dict[str, set[tuple[int, str]]] = defaultdict(set)
    for line in done.stdout.splitlines():
        report = REPORT.match(line)
        if report is not None:
            found[Path(report["file"]).stem].add((int(report["line"]), report["code"]))
    return found


def test_each_mistake_is_reported_and_nothing_else(reports: dict[str, set[tuple[int, str]]]) -> None:
    expected = {(number, line.rpartition("# ")[2]) for number, line in enumerate(BAD.splitlines(), 1) if "  # " in line}
    assert len(expected) > 20
    assert reports["bad"] == expected


def test_good_code_needs_no_cast(reports: dict[str, set[tuple[int, str]]]) -> None:
    assert reports["good"] == set()


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "examples").glob("*.py")))
def test_examples_are_typed(name: str, reports: dict[str, set[tuple[int, str]]]) -> None:
    assert reports[name] == set()


def test_code_in_the_documents_fits_the_types(reports: dict[str, set[tuple[int, str]]]) -> None:
    found = {
        (name, *report)
        for name, errors in reports.items()
        if name.startswith("page_")
        for report in errors
        if report[1] not in UNTYPED
    }
    assert found == set()
