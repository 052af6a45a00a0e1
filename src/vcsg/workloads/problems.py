"""Analytic finite sums f(x) = (1/n) Σ f_i(x), in float64, whose gradient and Lipschitz constant L are known.

L is that of every single ∇f_i, as the analysis of variance-reduced methods assumes, and not only that of ∇f.
It follows from the curvature of the scalar loss and the longest row alone; drawn rows have unit norm.

A problem is data: a loss and its gradient, both means over the rows they are given, and the rows to apply
them to. Each is made in two ways: `least_squares_on` takes rows and targets, `least_squares` draws them.
What is drawn is that of `vcsg.planted`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from vcsg.names import check_new
from vcsg.planted import PlantedData, planted_classes, planted_outliers, planted_regression

RowMean = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class AnalyticProblem:
    """A finite sum over n rows in d dimensions.

    Attributes:
        rows: a_1 … a_n, of shape (n, d).
        targets: y_1 … y_n, of shape (n,).
        start: the point to begin from, of shape (d,).
        L: a Lipschitz constant of every ∇f_i, attained at some point.
        loss: (x, rows, targets) → mean loss over the given rows; differentiable by autograd.
        loss_gradient: (x, rows, targets) → its gradient in x, by closed form.
    """

    name: str
    rows: Tensor
    targets: Tensor
    start: Tensor
    L: float
    loss: RowMean
    loss_gradient: RowMean

    @property
    def n(self) -> int:
        """The number of terms of the sum."""
        return self.rows.shape[0]

    @property
    def d(self) -> int:
        """The dimension of x."""
        return self.rows.shape[1]

    def gradient(self, x: Tensor) -> Tensor:
        """The full gradient ∇f(x), over all n rows."""
        return self.loss_gradient(x, self.rows, self.targets)

    def gradient_norm2(self, x: Tensor) -> float:
        """‖∇f(x)‖², the measure of stationarity that methods are compared by."""
        return float(self.gradient(x).square().sum())


def least_squares_on(rows: Tensor, targets: Tensor) -> AnalyticProblem:
    """Linear regression: f_i(x) = ½(a_i·x − y_i)², so ∇²f_i = a_i a_iᵀ and L = max ‖a_i‖². The start is 0."""
    return _on("least squares", rows, targets, 1.0, _squared_loss, _squared_gradient)


def least_squares(n: int, d: int, seed: int) -> AnalyticProblem:
    """`least_squares_on` n drawn rows of unit norm: L = 1.

    Targets are y = Aw + ½·N(0, 1); the start is −w, on the far side of the solution.
    """
    return _planted(least_squares_on, planted_regression(n, d, seed), L=1.0)


def nonconvex_logistic_on(rows: Tensor, targets: Tensor, alpha: float = 0.05) -> AnalyticProblem:
    """Logistic regression, bounded regulariser: f_i(x) = log(1 + exp(−y_i a_i·x)) + α Σ_k x_k²/(1 + x_k²).

    Targets are −1 or 1, and the start is 0. The logistic loss has curvature between 0 and ¼‖a_i‖² and the regulariser
    between −α/2 and 2α, both largest at x = 0: hence L = ¼·max ‖a_i‖² + 2α.
    """
    if not (alpha >= 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha = {alpha} must be finite and ≥ 0; 0 gives the convex problem")
    if not bool((targets.abs() == 1).all()):
        raise ValueError(f"targets between {targets.min()} and {targets.max()} must be −1 or 1: map the labels first")
    loss, gradient = partial(_logistic_loss, alpha=alpha), partial(_logistic_gradient, alpha=alpha)
    return _on("nonconvex logistic", rows, targets, 0.25, loss, gradient, regulariser=2 * alpha)


def nonconvex_logistic(n: int, d: int, seed: int, alpha: float = 0.05) -> AnalyticProblem:
    """`nonconvex_logistic_on` n drawn rows of unit norm: L = ¼ + 2α.

    Labels in {−1, 1} have P(y = 1) = σ(3 a·w), then each is flipped with probability 0.1; the start is −2w.
    """
    made = partial(nonconvex_logistic_on, alpha=alpha)
    return _planted(made, planted_classes(n, d, seed), L=0.25 + 2 * alpha)


def robust_regression_on(rows: Tensor, targets: Tensor) -> AnalyticProblem:
    """Regression that outliers cannot pull far: f_i(x) = ρ(a_i·x − y_i) with ρ(r) = ½ r²/(1 + r²). The start is 0.

    The loss of Geman and McClure. It is bounded by ½ and not convex: ρ″(r) = (1 − 3r²)/(1 + r²)³ lies between
    −¼, at r = ±1, and 1, at r = 0: hence L = max ‖a_i‖².

    References:
        Geman, McClure, "Bayesian image analysis: an application to single photon emission tomography", 1985.
    """
    return _on("robust regression", rows, targets, 1.0, _robust_loss, _robust_gradient)


def robust_regression(n: int, d: int, seed: int) -> AnalyticProblem:
    """`robust_regression_on` n drawn rows of unit norm: L = 1.

    Targets are y = Aw + ½·N(0, 1), and one in ten, drawn at random, is off by a further 10·N(0, 1); the start is −w.
    """
    return _planted(robust_regression_on, planted_outliers(n, d, seed), L=1.0)


@dataclass(frozen=True)
class Family:
    """An analytic problem that can be made from given rows, or from drawn ones.

    Attributes:
        on: (rows, targets) → the problem on these rows.
        draw: (n, d, seed) → the problem on drawn rows.
        classify: whether the targets are classes, −1 and 1, predicted by the sign of a·x.
    """

    on: Callable[[Tensor, Tensor], AnalyticProblem]
    draw: Callable[[int, int, int], AnalyticProblem]
    classify: bool = False


_FAMILIES = {
    "least-squares": Family(least_squares_on, least_squares),
    "nonconvex-logistic": Family(nonconvex_logistic_on, nonconvex_logistic, classify=True),
    "robust-regression": Family(robust_regression_on, robust_regression),
}


def register_problem(name: str, family: Family, *, replace: bool = False) -> None:
    """Make a problem known by name, for every data set with two classes or real targets.

    A name that exists already is refused unless `replace` is true.
    """
    check_new("problem", name, _FAMILIES, replace)
    _FAMILIES[name] = family


def problems() -> dict[str, Family]:
    """Every registered problem by name."""
    return dict(_FAMILIES)


def unit_rows(rows: Tensor) -> Tensor:
    """The rows as flat float64 vectors divided by their norms; a row of zeros stays as it is."""
    rows = rows.flatten(1).double()
    norms = rows.norm(dim=1, keepdim=True)
    return rows / torch.where(norms > 0, norms, 1.0)


def _on(
    name: str,
    rows: Tensor,
    targets: Tensor,
    curvature: float,
    loss: RowMean,
    gradient: RowMean,
    regulariser: float = 0.0,
) -> AnalyticProblem:
    """A problem whose scalar loss has |second derivative| ≤ `curvature`, and whose regulariser adds its own to L."""
    if rows.ndim != 2 or targets.shape != rows.shape[:1] or not rows.numel():
        raise ValueError(
            f"rows of shape {tuple(rows.shape)} and targets of shape {tuple(targets.shape)}: "
            "give (n, d) and (n,), with n and d at least 1"
        )
    for part, tensor in (("rows", rows), ("targets", targets)):
        if tensor.dtype != torch.float64:
            raise ValueError(f"{part} are {tensor.dtype}: give float64, {part}.double()")
    L = curvature * float(rows.square().sum(1).max()) + regulariser
    return AnalyticProblem(name, rows, targets, rows.new_zeros(rows.shape[1]), L, loss, gradient)


def _planted(on: Callable[[Tensor, Tensor], AnalyticProblem], data: PlantedData, L: float) -> AnalyticProblem:
    """The problem on drawn rows, with the start and the L that are known for them."""
    problem = on(torch.from_numpy(data.rows), torch.from_numpy(data.targets))
    return replace(problem, start=torch.from_numpy(data.start), L=L)


def _squared_loss(x: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
    return 0.5 * (rows @ x - targets).square().mean()


def _squared_gradient(x: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
    return rows.T @ (rows @ x - targets) / len(rows)


def _logistic_loss(x: Tensor, rows: Tensor, targets: Tensor, *, alpha: float) -> Tensor:
    # Not softplus(−m): torch cuts it off beyond a threshold of 20, an error of 2e-9 that float64 would show.
    fit = -logsigmoid(targets * (rows @ x)).mean()
    return fit + alpha * (x.square() / (1 + x.square())).sum()


def _logistic_gradient(x: Tensor, rows: Tensor, targets: Tensor, *, alpha: float) -> Tensor:
    slopes = -targets * torch.sigmoid(-targets * (rows @ x))
    return rows.T @ slopes / len(rows) + alpha * 2 * x / (1 + x.square()).square()


def _robust_loss(x: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
    squares = (rows @ x - targets).square()
    return 0.5 * (squares / (1 + squares)).mean()


def _robust_gradient(x: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
    residuals = rows @ x - targets
    return rows.T @ (residuals / (1 + residuals.square()).square()) / len(rows)
