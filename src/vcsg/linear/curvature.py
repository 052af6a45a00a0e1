"""The curvature of f from some of its rows: the smoothness of a mini-batch, and a factor of the Hessian."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import linalg, sparse

from vcsg.linear.compiled import njit
from vcsg.linear.lanes import pointer
from vcsg.linear.losses import bends
from vcsg.linear.problem import Array, Problem
from vcsg.linear.rows import add_rows, located, margins

SAMPLE = 256
"""The rows whose mean curvature is measured."""
ITERATIONS = 4


def mean_smoothness(problem: Problem) -> float:
    """κ·λ_max of (1/n)Σ w_i a_i a_iᵀ, from the first rows: that of f's loss."""
    size = min(SAMPLE, problem.n)
    return problem.loss.curvature * float(_largest(problem.parts, problem.weight, size, problem.d, problem.bias))


@njit
def _largest(rows: Any, weight: Any, size: int, d: int, bias: float) -> float:
    """λ_max of the mean of w_i a_i a_iᵀ over the first rows, by power iteration from a sum of them."""
    counting, z, v = np.arange(size).astype(np.uint32), np.empty(size), np.empty(d + 1)
    for i in range(size):
        z[i] = weight[i] / size * (0.5 + i / size)  # unlike any that would cancel
    found = 0.0
    for _ in range(ITERATIONS + 1):
        v[:] = 0.0
        add_rows(located(rows), d, pointer(counting), 0, size, pointer(z), 1, bias, pointer(v))
        found = math.sqrt((v * v).sum())
        if found == 0.0:
            break
        margins(located(rows), d, pointer(counting), 0, size, pointer(v), 1, bias, pointer(z), True)
        for i in range(size):
            z[i] *= weight[i] / size / found
    return found


def hessian_factors(problem: Problem, x: Array) -> Array:
    """For every output the lower Cholesky factor of H, the Hessian at x of this problem's f (its block of that output).

    H is a sample's in any case, so single precision will do for it.
    """
    rows, d = problem.rows, problem.d
    dense = rows.toarray() if problem.sparse else rows
    z = dense @ x[:, :-1].T + problem.bias * x[:, -1]
    weight = problem.weight[:, None] * bends(problem.loss.code, problem.scale, z, problem.y) / problem.n
    factors = np.empty((problem.outputs, d + 1, d + 1))
    for k in range(problem.outputs):
        root = np.sqrt(weight[:, k])
        hessian = _gram(dense, root, problem.bias, np.float32)
        diagonal = hessian.reshape(-1)[:: d + 2]
        if not math.isfinite(diagonal.max()):  # which bounds all entries
            hessian = _gram(dense, root, problem.bias, np.float64)
            diagonal = hessian.reshape(-1)[:: d + 2]
        diagonal[:-1] += problem.penalty.curvature
        if problem.bias == 0:
            diagonal[-1] = 1.0
        # What no row and no penalty bends gets a curvature that is small against the rest.
        diagonal += 1e-10 * max(float(diagonal.max()), 1e-300)
        factors[k] = _factor(hessian)
    return factors


def _gram(dense: Any, root: Array, bias: float, dtype: Any) -> Array:
    """Σ root_i²·a_i a_iᵀ, the intercept's feature included."""
    n, d = dense.shape
    width = d + 1 if bias else d
    scaled, gram = np.empty((n, width), dtype), np.zeros((d + 1, d + 1))
    scale_rows(dense, root, bias, scaled)
    with np.errstate(over="ignore", invalid="ignore"):
        gram[:width, :width] = scaled.T @ scaled
    return gram


@njit
def scale_rows(dense: Any, root: Any, bias: float, scaled: Any) -> None:
    d = dense.shape[1]
    for i in range(dense.shape[0]):
        row, out, factor = dense[i], scaled[i], root[i]
        for j in range(d):
            out[j] = row[j] * factor
        if scaled.shape[1] > d:
            out[d] = bias * factor


def _factor(hessian: Array) -> Array:
    """Lower, by Cholesky; where rounding has left H indefinite, of an H with a larger diagonal."""
    for relative in (2e-6, 1e-3, 1.0):
        hessian.reshape(-1)[:: len(hessian) + 1] *= 1 + relative
        factor, failed = linalg.lapack.dpotrf(hessian.T, lower=0)  # LAPACK's upper is our lower, by columns for rows
        if not failed:
            return np.asarray(factor.T)
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
