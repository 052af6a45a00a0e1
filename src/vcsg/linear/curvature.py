"""The curvature of f from some of its rows: the smoothness of a mini-batch, and a factor of the Hessian."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import linalg, sparse

from vcsg.linear.compiled import njit
from vcsg.linear.losses import bends
from vcsg.linear.problem import Array, Problem

SAMPLE = 256
"""The rows whose mean curvature is measured."""
ITERATIONS = 4


def mean_smoothness(problem: Problem) -> float:
    """κ·λ_max of (1/n)Σ w_i a_i a_iᵀ, from the first rows, by power iteration from a sum of them: that of f's loss."""
    rows, weight, bias = problem.rows[:SAMPLE], problem.weight[:SAMPLE] / min(SAMPLE, problem.n), problem.bias
    back, z = rows.T, weight * np.linspace(0.5, 1.5, weight.size)  # unlike any that would cancel
    found = 0.0
    for _ in range(ITERATIONS + 1):
        v, c = back @ z, bias * float(z.sum())
        found = math.sqrt(float(v @ v) + c * c)
        if found == 0:
            break
        z = weight * (rows @ v + bias * c) / found
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
    scale_rows(dense, root, bias, scaled)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(scaled.T @ scaled, np.float64)


@njit
def scale_rows(dense: Any, root: Any, bias: float, scaled: Any) -> None:
    d = dense.shape[1]
    for i in range(dense.shape[0]):
        row, out, factor = dense[i], scaled[i], root[i]
        for j in range(d):
            out[j] = row[j] * factor
        out[d] = bias * factor


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
    if problem.sparse:
        square = sparse.csr_matrix(
            (problem.rows.data**2, problem.rows.indices, problem.rows.indptr), problem.rows.shape
        )
    else:
        square = np.square(problem.rows, dtype=np.float64)
    sums = np.asarray(square.T @ problem.weight, np.float64) / problem.n * problem.loss.curvature
    sums += problem.penalty.curvature
    scales = np.append(sums, problem.loss.curvature * problem.bias**2 or 1.0)
    scales[scales <= 1e-10 * scales.max()] = scales.max()
    return np.asarray(np.broadcast_to(scales**-0.5, problem.shape), np.float64)
