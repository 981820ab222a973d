"""A biLM that is trained with a task: the layers of an Embedder, with gradients."""

import numpy as np
import pytest
import torch
from toy import toy_model

from elmokit.embed.embedder import Embedder
from elmokit.embed.trained_layers import TrainedLayers
from elmokit.model.bilm import BiLM
from elmokit.weights.saved import SavedBiLM

SENTENCES = [["the", "old", "man"], ["rivers"], ["a", "river", "rose", "the", "same", "day"]]


@pytest.fixture(scope="module")
def saved() -> SavedBiLM:
    torch.manual_seed(4)
    config = toy_model()
    return SavedBiLM(config, dict(BiLM(config).state_dict()))


def test_layers_are_those_of_an_embedder(saved: SavedBiLM) -> None:
    layers = TrainedLayers(saved)
    with torch.no_grad():
        found_LTD = layers(layers.spell(SENTENCES)).numpy()
    expected = Embedder.from_saved(saved).embed_layers(SENTENCES)
    np.testing.assert_allclose(found_LTD, np.concatenate(expected, axis=1), atol=1e-6)
    assert (layers.num_layers, layers.width) == found_LTD.shape[::2]


def test_gradients_reach_every_weight_and_equal_finite_differences(saved: SavedBiLM) -> None:
    layers = TrainedLayers(saved)
    spelled = layers.spell(SENTENCES)
    layers(spelled).square().sum().backward()
    parameters = dict(layers.bilm.named_parameters())
    assert all(weight.grad is not None for weight in parameters.values())
    weight = parameters["forward_lstm.layers.1.input_weight"]
    gradient, found = weight.grad, []
    assert gradient is not None
    place = divmod(int(gradient.abs().argmax()), gradient.shape[1])
    with torch.no_grad():
        for step in (1e-2, -2e-2):
            weight[place] += step
            found.append(float(layers(spelled).double().square().sum()))
    assert (found[0] - found[1]) / 2e-2 == pytest.approx(float(gradient[place]), rel=0.02)


def test_training_leaves_the_source_alone_and_an_embedder_gets_the_new_weights(saved: SavedBiLM) -> None:
    before = {name: tensor.clone() for name, tensor in saved.tensors.items()}
    layers = TrainedLayers(saved)
    spelled = layers.spell(SENTENCES)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    layers(spelled).square().sum().backward()
    optimizer.step()
    assert all(torch.equal(before[name], tensor) for name, tensor in saved.tensors.items())
    with torch.no_grad():
        now_LTD = layers(spelled).numpy()
    embedded = np.concatenate(layers.to_embedder().embed_layers(SENTENCES), axis=1)
    np.testing.assert_allclose(embedded, now_LTD, atol=1e-6)
    assert np.abs(embedded - np.concatenate(Embedder.from_saved(saved).embed_layers(SENTENCES), axis=1)).max() > 1e-2
