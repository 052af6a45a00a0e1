"""The curvature of f from some of its rows: the smoothness of a mini-batch, and a factor of the Hessian."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from vcsg.linear.losses import bends
from vcsg.linear.problem import Array, Problem

SAMPLE = 256
"""The rows whose mean curvature is measured."""
ITERATIONS = 5


def mean_smoothness(problem: Problem) -> float:
    """κ·λ_max of (1/n)Σ w_i a_i a_iᵀ, from the first rows, by power iteration from their mean: that of f's loss."""
    rows, weight = problem.rows[:SAMPLE], problem.weight[:SAMPLE]
    size = rows.shape[0]
    v = np.append(rows.T @ weight, problem.bias * weight.sum()).astype(np.float64)
    v += np.abs(v).max() * 0.1 * np.random.default_rng(0).standard_normal(v.size)
    found = 0.0
    for _ in range(ITERATIONS):
        length = float(np.linalg.norm(v))
        if length == 0:
            return 0.0
        v /= length
        z = weight * (rows @ v[:-1] + problem.bias * v[-1])
        v = np.append(rows.T @ z, problem.bias * z.sum()) / size
        found = float(np.linalg.norm(v))
    return problem.loss.curvature * found


def inverse_factors(problem: Problem, x: Array) -> Array:
    """For every output an M with MMᵀ = H⁻¹, H the Hessian at x of this problem's f (its block of that output)."""
    rows, d = problem.rows, problem.d
    dense = rows.toarray() if problem.sparse else np.asarray(rows, np.float64)
    z = dense @ x[:, :-1].T + problem.bias * x[:, -1]
    weight = problem.weight[:, None] * bends(problem.loss.code, problem.scale, z, problem.y)
    factors = np.empty((problem.outputs, d + 1, d + 1))
    for k in range(problem.outputs):
        scaled = np.empty((problem.n, d + 1))
        root = np.sqrt(weight[:, k] / problem.n)
        np.multiply(dense, root[:, None], out=scaled[:, :-1])
        scaled[:, -1] = problem.bias * root
        hessian = scaled.T @ scaled
        diagonal = hessian.reshape(-1)[:: d + 2]
        diagonal[:-1] += problem.penalty.curvature
        # What no row and no penalty bends gets a curvature that is small against the rest.
        diagonal += 1e-10 * max(float(diagonal.max()), 1e-300)
        if problem.bias == 0:
            diagonal[-1] = 1.0
        factor = linalg.cholesky(hessian, lower=True, overwrite_a=True, check_finite=False)
        inverse, _ = linalg.lapack.dtrtri(factor, lower=1, overwrite_c=1)
        factors[k] = np.tril(inverse).T
    return factors


def column_scales(problem: Problem) -> Array:
    """1/√(the curvature along each coordinate), from these rows: what there is where d is too large for a factor."""
    square = problem.rows.multiply(problem.rows) if problem.sparse else np.square(problem.rows, dtype=np.float64)
    sums = np.asarray(square.T @ problem.weight, np.float64) / problem.n * problem.loss.curvature
    sums += problem.penalty.curvature
    scales = np.append(sums, problem.loss.curvature * problem.bias**2 or 1.0)
    scales[scales <= 1e-10 * scales.max()] = scales.max()
    return np.asarray(np.broadcast_to(scales**-0.5, problem.shape), np.float64)
