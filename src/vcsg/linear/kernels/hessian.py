"""The Hessian of a linear model in compiled code: curvatures of rows, weighted Gram matrices, Cholesky factors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vcsg.linear.kernels.compiled import njit
from vcsg.linear.kernels.lanes import keep_alive, load_some, pointer, store_some
from vcsg.linear.kernels.losses import MULTINOMIAL, class_curvatures, second_derivative
from vcsg.linear.kernels.rows import counted, located, margins

PIVOT = 1e-13
"""The pivot, relative to its diagonal entry, below which a matrix counts as singular."""
SHORT = 24
"""The largest number of columns for which loops form a Gram matrix faster than BLAS does."""


@njit
def row_curvatures(rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, out: Any) -> None:
    """Write w_i φ''_i / n at x to `out`: a line for every row, a column for every output."""
    n, outputs, d = out.shape[0], out.shape[1], x.shape[1] - 1
    counting, z = counted(n), pointer(out)
    margins(located(rows), d, pointer(counting), 0, n, pointer(x), outputs, bias, z, True)
    if code == MULTINOMIAL:
        for i in range(n):
            class_curvatures(z, i * outputs, outputs)
    else:
        for i in range(0, n, 8):
            count = min(8, n - i)
            targets = load_some(pointer(y), i, count)
            store_some(z, i, count, second_derivative(code, scale, load_some(z, i, count), targets))
    for i in range(n):
        for k in range(outputs):
            out[i, k] *= weight[i] / n
    keep_alive(counting)


@njit
def scale_rows(dense: Any, weight: Any, k: int, bias: float, scaled: Any) -> None:
    """scaled ← √weight_ik·(row i, and bias where `scaled` has a column for it)."""
    d = dense.shape[1]
    for i in range(dense.shape[0]):
        row, out, root = dense[i], scaled[i], math.sqrt(weight[i, k])
        for j in range(d):
            out[j] = row[j] * root
        if scaled.shape[1] > d:
            out[d] = bias * root


@njit
def scatter_gram(data: Any, indices: Any, indptr: Any, weight: Any, k: int, bias: float, out: Any) -> None:
    """out += Σ weight_ik·a_i a_iᵀ of sparse rows, the lower triangle alone; bias where `out` has a line for it."""
    values, columns, width, d = pointer(data), pointer(indices), out.shape[1], out.shape[1] - 1
    entries, last = pointer(out), bias != 0.0
    for i in range(weight.shape[0]):
        low, high, h = indptr[i], indptr[i + 1], weight[i, k]
        for p in range(low, high):
            s, line = h * values[p], columns[p] * width
            for q in range(low, p + 1):  # columns of a row are in order
                entries[line + columns[q]] += s * values[q]
            if last:
                entries[d * width + columns[p]] += s * bias
        if last:
            entries[d * width + d] += h * bias * bias


@njit
def gram(scaled: Any, out: Any) -> None:
    """out ← scaledᵀ·scaled; below SHORT columns its lower triangle alone."""
    width = scaled.shape[1]
    if width > SHORT:
        product = np.dot(scaled.T, scaled)
        for j in range(width):
            for k in range(width):
                out[j, k] = product[j, k]
        return
    for j in range(width):
        for k in range(width):
            out[j, k] = 0.0
    for i in range(scaled.shape[0]):
        row = scaled[i]
        for j in range(width):
            line, s = out[j], row[j]
            for k in range(j + 1):
                line[k] += s * row[k]


@njit
def factor(matrix: Any) -> bool:
    """matrix ← its lower Cholesky factor, from its lower triangle; False where it is singular up to rounding."""
    for i in range(matrix.shape[0]):
        row = matrix[i]
        for j in range(i):
            other, s = matrix[j], 0.0
            for k in range(j):
                s += row[k] * other[k]
            row[j] = (row[j] - s) / other[j]
        s = 0.0
        for k in range(i):
            s += row[k] * row[k]
        pivot = row[i] - s
        if not pivot > PIVOT * row[i]:
            return False
        row[i] = math.sqrt(pivot)
    return True


@njit
def substitute(lower: Any, v: Any) -> None:
    """v ← H⁻¹v with H = LLᵀ, by rows of L in both directions."""
    for i in range(v.size):
        row, s = lower[i], 0.0
        for j in range(i):
            s += row[j] * v[j]
        v[i] = (v[i] - s) / row[i]
    for i in range(v.size - 1, -1, -1):
        row = lower[i]
        v[i] /= row[i]
        s = v[i]
        for j in range(i):
            v[j] -= s * row[j]
