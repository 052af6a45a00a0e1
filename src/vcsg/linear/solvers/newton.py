"""Newton's method for small problems, which are solved as far as rounding allows: it costs next to nothing."""

from __future__ import annotations

import numpy as np

from vcsg.linear.curvature import row_curvatures
from vcsg.linear.kernels.losses import MULTINOMIAL
from vcsg.linear.problem import Array, PassResult, Problem

POLISH = 2e6
"""The largest `work` for which a solution is refined beyond tol."""
SOLVE = 1e8
"""The largest `work` for which several outputs are solved by Newton's method in place of L-BFGS.

The Hessian in L-BFGS has one block for each output and nothing between them.
"""
STEPS = 50
"""The largest number of Newton steps."""
HALVINGS = 30
"""How often a step may be halved before f counts as not falling any more."""


def work(problem: Problem) -> float:
    """n times the square of the number of unknowns; infinite where there is no Hessian to solve with."""
    smooth = problem.loss.convex and not problem.penalty.l1 and not problem.penalty.rational
    return problem.n * (problem.outputs * (problem.d + 1.0)) ** 2 if smooth else np.inf


def hessian(problem: Problem, x: Array) -> Array:
    """∇²f at x, for a convex loss and the L2 penalty, with all pairs of outputs."""
    dense = problem.rows.toarray() if problem.sparse else np.asarray(problem.rows, np.float64)
    rows = np.column_stack([dense, np.full(problem.n, problem.bias)])
    K, D = problem.shape
    blocks = np.zeros((K, D, K, D))
    if problem.loss.code == MULTINOMIAL:
        z, weight = rows @ x.T, problem.weight / problem.n
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        for k in range(K):
            for j in range(k + 1):
                share = weight * p[:, k] * ((k == j) - p[:, j])
                blocks[k, :, j] = blocks[j, :, k] = (rows * share[:, None]).T @ rows
    else:
        blocks[0, :, 0] = (rows * row_curvatures(problem, x)).T @ rows
    for k in range(K):
        blocks[k, range(D - 1), k, range(D - 1)] += problem.penalty.l2
    return blocks.reshape(K * D, K * D)


def _solve(H: Array, gradient: Array) -> Array:
    """H⁻¹∇f, of least norm where H is singular, computed in units in which H has the diagonal 1."""
    diagonal = np.diagonal(H)
    units = np.where(diagonal > 0, diagonal, 1.0) ** -0.5
    return np.asarray(units * np.linalg.lstsq(units[:, None] * H * units, units * gradient, rcond=1e-14)[0])


def descend(problem: Problem, x: Array, tol: float, budget: float) -> tuple[Array, PassResult, int]:
    """Take Newton steps, halved until f falls; return x, the pass there, and the number of passes used."""
    here, passes = problem.anchor(x), 1
    for _ in range(STEPS):
        step = _solve(hessian(problem, x), here.smooth.reshape(-1)).reshape(x.shape)
        for _ in range(HALVINGS):
            trial = x - step
            there, passes = problem.anchor(trial), passes + 1
            if there.below(here, 0.0):
                break
            step /= 2
        else:
            return x, here, passes
        x, here = trial, there
        if here.norm <= tol or passes >= budget:
            break
    return x, here, passes
