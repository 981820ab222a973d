"""The optimizer by rows against torch's own over whole tensors."""

import copy

import pytest
import torch
from toy import toy_model, toy_recipe

from elmokit.errors import ConfigError
from elmokit.model.language_model import LanguageModel
from elmokit.pretrain.optimizer import PretrainOptimizer, RowGradients

NUM_WORDS = 20


def make(optimizer: str, *, sampled: bool, clip_norm: float | None = None) -> tuple[LanguageModel, PretrainOptimizer]:
    torch.manual_seed(0)
    model = LanguageModel.untrained(toy_model(), NUM_WORDS)
    settings = toy_recipe(optimizer=optimizer, clip_norm=clip_norm).training
    return model, PretrainOptimizer(model, settings, sampled=sampled)


def draw(model: LanguageModel, step: int) -> RowGradients:
    """Set the biLM's gradients, the same for the same step, and return the softmax's."""
    random = torch.Generator().manual_seed(step)
    for parameter in model.bilm.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=random)
    rows = torch.randperm(NUM_WORDS, generator=random)[:6].sort().values
    width = model.softmax.weight.shape[1]
    return RowGradients(rows, torch.randn(6, width, generator=random), torch.randn(6, generator=random))


def set_whole(model: LanguageModel, rows: RowGradients) -> None:
    model.softmax.weight.grad = torch.zeros_like(model.softmax.weight).index_copy_(0, rows.rows_R, rows.weight_RP)
    model.softmax.bias.grad = torch.zeros_like(model.softmax.bias).index_copy_(0, rows.rows_R, rows.bias_R)


TORCHS = {
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.3, initial_accumulator_value=1.0, eps=1e-10),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.3),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.3),
}


@pytest.mark.parametrize("clip_norm", [None, 5.0])
@pytest.mark.parametrize("sampled", [True, False], ids=["sampled", "full"])
@pytest.mark.parametrize("name", list(TORCHS))
def test_steps_equal_those_of_torch_over_whole_tensors(name: str, sampled: bool, clip_norm: float | None) -> None:
    model, optimizer = make(name, sampled=sampled, clip_norm=clip_norm)
    other = copy.deepcopy(model)
    torchs = TORCHS[name](other.parameters())
    for step in range(4):
        rows = draw(other, step)
        set_whole(other, rows)
        norm = torch.nn.utils.clip_grad_norm_(other.parameters(), clip_norm or float("inf"))
        torchs.step()
        rows = draw(model, step)
        if not sampled:
            set_whole(model, rows)
        found = optimizer.step(rows if sampled else None, 0.3)
        assert found == pytest.approx(float(norm), rel=1e-5)
    assert clip_norm is None or found > clip_norm
    for (key, left), right in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6, msg=lambda text, key=key: f"{key}: {text}")


def test_a_norm_below_the_clip_is_left_alone() -> None:
    clipped, unclipped = make("sgd", sampled=True, clip_norm=1e6), make("sgd", sampled=True)
    for model, optimizer in (clipped, unclipped):
        optimizer.step(draw(model, 0), 0.1)
    for left, right in zip(clipped[0].parameters(), unclipped[0].parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("sampled", [True, False], ids=["sampled", "full"])
@pytest.mark.parametrize("name", list(TORCHS))
def test_a_restored_optimizer_continues_exactly(name: str, sampled: bool) -> None:
    def move(model: LanguageModel, optimizer: PretrainOptimizer, step: int) -> None:
        rows = draw(model, step)
        if not sampled:
            set_whole(model, rows)
        optimizer.step(rows if sampled else None, 0.3)

    model, optimizer = make(name, sampled=sampled)
    for step in range(3):
        move(model, optimizer, step)
    kept = {key: tensor.clone() for key, tensor in optimizer.tensors().items()}
    resumed_model, resumed = make(name, sampled=sampled)
    resumed_model.load_state_dict(model.state_dict())
    resumed.load(kept)
    for step in range(3, 5):
        move(model, optimizer, step)
        move(resumed_model, resumed, step)
    for left, right in zip(model.parameters(), resumed_model.parameters(), strict=True):
        assert torch.equal(left, right)
    assert name == "sgd" or kept


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_rejected_before_the_update(value: float) -> None:
    model, optimizer = make("adagrad", sampled=True, clip_norm=1.0)
    before = copy.deepcopy(model.state_dict())
    rows = draw(model, 0)
    rows.bias_R[0] = value
    with pytest.raises(ConfigError, match="learning_rate"):
        optimizer.step(rows, 0.1)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", list(TORCHS))
def test_only_weights_that_move_are_marked_as_changed(name: str) -> None:
    model, optimizer = make(name, sampled=False)
    set_whole(model, draw(model, 0))
    model.bilm.zero_grad()
    before = [parameter._version for parameter in model.parameters()]
    optimizer.step(None, 0.3)
    changed = {
        key
        for (key, parameter), version in zip(model.named_parameters(), before, strict=True)
        if parameter._version > version
    }
    assert changed == {"softmax.weight", "softmax.bias"}
