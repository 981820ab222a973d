"""Tagging with tags of your own, such as parts of speech: the network of `elmokit.tasks.ner`, without rules for tags.

Shapes: T tokens, K tags.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.errors import InputError
from elmokit.nn.crf import viterbi_decode
from elmokit.readers.conll2003 import TaggedSentence
from elmokit.readers.tagged import read_tagged
from elmokit.tasks.ner import ChainScores, NERLabels, NERTarget, NERTask, number_tags
from elmokit.tasks.task import Task

Tags = tuple[str, ...]


class TagTask(NERTask):
    """One tag per token, any tags."""

    name = "tag"
    metric = "accuracy"

    def read(self, path: Path) -> list[TaggedSentence]:
        """Read the sentences of a file."""
        sentences = list(read_tagged(path))
        if not sentences:
            raise InputError(f"{path}: no sentences; expected one token and its tag per line")
        return sentences

    def learn_labels(self, examples: Sequence[TaggedSentence]) -> NERLabels:
        """Return the tags that occur, sorted."""
        return NERLabels(tags=tuple(sorted({tag for example in examples for tag in example.tags})))

    def collate(self, examples: Sequence[TaggedSentence], labels: NERLabels, *, labeled: bool) -> NERTarget:
        """Return the tag indices."""
        return NERTarget(number_tags(examples, [one.tags for one in examples], labels) if labeled else None)

    def decode(self, output: ChainScores, example: TaggedSentence, labels: NERLabels) -> Tags:
        """Return the best tags."""
        del example
        emissions_TK, transitions_KK = torch.from_numpy(output.emissions_TK), torch.from_numpy(output.transitions_KK)
        free_K = torch.zeros(len(labels.tags))
        return tuple(labels.tags[index] for index in viterbi_decode(emissions_TK, transitions_KK, free_K, free_K))

    def score(self, examples: Sequence[TaggedSentence], predictions: Sequence[Tags]) -> dict[str, float]:
        """Return the share of tokens with the right tag, and of sentences without a wrong one."""
        if not all(example.tags for example in examples):
            raise InputError("a sentence has no tags to score a model on; give tagged sentences")
        right = [np.equal(one.tags, found) for one, found in zip(examples, predictions, strict=True)]
        return {
            "accuracy": float(np.concatenate(right).mean()),
            "sentence_accuracy": float(np.mean([one.all() for one in right])),
        }

    def unknown_labels(self, examples: Sequence[TaggedSentence], labels: NERLabels) -> set[str]:
        """Return tags that are not in the label space."""
        return {tag for example in examples for tag in example.tags} - set(labels.tags)

    def show(self, example: TaggedSentence, prediction: Tags) -> str:
        """Return tokens with their tags: ``She/PRON runs/VERB ./PUNCT``."""
        return " ".join(f"{token}/{tag}" for token, tag in zip(example.tokens, prediction, strict=True))

    def to_json(self, example: TaggedSentence, prediction: Tags) -> dict[str, Any]:
        """Return tokens and tags."""
        return {"tokens": list(example.tokens), "tags": list(prediction)}


TASK: Task[TaggedSentence, NERLabels, NERTarget, ChainScores, Tags] = TagTask()
