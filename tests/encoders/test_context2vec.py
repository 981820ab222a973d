"""context2vec: the target is excluded, and the loss is the equation's."""

import math

import pytest
import torch

from elmokit.encoders.context2vec import Context2Vec

NUM_WORDS = 9


@pytest.fixture
def model() -> Context2Vec:
    torch.manual_seed(0)
    model = Context2Vec(NUM_WORDS, (0, 1), word_dim=3, hidden_dim=4, context_dim=5).double()
    torch.nn.init.normal_(model.targets.weight)
    return model


def test_a_contexts_vector_does_not_depend_on_its_target(model: Context2Vec) -> None:
    words_BT = torch.tensor([[2, 3, 4, 5]])
    vectors_BTC = model(words_BT)
    for place in range(4):
        other_BT = words_BT.clone()
        other_BT[0, place] = 8
        changed_BTC = model(other_BT)
        torch.testing.assert_close(changed_BTC[0, place], vectors_BTC[0, place], rtol=0, atol=0)
        others = [index for index in range(4) if index != place]
        assert all((changed_BTC[0, index] != vectors_BTC[0, index]).any() for index in others)


def test_batch_order_never_changes_a_vector(model: Context2Vec) -> None:
    words_BT = torch.tensor([[2, 3, 4], [5, 6, 7], [8, 2, 2]])
    torch.testing.assert_close(model(words_BT.flip(0)), model(words_BT).flip(0))
    torch.testing.assert_close(model(words_BT[1:2]), model(words_BT)[1:2])


def test_the_loss_is_the_mean_over_tokens(model: Context2Vec) -> None:
    words_BT = torch.tensor([[2, 3]])
    negatives_BTK = torch.tensor([[[4, 5], [6, 6]]])
    contexts_TC, targets = model(words_BT)[0].detach(), model.targets.weight.detach()
    expected = 0.0
    for place, (word, negatives) in enumerate(zip([2, 3], [[4, 5], [6, 6]], strict=True)):
        expected += math.log1p(math.exp(-float(contexts_TC[place] @ targets[word])))
        expected += sum(math.log1p(math.exp(float(contexts_TC[place] @ targets[n]))) for n in negatives)
    assert float(model.loss(words_BT, negatives_BTK).detach()) == pytest.approx(expected / 2)
