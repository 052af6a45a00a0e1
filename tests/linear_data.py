"""Small linear problems of every kind, and their losses once more in torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import cross_entropy, huber_loss, softplus

from vcsg.linear import LOSSES, Penalty, Problem

SCALE = 1.3

TORCH_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": lambda z, y: (z[:, 0] - y) ** 2 / 2,
    "huber": lambda z, y: huber_loss(z[:, 0], y, reduction="none", delta=SCALE),
    "geman-mcclure": lambda z, y: 0.5 / (1 / (z[:, 0] - y) ** 2 + 1 / SCALE**2),
    "welsch": lambda z, y: SCALE**2 / 2 * (1 - torch.exp(-(((z[:, 0] - y) / SCALE) ** 2))),
    "logistic": lambda z, y: softplus(-y * z[:, 0]),
    "squared-hinge": lambda z, y: torch.relu(1 - y * z[:, 0]) ** 2 / 2,
    "multinomial": lambda z, y: cross_entropy(z, y.long(), reduction="none"),
    "tweedie": lambda z, y: (
        torch.expm1((2 - SCALE) * z[:, 0]) / (2 - SCALE) + y * torch.expm1((1 - SCALE) * z[:, 0]) / (SCALE - 1)
    ),
    "quantile": lambda z, y: torch.where(z[:, 0] < y, SCALE * (y - z[:, 0]), (1 - SCALE) * (z[:, 0] - y)),
}


def make_problem(
    loss: str,
    n: int,
    d: int,
    bias: float,
    penalty: Penalty | None = None,
    form: str = "dense",
    weighted: bool = False,
) -> Problem:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    if form == "float32":
        rows = rows.astype(np.float32)
    outputs = 3 if loss == "multinomial" else 1
    y = rows @ rng.normal(size=d) + rng.normal(size=n)
    if loss == "multinomial":
        y = rng.integers(3, size=n).astype(float)
    elif LOSSES[loss].classifies:
        y = np.where(y > 0, 1.0, -1.0)
    elif loss == "tweedie":
        y = np.abs(y)
    weight = rng.random(n) * 2 if weighted else np.ones(n)
    values = sparse.csr_matrix(rows) if form == "sparse" else rows
    return Problem(values, y.astype(float), weight, LOSSES[loss], SCALE, outputs, bias, penalty or Penalty())


def autograd(problem: Problem, name: str, x: np.ndarray) -> tuple[float, np.ndarray]:
    """f and ∇f by torch; of the penalty its smooth part."""
    dense = problem.rows.toarray() if problem.sparse else problem.rows
    rows = torch.from_numpy(np.column_stack([dense, np.full(problem.n, problem.bias)]).astype(np.float64))
    point = torch.tensor(x, requires_grad=True)
    losses = TORCH_LOSSES[name](rows @ point.T, torch.from_numpy(problem.y))
    w, terms = point[:, :-1], problem.penalty
    f = (torch.from_numpy(problem.weight) * losses).mean() + terms.l2 / 2 * (w**2).sum()
    f = f + terms.rational * (w**2 / (1 + w**2)).sum()
    f.backward()
    assert point.grad is not None
    return f.item(), point.grad.numpy()
