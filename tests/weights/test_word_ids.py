"""bilm-tf models without characters: words have rows of a table, and all others are unknown."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from oracle import Oracle
from published import Arrays, make_published

from elmokit.embed.embedder import Embedder
from elmokit.errors import ConfigError, InputError, WeightsError
from elmokit.pretrain.finetune import finetune
from elmokit.pretrain.recipe import DataSettings
from elmokit.weights.conversion import convert_model
from elmokit.weights.source import load_saved

VOCAB = ["<S>", "</S>", "<UNK>", "the", "bank", "river"]
SENTENCES = [["the", "bank"], ["the", "Bank", "river"], ["bank"]]


class WordOracle(Oracle):
    """The character oracle, with rows of a table for token vectors."""

    vocab = VOCAB

    def _token_vector(self, word: str) -> np.ndarray:
        table = self.arrays["embedding"].astype(np.float64)
        return table[self.vocab.index(word if word in self.vocab else "<UNK>")]


def make_word_model(folder: Path, vocab: list[str]) -> tuple[Arrays, dict[str, object]]:
    spelled = make_published(folder.parent / f"{folder.name}-spelled")
    arrays = {name: array for name, array in spelled.arrays.items() if name.startswith("RNN_")}
    table = np.random.default_rng(3).normal(size=(len(VOCAB), 8)).astype(np.float32)
    arrays["embedding"] = table[[VOCAB.index(word) for word in vocab]]
    options = {"lstm": spelled.options["lstm"], "n_tokens_vocab": len(vocab), "bidirectional": True}
    folder.mkdir()
    (folder / "options.json").write_text(json.dumps(options))
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return arrays, options


@pytest.mark.parametrize("vocab", [VOCAB, VOCAB[3:] + VOCAB[:3]], ids=["specials first", "specials last"])
def test_layers_match_the_oracle_wherever_the_specials_stand(tmp_path: Path, vocab: list[str]) -> None:
    make_word_model(tmp_path / "model", vocab)
    arrays, options = make_word_model(tmp_path / "reference", VOCAB)
    expected = WordOracle(arrays, options).run_bilm(SENTENCES).layers
    found = Embedder.from_pretrained(tmp_path / "model", state="reset").embed_layers(SENTENCES)
    for layers, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(layers, other, rtol=0, atol=5e-6)


def test_it_converts_to_our_folder_and_back(tmp_path: Path) -> None:
    make_word_model(tmp_path / "model", VOCAB)
    convert_model(tmp_path / "model", tmp_path / "ours", to="elmokit", half=False, overwrite=False)
    convert_model(tmp_path / "ours", tmp_path / "back", to="hdf5", half=False, overwrite=False)
    with h5py.File(tmp_path / "model" / "weights.hdf5") as was, h5py.File(tmp_path / "back" / "weights.hdf5") as now:
        np.testing.assert_array_equal(was["embedding"], now["embedding"])
    assert (tmp_path / "back" / "vocab.txt").read_text() == (tmp_path / "model" / "vocab.txt").read_text()
    found = Embedder.from_pretrained(tmp_path / "back", state="reset").embed_layers(SENTENCES)
    expected = Embedder.from_pretrained(tmp_path / "ours", state="reset").embed_layers(SENTENCES)
    assert all((layers == other).all() for layers, other in zip(found, expected, strict=True))
    assert "none: the model reads word ids" in (tmp_path / "ours" / "README.md").read_text("utf-8")


def test_without_its_vocabulary_it_is_rejected(tmp_path: Path) -> None:
    make_word_model(tmp_path / "model", VOCAB)
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(VOCAB[:5]) + "\n")
    with pytest.raises(ConfigError, match="n_tokens_vocab = 6, but the vocabulary has 5 words"):
        load_saved(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").unlink()
    with pytest.raises(WeightsError, match=r"no char_cnn, .* put the vocabulary .* beside it, as vocab\.txt"):
        load_saved(tmp_path / "model")


def test_fine_tuning_says_that_it_needs_bytes(tmp_path: Path) -> None:
    make_word_model(tmp_path / "model", VOCAB)
    (tmp_path / "text.txt").write_text("the bank\n" * 20)
    with pytest.raises(InputError, match="fine-tuning supports models that read bytes"):
        finetune(tmp_path / "model", DataSettings(train=[str(tmp_path / "text.txt")]), tmp_path / "tuned")
