"""How a task model's weights move, against the same arithmetic written apart."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from elmokit.errors import ConfigError
from elmokit.tasks.optimizer import MovingMean, TaskOptimizer, decayed_names, learning_rate
from elmokit.tasks.recipe import TrainingSettings


class Tokens(nn.Module):
    """Stands where a model's token encoder does."""

    def __init__(self) -> None:
        super().__init__()
        self.learned = nn.Parameter(torch.randn(5, 3))
        self.gamma = nn.Parameter(torch.ones(()))


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = Tokens()
        self.flags = nn.Embedding(2, 3)
        self.rnn = nn.LSTM(3, 4, batch_first=True)
        self.emit = nn.Linear(4, 2)
        self.unused = nn.Linear(2, 2)
        self.fixed = nn.Parameter(torch.ones(2, 2), requires_grad=False)

    def loss(self) -> torch.Tensor:
        inputs_BTE = (self.tokens.learned * self.tokens.gamma + self.flags.weight[1]).unsqueeze(0)
        return self.emit(self.rnn(inputs_BTE)[0]).square().sum()


MATRICES = ["rnn.weight_ih_l0", "rnn.weight_hh_l0", "emit.weight", "unused.weight"]


def moved(model: Toy, steps: int = 1, rate: float = 0.1, **settings) -> dict[str, torch.Tensor]:
    optimizer = TaskOptimizer(model, TrainingSettings(**settings))
    for _ in range(steps):
        optimizer.clear()
        model.loss().backward()
        optimizer.step(rate)
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def expected_sgd(loss_of, *, clip=lambda gradients: gradients) -> dict[str, torch.Tensor]:
    model = Toy()
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss_of(model), [parameters[name] for name in names], allow_unused=True)
    present = {name: gradient for name, gradient in zip(names, gradients, strict=True) if gradient is not None}
    clipped = clip(present)
    return {name: value.detach() - 0.1 * clipped.get(name, 0) for name, value in parameters.items()}


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=name)


def with_penalty(model: Toy) -> torch.Tensor:
    parameters = dict(model.named_parameters())
    return model.loss() + 0.3 / 2 * sum(parameters[name].square().sum() for name in MATRICES)


def to_norm_1(gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    norm = math.sqrt(sum(gradient.square().sum().item() for gradient in gradients.values()))
    assert norm > 2
    return {name: gradient / norm for name, gradient in gradients.items()}


def test_the_l2_penalty_is_on_the_matrices_of_layers_only():
    assert sorted(decayed_names(Toy())) == sorted(MATRICES)


def test_the_l2_penalty_is_half_the_square_added_to_the_loss():
    found = moved(Toy(), optimizer="sgd", weight_decay=0.3)
    assert_same(found, expected_sgd(with_penalty))
    assert torch.equal(found["fixed"], torch.ones(2, 2))


def test_the_norm_is_clipped_with_the_penalty_in_it():
    found = moved(Toy(), optimizer="sgd", weight_decay=0.3, clip_norm=1.0)
    assert_same(found, expected_sgd(with_penalty, clip=to_norm_1))


def test_values_are_clipped_one_by_one():
    found = moved(Toy(), optimizer="sgd", clip_value=0.01)
    assert_same(
        found,
        expected_sgd(Toy.loss, clip=lambda gradients: {name: g.clamp(-0.01, 0.01) for name, g in gradients.items()}),
    )


def test_a_small_gradient_is_not_clipped():
    assert_same(moved(Toy(), optimizer="sgd", clip_norm=1e6), expected_sgd(Toy.loss))


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("adam", lambda parameters: torch.optim.Adam(parameters, lr=0.1, foreach=False)),
        ("adadelta", lambda parameters: torch.optim.Adadelta(parameters, lr=0.1, rho=0.95, eps=1e-6, foreach=False)),
        (
            "adagrad",
            lambda parameters: torch.optim.Adagrad(
                parameters, lr=0.1, initial_accumulator_value=1.0, eps=1e-10, foreach=False
            ),
        ),
        ("sgd", lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=False)),
    ],
)
def test_every_optimizer_is_torchs_own(name, reference):
    model = Toy()
    plain = reference([parameter for parameter in model.parameters() if parameter.requires_grad])
    for _ in range(3):
        plain.zero_grad()
        model.loss().backward()
        plain.step()
    assert_same(moved(Toy(), steps=3, optimizer=name), dict(model.state_dict()))


@pytest.mark.parametrize("epsilon", [1e-6, 1e-8])
def test_adadelta_is_the_published_rule(epsilon: float):
    # Zeiler 2012, algorithm 1, for one number with the gradients 2 and 3.
    square = delta_square = 0.0
    x = 1.0
    model = nn.Module()
    model.tokens, model.x = nn.Module(), nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    optimizer = TaskOptimizer(model, TrainingSettings(optimizer="adadelta", adadelta_epsilon=epsilon))
    for gradient in (2.0, 3.0):
        square = 0.95 * square + 0.05 * gradient**2
        delta = -math.sqrt(delta_square + epsilon) / math.sqrt(square + epsilon) * gradient
        delta_square = 0.95 * delta_square + 0.05 * delta**2
        x += delta
        model.x.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step(1.0)
    assert model.x.item() == pytest.approx(x, rel=1e-12)


@pytest.mark.parametrize("name", ["adam", "adadelta", "adagrad", "sgd"])
def test_an_optimizer_is_resumed_from_what_it_remembers(name):
    straight = moved(Toy(), steps=4, optimizer=name)
    model = Toy()
    settings = TrainingSettings(optimizer=name)
    first, second = TaskOptimizer(model, settings), None
    for step in range(4):
        if step == 2:
            second = TaskOptimizer(model, settings)
            second.load(first.tensors())
        optimizer = second or first
        optimizer.clear()
        model.loss().backward()
        optimizer.step(0.1)
    assert all(torch.equal(straight[name], value) for name, value in model.state_dict().items())


def test_a_gradient_that_is_not_finite_is_an_error_before_anything_moves():
    model = Toy()
    optimizer = TaskOptimizer(model, TrainingSettings(clip_norm=1.0))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.loss().backward()
    model.emit.bias.grad[0] = float("inf")
    with pytest.raises(ConfigError, match=r"norm is inf.*lower training\.learning_rate"):
        optimizer.step(0.1)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_schedules():
    def rates(schedule: str, steps: list[int], num_halvings: int = 0) -> list[float]:
        settings = TrainingSettings(learning_rate=0.5, schedule=schedule)
        return [learning_rate(settings, step=step, num_halvings=num_halvings) for step in steps]

    assert rates("constant", [0, 10_000], num_halvings=3) == [0.5, 0.5]
    assert rates("halve", [0, 10_000], num_halvings=0) == [0.5, 0.5]
    assert rates("halve", [0, 10_000], num_halvings=3) == [0.0625, 0.0625]
    assert rates("exponential", [0, 99]) == [0.5, 0.5]
    assert rates("exponential", [100, 199, 200]) == pytest.approx([0.5 * 0.999, 0.5 * 0.999, 0.5 * 0.999**2])


def test_the_moving_mean_forgets_the_first_weights_soon():
    model = Toy()
    mean = MovingMean(model, 0.5)
    expected = model.emit.weight.detach().double().numpy().copy()
    # 1/10, 2/11, 3/12, 4/13, 5/14, 6/15, 7/16, 8/17, then the decay itself
    for step, decay in enumerate([0.1, 2 / 11, 0.25, 4 / 13, 5 / 14, 0.4, 0.4375, 8 / 17, 0.5, 0.5]):
        with torch.no_grad():
            model.emit.weight.add_(1.0 + step)
        mean.update(step)
        expected = decay * expected + (1 - decay) * model.emit.weight.detach().double().numpy()
    np.testing.assert_allclose(mean.tensors["emit.weight"].numpy(), expected, rtol=1e-5)
    assert "fixed" not in mean.tensors


def test_the_mean_is_the_models_weights_for_a_moment_even_if_that_fails():
    model = Toy()
    mean = MovingMean(model, 0.5)
    with torch.no_grad():
        model.emit.weight.fill_(1 / 3)
    mean.update(0)
    with mean.in_place():
        assert torch.equal(model.emit.weight, mean.tensors["emit.weight"])
        assert not torch.equal(model.emit.weight, torch.full((2, 4), 1 / 3))
    assert torch.equal(model.emit.weight, torch.full((2, 4), 1 / 3))
    with pytest.raises(ZeroDivisionError), mean.in_place():
        raise ZeroDivisionError
    assert torch.equal(model.emit.weight, torch.full((2, 4), 1 / 3))


def test_a_bilm_has_a_learning_rate_of_its_own_under_the_same_schedule():
    model = nn.Module()
    model.tokens = nn.Module()
    model.tokens.trained = nn.Linear(1, 1, bias=False)
    model.emit = nn.Linear(1, 1, bias=False)
    before = {name: weight.item() for name, weight in model.named_parameters()}
    settings = TrainingSettings(optimizer="sgd", learning_rate=0.1)
    optimizer = TaskOptimizer(model, settings, bilm_rate=0.01)
    for weight in model.parameters():
        weight.grad = torch.ones(1, 1)
    optimizer.step(0.05)  # the schedule has halved the rate
    moves = {name: before[name] - weight.item() for name, weight in model.named_parameters()}
    assert moves == pytest.approx({"tokens.trained.weight": 0.005, "emit.weight": 0.05})
