"""The TF-Hub module's call: two signatures, five outputs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import Oracle
from published import PublishedModel

from elmokit.errors import InputError
from elmokit.integrations.tf_hub import Module, load

TEXTS = ["the cat is on the mat", "dogs are in the fog"]
TOKENS = {"tokens": [TEXTS[0].split(), [*TEXTS[1].split(), ""]], "sequence_len": [6, 5]}


def test_both_signatures_give_the_oracles_layers(published_model: PublishedModel) -> None:
    elmo = Module(published_model.pair)
    by_text, by_tokens = elmo(TEXTS, as_dict=True), elmo(TOKENS, signature="tokens", as_dict=True)
    assert set(by_text) == {"word_emb", "lstm_outputs1", "lstm_outputs2", "elmo", "default"}
    layers = Oracle(published_model.arrays, published_model.options).run_bilm([text.split() for text in TEXTS]).layers
    for name in by_text:
        assert torch.equal(by_text[name], by_tokens[name])
    for row, expected in enumerate(layers):
        length = expected.shape[1]
        found = {name: value[row].detach().numpy() for name, value in by_text.items()}
        np.testing.assert_allclose(found["word_emb"][:length], expected[0][:, :8], atol=5e-6)
        np.testing.assert_allclose(found["lstm_outputs1"][:length], expected[1], atol=5e-6)
        np.testing.assert_allclose(found["lstm_outputs2"][:length], expected[2], atol=5e-6)
        np.testing.assert_allclose(found["elmo"][:length], expected.mean(axis=0), atol=5e-6)
        # The mean is over the sentence's own tokens, not over the padded length.
        np.testing.assert_allclose(found["default"], expected.mean(axis=(0, 1)), atol=5e-6)
        assert not found["elmo"][length:].any()
    assert torch.equal(elmo(TEXTS), by_text["default"])


def test_the_mix_is_trained_when_asked(published_model: PublishedModel) -> None:
    assert not any(parameter.requires_grad for parameter in Module(published_model.pair).parameters())
    elmo = Module(published_model.pair, trainable=True)
    elmo(TEXTS).sum().backward()
    trained = [parameter for parameter in elmo.parameters() if parameter.requires_grad]
    assert sum(parameter.numel() for parameter in trained) == 4  # three weights and gamma


def test_signatures_of_tensorflow_2(published_model: PublishedModel) -> None:
    signatures = load(published_model.pair).signatures
    found = signatures["default"](TEXTS)["elmo"]
    tokens = signatures["tokens"](tokens=TOKENS["tokens"], sequence_len=torch.tensor([6, 5]))["elmo"]
    assert torch.equal(found, tokens)


@pytest.mark.parametrize(
    ("inputs", "signature", "message"),
    [
        ("text", "default", "expected a list of strings"),
        (TEXTS, "words", "signature 'words'; expected"),
        (TEXTS, "tokens", "a dict of tokens and sequence_len"),
        ({"tokens": [["a"]], "sequence_len": [2]}, "tokens", r"sequence_len is \[2\]"),
    ],
)
def test_bad_inputs_are_named(published_model: PublishedModel, inputs: object, signature: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Module(published_model.pair)(inputs, signature=signature)


def test_the_bundled_model_is_the_default() -> None:
    assert Path(__file__).exists()
    assert load()(["a bank"]).shape[0] == 1
