"""The convex problem: logistic regression with a ridge, whose minimum is found by Newton's method."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from vcsg.planted import planted_classes
from vcsg.workloads.problems import AnalyticProblem

NAME = "ridge-logistic"
RIDGE = 1e-3
"""λ in ½λ‖x‖², with which f is strongly convex."""
ITERATIONS = 50


def ridge_logistic_on(rows: Tensor, targets: Tensor) -> AnalyticProblem:
    """f_i(x) = log(1 + exp(−y_i a_i·x)) + ½λ‖x‖², targets −1 or 1, from x = 0: L = ¼·max ‖a_i‖² + λ."""
    if not bool((targets.abs() == 1).all()):
        raise ValueError(f"targets between {targets.min()} and {targets.max()} must be −1 or 1: map the labels first")
    L = 0.25 * float(rows.square().sum(1).max()) + RIDGE
    return AnalyticProblem(NAME, rows, targets, rows.new_zeros(rows.shape[1]), L, _loss, _gradient)


def ridge_logistic(n: int, d: int, seed: int) -> AnalyticProblem:
    """`ridge_logistic_on` n drawn rows of unit norm."""
    data = planted_classes(n, d, seed)
    return ridge_logistic_on(torch.from_numpy(data.rows), torch.from_numpy(data.targets))


def _loss(x: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
    return -logsigmoid(targets * (rows @ x)).mean() + 0.5 * RIDGE * x.square().sum()


def _gradient(x: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
    slopes = -targets * torch.sigmoid(-targets * (rows @ x))
    return rows.T @ slopes / len(rows) + RIDGE * x


def least_value(rows: Tensor, targets: Tensor) -> float:
    """min f, by Newton's method with steps that are halved until f falls; ‖∇f‖ is below 1e-12 at the end."""
    x = rows.new_zeros(rows.shape[1])
    for _ in range(ITERATIONS):
        gradient = _gradient(x, rows, targets)
        if float(gradient.norm()) < 1e-12:
            return float(_loss(x, rows, targets))
        chance = torch.sigmoid(rows @ x)
        curvature = rows.T @ (rows * (chance * (1 - chance))[:, None]) / len(rows)
        curvature += RIDGE * torch.eye(len(x), dtype=x.dtype, device=x.device)
        x = _descend(x, torch.linalg.solve(curvature, gradient), rows, targets)
    raise ArithmeticError(f"Newton's method did not end within {ITERATIONS} steps: ‖∇f‖ = {float(gradient.norm()):.1e}")


def _descend(x: Tensor, step: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
    """The point after a step of Newton, halved until f is not larger; a rounding of f is no rise."""
    before = float(_loss(x, rows, targets))
    for halvings in range(ITERATIONS):
        new = x - step / 2.0**halvings
        if float(_loss(new, rows, targets)) <= before + 1e-15:
            return new
    return x
