"""Task models saved by AllenNLP load into our module and give the same numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import Oracle
from published import PublishedModel, make_published
from torch import Tensor, nn

from elmokit.integrations.allennlp import Elmo, batch_to_ids

SENTENCES = [["The", "bank", "closed", "."], ["Play"], ["Children", "play", "outside"]]
NUM_LAYERS = 3  # of the fixture's model


@pytest.fixture
def elmo(published_model: PublishedModel) -> Elmo:
    return Elmo(*published_model.pair, 2, dropout=0.0)


def lstm_cell(direction: int, layer: int) -> str:
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def allennlp_state_dict(model: PublishedModel) -> dict[str, Tensor]:
    """Return the tensors that AllenNLP stores for a published model in an ``Elmo`` with two mixes."""
    arrays = model.arrays
    old = {"_elmo_lstm._token_embedder._char_embedding_weights": np.pad(arrays["char_embed"], ((1, 0), (0, 0)))}
    token_embedder = "_elmo_lstm._token_embedder"
    for i in range(len(model.options["char_cnn"]["filters"])):
        old[f"{token_embedder}.char_conv_{i}.weight"] = arrays[f"CNN/W_cnn_{i}"][0].transpose(2, 1, 0)
        old[f"{token_embedder}.char_conv_{i}.bias"] = arrays[f"CNN/b_cnn_{i}"]
    for k in range(model.options["char_cnn"]["n_highway"]):
        for kind, letter in (("weight", "W"), ("bias", "b")):
            transform, carry = (arrays[f"CNN_high_{k}/{letter}_{part}"].T for part in ("transform", "carry"))
            old[f"{token_embedder}._highways._layers.{k}.{kind}"] = np.concatenate([transform, -carry])
    old[f"{token_embedder}._projection.weight"] = arrays["CNN_proj/W_proj"].T
    old[f"{token_embedder}._projection.bias"] = arrays["CNN_proj/b_proj"]
    for direction, name in enumerate(("forward", "backward")):
        for layer in range(model.options["lstm"]["n_layers"]):
            place = f"_elmo_lstm._elmo_lstm.{name}_layer_{layer}"
            cell = lstm_cell(direction, layer)
            i, j, f, o = np.split(arrays[f"{cell}/W_0"].T, 4)
            both = np.concatenate([i, f, j, o])
            old[f"{place}.input_linearity.weight"], old[f"{place}.state_linearity.weight"] = np.split(both, 2, axis=1)
            i, j, f, o = np.split(arrays[f"{cell}/B"], 4)
            old[f"{place}.state_linearity.bias"] = np.concatenate([i, f + 1, j, o])
            old[f"{place}.state_projection.weight"] = arrays[f"{cell}/W_P_0"].T
    tensors = {name: torch.from_numpy(array.copy()) for name, array in old.items()}
    for k, weights in enumerate(([0.5, -1.0, 2.0], [0.0, 3.0, 0.1])):
        tensors[f"scalar_mix_{k}.gamma"] = torch.tensor([k + 1.5])
        for layer, weight in enumerate(weights):
            tensors[f"scalar_mix_{k}.scalar_parameters.{layer}"] = torch.tensor([weight])
    return tensors


def test_weights_saved_by_allennlp_load_strictly_and_give_its_numbers(
    published_model: PublishedModel, tmp_path: Path
) -> None:
    task = nn.ModuleDict({"embedder": Elmo(*make_published(tmp_path, seed=1).pair, 2, dropout=0.0)})
    saved = allennlp_state_dict(published_model)
    # Newer versions also save the boundaries' spellings, and the cached vocabulary.
    saved["_elmo_lstm._token_embedder._beginning_of_sentence_characters"] = torch.zeros(50)
    saved["_elmo_lstm._word_embedding.weight"] = torch.zeros(7, 8)
    task.load_state_dict({f"embedder.{name}": tensor for name, tensor in saved.items()}, strict=True)
    found = task["embedder"](batch_to_ids(SENTENCES))["elmo_representations"]
    layers = Oracle(published_model.arrays, published_model.options).run_bilm(SENTENCES).layers
    for k, vectors in enumerate(found):
        weights = torch.cat([saved[f"scalar_mix_{k}.scalar_parameters.{layer}"] for layer in range(NUM_LAYERS)])
        for row, layers_LTD in enumerate(layers):
            mixed = (k + 1.5) * np.einsum("l,ltd->td", weights.softmax(0).numpy(), layers_LTD)
            np.testing.assert_allclose(vectors[row, : len(SENTENCES[row])].detach(), mixed, rtol=0, atol=2e-5)


def test_an_unknown_weight_is_still_reported(published_model: PublishedModel, elmo: Elmo) -> None:
    saved = allennlp_state_dict(published_model) | {"_elmo_lstm._transformer.weight": torch.zeros(1)}
    with pytest.raises(RuntimeError, match="_transformer"):
        elmo.load_state_dict(saved)


def test_our_own_saved_weights_load_again(elmo: Elmo, tmp_path: Path) -> None:
    other = Elmo(*make_published(tmp_path, seed=1).pair, 2, dropout=0.0)
    other.load_state_dict(elmo.state_dict())
    ids = batch_to_ids(SENTENCES)
    assert torch.equal(other(ids)["elmo_representations"][1], elmo(ids)["elmo_representations"][1])
