"""ELMo in transformers: Auto classes, hidden states, saved models, gradients, and one epoch of the Trainer."""

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.integration
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install 'elmokit[transformers]'"
)
if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip(f"transformers {transformers.__version__}; expected 5 or newer", allow_module_level=True)

from elmokit.integrations.transformers import ElmoForTokenClassification, ElmoModel, ElmoTokenizer  # noqa: E402

SENTENCES = [["the", "old", "river"], ["a", "fish"], ["he", "sold", "the", "green", "boat"]]


@pytest.fixture
def elmo(model: str) -> ElmoModel:
    return ElmoModel.from_elmokit(model)


@pytest.fixture
def batch():
    return ElmoTokenizer(max_chars=12)(SENTENCES, return_tensors="pt")


def test_hidden_states_are_the_embedder_s_layers(elmo, batch, embedder):
    with torch.no_grad():
        found = elmo(**batch, output_hidden_states=True)
    assert len(found.hidden_states) == 3
    for row, layers_LTD in enumerate(embedder.embed_layers(SENTENCES)):
        for layer, expected_TD in enumerate(layers_LTD):
            vectors_TD = found.hidden_states[layer][row]
            np.testing.assert_allclose(vectors_TD[: len(expected_TD)], expected_TD, atol=1e-5)
            assert not vectors_TD[len(expected_TD) :].any()
    torch.testing.assert_close(found.last_hidden_state, found.hidden_states[-1])
    assert elmo(**batch).hidden_states is None
    assert isinstance(elmo(**batch, return_dict=False), tuple)


def test_masked_tokens_are_padding(elmo, batch):
    shorter = ElmoTokenizer(max_chars=12)([SENTENCES[0][:2]], return_tensors="pt")
    mask = torch.tensor([[1, 1, 0, 0, 0]])
    with torch.no_grad():
        found = elmo(batch["input_ids"][:1], mask).last_hidden_state
        torch.testing.assert_close(found[:, :2], elmo(**shorter).last_hidden_state)


def test_auto_classes_load_what_was_saved(elmo, batch, tmp_path):
    elmo.save_pretrained(tmp_path)
    ElmoTokenizer(max_chars=12).save_pretrained(tmp_path)
    again = transformers.AutoModel.from_pretrained(tmp_path)
    assert type(again) is ElmoModel
    assert again.config.model_type == "elmokit"
    assert again.config.hidden_size == 12
    with torch.no_grad():
        torch.testing.assert_close(again(**batch).last_hidden_state, elmo(**batch).last_hidden_state, rtol=0, atol=1e-6)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(tokenizer) is ElmoTokenizer
    assert torch.equal(tokenizer(SENTENCES, return_tensors="pt")["input_ids"], batch["input_ids"])
    assert transformers.AutoConfig.from_pretrained(tmp_path).warm


def test_state_dicts_survive_torch_save(elmo, batch, tmp_path):
    torch.save(elmo.state_dict(), tmp_path / "weights.pt")
    other = ElmoModel(elmo.config).eval()
    other.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    with torch.no_grad():
        assert torch.equal(other(**batch).last_hidden_state, elmo(**batch).last_hidden_state)


def test_gradients_reach_every_weight(elmo, batch):
    elmo.train()
    elmo(**batch, output_hidden_states=True).last_hidden_state.pow(2).sum().backward()
    without = [name for name, weight in elmo.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert without == []


def test_strings_are_tokenized():
    tokenizer = ElmoTokenizer()
    one = tokenizer("The river rose.")
    assert len(one["input_ids"]) == len(one["attention_mask"]) == 4
    several = tokenizer(["The river rose.", "a fish"], return_tensors="np")
    assert several["input_ids"].shape == (2, 4, 50)
    assert several["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]


def test_the_trainer_trains_a_token_classifier_for_one_epoch(elmo, tmp_path):
    tokenizer = ElmoTokenizer(max_chars=12)
    rng = np.random.default_rng(0)
    words = "the old man went to a river and took his boat".split()
    rows = []
    for _ in range(240):
        tokens = rng.choice(words, rng.integers(2, 7)).tolist()
        encoded = tokenizer(tokens, is_split_into_words=True)
        rows.append({**encoded, "labels": [int(len(word) > 3) for word in tokens]})
    torch.manual_seed(0)
    classifier = ElmoForTokenClassification(elmo.config)
    classifier.elmo.load_state_dict(elmo.state_dict())
    settings = transformers.TrainingArguments(
        str(tmp_path / "run"),
        num_train_epochs=1,
        learning_rate=0.03,
        per_device_train_batch_size=8,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = transformers.Trainer(classifier, settings, train_dataset=rows, data_collator=tokenizer.pad)
    before = trainer.evaluate(rows)["eval_loss"]
    trainer.train()
    assert trainer.evaluate(rows)["eval_loss"] < 0.6 * before
    trainer.save_model(str(tmp_path / "saved"))
    again = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "saved")
    found = again(**tokenizer([["the", "river"]], return_tensors="pt")).logits.argmax(dim=-1)
    assert found.tolist() == [[0, 1]]
