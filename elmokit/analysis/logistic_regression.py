"""Multinomial logistic regression: the linear classifier of a probe.

The loss is the negative log-likelihood of all rows, plus ``strength / 2`` times the sum of the squared weights; biases
are not penalized. It is convex, so the result depends on no seed. (scikit-learn's C is 1 / strength.)

Shapes: N rows, D features, K classes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from elmokit.errors import InputError

ROWS_AT_ONCE = 2048  # their logits stay in the processor's cache
STEPS_REMEMBERED = 100  # by L-BFGS; with 20 it takes nearly twice as many
MOST_STEPS = 1000


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """One row of weights and one bias per class, float64."""

    weight_KD: Tensor
    bias_K: Tensor

    def predict(self, features_ND: Tensor) -> Tensor:
        """Return the likeliest class of every row, (N,)."""
        weight_KD, bias_K = self.weight_KD.to(features_ND.dtype), self.bias_K.to(features_ND.dtype)
        return torch.cat([torch.addmm(bias_K, part, weight_KD.T).argmax(1) for part in features_ND.split(ROWS_AT_ONCE)])


@dataclass(frozen=True, eq=False)
class LossAndSlope:
    """A classifier's loss and the gradient of the loss, float64."""

    loss: float
    weight_KD: Tensor
    bias_K: Tensor


def fit_path(
    features_ND: Tensor,
    classes_N: Tensor,
    *,
    num_classes: int,
    strengths: Iterable[float],
    tolerance: float = 0.1,
) -> Iterator[LinearClassifier]:
    """Yield the classifier with the smallest loss for every regularization strength.

    Each fit starts from the previous one, which saves time if strengths go from strong to weak and changes nothing
    else. Full-batch L-BFGS ends when no gradient component, scaled as below, is larger than ``tolerance``: half the
    square of that is about what one weight could still gain, in nats over all rows.
    """
    _check(features_ND, classes_N, num_classes)
    variances_D, axes_DD = torch.linalg.eigh((features_ND.T @ features_ND).double() / len(features_ND))
    # Along their principal axes features are uncorrelated, and the penalty is the same along any axes.
    turned_ND = features_ND @ axes_DD.to(features_ND.dtype)
    counts_K = torch.bincount(classes_N, minlength=num_classes).double()
    curvature_K = counts_K * (1 - counts_K / len(classes_N)) + 1  # never 0, for a class that is all rows or none
    found = LinearClassifier(axes_DD.new_zeros(num_classes, len(axes_DD)), axes_DD.new_zeros(num_classes))
    for strength in strengths:
        if not strength > 0:
            raise InputError(f"strength {strength}; expected a number above 0, without which there may be no optimum")
        # About one over the root of the loss's curvature. With weights in this unit L-BFGS needs less than half as
        # many steps: tag frequencies and variances along the axes differ by factors of a million.
        unit_KD = (curvature_K[:, None] * variances_D.clamp(min=0) + strength).rsqrt()
        unit = LinearClassifier(unit_KD, curvature_K.rsqrt())
        found = _descend(found, unit, turned_ND, classes_N, strength=strength, tolerance=tolerance)
        yield LinearClassifier(found.weight_KD @ axes_DD.T, found.bias_K)


def loss_and_slope(
    classifier: LinearClassifier, features_ND: Tensor, classes_N: Tensor, *, strength: float
) -> LossAndSlope:
    """Return the loss and its gradient, summed in float64 over chunks of rows."""
    weight_KD, bias_K = classifier.weight_KD.to(features_ND.dtype), classifier.bias_K.to(features_ND.dtype)
    nll, slope_KD, slope_K = 0.0, torch.zeros_like(classifier.weight_KD), torch.zeros_like(classifier.bias_K)
    for part_ND, class_N in zip(features_ND.split(ROWS_AT_ONCE), classes_N.split(ROWS_AT_ONCE), strict=True):
        logprobs_NK = torch.addmm(bias_K, part_ND, weight_KD.T).log_softmax(dim=1)
        nll -= logprobs_NK.gather(1, class_N[:, None]).sum(dtype=torch.float64).item()
        errors_NK = logprobs_NK.exp_()  # probabilities, less 1 for the right class
        errors_NK[torch.arange(len(class_N)), class_N] -= 1
        slope_KD += errors_NK.T @ part_ND
        slope_K += errors_NK.sum(dim=0)
    penalty = strength / 2 * classifier.weight_KD.square().sum().item()
    return LossAndSlope(nll + penalty, slope_KD + strength * classifier.weight_KD, slope_K)


def _descend(
    start: LinearClassifier,
    unit: LinearClassifier,
    features_ND: Tensor,
    classes_N: Tensor,
    *,
    strength: float,
    tolerance: float,
) -> LinearClassifier:
    """Minimize the loss from ``start``, with the weights measured in ``unit``."""
    weight_KD, bias_K = start.weight_KD / unit.weight_KD, start.bias_K / unit.bias_K
    optimizer = torch.optim.LBFGS(
        [weight_KD, bias_K],
        max_iter=MOST_STEPS,
        history_size=STEPS_REMEMBERED,
        tolerance_grad=tolerance,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        here = LinearClassifier(weight_KD * unit.weight_KD, bias_K * unit.bias_K)
        found = loss_and_slope(here, features_ND, classes_N, strength=strength)
        weight_KD.grad, bias_K.grad = found.weight_KD * unit.weight_KD, found.bias_K * unit.bias_K
        return found.loss

    optimizer.step(closure)
    return LinearClassifier(weight_KD * unit.weight_KD, bias_K * unit.bias_K)


def _check(features_ND: Tensor, classes_N: Tensor, num_classes: int) -> None:
    if not len(features_ND) or len(features_ND) != len(classes_N):
        raise InputError(
            f"{len(features_ND)} rows of features and {len(classes_N)} classes; expected one class per row, 1 or more"
        )
    if not 0 <= int(classes_N.min()) <= int(classes_N.max()) < num_classes:
        raise InputError(
            f"classes from {int(classes_N.min())} to {int(classes_N.max())}; expected 0 to {num_classes - 1}"
        )
