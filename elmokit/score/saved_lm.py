"""A language model on disk: a model folder with output layer, vocabulary and start state."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.config import BiLMConfig
from elmokit.errors import InputError
from elmokit.model.bilm import BiLMState
from elmokit.model.language_model import LanguageModel
from elmokit.model.softmax import Softmax
from elmokit.text.spelling import Dictionary
from elmokit.text.vocab import Vocab
from elmokit.weights.folder import save_folder
from elmokit.weights.saved import SavedBiLM, SavedSoftmax
from elmokit.weights.source import Source, build_bilm, load_saved, load_softmax
from elmokit.weights.start_state import stored_state, to_tensors, warm_state


@dataclass(frozen=True, eq=False)
class LoadedLM:
    """A language model from disk, with its vocabulary."""

    model: LanguageModel
    vocab: Vocab
    start_state: BiLMState | None
    """Start state for ``warm``; None if it was never computed."""
    options: dict[str, Any] | None
    """Published options of the source model, for export; None for a model trained by elmokit."""
    dictionary: Dictionary | None = None
    """Characters and words of a model that does not read bytes."""


def load_language_model(source: Source) -> LoadedLM:
    """Load a model that has an output layer."""
    saved_softmax = load_softmax(source)
    saved = load_saved(source)
    softmax = Softmax(len(saved_softmax.vocab), saved.config.lstm.proj_dim)
    softmax.load_state_dict({"weight": saved_softmax.weight_VP, "bias": saved_softmax.bias_V}, assign=True)
    model = LanguageModel(build_bilm(saved), softmax)
    return LoadedLM(model, saved_softmax.vocab, stored_state(saved), saved.options, saved.dictionary)


def save_language_model(
    model: LanguageModel,
    vocab: Vocab,
    folder: str | Path,
    *,
    options: dict[str, Any] | None = None,
    description: str | None = None,
    half: bool = False,
) -> None:
    """Save a model with its output layer, its vocabulary, and its start state for ``warm``.

    ``options`` are the published options of the model that it was tuned from; ``description`` and ``half`` are as in
    `elmokit.weights.folder.save_folder`.
    """
    check_belongs(model, vocab)
    dictionary = dictionary_of(model.bilm.config, vocab)
    saved = SavedBiLM(
        model.bilm.config,
        dict(model.bilm.state_dict()),
        options=options,
        start_state=to_tensors(warm_state(model.bilm, dictionary)),
        dictionary=dictionary,
    )
    softmax = SavedSoftmax(model.softmax.weight.detach(), model.softmax.bias.detach(), vocab)
    save_folder(saved, folder, softmax=softmax, description=description, half=half)


def dictionary_of(config: BiLMConfig, vocab: Vocab) -> Dictionary | None:
    """Return the dictionary of a model that reads the words that it predicts; None for one that reads bytes."""
    if config.reads_bytes:
        return None
    if config.char_encoder.filters or config.words is None or config.words.num_words != len(vocab):
        raise InputError(
            "the model reads words by a dictionary of its own; this supports models that read bytes, such as those of "
            "bilm-tf with char_cnn and those trained by elmokit, and models that read the words that they predict"
        )
    return Dictionary.of_vocab(vocab)


def check_belongs(model: LanguageModel, vocab: Vocab) -> None:
    """Raise InputError for a vocabulary that is not the model's, as far as its length shows."""
    num_words = len(model.softmax.bias)
    if len(vocab) != num_words:
        raise InputError(
            f"the vocabulary has {len(vocab):,} words, but the model predicts {num_words:,}; "
            "use the vocab.txt from the model's own folder"
        )
