"""The fitted classifier is the optimum: that of Newton's method in plain NumPy.

Shapes: N rows, D features, K classes, E = D + 1 features with the constant one for the bias.
"""

import numpy as np
import pytest
import torch

from elmokit.analysis import logistic_regression
from elmokit.analysis.logistic_regression import LinearClassifier, fit_path, loss_and_slope
from elmokit.errors import InputError

NUM_CLASSES = 3
STRENGTHS = (30.0, 3.0, 0.1)


def draw(num_rows: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Correlated features of different sizes, classes of different frequency, in float64."""
    rng = np.random.default_rng(3)
    features_ND = rng.normal(size=(num_rows, 4)) @ rng.normal(size=(4, 4)) * np.array([1, 5, 0.2, 1])
    scores_NK = features_ND @ rng.normal(size=(4, NUM_CLASSES)) + rng.gumbel(size=(num_rows, NUM_CLASSES)) * 2
    return torch.from_numpy(features_ND), torch.from_numpy((scores_NK - np.array([0, 0, 2])).argmax(axis=1))


def newton(features_ND: np.ndarray, classes_N: np.ndarray, *, strength: float) -> np.ndarray:
    """Weights and biases (K, E) of the smallest loss. Biases have the faintest penalty, so that one optimum is left."""
    inputs_NE = np.hstack([features_ND, np.ones((len(features_ND), 1))])
    num_inputs = inputs_NE.shape[1]
    penalty_E = np.array([strength] * (num_inputs - 1) + [1e-9])
    weights_KE = np.zeros((NUM_CLASSES, num_inputs))
    for _ in range(50):
        scores_NK = inputs_NE @ weights_KE.T
        probs_NK = np.exp(scores_NK - scores_NK.max(axis=1, keepdims=True))
        probs_NK /= probs_NK.sum(axis=1, keepdims=True)
        errors_NK = probs_NK - np.eye(NUM_CLASSES)[classes_N]
        slope_KE = errors_NK.T @ inputs_NE + penalty_E * weights_KE
        curvature = np.einsum("nk,kj,ne,nf->kejf", probs_NK, np.eye(NUM_CLASSES), inputs_NE, inputs_NE)
        curvature -= np.einsum("nk,nj,ne,nf->kejf", probs_NK, probs_NK, inputs_NE, inputs_NE)
        square = curvature.reshape(slope_KE.size, -1) + np.diag(np.tile(penalty_E, NUM_CLASSES))
        weights_KE = weights_KE - np.linalg.solve(square, slope_KE.ravel()).reshape(slope_KE.shape)
    return weights_KE


@pytest.mark.long
def test_every_optimum_of_a_path_is_newton_s():
    features_ND, classes_N = draw()
    path = fit_path(features_ND, classes_N, num_classes=NUM_CLASSES, strengths=STRENGTHS, tolerance=1e-5)
    for strength, found in zip(STRENGTHS, path, strict=True):
        expected_KE = newton(features_ND.numpy(), classes_N.numpy(), strength=strength)
        np.testing.assert_allclose(found.weight_KD, expected_KE[:, :-1], atol=1e-4, rtol=1e-4)
        biases_K = expected_KE[:, -1] - expected_KE[:, -1].mean()  # which only count up to a constant
        np.testing.assert_allclose(found.bias_K - found.bias_K.mean(), biases_K, atol=1e-4, rtol=1e-4)


def test_the_usual_tolerance_in_float32_is_near_the_optimum():
    features_ND, classes_N = draw(500)
    path = fit_path(features_ND.float(), classes_N, num_classes=NUM_CLASSES, strengths=STRENGTHS)
    for strength, found in zip(STRENGTHS, path, strict=True):
        exact_KE = torch.from_numpy(newton(features_ND.numpy(), classes_N.numpy(), strength=strength))
        best = LinearClassifier(exact_KE[:, :-1], exact_KE[:, -1])
        losses = [loss_and_slope(one, features_ND, classes_N, strength=strength).loss for one in (found, best)]
        assert losses[1] - 1e-6 < losses[0] < losses[1] + 0.2  # of about 190 nats


def test_the_gradient_matches_finite_differences(monkeypatch):
    monkeypatch.setattr(logistic_regression, "ROWS_AT_ONCE", 7)  # several parts, the last one short
    features_ND, classes_N = draw()
    generator = torch.Generator().manual_seed(4)
    point = torch.randn(NUM_CLASSES, 5, generator=generator, dtype=torch.float64) / 5

    def loss(point_KE: torch.Tensor) -> float:
        here = LinearClassifier(point_KE[:, :-1], point_KE[:, -1])
        return loss_and_slope(here, features_ND, classes_N, strength=0.3).loss

    found = loss_and_slope(LinearClassifier(point[:, :-1], point[:, -1]), features_ND, classes_N, strength=0.3)
    slope_KE = torch.cat([found.weight_KD, found.bias_K[:, None]], dim=1)
    for index in np.ndindex(*point.shape):
        step = torch.zeros_like(point)
        step[index] = 1e-5
        assert slope_KE[index].item() == pytest.approx((loss(point + step) - loss(point - step)) / 2e-5, abs=1e-6)


def test_the_loss_is_the_negative_log_likelihood_and_the_penalty():
    features_ND = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    classifier = LinearClassifier(torch.tensor([[2.0, 0.0], [0.0, 1.0]]).double(), torch.tensor([0.0, 1.0]).double())
    found = loss_and_slope(classifier, features_ND, torch.tensor([0, 0]), strength=0.5)
    # The scores are (2, 1) and (0, 3).
    nll = np.log(1 + np.exp(-1)) + np.log(1 + np.exp(3))
    assert found.loss == pytest.approx(nll + 0.25 * (4 + 1), abs=1e-6)


def test_the_likeliest_class_is_predicted(monkeypatch):
    monkeypatch.setattr(logistic_regression, "ROWS_AT_ONCE", 2)
    classifier = LinearClassifier(torch.tensor([[1.0], [-1.0]]).double(), torch.tensor([0.0, 1.0]).double())
    assert classifier.predict(torch.tensor([[-1.0], [0.4], [0.6], [3.0]])).tolist() == [1, 1, 0, 0]


def test_a_class_without_rows_and_a_constant_feature_do_no_harm():
    features_ND = torch.tensor([[0.0, 1.0], [0.0, -1.0], [0.0, 2.0]])
    [found] = fit_path(features_ND, torch.tensor([0, 1, 0]), num_classes=3, strengths=[0.1])
    assert found.predict(features_ND).tolist() == [0, 1, 0]
    assert found.weight_KD[:, 0].abs().max() < 1e-6


@pytest.mark.parametrize(
    ("rows", "classes", "strength", "message"),
    [
        (0, [], 1.0, "0 rows of features and 0 classes"),
        (2, [0], 1.0, "2 rows of features and 1 classes"),
        (2, [0, 3], 1.0, "classes from 0 to 3; expected 0 to 2"),
        (2, [-1, 0], 1.0, "classes from -1 to 0; expected 0 to 2"),
        (2, [0, 1], 0.0, "strength 0.0; expected a number above 0"),
    ],
)
def test_problems_without_an_optimum_are_rejected(rows, classes, strength, message):
    features_ND, classes_N = torch.ones(rows, 2), torch.tensor(classes, dtype=torch.int64)
    with pytest.raises(InputError, match=message):
        list(fit_path(features_ND, classes_N, num_classes=3, strengths=[strength]))
