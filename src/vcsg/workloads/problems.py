"""Analytic finite sums f(x) = (1/n) Σ f_i(x), in float64, whose gradient and Lipschitz constant L are known.

L is that of every single ∇f_i, as the analysis of variance-reduced methods assumes, and not only that of ∇f.
With rows of unit norm it follows from the scalar loss alone, whatever the data drawn.

A problem is data: a loss and its gradient, both means over the rows they are given, and the rows to apply
them to. Another problem is one more such pair and one more function that draws targets.

All draws come from one `numpy.random.default_rng(seed)`, in this order: rows, the planted w, the targets.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

RowMean = Callable[[Tensor, Tensor, Tensor], Tensor]
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
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


def least_squares(n: int, d: int, seed: int) -> Problem:
    """Linear regression: f_i(x) = ½(a_i·x − y_i)², so ∇²f_i = a_i a_iᵀ and L = ‖a_i‖² = 1.

    Targets are y = Aw + ½·N(0, 1); the start is −w, on the far side of the solution.
    """
    rng, rows, w = _draw(n, d, seed)
    targets = rows @ w + 0.5 * rng.standard_normal(n)
    return Problem(
        name="least squares",
        rows=torch.from_numpy(rows),
        targets=torch.from_numpy(targets),
        start=torch.from_numpy(-w),
        L=1.0,
        loss=_squared_loss,
        loss_gradient=_squared_gradient,
    )


def nonconvex_logistic(n: int, d: int, seed: int, alpha: float = 0.05) -> Problem:
    """Logistic regression, bounded regulariser: f_i(x) = log(1 + exp(−y_i a_i·x)) + α Σ_k x_k²/(1 + x_k²).

    The logistic loss has curvature between 0 and ¼ and the regulariser between −α/2 and 2α, both largest at
    x = 0: hence L = ¼ + 2α. Labels in {−1, 1} have P(y = 1) = σ(3 a·w), then each is flipped with probability
    0.1; the start is −2w.
    """
    if not (alpha >= 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha = {alpha} must be finite and ≥ 0; 0 gives the convex problem")
    rng, rows, w = _draw(n, d, seed)
    return Problem(
        name="nonconvex logistic",
        rows=torch.from_numpy(rows),
        targets=torch.from_numpy(_labels(3 * rows @ w, rng)),
        start=torch.from_numpy(-2 * w),
        L=0.25 + 2 * alpha,
        loss=partial(_logistic_loss, alpha=alpha),
        loss_gradient=partial(_logistic_gradient, alpha=alpha),
    )


def _draw(n: int, d: int, seed: int) -> tuple[np.random.Generator, Array, Array]:
    """Rows of unit norm and the planted w = 2·N(0, 1), with the generator for what is drawn next.

    Before normalisation column k = 1 … d is N(0, 1)·k^(−1/2), plus 0.3 in the first.
    """
    for name, value, meaning in (("n", n, "rows"), ("d", d, "columns")):
        if value < 1:
            raise ValueError(f"{name} = {value} must be ≥ 1; give the number of {meaning} to draw")
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1))
    rows[:, 0] += 0.3
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rng, rows, 2 * rng.standard_normal(d)


def _labels(logits: Array, rng: np.random.Generator) -> Array:
    labels = np.where(rng.random(len(logits)) < 1 / (1 + np.exp(-logits)), 1.0, -1.0)
    flipped = rng.random(len(logits)) < 0.1
    return np.where(flipped, -labels, labels)


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
