"""Newton's steps for small problems: what costs next to nothing is solved as far as rounding allows."""

from __future__ import annotations

import numpy as np

from vcsg.linear.losses import MULTINOMIAL, bends
from vcsg.linear.problem import Array, Problem

WORK = 2e6
"""n times the square of the number of unknowns, at most."""
STEPS = 8


def small(problem: Problem) -> bool:
    unknowns = problem.outputs * (problem.d + 1)
    smooth = not problem.penalty.l1 and not problem.penalty.rational
    return smooth and problem.loss.convex and problem.n * unknowns**2 <= WORK


def hessian(problem: Problem, x: Array) -> Array:
    """∇²f at x, for a convex loss and the L2 penalty, with all pairs of outputs."""
    dense = problem.rows.toarray() if problem.sparse else np.asarray(problem.rows, np.float64)
    rows = np.column_stack([dense, np.full(problem.n, problem.bias)])
    z = rows @ x.T
    weight = problem.weight / problem.n
    K, D = problem.shape
    blocks = np.zeros((K, D, K, D))
    if problem.loss.code == MULTINOMIAL:
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        for k in range(K):
            for j in range(k + 1):
                share = weight * p[:, k] * ((k == j) - p[:, j])
                blocks[k, :, j] = blocks[j, :, k] = (rows * share[:, None]).T @ rows
    else:
        blocks[0, :, 0] = (rows * (weight[:, None] * bends(problem.loss.code, problem.scale, z, problem.y))).T @ rows
    for k in range(K):
        blocks[k, range(D - 1), k, range(D - 1)] += problem.penalty.l2
    return blocks.reshape(K * D, K * D)


def polish(problem: Problem, x: Array) -> tuple[Array, float, float, int]:
    """(x, f, ‖∇f‖, passes) after Newton's steps, each of which lowered ‖∇f‖."""
    value, gradient = problem.objective(x)
    norm = float(np.linalg.norm(gradient))
    for passes in range(1, STEPS + 1):
        step = np.linalg.lstsq(hessian(problem, x), gradient.reshape(-1), rcond=1e-14)[0]
        trial = x - step.reshape(x.shape)
        new_value, new_gradient = problem.objective(trial)
        new_norm = float(np.linalg.norm(new_gradient))
        if not new_norm < norm or new_value > value + 1e-9 * abs(value):
            break
        x, value, gradient, norm = trial, new_value, new_gradient, new_norm
    return x, value, norm, passes + 1
