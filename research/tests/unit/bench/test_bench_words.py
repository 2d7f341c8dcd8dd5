"""The text of the word count benchmark is the same for everyone, and shaped like a language."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from tailrace_research.bench.engine.sentences import (
    DISTINCT_SENTENCES,
    MAX_WORDS,
    VOCABULARY,
    corpus,
    count_words,
    sentences,
    vocabulary,
)


def test_the_vocabulary_has_distinct_words() -> None:
    assert len(set(vocabulary())) == VOCABULARY == 10_000


def test_a_seed_gives_one_text_for_ever() -> None:
    assert list(sentences(7, 100)) == list(sentences(7, 100))
    assert list(sentences(7, 100)) != list(sentences(8, 100))
    # Golden: a change of the text makes all earlier figures incomparable.
    assert next(sentences(1, 1)) == "bapi fabo ba be curo pe gi bo se"


def test_a_longer_text_begins_with_the_shorter_one_and_repeats() -> None:
    text = list(sentences(3, DISTINCT_SENTENCES + 10))
    assert len(text) == DISTINCT_SENTENCES + 10
    assert text[:50] == list(sentences(3, 50))
    assert text[DISTINCT_SENTENCES:] == text[:10]


def test_sentences_have_1_to_32_words_evenly() -> None:
    lengths = Counter(len(sentence.split()) for sentence in corpus(1))
    assert set(lengths) == set(range(1, MAX_WORDS + 1))
    expected = DISTINCT_SENTENCES / MAX_WORDS
    assert all(0.6 * expected < count < 1.4 * expected for count in lengths.values())


def test_words_follow_zipf() -> None:
    counts = Counter(word for sentence in corpus(1) for word in sentence.split())
    total = counts.total()
    harmonic = sum(1 / rank for rank in range(1, VOCABULARY + 1))
    for rank, word in enumerate(islice(vocabulary(), 8), start=1):
        expected = total / (rank * harmonic)
        assert 0.9 * expected < counts[word] < 1.1 * expected, f"rank={rank} word={word}"
    tail = sum(counts[word] for word in vocabulary()[1_000:])
    assert 0.2 < tail / total < 0.27  # 1 - H(1000) / H(10000) = 0.235


def test_count_words_agrees_with_counting() -> None:
    for count in (0, 1, 4_999, 5_000, 12_345):
        assert count_words(2, count) == sum(len(sentence.split()) for sentence in sentences(2, count))
