"""Invented questions on paragraphs, and models small enough to learn them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from task_models import build_model, make_batch
from torch import nn
from toy_inputs import LetterLayers

from elmokit.readers.squad import Answer
from elmokit.tasks.columns import ColumnMaker, learn_inputs
from elmokit.tasks.recipe import CharSettings, ElmoSettings, TaskRecipe, TrainingSettings
from elmokit.tasks.squad import (
    TASK,
    AskedParagraph,
    SquadLabels,
)
from elmokit.tasks.squad_tokens import tokenize_paragraph, tokenize_question
from elmokit.tasks.task import Batch

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "tasks"
SIZES = {"hidden_dim": 10, "dropout": 0.1}
LABELS = SquadLabels()
NAMES, COLORS, PETS = "Ann Ben Cat Dan Eve".split(), "red old wet shy".split(), "dog fox hen owl pig".split()
TOWNS = "Rome Bonn York Lyon".split()


def asked(context: str, question: str, *answers: str, name: str = "q") -> AskedParagraph:
    found = tuple(Answer(answer, context.index(answer)) for answer in answers)
    return AskedParagraph(name, tokenize_paragraph(context), tokenize_question(question), found)


def tales(num_tales: int, *, seed: int = 1) -> list[AskedParagraph]:
    """Who has what, and where it rained: the question's first word says which of three answers is asked for."""
    chance = np.random.default_rng(seed)
    made = []
    for number in range(num_tales):
        one, color, pet, town = (str(chance.choice(words)) for words in (NAMES, COLORS, PETS, TOWNS))
        sentences = [f"{one} has a {color} {pet}.", f"It rained in {town}.", "That is all."][: 2 + number % 2]
        context = " ".join(chance.permutation(sentences))
        thing = f"{color} {pet}"
        made += [
            asked(context, f"Who has the {pet}?", one, name=f"who-{number}"),
            asked(context, f"What has {one}?", thing, f"a {thing}", name=f"what-{number}"),
            asked(context, "Where did it rain?", town, name=f"where-{number}"),
        ]
    return made


def recipe(*, elmo: str | None = None, **training: Any) -> TaskRecipe:
    return TaskRecipe(
        task="squad",
        chars=CharSettings(char_dim=6, filters=((2, 16),)),
        elmo=ElmoSettings(model=None if elmo is None else "letters", place=elmo or "none", dropout=0.1),
        model=SIZES,
        training=TrainingSettings(**training),
    )


def columns(chosen: TaskRecipe, examples: Sequence[AskedParagraph]) -> ColumnMaker:
    vocab = learn_inputs([one.context.tokens for one in examples], chosen)
    return ColumnMaker(chosen, vocab, vectors=None, layers=LetterLayers(neighbor=1) if chosen.elmo.model else None)


def build(chosen: TaskRecipe, examples: Sequence[AskedParagraph]) -> tuple[nn.Module, ColumnMaker]:
    torch.manual_seed(3)
    made = columns(chosen, examples)
    return build_model(TASK, chosen, LABELS, made), made


def batch_of(examples: Sequence[AskedParagraph], made: ColumnMaker) -> Batch[Any]:
    return make_batch(TASK, examples, LABELS, made, with_labels=True)
