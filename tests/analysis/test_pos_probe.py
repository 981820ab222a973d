"""The probe measures each layer, chooses on the dev set and evaluates the test set once."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from toy import toy_model

from elmokit.analysis import pos_probe
from elmokit.analysis.logistic_regression import fit_path
from elmokit.analysis.pos_probe import STRENGTHS, PosData, ProbeProgress, probe_pos, untrained_like
from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError, OutputError
from elmokit.model.bilm import BiLM
from elmokit.readers.conllu import UDSentence

WORDS = ("bank", "fish", "old", "river", "swim", "take")


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    torch.manual_seed(6)
    return Embedder(BiLM(toy_model(cell_dim=32, proj_dim=16)))


def tagged(tokens: list[str], tags: list[str]) -> UDSentence:
    rest = ("_",) * len(tokens)
    return UDSentence(tuple(tokens), rest, tuple(tags), rest, (0,) * len(tokens), rest, rest)


def draw(tag: Callable[[list[str], int], str], num_sentences: tuple[int, int, int] = (60, 20, 20)) -> PosData:
    """Random sentences, in which ``tag`` gives every token its tag."""
    rng = np.random.default_rng(7)

    def sentence() -> UDSentence:
        tokens = [str(word) for word in rng.choice(WORDS, size=rng.integers(3, 8))]
        return tagged(tokens, [tag(tokens, position) for position in range(len(tokens))])

    return PosData(*([sentence() for _ in range(num)] for num in num_sentences))


def by_word(tokens: list[str], position: int) -> str:
    return "AB"[tokens[position] > "old"]


def by_next_word(tokens: list[str], position: int) -> str:
    return "E" if position + 1 == len(tokens) else by_word(tokens, position + 1)


def test_the_token_layer_predicts_tags_that_follow_from_the_word(embedder):
    results = list(probe_pos(embedder, draw(by_word)))
    assert [one.layer for one in results] == [0, 1, 2, "mean"]
    assert results[0].test_accuracy == results[0].dev_accuracy == 1.0
    assert results[0].strength == next(trial.strength for trial in results[0].trials if trial.dev_accuracy == 1.0)


def test_only_the_lstms_predict_tags_that_follow_from_the_context(embedder):
    accuracies = [one.test_accuracy for one in probe_pos(embedder, draw(by_next_word, (150, 40, 40)))]
    assert accuracies[0] < 0.5
    assert min(accuracies[1:]) > 0.8


def test_accuracies_are_those_of_standardized_features(embedder):
    data = draw(by_next_word, (20, 10, 10))
    parts = {
        name: np.concatenate(embedder.embed_tokens([one.tokens for one in data.part(name)], layer=2))
        for name in ("train", "dev", "test")
    }
    mean_D, deviation_D = parts["train"].mean(axis=0), parts["train"].std(axis=0)
    features = {name: torch.from_numpy((part - mean_D) / deviation_D) for name, part in parts.items()}
    tags = {name: torch.tensor(["ABE".index(tag) for one in data.part(name) for tag in one.xpos]) for name in parts}
    path = fit_path(features["train"], tags["train"], num_classes=3, strengths=STRENGTHS)
    accuracies = {
        strength: {name: (one.predict(features[name]) == tags[name]).double().mean().item() for name in parts}
        for strength, one in zip(STRENGTHS, path, strict=True)
    }
    result = list(probe_pos(embedder, data))[2]
    assert [trial.strength for trial in result.trials] == list(STRENGTHS)
    assert [trial.dev_accuracy for trial in result.trials] == [accuracies[one]["dev"] for one in STRENGTHS]
    assert result.test_accuracy == accuracies[result.strength]["test"]
    assert result.strength == max(STRENGTHS, key=lambda one: (accuracies[one]["dev"], one))
    assert result.dev_accuracy == accuracies[result.strength]["dev"]


def test_a_tag_without_training_examples_is_never_predicted(embedder):
    data = draw(by_word)
    new = [tagged(list(one.tokens), ["NEW", *one.xpos[1:]]) for one in data.test]
    answers = {}
    found = next(probe_pos(embedder, PosData(data.train, data.dev, new), answers=answers.__setitem__))
    num_tokens = sum(len(one.tokens) for one in new)
    assert found.test_accuracy == pytest.approx(1 - len(new) / num_tokens)
    assert answers[0].tolist() == [tag != "NEW" for one in new for tag in one.xpos]


def test_the_same_data_give_the_same_numbers(embedder):
    data = draw(by_next_word, (20, 10, 10))
    first, second = ([(one.trials, one.test_accuracy) for one in probe_pos(embedder, data)] for _ in range(2))
    assert first == second


def test_progress_is_reported_from_start_to_end(embedder):
    data = draw(by_word, (4, 2, 2))
    reported: list[ProbeProgress] = []
    results = probe_pos(embedder, data, progress=reported.append)
    next(results)
    assert reported[-1].done == len(STRENGTHS)  # a result does not wait for the others
    assert len(list(results)) == 3
    num_tokens = sum(map(data.num_tokens, pos_probe.PARTS))
    embedding, learning = ([one for one in reported if one.doing == doing] for doing in ("embedding", "training"))
    assert reported == embedding + learning
    for part, total in ((embedding, num_tokens), (learning, 4 * len(STRENGTHS))):
        assert {one.total for one in part} == {total}
        done = [one.done for one in part]
        assert done == sorted(done)
        assert (done[0], done[-1]) == (0, total)


def test_the_control_has_the_shape_and_other_weights(embedder):
    random_before = torch.get_rng_state()
    control = untrained_like(embedder, seed=0)
    assert torch.equal(torch.get_rng_state(), random_before)
    assert control.bilm.config == embedder.bilm.config
    assert control.fingerprint() == untrained_like(embedder, seed=0).fingerprint()
    assert len({one.fingerprint() for one in (embedder, control, untrained_like(embedder, seed=1))}) == 3


def test_any_column_can_be_probed(embedder):
    data = draw(by_word)
    moved = [[replace(one, xpos=one.upos, features=one.xpos) for one in data.part(part)] for part in pos_probe.PARTS]
    expected, found = (next(probe_pos(embedder, some)) for some in (data, PosData(*moved, column="feats")))
    assert (found.trials, found.test_accuracy) == (expected.trials, expected.test_accuracy)
    with pytest.raises(InputError, match="only the tag '_' in the column xpos; use a treebank that has it, or another"):
        PosData(*moved)


def test_a_source_with_one_layer_has_no_mean():
    class Letters:
        num_layers, width = 1, 2

        def iter_layers(self, sentences, **_options):
            for tokens in sentences:
                yield np.array([[[word > "old", len(word)] for word in tokens]], dtype=np.float32)

    [only] = probe_pos(Letters(), draw(by_word))
    assert (only.layer, only.test_accuracy) == (0, 1.0)


def test_data_that_cannot_be_probed_are_rejected(embedder):
    some = [tagged(["a", "b"], ["A", "B"])]
    with pytest.raises(InputError, match="the dev part has no tokens"):
        PosData(some, [tagged([], [])], some)
    with pytest.raises(InputError, match="only the tag '_'"):
        PosData([tagged(["a", "b"], ["_", "_"])], some, some)
    with pytest.raises(InputError, match="carry"):
        probe_pos(Embedder(embedder.bilm, state="carry"), PosData(some, some, some))


def test_a_full_disk_is_reported_before_anything_is_embedded(embedder, monkeypatch):
    def fail(_file, _offset, _num_bytes):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(OutputError, match=r"No space left on device; the vectors of all layers need .* TMPDIR"):
        list(probe_pos(embedder, draw(by_word)))
