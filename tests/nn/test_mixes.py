"""Mixes with weights per dimension or per token: equal to the scalar mix as training starts, and to their equations."""

import pytest
import torch

from elmokit.model.scalar_mix import ScalarMix
from elmokit.nn.mixes import DimensionMix, GatedMix

MASK_BT = torch.tensor([[True, True, True], [True, False, False]])


@pytest.fixture
def layers() -> torch.Tensor:  # (B, L, T, D)
    torch.manual_seed(0)
    return torch.randn(2, 3, 3, 4)


@pytest.mark.parametrize("kind", [DimensionMix, GatedMix])
@pytest.mark.parametrize("layer_norm", [None, "token", "batch"])
def test_training_starts_at_the_scalar_mix(kind, layer_norm, layers) -> None:
    expected_BTD = ScalarMix(3, layer_norm=layer_norm)(layers, MASK_BT)
    mix = kind(3, 4, layer_norm=layer_norm)
    torch.testing.assert_close(mix(layers, MASK_BT), expected_BTD)
    torch.testing.assert_close(mix.layer_weights(), torch.full((3,), 1 / 3))
    mix(layers, MASK_BT).sum().backward()
    assert all(parameter.grad is not None for parameter in mix.parameters())


def test_a_dimension_mix_is_a_scalar_mix_of_every_dimension(layers) -> None:
    mix = DimensionMix(3, 4)
    with torch.no_grad():
        mix.weights.normal_()
        mix.gamma.fill_(1.5)
    found_BTD = mix(layers, MASK_BT)
    for dim in range(4):
        single = ScalarMix(3, initial_weights=mix.weights[:, dim].tolist())
        expected_BT1 = 1.5 * single(layers[..., dim : dim + 1], MASK_BT)
        torch.testing.assert_close(found_BTD[..., dim : dim + 1], expected_BT1)


def test_a_gated_mix_weighs_every_token_by_itself(layers) -> None:
    mix = GatedMix(3, 4)
    with torch.no_grad():
        mix.weights.normal_()
        mix.gate_LD.normal_()
    found_BTD = mix(layers, MASK_BT)
    for row, place in ((0, 0), (0, 2), (1, 0)):
        vectors_LD = layers[row, :, place]
        weights_L = torch.stack(
            [mix.weights[layer] + mix.gate_LD[layer] @ vectors_LD[layer] for layer in range(3)]
        ).softmax(dim=0)
        torch.testing.assert_close(found_BTD[row, place], weights_L @ vectors_LD)
    assert not found_BTD[~MASK_BT].any()


def test_the_penalty_of_a_dimension_is_its_share_of_a_scalar_mixs() -> None:
    single = ScalarMix(3, initial_weights=[1.0, -2.0, 0.5])
    mix = DimensionMix(3, 4)
    with torch.no_grad():
        mix.weights.copy_(single.weights[:, None].expand(3, 4))
    assert mix.penalty(0.1).item() == pytest.approx(single.penalty(0.1).item()) == pytest.approx(0.525)
    gated = GatedMix(3, 4)
    with torch.no_grad():
        gated.weights.copy_(single.weights)
        gated.gate_LD[1, 2] = 2.0
    assert gated.penalty(0.1).item() == pytest.approx(0.525 + 0.1 * 2.0**2 / 4)
