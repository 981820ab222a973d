"""Kneser-Ney against the formulas written out with dictionaries."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from elmokit.errors import InputError
from elmokit.score.kneser_ney import KneserNey, Stream, to_stream
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules
from elmokit.text.vocab import Vocab

BEGIN, END = 0, 1
NUM_WORDS = 12


def as_stream(sentences: list[list[int]], begin: int = BEGIN, end: int = END) -> Stream:
    rows = [[begin, *sentence, end] for sentence in sentences]
    words = np.array([word for row in rows for word in row], dtype=np.int32)
    return Stream(words, np.array([place for row in rows for place in range(len(row))], dtype=np.int32))


def some_sentences(seed: int, count: int) -> list[list[int]]:
    """Words that depend on those before, so that long n-grams come back."""
    random = np.random.default_rng(seed)
    follow = random.dirichlet(np.full(NUM_WORDS - 3, 0.3), size=NUM_WORDS)
    sentences = []
    for _ in range(count):
        sentence, word = [], 2
        for _ in range(random.integers(1, 9)):
            word = 3 + int(random.choice(NUM_WORDS - 3, p=follow[word]))
            sentence.append(word)
        sentences.append(sentence)
    return sentences


class Oracle:
    """The recursion of Chen and Goodman (1998), section 2.7 and 4.1.6, word by word."""

    def __init__(self, sentences: list[list[int]], order: int, begin: int, end: int) -> None:
        self.order = order
        rows = [(begin, *sentence, end) for sentence in sentences]
        raw = Counter(
            row[end - length : end]
            for row in rows
            for length in range(1, order + 1)
            for end in range(length, len(row) + 1)
        )
        self.counts: dict[tuple[int, ...], int] = {}
        for gram, count in raw.items():
            if gram == (begin,):
                continue
            if len(gram) < order and gram[0] != begin:
                count = sum(1 for other in raw if other[1:] == gram and len(other) == len(gram) + 1)
            self.counts[gram] = count
        self.following = defaultdict(list)
        for gram, count in self.counts.items():
            self.following[gram[:-1], len(gram)].append(count)

    def discount(self, length: int, count: int) -> float:
        having = Counter(count for gram, count in self.counts.items() if len(gram) == length)
        if not all(having[size] for size in (1, 2, 3, 4)):
            return 0.5
        share = having[1] / (having[1] + 2 * having[2])
        size = min(count, 3)
        return min(max(size - (size + 1) * share * having[size + 1] / having[size], 0), size)

    def probability(self, word: int, context: tuple[int, ...]) -> float:
        context = context[max(0, len(context) - self.order + 1) :]
        lower = self.probability(word, context[1:]) if context else 1 / (NUM_WORDS - 1)
        counts = self.following.get((context, len(context) + 1))
        if not counts:
            return lower
        length = len(context) + 1
        count = self.counts.get((*context, word), 0)
        own = count - self.discount(length, count) if count else 0.0
        kept_back = sum(self.discount(length, count) for count in counts)
        return (own + kept_back * lower) / sum(counts)


@pytest.mark.parametrize(("begin", "end"), [(BEGIN, END), (END, BEGIN)])
@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_are_those_of_the_formulas(order: int, begin: int, end: int):
    learned, unseen = some_sentences(0, 60), some_sentences(1, 20)
    oracle = Oracle(learned, order, begin, end)
    model = KneserNey.learn(as_stream(learned, begin, end), order=order, num_words=NUM_WORDS)
    found = model.log_probabilities(as_stream(unseen, begin, end))
    expected = [
        math.log(oracle.probability(row[place], row[:place]))
        for row in [(begin, *sentence, end) for sentence in unseen]
        for place in range(1, len(row))
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize(("begin", "end"), [(BEGIN, END), (END, BEGIN)])
@pytest.mark.parametrize("context", [[], [3], [4, 3], [5, 6, 7, 8], [11, 11, 11]])
def test_what_can_follow_sums_to_one(context: list[int], begin: int, end: int):
    model = KneserNey.learn(as_stream(some_sentences(0, 60), begin, end), order=4, num_words=NUM_WORDS)
    total = 0.0
    for word in set(range(NUM_WORDS)) - {begin}:
        text = Stream(np.array([begin, *context, word]), np.arange(len(context) + 2))
        total += math.exp(model.log_probabilities(text)[-1])
    assert total == pytest.approx(1.0, abs=1e-12)


def test_a_prepared_text_becomes_a_stream_in_either_direction(tmp_path):
    (tmp_path / "text").write_text("a b a\nc a\n")
    corpus = prepare_corpus([tmp_path / "text"], tmp_path / "corpus", rules=TextRules(tokenized=True))
    vocab = Vocab(["<S>", "</S>", "<UNK>", "a", "b"])
    forward, backward = to_stream(corpus, vocab), to_stream(corpus, vocab, reverse=True)
    assert forward.words.tolist() == [0, 3, 4, 3, 1, 0, 2, 3, 1]
    assert forward.places.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert backward.words.tolist() == [1, 3, 2, 0, 1, 3, 4, 3, 0]
    assert backward.places.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4]


def test_a_text_with_few_distinct_counts_is_modeled_too():
    model = KneserNey.learn(as_stream([[3, 4]]), order=3, num_words=NUM_WORDS)
    seen, unseen = (model.log_probabilities(as_stream([words])).sum() for words in ([3, 4], [4, 3]))
    assert unseen < seen < 0


def test_an_order_longer_than_every_sentence_is_modeled_too():
    learned = [[3], [3], [4]]
    oracle = Oracle(learned, 6, BEGIN, END)
    model = KneserNey.learn(as_stream(learned), order=6, num_words=NUM_WORDS)
    row = (BEGIN, 3, 4, 3, 4, 3, 4, END)
    expected = [math.log(oracle.probability(row[place], row[:place])) for place in range(1, len(row))]
    np.testing.assert_allclose(model.log_probabilities(as_stream([list(row[1:-1])])), expected, rtol=1e-10)


def test_impossible_orders_and_words_are_rejected():
    with pytest.raises(InputError, match="order 0; expected 1 or more"):
        KneserNey.learn(as_stream([[3]]), order=0, num_words=NUM_WORDS)
    with pytest.raises(InputError, match="1 words; expected 2 to 1,048,576"):
        KneserNey.learn(as_stream([[3]]), order=2, num_words=1)
