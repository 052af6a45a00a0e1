"""Rows of a data matrix, dense or sparse, as the compiled loops read them.

A matrix is passed as a tuple: (values,) of a C-ordered dense one, (data, indices, indptr) of a CSR one. A point x has
one row per output and one column per feature, and a last one for the intercept, whose feature is the number `bias`
(1, or 0 for none). Row numbers are unsigned: numba then need not ask whether they count from the end.
"""

from __future__ import annotations

from typing import Any

from vcsg.linear.compiled import njit


@njit
def dense_margins(values: Any, index: Any, x: Any, bias: float, z: Any) -> None:
    """Four rows at a time share the loads of x."""
    d = values.shape[1]
    for k in range(x.shape[0]):
        w = x[k]
        start = bias * w[d]
        i = 0
        while i + 4 <= index.size:
            a0, a1, a2, a3 = values[index[i]], values[index[i + 1]], values[index[i + 2]], values[index[i + 3]]
            s0 = s1 = s2 = s3 = 0.0
            for j in range(d):
                s0 += a0[j] * w[j]
                s1 += a1[j] * w[j]
                s2 += a2[j] * w[j]
                s3 += a3[j] * w[j]
            z[i, k], z[i + 1, k], z[i + 2, k], z[i + 3, k] = start + s0, start + s1, start + s2, start + s3
            i += 4
        while i < index.size:
            a0 = values[index[i]]
            s0 = start
            for j in range(d):
                s0 += a0[j] * w[j]
            z[i, k] = s0
            i += 1


@njit
def dense_add(values: Any, index: Any, s: Any, bias: float, g: Any) -> None:
    d = values.shape[1]
    for k in range(g.shape[0]):
        t = g[k]
        i = 0
        while i + 4 <= index.size:
            a0, a1, a2, a3 = values[index[i]], values[index[i + 1]], values[index[i + 2]], values[index[i + 3]]
            s0, s1, s2, s3 = s[i, k], s[i + 1, k], s[i + 2, k], s[i + 3, k]
            for j in range(d):
                t[j] += s0 * a0[j] + s1 * a1[j] + s2 * a2[j] + s3 * a3[j]
            t[d] += bias * (s0 + s1 + s2 + s3)
            i += 4
        while i < index.size:
            a0, s0 = values[index[i]], s[i, k]
            for j in range(d):
                t[j] += s0 * a0[j]
            t[d] += bias * s0
            i += 1


@njit
def sparse_margins(data: Any, indices: Any, indptr: Any, index: Any, x: Any, bias: float, z: Any) -> None:
    d = x.shape[1] - 1
    for k in range(x.shape[0]):
        w = x[k]
        for i in range(index.size):
            total = bias * w[d]
            for p in range(indptr[index[i]], indptr[index[i] + 1]):
                total += data[p] * w[indices[p]]
            z[i, k] = total


@njit
def sparse_add(data: Any, indices: Any, indptr: Any, index: Any, s: Any, bias: float, g: Any) -> None:
    d = g.shape[1] - 1
    for k in range(g.shape[0]):
        t = g[k]
        for i in range(index.size):
            s0 = s[i, k]
            for p in range(indptr[index[i]], indptr[index[i] + 1]):
                t[indices[p]] += s0 * data[p]
            t[d] += bias * s0


@njit
def margins(rows: Any, index: Any, x: Any, bias: float, z: Any) -> None:
    """z[i] ← the margins of row index[i] at x."""
    if len(rows) == 1:  # decided when it is compiled
        dense_margins(rows[0], index, x, bias, z)
    else:
        sparse_margins(rows[0], rows[1], rows[2], index, x, bias, z)


@njit
def add_rows(rows: Any, index: Any, s: Any, bias: float, g: Any) -> None:
    """g += Σ s[i]·(row index[i], bias)."""
    if len(rows) == 1:
        dense_add(rows[0], index, s, bias, g)
    else:
        sparse_add(rows[0], rows[1], rows[2], index, s, bias, g)
