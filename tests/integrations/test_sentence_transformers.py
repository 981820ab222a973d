"""ELMo in sentence-transformers: our vectors, saved models, and training with its losses."""

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.integration
library = pytest.importorskip(
    "sentence_transformers",
    reason="sentence-transformers is not installed: pip install 'elmokit[sentence-transformers]'",
)

from elmokit.integrations.sentence_transformers import load  # noqa: E402

TEXTS = ["The river rose. He sat down.", "A fish swam", "", "the old man sold the green boat"]


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_vectors_are_the_embedder_s(model, embedder, pooling):
    found = load(model, pooling=pooling).encode(TEXTS[:2] + TEXTS[3:])
    np.testing.assert_allclose(found, embedder.encode(TEXTS[:2] + TEXTS[3:], pooling=pooling), atol=1e-5)


def test_empty_texts_have_zeros(model):
    assert not load(model).encode([""]).any()


def test_tokens_have_vectors(model, embedder):
    [found] = load(model).encode(["A fish swam"], output_value="token_embeddings")
    np.testing.assert_allclose(found.numpy(), embedder.embed_tokens(["A fish swam"])[0], atol=1e-5)


def test_a_saved_model_gives_the_same_vectors(model, tmp_path):
    made = load(model)
    with torch.no_grad():
        made[0].elmo.mixes[0].weights.copy_(torch.tensor([0.5, -1.0, 2.0]))
    made.save(str(tmp_path / "saved"))
    expected = made.encode(TEXTS)
    again = library.SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(load(tmp_path / "saved").encode(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize("train_bilm", [False, True])
def test_a_loss_trains_the_mix_and_on_request_the_bilm(model, tmp_path, train_bilm):
    datasets = pytest.importorskip(
        "datasets", reason="datasets is not installed; requirements/integrations-b.txt has it"
    )
    made = load(model, train_bilm=train_bilm)
    before = {name: weight.clone() for name, weight in made.named_parameters()}
    vectors = made.encode(TEXTS[:2])
    data = datasets.Dataset.from_dict({"anchor": ["a fish", "the boat"] * 8, "positive": ["the fish", "a boat"] * 8})
    settings = library.SentenceTransformerTrainingArguments(
        str(tmp_path / "run"),
        num_train_epochs=1,
        per_device_train_batch_size=4,
        learning_rate=0.05,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    loss = losses.MultipleNegativesRankingLoss(made)
    library.SentenceTransformerTrainer(made, settings, train_dataset=data, loss=loss).train()
    changed = {name for name, weight in made.named_parameters() if not torch.equal(weight, before[name])}
    assert any("mixes" in name for name in changed)
    assert any("bilm" in name for name in changed) == train_bilm
    assert not np.allclose(made.encode(TEXTS[:2]), vectors, atol=1e-4)
