"""A text of about 130 tokens, and recipes for models so small that a step takes milliseconds."""

from pathlib import Path
from typing import Any

import torch

from elmokit.config import BiLMConfig, CharEncoderConfig, LSTMConfig
from elmokit.pretrain.recipe import PretrainSettings, Recipe, SoftmaxSettings
from elmokit.pretrain.state import PretrainState
from elmokit.runs.world import World
from elmokit.text.corpus import Corpus
from elmokit.text.preparation import prepare_corpus
from elmokit.text.rules import TextRules
from elmokit.text.vocab import Vocab

TEXT = """\
the old man went down to the river every morning
he took a small boat and a long net
the fish were fast but the man was patient
his daughter sold the fish in the town
she had a red stall near the church
people came from far away to buy there
one day the river rose and took the boat
the old man sat on the bank and cried
his daughter came and gave him her savings
with the money they bought a new boat
it was green and had a white sail
the next morning the old man smiled again
he caught more fish than ever before
in the evening they ate and sang together
the river was quiet under the yellow moon
"""
ALONE = World(0, 1, torch.device("cpu"))


def toy_model(**lstm: Any) -> BiLMConfig:
    sizes = {"cell_dim": 12, "proj_dim": 6, "num_layers": 2} | lstm
    encoder = CharEncoderConfig(char_dim=4, filters=((1, 4), (2, 6), (3, 8)), num_highway=1, max_chars=12)
    return BiLMConfig(char_encoder=encoder, lstm=LSTMConfig(**sizes))


def toy_recipe(*, negatives: int | None = None, model: BiLMConfig | None = None, **training: Any) -> Recipe:
    settings: dict[str, Any] = {"num_rows": 4, "unroll_steps": 5, "steps": 30, "checkpoint_every": 7}
    settings |= {"evaluate_every": 10, "precision": "fp32", **training}  # the same steps on any CPU
    kind = "full" if negatives is None else "sampled"
    return Recipe(
        model=model or toy_model(),
        softmax=SoftmaxSettings(kind=kind, num_negatives=negatives or 1),
        training=PretrainSettings(**settings),
    )


def toy_corpus(folder: Path) -> Corpus:
    source = folder / "toy.txt"
    source.write_text(TEXT, "utf-8")
    return prepare_corpus([source], folder / "toy", rules=TextRules(tokenized=True), max_chars=12)


def toy_state(folder: Path, recipe: Recipe) -> PretrainState:
    corpus = toy_corpus(folder)
    return PretrainState(recipe, corpus, Vocab.from_counts(corpus.word_counts()), world=ALONE)
