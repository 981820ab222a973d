"""Perplexity of a row's text under a language model, or under two of them that share nothing."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from elmokit.embed.sources import TAGLM, split_pair
from elmokit.score.perplexity import Perplexity, measure
from elmokit.score.saved_lm import load_language_model
from elmokit.text.corpus import Corpus
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules


def measure_text(name: str, sentences: Sequence[Sequence[str]]) -> Perplexity:
    """Return the perplexity of sentences under a model; of ``taglm:FORWARD,BACKWARD`` each direction has its own."""
    if not name.startswith(TAGLM):
        return _measure(name, sentences)
    forward, backward = (_measure(folder, sentences) for folder in split_pair(name))
    return replace(forward, backward=backward.backward)


def _measure(folder: str, sentences: Sequence[Sequence[str]]) -> Perplexity:
    loaded = load_language_model(folder)
    max_chars = loaded.model.bilm.config.char_encoder.max_chars
    with tempfile.TemporaryDirectory(prefix="elmokit-") as work:
        text, prepared = Path(work) / "text.txt", Path(work) / "prepared"
        text.write_text("".join(f"{' '.join(tokens)}\n" for tokens in sentences), "utf-8")
        prepare_corpus([text], prepared, rules=TextRules(tokenized=True), max_chars=max_chars)
        return measure(loaded.model, Corpus.open(prepared), loaded.vocab, warm=loaded.start_state)
