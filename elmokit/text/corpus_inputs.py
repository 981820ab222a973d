"""Words of a corpus as the ids that a model reads: their characters, or their word ids.

Shapes: W words, C ids per word.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.text.corpus import Corpus
from elmokit.text.spelling import Dictionary
from elmokit.text.vocab import Vocab


class CorpusInputs:
    """Inputs of a model for the words of a corpus.

    Args:
        corpus: a prepared text.
        vocab: the words of a model that reads word ids; None for a model that reads characters.
    """

    def __init__(self, corpus: Corpus, vocab: Vocab | None) -> None:
        self._corpus = corpus
        self._ids: NDArray[np.int64] | None = None
        if vocab is not None:
            word_ids = Dictionary.of_vocab(vocab).word_ids
            of_vocab = np.array([word_ids[word] for word in vocab.words], dtype=np.int64)
            self._ids = of_vocab[corpus.target_ids(vocab)]

    def ids(self, words_W: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the ids that a model reads for words and boundaries of the corpus, (W, C)."""
        if self._ids is None:
            return self._corpus.char_ids(words_W).astype(np.int64)
        found: NDArray[np.int64] = self._ids[words_W][:, None]
        return found
