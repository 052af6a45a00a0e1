"""The curvature of f from some of its rows: the smoothness of a mini-batch, and a factor of the Hessian."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from vcsg.linear.losses import bends
from vcsg.linear.problem import Array, Problem

SAMPLE = 256
"""The rows whose mean curvature is measured."""
ITERATIONS = 4


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


def hessian_factors(problem: Problem, x: Array) -> list[Array]:
    """For every output the Cholesky factor of H, the Hessian at x of this problem's f (its block of that output).

    H is a sample's in any case, so single precision will do for it.
    """
    rows, d = problem.rows, problem.d
    dense = rows.toarray() if problem.sparse else rows
    z = dense @ x[:, :-1].T + problem.bias * x[:, -1]
    weight = problem.weight[:, None] * bends(problem.loss.code, problem.scale, z, problem.y) / problem.n
    factors = []
    for k in range(problem.outputs):
        root = np.sqrt(weight[:, k])
        hessian = _gram(dense, root, problem.bias, np.float32)
        if not np.isfinite(hessian).all():
            hessian = _gram(dense, root, problem.bias, np.float64)
        diagonal = hessian.reshape(-1)[:: d + 2]
        diagonal[:-1] += problem.penalty.curvature
        if problem.bias == 0:
            diagonal[-1] = 1.0
        # What no row and no penalty bends gets a curvature that is small against the rest.
        diagonal += 1e-10 * max(float(diagonal.max()), 1e-300)
        factors.append(_factor(hessian))
    return factors


def _gram(dense: Any, root: Array, bias: float, dtype: Any) -> Array:
    """Σ root_i²·a_i a_iᵀ, the intercept's feature included."""
    scaled = np.empty((dense.shape[0], dense.shape[1] + 1), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        np.multiply(dense, root[:, None], out=scaled[:, :-1], casting="unsafe")
        scaled[:, -1] = bias * root
        return np.asarray(scaled.T @ scaled, np.float64)


def _factor(hessian: Array) -> Array:
    """Lower, by Cholesky; where rounding has left H indefinite, of an H with a larger diagonal."""
    for relative in (2e-6, 1e-3, 1.0):
        hessian.reshape(-1)[:: len(hessian) + 1] *= 1 + relative
        factor, failed = linalg.lapack.dpotrf(hessian, lower=1)
        if not failed:
            return np.asarray(factor)
    return np.diag(np.diagonal(hessian) ** 0.5)


def column_scales(problem: Problem) -> Array:
    """1/√(the curvature along each coordinate), from these rows: what there is where d is too large for a factor."""
    square = problem.rows.multiply(problem.rows) if problem.sparse else np.square(problem.rows, dtype=np.float64)
    sums = np.asarray(square.T @ problem.weight, np.float64) / problem.n * problem.loss.curvature
    sums += problem.penalty.curvature
    scales = np.append(sums, problem.loss.curvature * problem.bias**2 or 1.0)
    scales[scales <= 1e-10 * scales.max()] = scales.max()
    return np.asarray(np.broadcast_to(scales**-0.5, problem.shape), np.float64)
