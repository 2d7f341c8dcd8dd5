"""Word count on sentences of 1 to 32 words (Hone, TPDS 2021): splitting a sentence costs a unit a word."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from tailrace.policy import Grouping, fields
from tailrace.topology import Stream
from tailrace_research.bench.engine.sentences import MAX_WORDS, sentences
from tailrace_research.bench.workloads.timetable import Item
from tailrace_research.bench.workloads.working import Splitting
from tailrace_research.bench.workloads.workload import Declare, Draw, Workload


def words_in(sentence: str) -> int:
    return sentence.count(" ") + 1


def cost_ns(unit_ns: int, sentence: str) -> int:
    return words_in(sentence) * unit_ns


def word_of(item: Item) -> str:
    _, _, (_, word) = item
    return str(word)


def place_of(body: tuple[int, tuple[str, int]]) -> int:
    return body[0]


class RunningCount:
    """Each word with how often this task has seen it."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def process(self, item: Item) -> Item:
        index, due_ns, (place, word) = item
        self._counts[word] += 1
        return index, due_ns, (place, (word, self._counts[word]))


@dataclass(frozen=True)
class Counting:
    """The words that are counted, and the tasks that count them."""

    most_words: int = MAX_WORDS  # in a sentence
    grouping: Grouping = field(default_factory=partial(fields, word_of))  # of words
    tasks: int | None = None  # that count; None: as many as split
    rate_per_s: float | None = None  # of sentences; None: by the load that they are for the tasks that split


def word_count(draw: Draw, counting: Counting | None = None) -> Workload:
    counting = counting or Counting()
    bodies = tuple(sentences(draw.seed, draw.tuples, counting.most_words))
    lengths = tuple(map(words_in, bodies))
    works_ns = tuple(words * draw.unit_ns for words in lengths)
    rate = counting.rate_per_s
    due_ns = draw.due_by_load_ns(works_ns) if rate is None else draw.due_ns(rate)
    build = partial(_build, draw.unit_ns, counting)
    return Workload("word-count", draw, bodies, lengths, works_ns, due_ns, build, words_in)


def _build(unit_ns: int, counting: Counting, stream: Stream, declare: Declare) -> None:
    setup, tasks = declare.setup, declare.draw.tasks
    split = partial(Splitting, declare.work(partial(cost_ns, unit_ns), str.split))
    words = stream.flat_map("split", split, tasks=tasks, grouping=setup.grouping, kind=setup.means.kind)
    grouping = counting.grouping
    counts = words.map("count", RunningCount, tasks=counting.tasks or tasks, grouping=grouping, stateful=grouping.keyed)
    declare.end(counts, part_of=place_of)
