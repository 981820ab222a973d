"""bilm-tf's names on the golden model: the original program's own numbers."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from elmokit.errors import InputError
from elmokit.integrations.bilm_tf import (
    Batcher,
    BidirectionalLanguageModel,
    TokenBatcher,
    dump_bilm_embeddings,
    dump_token_embeddings,
    weight_layers,
)

# One golden word is longer than the model reads, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*(was|were) cut")

GOLDEN = Path(__file__).parents[1] / "assets" / "golden"
PAIR = (GOLDEN / "options.json", GOLDEN / "weights.hdf5")
SENTENCES: list[list[str]] = json.loads((GOLDEN / "sentences.json").read_text("utf-8"))
EXPECTED = np.load(GOLDEN / "expected.npz")
TOLERANCE = 1e-5


@pytest.fixture
def vocab_file(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    words = dict.fromkeys(word for sentence in SENTENCES for word in sentence)
    path.write_text("".join(f"{word}\n" for word in ["<S>", "</S>", "<UNK>", *words]), "utf-8")
    return path


@pytest.mark.parametrize("use_characters", [True, False])
def test_layers_and_carried_states_are_bilm_tfs(tmp_path: Path, vocab_file: Path, use_characters: bool) -> None:
    if use_characters:
        model, batcher = BidirectionalLanguageModel(*PAIR), Batcher(vocab_file, 50)
    else:
        dump_token_embeddings(vocab_file, *PAIR, tmp_path / "tokens.hdf5")
        model = BidirectionalLanguageModel(*PAIR, False, tmp_path / "tokens.hdf5")
        batcher = TokenBatcher(vocab_file)  # type: ignore[assignment]
    for first in range(0, len(SENTENCES), 4):
        batch = SENTENCES[first : first + 4]
        ops = model(batcher.batch_sentences(batch))
        assert ops["lengths"].tolist() == [len(sentence) for sentence in batch]
        assert ops["mask"].sum(dim=1).tolist() == ops["lengths"].tolist()
        for row, sentence in enumerate(batch):
            found = ops["lm_embeddings"][row, :, : len(sentence)]
            np.testing.assert_allclose(found, EXPECTED[f"carry_{first + row}"], rtol=0, atol=TOLERANCE)
            assert not ops["lm_embeddings"][row, :, len(sentence) :].any()
    assert ops["token_embeddings"].shape[1] == ops["mask"].shape[1] + 2


def test_mixes_are_trained_and_belong_to_the_model(vocab_file: Path) -> None:
    model = BidirectionalLanguageModel(*PAIR, state="reset")
    ids = Batcher(vocab_file, 50).batch_sentences(SENTENCES[:2])
    ops = model(ids)
    mixed = weight_layers("input", ops, l2_coef=0.5)
    assert torch.allclose(mixed["weighted_op"], ops["lm_embeddings"].mean(dim=1), atol=1e-5)
    assert float(mixed["regularization_op"].detach()) == 0  # the weights start at zero
    top = weight_layers("top", ops, use_top_only=True, l2_coef=0.5)
    assert torch.equal(top["weighted_op"], ops["lm_embeddings"][:, -1])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    mixed["weighted_op"].square().sum().backward()
    optimizer.step()
    again = weight_layers("input", model(ids), l2_coef=0.5)
    assert float(again["regularization_op"].detach()) > 0
    assert set(model.mixes) == {"input", "top"}


def test_layer_norm_leaves_the_boundaries_out(vocab_file: Path) -> None:
    ops = BidirectionalLanguageModel(*PAIR, state="reset")(Batcher(vocab_file, 50).batch_sentences(SENTENCES[:3]))
    found = weight_layers("norm", ops, do_layer_norm=True)["weighted_op"]
    mask = ops["mask"].numpy()
    expected = np.zeros(found.shape)
    for layer in ops["lm_embeddings"].numpy().swapaxes(0, 1).astype(np.float64):
        values = layer[mask]
        expected[mask] += (values - values.mean()) / values.std() / 3
    np.testing.assert_allclose(found.detach(), expected, rtol=0, atol=1e-4)


def test_dumps_have_the_old_layout(tmp_path: Path, vocab_file: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(" ".join(sentence) + "\n" for sentence in SENTENCES[:3]), "utf-8")
    dump_bilm_embeddings(vocab_file, text, *PAIR, tmp_path / "layers.hdf5", state="reset")
    with h5py.File(tmp_path / "layers.hdf5") as file:
        assert set(file) == {"0", "1", "2"}
        for row in range(3):
            np.testing.assert_allclose(file[str(row)], EXPECTED[f"reset_{row}"], rtol=0, atol=TOLERANCE)
    dump_token_embeddings(vocab_file, *PAIR, tmp_path / "tokens.hdf5")
    with h5py.File(tmp_path / "tokens.hdf5") as file:
        words = vocab_file.read_text("utf-8").splitlines()
        row = words.index(SENTENCES[0][0])
        np.testing.assert_allclose(file["embedding"][row], EXPECTED["reset_0"][0][0, :16], rtol=0, atol=TOLERANCE)


def test_bad_calls_are_named(vocab_file: Path) -> None:
    model = BidirectionalLanguageModel(*PAIR, max_batch_size=1)
    ids = Batcher(vocab_file, 50).batch_sentences(SENTENCES[:2])
    with pytest.raises(InputError, match="2 sentences in a batch; max_batch_size is 1"):
        model(ids)
    with pytest.raises(InputError, match="ids have 2 dimensions; expected 3"):
        model(ids[0])
    with pytest.raises(InputError, match="a sentence has no boundary tokens"):
        model(ids[:1, :1])
    with pytest.raises(InputError, match="without an embedding_weight_file"):
        BidirectionalLanguageModel(*PAIR, use_character_inputs=False)
