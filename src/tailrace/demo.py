"""The demo: a word count with a straggling operator, which loses a worker half-way and no row.

Every row names its sentence and position. The output files alone therefore show whether each arrived exactly once,
without relying on the engine.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from rich.console import Console
from rich.text import Text

from tailrace import Run, Topology, at_rate, fields, to_jsonl
from tailrace.dashboard import follow, render_summary
from tailrace.signals import exit_code

RATE = 150  # sentences per second: about 900 words, which two busy cores can handle
READERS = 2
QUICK_S, SLOW_S = 0.002, 0.080
SLOW_EVERY = 37  # prime, so that slow sentences reach all tasks
ROLL_S = 0.5
INTERVAL_S = 1.0
TEXT = (
    "the water of a river runs to the mill and turns its wheel while stone grinds grain to flour "
    "then the race carries what is left swiftly away past reeds under a bridge home"
)
WORDS = TEXT.split()

Sentence = tuple[int, str]


class Ending(NamedTuple):
    """How a run ended, and the exit code for that."""

    how: Literal["ended", "drained", "gave up"]
    code: int


class Word(NamedTuple):
    """A word of a sentence."""

    sentence: int
    position: int
    text: str


def sentence(number: int) -> Sentence:
    """The sentence with this number: always the same, so that the source is repeatable."""
    rng = Random(number)
    return number, " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 9)))


def read(total: int, split: int, splits: int) -> Iterator[Sentence]:
    """The sentences of one split: every ``splits``-th one."""
    return map(sentence, range(split, total, splits))


def look_up(value: Sentence) -> Sentence:
    """Imitates a call to a service: usually quick, but forty times slower for a few sentences."""
    time.sleep(SLOW_S if value[0] % SLOW_EVERY == 0 else QUICK_S)
    return value


def split_words(value: Sentence) -> list[Word]:
    """The words of a sentence."""
    number, text = value
    return [Word(number, position, word) for position, word in enumerate(text.split())]


def text_of(word: Word) -> str:
    """The key by which words are counted."""
    return word.text


class RunningCount:
    """Counts how often this task has seen each word."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def process(self, word: Word) -> dict[str, Any]:
        self._counts[word.text] += 1
        return {**word._asdict(), "count": self._counts[word.text]}


def build(folder: Path, total: int, workers: int) -> Topology:
    """The topology of the demo."""
    topology = Topology("demo")
    sentences = topology.source("sentences", at_rate(partial(read, total), RATE), tasks=READERS)
    known = sentences.map("look_up", look_up, tasks=workers)
    words = known.flat_map("split", split_words, tasks=workers)
    counts = words.map("count", RunningCount, tasks=workers, grouping=fields(text_of), stateful=True)
    counts.sink("out", to_jsonl(folder, roll_seconds=ROLL_S), tasks=2)
    return topology


@dataclass(frozen=True)
class Verdict:
    """The rows that were found in the output files, judged."""

    rows: int
    sentences: int
    doubled: int
    missing: int
    most_frequent: list[tuple[str, int]]

    @property
    def ok(self) -> bool:
        return not self.doubled and not self.missing

    def __str__(self) -> str:
        if self.ok:
            return f"{self.rows:,} rows, each exactly once"
        return f"NOT exactly once: {self.rows:,} rows, {self.doubled:,} doubled, {self.missing:,} missing"


def judge(folder: Path, total: int | None) -> Verdict:
    """Compare the files with the input: ``total`` sentences; if None, all up to the last one found of each split."""
    rows = [json.loads(line) for path in folder.glob("part-*.jsonl") for line in path.read_text("utf-8").splitlines()]
    seen = Counter(Word(row["sentence"], row["position"], row["text"]) for row in rows)
    expected = {word for number in _numbers(seen, total) for word in split_words(sentence(number))}
    return Verdict(
        rows=len(rows),
        sentences=len({word.sentence for word in seen}),
        doubled=len(rows) - len(seen),
        missing=len(expected - seen.keys()),
        most_frequent=Counter(row["text"] for row in rows).most_common(3),
    )


def _numbers(seen: Iterable[Word], total: int | None) -> Iterator[int]:
    if total is not None:
        yield from range(total)
        return
    last: dict[int, int] = {}
    for word in seen:
        reader = word.sentence % READERS
        last[reader] = max(last.get(reader, 0), word.sentence)
    for reader, number in last.items():
        yield from range(reader, number + 1, READERS)


class Killer(threading.Thread):
    """Kills a worker after a while, and prints that, and when all workers are back."""

    def __init__(self, run: Run, after_s: float, console: Console) -> None:
        super().__init__(name="demo-killer", daemon=True)
        self._run = run
        self._after_s = after_s
        self._console = console
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()
        self.join()

    def run(self) -> None:
        self._run.awaitRunning()
        if self._cancelled.wait(self._after_s):
            return
        pids = self._run.workerPids()
        if not pids:
            return
        victim = 1 if 1 in pids else min(pids)
        lost = _tasks_on(victim, self._run.lastProgress)
        with _suppressed_once(f"worker {victim} is gone"):
            os.kill(pids[victim], signal.SIGKILL)
            say(self._console, f"kill -9 {pids[victim]}: worker {victim} is gone, and with it {lost}", "bold red")
            self._await_return(victim)

    def _await_return(self, victim: int) -> None:
        while not self._cancelled.wait(0.05):
            progress = self._run.lastProgress
            if progress is not None and progress["recoveries"] and _all_running(progress):
                pid = progress["workers"][victim]["pid"]
                back = f"worker {victim} is back as process {pid}; what was under way is emitted again"
                say(self._console, back, "bold green")
                return


@contextmanager
def _suppressed_once(words: str) -> Iterator[None]:
    """Suppress the run's first log message that begins with these words, because the demo prints its own."""
    left = [words]

    def keep(record: logging.LogRecord) -> bool:
        matches = bool(left) and record.getMessage().startswith(left[0])
        if matches:
            left.clear()
        return not matches

    logger = logging.getLogger("tailrace")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def _all_running(progress: dict[str, Any]) -> bool:
    return all(worker["state"] == "running" for worker in progress["workers"])


def _tasks_on(worker: int, progress: dict[str, Any] | None) -> str:
    operators = progress["operators"] if progress else []
    labels = [
        f"{operator['name']}/{task['task']}"
        for operator in operators
        for task in operator["tasks"]
        if task["worker"] == worker
    ]
    return ", ".join(labels) or "all of its tasks"


def run_demo(seconds: float, workers: int, kill: bool, out: Path | None, console: Console, spark: Any = None) -> int:
    """Run the demo and check its output. Returns the exit code: 1 if a row is missing or doubled, or a signal's."""
    with _folder(out) as folder:
        total = max(1, round(seconds * RATE))
        topology = build(folder, total, workers)
        where = f"{workers} worker processes" if spark is None else f"{workers} workers, each a task of a local Spark"
        _print(console, f"{topology}\n\n{total:,} sentences at {RATE} a second, on {where}")
        _print(
            console, f"one sentence in {SLOW_EVERY} takes look_up {SLOW_S / QUICK_S:.0f} times as long as the rest\n"
        )
        run: Run = topology.run(spark, workers=workers)
        killer = Killer(run, seconds / 2, console)
        if kill:
            killer.start()
        ending = attend(run, lambda: follow(run, INTERVAL_S, console, summary_follows=True), console)
        if kill:
            killer.cancel()
        error = run.exception()
        if error is not None and ending.how != "gave up":
            raise error
        return _conclude(run, judge(folder, total if ending.how == "ended" else None), ending.code, out, console)


def attend(run: Run, show: Callable[[], None], console: Console) -> Ending:
    """Show a run until it ends. An error of the run is not raised.

    The first Ctrl-C or SIGTERM drains it, the second gives up.
    """
    try:
        show()
        return Ending("ended", 0)
    except KeyboardInterrupt as interrupt:
        code = exit_code(interrupt)
    except BaseException:
        run.stop(0)
        raise
    try:  # includes the message: a second Ctrl-C may follow at once
        _print(console, "\ndraining: what was read becomes durable, nothing more is read (Ctrl-C again to give up)")
        run.stop()
        return Ending("drained", code)
    except KeyboardInterrupt:
        _print(console, "giving up: what was not drained is left to a run that resumes from the checkpoint, if any")
        run.stop(0)
        return Ending("gave up", code)


def _conclude(run: Run, verdict: Verdict, code: int, out: Path | None, console: Console) -> int:
    progress = run.lastProgress
    assert progress is not None  # a run that has ended has at least one
    _print(console, f"\n{render_summary(progress)}\n")
    if progress["recoveries"]:
        dropped = progress["duplicatesDropped"]
        _print(
            console, f"what the loss cut short was emitted and counted again; sinks dropped {dropped:,} rows they had"
        )
    if progress["stateLost"]:
        lost = ", ".join(progress["stateLost"])
        _print(console, f"state is kept in memory only: a task of {lost} started again from zero")
    words = ", ".join(f"{word} {count:,}" for word, count in verdict.most_frequent)
    _print(console, f"most frequent, counted from the files: {words or 'nothing'}")
    _print(console, f"files: {out}" if out else "files: in a temporary folder, removed now; --out DIR keeps them")
    style = "bold green" if verdict.ok else "bold red"
    say(console, f"check: {verdict} ({verdict.sentences:,} sentences)", style)
    return code or (0 if verdict.ok else 1)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as name:
        yield Path(name)


def say(console: Console, words: str, style: str) -> None:
    """Print in colour. The style is part of the text: given to the console, it would colour the live table too."""
    console.print(Text(words, style), soft_wrap=True)


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
