"""The mix of layers against NumPy."""

import numpy as np
import pytest
import torch

from elmokit.errors import InputError
from elmokit.model.scalar_mix import ScalarMix

LAYERS_BLTD = torch.from_numpy(np.random.default_rng(0).normal(2.0, 3.0, size=(2, 3, 4, 6)).astype(np.float32))
MASK_BT = torch.tensor([[True, True, True, True], [True, True, False, False]])


def softmax(values: list[float]) -> np.ndarray:
    powers = np.exp(np.array(values) - max(values))
    return powers / powers.sum()


def test_mix_is_the_weighted_mean_times_gamma() -> None:
    mix = ScalarMix(3, initial_weights=[0.5, -1.0, 2.0])
    with torch.no_grad():
        mix.gamma.fill_(1.7)
    expected = 1.7 * np.einsum("l,bltd->btd", softmax([0.5, -1.0, 2.0]), LAYERS_BLTD.numpy())
    expected[1, 2:] = 0
    np.testing.assert_allclose(mix(LAYERS_BLTD, MASK_BT).detach().numpy(), expected, atol=1e-5)


def test_mix_begins_as_the_plain_mean() -> None:
    expected = LAYERS_BLTD.mean(dim=1) * MASK_BT[:, :, None]
    torch.testing.assert_close(ScalarMix(3)(LAYERS_BLTD, MASK_BT), expected)


def test_token_norm_depends_on_its_own_vector_alone() -> None:
    mix = ScalarMix(3, layer_norm="token")
    values = LAYERS_BLTD.numpy().astype(np.float64)
    normal = (values - values.mean(-1, keepdims=True)) / values.std(-1, keepdims=True)
    mixed = mix(LAYERS_BLTD, MASK_BT)
    np.testing.assert_allclose(mixed[0].detach().numpy(), normal[0].mean(0), atol=1e-5)
    torch.testing.assert_close(mix(LAYERS_BLTD[:1], MASK_BT[:1]), mixed[:1])


def test_batch_norm_takes_one_mean_and_variance_a_layer_over_real_tokens() -> None:
    mix = ScalarMix(3, layer_norm="batch")
    values = LAYERS_BLTD.numpy().astype(np.float64)
    normal = np.empty_like(values)
    for layer in range(3):
        real = values[:, layer][MASK_BT.numpy()]
        normal[:, layer] = (values[:, layer] - real.mean()) / real.std()
    expected = normal.mean(axis=1)
    expected[1, 2:] = 0
    np.testing.assert_allclose(mix(LAYERS_BLTD, MASK_BT).detach().numpy(), expected, atol=1e-5)


def test_initial_weights_are_still_trained() -> None:
    mix = ScalarMix(3, initial_weights=[0.5, -1.0, 2.0])
    mix(LAYERS_BLTD, MASK_BT).square().sum().backward()
    assert mix.weights.grad.abs().min() > 0
    assert mix.gamma.grad.abs() > 0


def test_a_frozen_mix_has_nothing_to_train() -> None:
    assert not any(parameter.requires_grad for parameter in ScalarMix(3, trainable=False).parameters())


def test_one_layer_alone_has_gamma_and_no_weights() -> None:
    mix = ScalarMix(3, only_layer=-1)
    assert [name for name, _ in mix.named_parameters()] == ["gamma"]
    torch.testing.assert_close(mix(LAYERS_BLTD, MASK_BT), LAYERS_BLTD[:, 2] * MASK_BT[:, :, None])
    assert mix.penalty(5.0).item() == 0


def test_penalty_is_on_the_weights_before_the_softmax() -> None:
    mix = ScalarMix(3, initial_weights=[1.0, -2.0, 3.0])
    penalty = mix.penalty(0.1)
    assert penalty.item() == pytest.approx(0.1 * 14)
    penalty.backward()
    assert mix.weights.grad.tolist() == pytest.approx([0.2, -0.4, 0.6])
    assert mix.gamma.grad is None


def test_huge_weights_pick_one_layer() -> None:
    mix = ScalarMix(3, initial_weights=[-9e10, 1, -9e10])
    torch.testing.assert_close(mix(LAYERS_BLTD, MASK_BT), LAYERS_BLTD[:, 1] * MASK_BT[:, :, None])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial_weights": [1.0]}, "1 initial weights for 3 layers"),
        ({"only_layer": 3}, "layer 3 of 3"),
        ({"only_layer": 1, "initial_weights": [1.0, 1.0, 1.0]}, "both given"),
        ({"layer_norm": "yes"}, "'yes'"),
    ],
)
def test_impossible_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ScalarMix(3, **options)


def test_layers_of_another_model_are_refused() -> None:
    with pytest.raises(InputError, match="3 layers given to a mix of 2"):
        ScalarMix(2)(LAYERS_BLTD, MASK_BT)


def test_a_batch_without_any_token_is_zero() -> None:
    mixed = ScalarMix(2, layer_norm="batch")(torch.zeros(1, 2, 3, 4), torch.zeros(1, 3, dtype=torch.bool))
    assert torch.equal(mixed, torch.zeros(1, 3, 4))
