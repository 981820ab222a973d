"""What the character encoder may skip without changing a vector."""

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional

from elmokit.config import CharEncoderConfig, WordTableConfig
from elmokit.kernels.library import available
from elmokit.model import char_encoder
from elmokit.model.char_encoder import CharEncoder
from elmokit.text.chars import encode_words

WORDS = ["a", "", "the", "bank", "antidisestablishmentarianism", "x" * 47, "x" * 48, "x" * 90, "Ελλάδα", "<S>", "</S>"]


# float32 goes through the compiled look-up where there is one, float64 always through torch's convolutions.
DTYPES = [torch.float32, torch.float64]


def pool_without_skipping(encoder: CharEncoder, char_ids: torch.Tensor) -> torch.Tensor:
    table = functional.pad(encoder.char_embedding, (0, 0, 1, 0))
    chars = functional.embedding(char_ids, table).transpose(1, 2)
    activate = getattr(torch, encoder.config.activation)
    return activate(torch.cat([conv(chars).amax(dim=2) for conv in encoder.convs], dim=1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("max_chars", [7, 12, 50])
def test_skipping_padding_changes_no_vector_and_no_gradient(
    max_chars: int, activation: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    filters = ((1, 8), (3, 8), (7, 35))
    config = CharEncoderConfig(char_dim=4, filters=filters, num_highway=0, activation=activation, max_chars=max_chars)
    encoder = CharEncoder(config, token_dim=51).to(dtype)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_()
    char_ids = torch.from_numpy(encode_words(WORDS, max_chars=max_chars).char_ids_WC)
    found, expected = encoder(char_ids), pool_without_skipping(encoder, char_ids)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    weighting = torch.randn_like(expected)
    wanted = torch.autograd.grad((expected * weighting).sum(), list(encoder.parameters()))
    given = torch.autograd.grad((found * weighting).sum(), list(encoder.parameters()))
    for left, right in zip(given, wanted, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-5 * right.abs().max().item())
        assert right.abs().max() > 0.1


@pytest.mark.parametrize("dtype", DTYPES)
def test_word_order_and_groups_never_change_a_vector(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    encoder = CharEncoder(CharEncoderConfig(char_dim=4, filters=((2, 8), (5, 16))), token_dim=8).to(dtype)
    char_ids = torch.from_numpy(encode_words(WORDS, max_chars=50).char_ids_WC)
    with torch.no_grad():
        expected = encoder(char_ids)
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(WORDS)))
        torch.testing.assert_close(encoder(char_ids[order]), expected[order], rtol=0, atol=1e-6)
        monkeypatch.setattr(char_encoder, "WORDS_AT_ONCE", 2)
        torch.testing.assert_close(encoder(char_ids), expected, rtol=0, atol=1e-6)


def test_no_words_give_no_vectors() -> None:
    encoder = CharEncoder(CharEncoderConfig(char_dim=4, filters=((2, 8),)), token_dim=4)
    assert encoder(torch.empty(0, 50, dtype=torch.long)).shape == (0, 4)


def test_weights_begin_as_the_original_program_begins() -> None:
    torch.manual_seed(0)
    encoder = CharEncoder(CharEncoderConfig(filters=((3, 512),), num_highway=1), token_dim=128).requires_grad_(False)
    assert 0.98 < float(encoder.char_embedding.abs().max()) <= 1
    assert 0.049 < float(encoder.convs[0].weight.abs().max()) <= 0.05
    assert float(encoder.highways[0].gate.bias.unique()) == -2
    assert float(encoder.highways[0].transform.weight.std()) == pytest.approx(512**-0.5, rel=0.02)
    assert float(encoder.projection.weight.std()) == pytest.approx(512**-0.5, rel=0.02)
    tanh = CharEncoder(CharEncoderConfig(filters=((3, 512),), activation="tanh"), token_dim=128).requires_grad_(False)
    assert float(tanh.convs[0].weight.std()) == pytest.approx((3 * 16) ** -0.5, rel=0.03)


def small_encoder() -> CharEncoder:
    torch.manual_seed(0)
    config = CharEncoderConfig(char_dim=4, filters=((1, 3), (2, 5)), num_highway=0)
    return CharEncoder(config, token_dim=8)


def char_ids(words: list[str] = WORDS) -> torch.Tensor:
    return torch.from_numpy(encode_words(words, max_chars=50).char_ids_WC)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_weight_that_is_nan_is_not_lost(dtype: torch.dtype) -> None:
    encoder = small_encoder().to(dtype)
    with torch.no_grad():
        encoder.char_embedding[ord("b")] = torch.nan
        broken, whole = encoder(char_ids(["abacus", "ccc"]))
    assert broken.isnan().all()
    assert whole.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_programs_default_type_changes_nothing(dtype: torch.dtype) -> None:
    encoder = small_encoder()
    expected = encoder(char_ids())
    try:
        torch.set_default_dtype(dtype)
        found = encoder(char_ids())
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_gradients_and_ids_may_come_in_any_layout() -> None:
    encoder = small_encoder()
    weight = torch.randn(8, len(WORDS))
    gradients = []
    for ids in (char_ids(), char_ids().int(), char_ids().t().contiguous().t()):
        encoder.zero_grad()
        (encoder(ids).t() * weight).sum().backward()
        gradients.append([parameter.grad for parameter in encoder.parameters()])
    assert all(gradient is not None for gradient in gradients[0])
    for others in gradients[1:]:
        for left, right in zip(gradients[0], others, strict=True):
            torch.testing.assert_close(right, left)


def test_a_bias_alone_can_learn() -> None:
    config = CharEncoderConfig(char_dim=4, filters=((1, 3),), num_highway=1)
    encoder = CharEncoder(config, token_dim=2).requires_grad_(False)
    assert encoder.projection is not None
    encoder.projection.bias.requires_grad_(True)
    encoder(char_ids()).sum().backward()
    assert encoder.projection.bias.grad is not None


@pytest.mark.skipif(not available(), reason="without kernels there are no tables")
def test_tables_of_packed_weights_follow_when_a_filter_changes() -> None:
    torch.manual_seed(0)
    encoder = CharEncoder(CharEncoderConfig(char_dim=4, filters=((1, 8), (2, 8)), max_chars=10), 12)
    ids = torch.randint(1, 262, (5, 10))
    encoder.pack_weights()
    with torch.no_grad():
        before = encoder(ids)
        encoder.convs[0].weight.mul_(3.0)
        after = encoder(ids)
        assert (after - before).abs().max() > 1e-3
        torch.testing.assert_close(after, copy.deepcopy(encoder)(ids), atol=1e-5, rtol=0)


@pytest.mark.parametrize("num_words", [10, 60_000])
def test_word_vectors_begin_as_large_as_those_of_characters_however_many_there_are(num_words: int) -> None:
    config = CharEncoderConfig(char_dim=1, filters=(), num_highway=0)
    encoder = CharEncoder(config, 8, words=WordTableConfig(num_words=num_words, dim=8))
    assert encoder.word_embedding is not None
    assert 0.5 < float(encoder.word_embedding.detach().std()) < 0.65
