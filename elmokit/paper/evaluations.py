"""Evaluations of the layers themselves: neighbors of *play* (Table 4), word senses (Table 5), tags (Table 6).

Each returns JSON values: one number per layer, and the score of every test instance (``answers``).

Shapes: N occurrences, L layers, D width.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.pos_probe import Column, PosData, probe_pos
from elmokit.analysis.wsd import answer_senses, join_answers, learn_senses
from elmokit.embed.picking import Layer
from elmokit.encoders.layer_sources import LayerSource
from elmokit.encoders.static_vectors import StaticVectors
from elmokit.errors import InputError
from elmokit.paper.instances import pack_bits
from elmokit.paper.plan import NEIGHBORS, SENSES, SIGNALS, TAGS, PaperRun
from elmokit.readers.conllu import read_conllu
from elmokit.readers.wsd import SenseSentence, read_sense_index, read_wsd

SEMCOR = ("wsd/semcor.data.xml", "wsd/semcor.gold.key.txt")
TEST_SETS = ("senseval2", "senseval3", "semeval2013", "semeval2015")
FILES = {
    "play": SEMCOR,
    "wsd": (
        *SEMCOR,
        "wsd/wordnet3.0.index.sense",
        *(f"wsd/{name}/{name}.{end}" for name in TEST_SETS for end in ("data.xml", "gold.key.txt")),
    ),
    **dict.fromkeys(("pos", *SIGNALS), tuple(f"pos/en_ewt-ud-{part}.conllu" for part in ("train", "dev", "test"))),
}
"""Files of the evaluations, below the data folder."""

COLUMNS: dict[str, Column] = {"pos": "xpos", "upos": "upos", "direction": "direction", "relation": "deprel"}
"""Column of CoNLL-U that a row of Table 6 predicts."""
WORD = "play"
QUERIES = {
    "Chico Ruiz made a spectacular play": "Kieffer , the only junior in the group",
    "Olivia De Havilland signed to do a Broadway play": "actors who had been handed fat roles in a successful play",
}
"""The paper's queries, and the nearest neighbors that it publishes: parts of SemCor's sentences."""
DIGITS = 6  # decimals of a cosine that float32 can distinguish

Progress = Callable[[int], None]
Cosines = NDArray[np.float64]


def evaluate(run: PaperRun, source: LayerSource, files: Sequence[Path], *, progress: Progress) -> dict[str, Any]:
    """Evaluate a source of layers. ``progress`` is called with the number of tokens read so far."""
    if run.kind == TAGS:
        return probe_tags(source, files, progress, column=COLUMNS[run.row])
    return EVALUATIONS[run.kind](source, files, progress)


def find_play(source: LayerSource, files: Sequence[Path], progress: Progress) -> dict[str, Any]:
    """Return per layer the neighbors of the paper's queries, and the share of nearest neighbors with the same sense."""
    sentences = [sentence for sentence in read_wsd(files[0], files[1]) if WORD in sentence.tokens]
    places = [(one, at) for one in sentences for at, token in enumerate(one.tokens) if token == WORD]
    vectors_LND = _vectors(source, sentences, progress)
    cosines_LNN = np.stack([_cosines(vectors_ND) for vectors_ND in vectors_LND])
    ranks, nearest = {}, {}
    for query, answer in QUERIES.items():
        row, column = (_find(places, text) for text in (query, answer))
        ranks[query] = [_rank(cosines_NN[row], row, column) for cosines_NN in cosines_LNN]
        nearest[query] = [" ".join(places[_nearest(cosines_NN[row], row)][0].tokens) for cosines_NN in cosines_LNN]
    senses = [_sense(one, at) for one, at in places]
    tagged = [place for place, sense in enumerate(senses) if sense]
    found = [_shares_of_same([senses[place] for place in tagged], one[np.ix_(tagged, tagged)]) for one in cosines_LNN]
    chance = _shares_of_same([senses[place] for place in tagged], np.ones((len(tagged), len(tagged))))
    return {
        "ranks": ranks,
        "nearest": nearest,
        "same_sense": [float(np.mean(shares)) for shares in found],
        "chance": float(np.mean(chance)),
        "answers": found,
        "chance_answers": chance,
        "num_occurrences": len(places),
        "tagged": len(tagged),
    }


def score_word_senses(source: LayerSource, files: Sequence[Path], progress: Progress) -> dict[str, Any]:
    """Return the accuracy of the nearest sense per layer: all four test sets, each of them, and multi-word senses."""
    train, index = list(read_wsd(files[0], files[1])), read_sense_index(files[2])
    senses = learn_senses(source, train, progress=progress)
    tests = {name: list(read_wsd(files[3 + 2 * place], files[4 + 2 * place])) for place, name in enumerate(TEST_SETS)}
    answers = {name: answer_senses(source, senses, index, sentences) for name, sentences in tests.items()}
    together = join_answers(list(answers.values()))
    found: dict[str, Any] = {"all": asdict(together.scores())}
    for name, of_set in answers.items():
        found[name] = asdict(of_set.scores())
    if together.multi_word_N.any():
        found["multi-word"] = asdict(together.scores(multi_word=True))
    found["answers"] = [pack_bits(right_N) for right_N in together.right_LN]
    found["first_sense_answers"] = pack_bits(together.first_N)
    return found


def probe_tags(source: LayerSource, files: Sequence[Path], progress: Progress, *, column: Column) -> dict[str, Any]:
    """Return the accuracy of a linear classifier of a column per layer, on the dev and test part."""
    train, dev, test = (list(read_conllu(path)) for path in files)
    data = PosData(train, dev, test, column)

    def report(now: Any) -> None:
        progress(now.done)

    answers: dict[Layer, str] = {}

    def keep(layer: Layer, is_right_N: NDArray[np.bool_]) -> None:
        answers[layer] = pack_bits(is_right_N)

    found = probe_pos(source, data, progress=report, answers=keep)
    results = [result for result in found if result.layer != "mean"]
    return {
        "dev": [result.dev_accuracy for result in results],
        "test": [result.test_accuracy for result in results],
        "num_tokens": data.num_tokens("test"),
        "answers": [answers[result.layer] for result in results],
    }


def nearest_words(vectors: StaticVectors, *, count: int = 10) -> dict[str, Any]:
    """Return the words nearest to *play* by the cosine of their static vectors."""
    units_VD = vectors.matrix(unit_length=True)
    (row,) = vectors.rows([WORD], lower="never")
    if not row:
        raise InputError(f"the static vectors have no word {WORD!r}, whose neighbors Table 4 has")
    cosines_V = units_VD @ units_VD[row]
    cosines_V[[0, row]] = -np.inf
    return {"words": [vectors.words[index - 1] for index in (-cosines_V).argsort(kind="stable")[:count]]}


def cover(vectors: StaticVectors, sentences: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return how many tokens of a text have a static vector, and the most frequent words without one."""
    counts: dict[str, int] = {}
    for tokens in sentences:
        for token in tokens:
            counts[token.lower()] = counts.get(token.lower(), 0) + 1
    words = list(counts)
    rows = vectors.rows(words, lower="fallback")
    missing = [word for word, row in zip(words, rows, strict=True) if not row]
    frequent = sorted(missing, key=lambda word: (-counts[word], word))[:10]
    return {
        "num_tokens": sum(counts.values()),
        "num_covered": sum(counts.values()) - sum(counts[word] for word in missing),
        "missing": frequent,
    }


EVALUATIONS: dict[str, Callable[[LayerSource, Sequence[Path], Progress], dict[str, Any]]] = {
    NEIGHBORS: find_play,
    SENSES: score_word_senses,
}


def _vectors(source: LayerSource, sentences: Sequence[SenseSentence], progress: Progress) -> NDArray[np.float32]:
    """Return the vectors of all occurrences of the word, (L, N, D)."""
    found, num_tokens = [], 0
    layers = source.iter_layers(sentence.tokens for sentence in sentences)
    for sentence, layers_LTD in zip(sentences, layers, strict=True):
        found.append(layers_LTD[:, [at for at, token in enumerate(sentence.tokens) if token == WORD]])
        num_tokens += len(sentence.tokens)
        progress(num_tokens)
    return np.concatenate(found, axis=1)


def _cosines(vectors_ND: NDArray[np.float32]) -> Cosines:
    norms_N1 = np.linalg.norm(vectors_ND.astype(np.float64), axis=1, keepdims=True)
    units_ND = vectors_ND / np.where(norms_N1 > 0, norms_N1, 1)
    cosines: Cosines = (units_ND @ units_ND.T).round(DIGITS)
    return cosines


def _find(places: Sequence[tuple[SenseSentence, int]], text: str) -> int:
    for place, (sentence, _) in enumerate(places):
        if text in " ".join(sentence.tokens):
            return place
    raise InputError(
        f"SemCor has no sentence with {WORD!r} and {text!r}; expected SemCor 3.0 in the framework's format"
    )


def _rank(cosines_N: Cosines, query: int, answer: int) -> float:
    """Return the rank of an occurrence among the neighbors of a query, from 1; the mean rank of equals."""
    others = np.delete(cosines_N, query)
    wanted = cosines_N[answer]
    return float((others > wanted).sum() + ((others == wanted).sum() + 1) / 2)


def _nearest(cosines_N: Cosines, query: int) -> int:
    """Return the nearest neighbor of an occurrence, the first of equals."""
    others = cosines_N.copy()
    others[query] = -np.inf
    return int(others.argmax())


def _sense(sentence: SenseSentence, at: int) -> tuple[str, ...]:
    return next((one.senses for one in sentence.instances if (one.start, one.end) == (at, at + 1)), ())


def _shares_of_same(senses: Sequence[tuple[str, ...]], cosines_NN: Cosines) -> list[float]:
    """Return by occurrence the share of its nearest neighbors that have one of its senses: 0 or 1 but for ties."""
    shares = []
    for place, own in enumerate(senses):
        others_N = cosines_NN[place].copy()
        others_N[place] = -np.inf
        nearest = np.flatnonzero(others_N == others_N.max())
        shares.append(float(np.mean([bool(set(own) & set(senses[other])) for other in nearest.tolist()])))
    return shares
