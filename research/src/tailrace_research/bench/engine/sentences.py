"""Sentences for the word count: 1 to 32 words each, Zipf(1.0) over a vocabulary of 10,000.

The text is drawn once per seed and then repeated, so that a benchmark measures an engine and not a generator.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from random import Random

VOCABULARY = 10_000
MAX_WORDS = 32  # per sentence
DISTINCT_SENTENCES = 5_000  # about 82,500 words; rare words of the vocabulary do not all appear
_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in "aeiou"]


@functools.cache
def vocabulary() -> tuple[str, ...]:
    """All words, most frequent first. Like in a language, frequent words are short."""
    lengths = itertools.count(1)
    words = ("".join(letters) for length in lengths for letters in itertools.product(_SYLLABLES, repeat=length))
    return tuple(itertools.islice(words, VOCABULARY))


@functools.cache
def corpus(seed: int, most_words: int = MAX_WORDS) -> tuple[str, ...]:
    """The distinct sentences that ``sentences(seed, …)`` repeats."""
    rng = Random(seed)
    words = vocabulary()
    cumulative = list(itertools.accumulate(1.0 / rank for rank in range(1, VOCABULARY + 1)))
    return tuple(
        " ".join(rng.choices(words, cum_weights=cumulative, k=rng.randint(1, most_words)))
        for _ in range(DISTINCT_SENTENCES)
    )


def sentences(seed: int, count: int, most_words: int = MAX_WORDS) -> Iterator[str]:
    """The first ``count`` sentences for ``seed``: the same ones, in the same order, everywhere and every time."""
    return itertools.islice(itertools.cycle(corpus(seed, most_words)), count)


def count_words(seed: int, count: int) -> int:
    """How many words ``sentences(seed, count)`` holds, without going through them one by one."""
    lengths = [sentence.count(" ") + 1 for sentence in corpus(seed)]
    rounds, rest = divmod(count, DISTINCT_SENTENCES)
    return rounds * sum(lengths) + sum(lengths[:rest])
