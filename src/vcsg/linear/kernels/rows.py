"""Rows of a data matrix, dense or sparse, as the compiled loops read them.

A matrix is passed as a tuple: (values,) of a C-ordered dense one, (data, indices, indptr) of a CSR one. A point x has
one line per output and one column per feature, and a last one for the intercept, whose feature is the number `bias`
(1, or 0 for none). Inside the loops all arrays are pointers: to pass an array to a function costs as much as a row.

Dense rows are read one after the other, for memory is fast in that order alone, unless they are in a cache; eight of
them share the sum across lanes, and in `dense_add` the loads and stores of what is added to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vcsg.linear.kernels.compiled import inlined, njit, pasted
from vcsg.linear.kernels.lanes import (
    across,
    fma,
    keep_rolled,
    lane,
    load,
    load_apart,
    load_some,
    offset_pointer,
    pointer,
    prefetch,
    splat,
    store,
    store_some,
    total,
)

NEAR = 6 << 20
"""The largest size in bytes of rows that are taken to be in a cache."""
PAGE = 4 << 10
"""The size in bytes of a row from which on the processor prefetches by itself."""
RUN = 16 << 10
"""The size in bytes of neighbouring rows read in order from which on the processor prefetches by itself."""
AHEAD = 64
"""How many rows ahead a loop prefetches where the processor does not."""


@inlined
def counted(size: int) -> Any:
    """The row numbers 0, 1, …, size − 1."""
    numbers = np.empty(size, np.uint32)
    for i in range(size):
        numbers[i] = i
    return numbers


@inlined
def dot(values: Any, a: int, d: int, x: Any, line: int) -> Any:
    """Lanes whose sum is the product of the row that begins at `a` and a line of x."""
    s, t = splat(0.0), splat(0.0)
    whole = d // 8 * 8
    j = 0
    while j + 16 <= whole:
        keep_rolled()
        s = fma(load(values, a + j), load(x, line + j), s)
        t = fma(load(values, a + j + 8), load(x, line + j + 8), t)
        j += 16
    if j < whole:
        s = fma(load(values, a + j), load(x, line + j), s)
    if whole < d:
        t = fma(load_some(values, a + whole, d - whole), load_some(x, line + whole, d - whole), t)
    return s + t


@pasted
def neighbours(first: int, d: int) -> Any:
    """The offsets at which eight successive rows begin."""
    a = first * d
    return a, a + d, a + 2 * d, a + 3 * d, a + 4 * d, a + 5 * d, a + 6 * d, a + 7 * d


@pasted
def places(index: Any, p: int, d: int) -> Any:
    """The offsets at which the rows index[p] to index[p + 7] begin."""
    return (
        index[p] * d, index[p + 1] * d, index[p + 2] * d, index[p + 3] * d,
        index[p + 4] * d, index[p + 5] * d, index[p + 6] * d, index[p + 7] * d,
    )  # fmt: skip


@inlined
def dots_in_order(values: Any, at: Any, d: int, x: Any, line: int) -> Any:
    """The products of eight rows and a line of x, one row after the other: the fastest order to read memory."""
    return across(
        dot(values, at[0], d, x, line), dot(values, at[1], d, x, line), dot(values, at[2], d, x, line),
        dot(values, at[3], d, x, line), dot(values, at[4], d, x, line), dot(values, at[5], d, x, line),
        dot(values, at[6], d, x, line), dot(values, at[7], d, x, line),
    )  # fmt: skip


@inlined
def dots_together(values: Any, at: Any, d: int, x: Any, line: int) -> Any:
    """The products of eight rows and a line of x, side by side, loading x once: faster for rows in a cache."""
    a0, a1, a2, a3, a4, a5, a6, a7 = at
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = splat(0.0)
    whole = d // 8 * 8
    for j in range(0, whole, 8):
        keep_rolled()
        w = load(x, line + j)
        s0, s1 = fma(load(values, a0 + j), w, s0), fma(load(values, a1 + j), w, s1)
        s2, s3 = fma(load(values, a2 + j), w, s2), fma(load(values, a3 + j), w, s3)
        s4, s5 = fma(load(values, a4 + j), w, s4), fma(load(values, a5 + j), w, s5)
        s6, s7 = fma(load(values, a6 + j), w, s6), fma(load(values, a7 + j), w, s7)
    if whole < d:
        j, m = whole, d - whole
        w = load_some(x, line + j, m)
        s0, s1 = fma(load_some(values, a0 + j, m), w, s0), fma(load_some(values, a1 + j, m), w, s1)
        s2, s3 = fma(load_some(values, a2 + j, m), w, s2), fma(load_some(values, a3 + j, m), w, s3)
        s4, s5 = fma(load_some(values, a4 + j, m), w, s4), fma(load_some(values, a5 + j, m), w, s5)
        s6, s7 = fma(load_some(values, a6 + j, m), w, s6), fma(load_some(values, a7 + j, m), w, s7)
    return across(s0, s1, s2, s3, s4, s5, s6, s7)


@pasted
def dense_margins(
    values: Any, d: int, index: Any, first: int, size: int, x: Any, outputs: int, bias: float, z: Any, near: bool
) -> None:
    for k in range(outputs):
        line = k * (d + 1)
        start = bias * x[line + d]
        i = 0
        while i + 8 <= size:
            sums, at = splat(start), places(index, first + i, d)
            if near:
                sums = sums + dots_together(values, at, d, x, line)
            else:
                sums = sums + dots_in_order(values, at, d, x, line)
            if outputs == 1:
                store(z, i, sums)
            else:
                for j in range(8):
                    z[(i + j) * outputs + k] = lane(sums, j)
            i += 8
        while i < size:
            z[i * outputs + k] = start + total(dot(values, index[first + i] * d, d, x, line))
            i += 1


@inlined
def add_eight(values: Any, at: Any, d: int, s: Any, g: Any, line: int) -> None:
    """g[line:] += Σ s_i·(row that begins at at[i])."""
    a0, a1, a2, a3, a4, a5, a6, a7 = at
    s0, s1, s2, s3 = splat(lane(s, 0)), splat(lane(s, 1)), splat(lane(s, 2)), splat(lane(s, 3))
    s4, s5, s6, s7 = splat(lane(s, 4)), splat(lane(s, 5)), splat(lane(s, 6)), splat(lane(s, 7))
    whole = d // 8 * 8
    for j in range(0, whole, 8):
        keep_rolled()
        t = fma(load(values, a0 + j), s0, load(g, line + j))
        u = load(values, a1 + j) * s1
        t, u = fma(load(values, a2 + j), s2, t), fma(load(values, a3 + j), s3, u)
        t, u = fma(load(values, a4 + j), s4, t), fma(load(values, a5 + j), s5, u)
        t, u = fma(load(values, a6 + j), s6, t), fma(load(values, a7 + j), s7, u)
        store(g, line + j, t + u)
    if whole < d:
        j, m = whole, d - whole
        t = fma(load_some(values, a0 + j, m), s0, load_some(g, line + j, m))
        u = load_some(values, a1 + j, m) * s1
        t, u = fma(load_some(values, a2 + j, m), s2, t), fma(load_some(values, a3 + j, m), s3, u)
        t, u = fma(load_some(values, a4 + j, m), s4, t), fma(load_some(values, a5 + j, m), s5, u)
        t, u = fma(load_some(values, a6 + j, m), s6, t), fma(load_some(values, a7 + j, m), s7, u)
        store_some(g, line + j, m, t + u)


@pasted
def dense_add(
    values: Any, d: int, index: Any, first: int, size: int, s: Any, outputs: int, bias: float, g: Any
) -> None:
    for k in range(outputs):
        line = k * (d + 1)
        i = 0
        while i + 8 <= size:
            shares = load(s, i) if outputs == 1 else load_apart(s, i * outputs + k, outputs)
            add_eight(values, places(index, first + i, d), d, shares, g, line)
            g[line + d] += bias * total(shares)
            i += 8
        while i < size:
            a, share = index[first + i] * d, s[i * outputs + k]
            for j in range(d):
                g[line + j] += share * values[a + j]
            g[line + d] += bias * share
            i += 1


@pasted
def scattered(index: Any, size: int, row: int) -> bool:
    """Whether rows of `row` bytes, taken in this order, have to be prefetched by the loop."""
    run = 1
    while run < size and run * row < RUN and index[run] == index[0] + run:
        run += 1
    return row < PAGE and run * row < RUN


@inlined
def fetch_rows(rows: Any, d: int, index: Any, first: int, size: int) -> None:
    """Prefetch dense rows that are about to be read."""
    if len(rows) == 1:
        for i in range(first, first + size):
            a = index[i] * d
            for j in range(a, a + d, 8):
                keep_rolled()
                prefetch(rows[0], j)


@pasted
def sparse_margins(
    data: Any, indices: Any, indptr: Any, d: int, index: Any, first: int, size: int, x: Any, outputs: int, bias: float,
    z: Any,
) -> None:  # fmt: skip
    for k in range(outputs):
        line = k * (d + 1)
        for i in range(size):
            row = index[first + i]
            s = 0.0
            for p in range(indptr[row], indptr[row + 1]):
                s += data[p] * x[line + indices[p]]
            z[i * outputs + k] = s + bias * x[line + d]


@pasted
def sparse_add(
    data: Any, indices: Any, indptr: Any, d: int, index: Any, first: int, size: int, s: Any, outputs: int, bias: float,
    g: Any,
) -> None:  # fmt: skip
    for k in range(outputs):
        line = k * (d + 1)
        for i in range(size):
            row, share = index[first + i], s[i * outputs + k]
            for p in range(indptr[row], indptr[row + 1]):
                g[line + indices[p]] += share * data[p]
            g[line + d] += bias * share


@njit
def square_norms(rows: Any, n: int, d: int, bias: float, out: Any) -> None:
    """out[i] ← ‖row i‖² + bias²."""
    matrix = located(rows)
    for i in range(n):
        if len(rows) == 1:
            out[i] = bias * bias + total(dot(matrix[0], i * d, d, matrix[0], i * d))
        else:
            s = bias * bias
            for p in range(rows[2][i], rows[2][i + 1]):
                s += np.float64(rows[0][p]) * rows[0][p]
            out[i] = s


@inlined
def located(rows: Any) -> Any:
    """The rows as pointers."""
    if len(rows) == 1:  # decided when it is compiled
        return (pointer(rows[0]),)
    return pointer(rows[0]), pointer(rows[1]), pointer(rows[2])


@inlined
def rows_from(rows: Any, d: int, start: int) -> Any:
    """The rows from `start` on, numbered from 0."""
    if len(rows) == 1:
        return (offset_pointer(rows[0], start * d),)
    return rows[0], rows[1], offset_pointer(rows[2], start)


@inlined
def margins(
    rows: Any, d: int, index: Any, first: int, size: int, x: Any, outputs: int, bias: float, z: Any, near: bool
) -> None:
    """z[i] ← the margins at x of row index[first + i], for i < size; `near` for rows that are in a cache."""
    if len(rows) == 1:
        dense_margins(rows[0], d, index, first, size, x, outputs, bias, z, near)
    else:
        sparse_margins(rows[0], rows[1], rows[2], d, index, first, size, x, outputs, bias, z)


@inlined
def add_rows(rows: Any, d: int, index: Any, first: int, size: int, s: Any, outputs: int, bias: float, g: Any) -> None:
    """g += Σ s[i]·(row index[first + i], bias), for i < size."""
    if len(rows) == 1:
        dense_add(rows[0], d, index, first, size, s, outputs, bias, g)
    else:
        sparse_add(rows[0], rows[1], rows[2], d, index, first, size, s, outputs, bias, g)
