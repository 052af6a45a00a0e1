"""Rows of a data matrix, dense or sparse, as the compiled loops read them.

A matrix is passed as a tuple: (values,) of a C-ordered dense one, (data, indices, indptr) of a CSR one. A point x has
one line per output and one column per feature, and a last one for the intercept, whose feature is the number `bias`
(1, or 0 for none). Inside the loops all arrays are pointers: to pass an array to a function costs as much as a row.

Dense rows that are neither in a cache nor prefetched are read one after the other, for memory is fast in that order
alone; eight of them share the sum across lanes, and in `dense_add` the loads and stores of what is added to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from vcsg.linear.kernels.compiled import inlined, njit, pasted
from vcsg.linear.kernels.emitted import LANES, WIDTH, Traced, Variable, chosen, count_up, emitted, spread, when
from vcsg.linear.kernels.lanes import (
    across,
    fma,
    lane,
    load,
    load_apart,
    load_some,
    located,
    prefetch,
    row_numbers,
    size_of,
    splat,
    store,
    sweep,
    total,
    zeros,
)

NEAR = 6 << 20
"""The largest size in bytes of rows that are taken to be in a cache."""
PAGE = 4 << 10
"""The size in bytes of a row from which on the processor prefetches by itself."""
RUN = 16 << 10
"""The size in bytes of neighbouring rows read in order from which on the processor prefetches by itself."""
AHEAD = 64
"""How many rows ahead a loop prefetches where the processor does not."""
DISTANCE, SPAN = 12 << 10, 64
"""How far ahead a pass prefetches, in bytes, so that numbers are in a cache when their turn comes; or so far for each
feature if that is more, which is eight rows in double precision."""
LINE = 64
"""The size in bytes of a line of the cache."""


@inlined
def counted(size: int) -> Any:
    """The row numbers 0, 1, …, size − 1."""
    numbers = np.empty(size, np.uint32)
    for i in range(size):
        numbers[i] = i
    return numbers


@emitted(LANES)
def dot(values: Traced, a: Traced, d: Traced, x: Traced, line: Traced) -> Traced:
    """Lanes whose sum is the product of the row that begins at `a` and a line of x."""
    s, t, whole, pairs = Variable(zeros(values)), Variable(zeros(values)), d & -8, d & -16
    for j in count_up(0, pairs, 16):
        s.value = fma(load(values, a + j), load(x, line + j), s.value)
        t.value = fma(load(values, a + j + 8), load(x, line + j + 8), t.value)
    with when(pairs.compare("<", whole)):
        s.value = fma(load(values, a + pairs), load(x, line + pairs), s.value)
    with when(whole.compare("<", d)):
        t.value = fma(load_some(values, a + whole, d - whole), load_some(x, line + whole, d - whole), t.value)
    return s.value + t.value


@emitted(types.UniTuple(types.int64, WIDTH))
def neighbours(first: Traced, d: Traced) -> list[Traced]:
    """The offsets at which eight successive rows begin."""
    return [(first + i) * d for i in range(WIDTH)]


@emitted(types.UniTuple(types.int64, WIDTH))
def places(index: Traced, first: Traced, count: Traced, d: Traced) -> list[Traced]:
    """The offsets at which the rows index[first], … begin: `count` of eight, the last one again in what is left."""
    return [row * d for row in row_numbers(index, first, count)]


def dots_in_order(values: Traced, at: list[Traced], d: Traced, x: Traced, line: Traced) -> Traced:
    """The products of up to eight rows and a line of x, one row after the other: the fastest order to read memory."""
    sums = [dot(values, a, d, x, line) for a in at]
    found: Traced = across(*sums, *[zeros(d)] * (WIDTH - len(at)))
    return found


def distance(values: Traced, d: Traced) -> Traced:
    """How many numbers ahead a pass prefetches."""
    far, least = d * (SPAN // size_of(values)), DISTANCE // size_of(values)
    return far.compare("<", least).choose(d.constant(least), far)


def fetching(values: Traced, ahead: Traced | None) -> Callable[[Traced], None]:
    """What prefetches four rows' numbers from `ahead` on, in the course of a sweep over rows; nothing for None."""

    def fetch(j: Traced) -> None:
        for i in range(0, 0 if ahead is None else WIDTH * WIDTH // 2, LINE // size_of(values)):
            prefetch(values, ahead + j * (WIDTH // 2) + i)

    return fetch


def dots_together(
    values: Traced, at: list[Traced], d: Traced, x: Traced, line: Traced, ahead: Traced | None = None
) -> Traced:
    """The products of eight rows and a line of x, side by side, loading x once: faster for rows in a cache. With
    `ahead`, prefetch four rows' numbers from there on.
    """
    sums = [Variable(zeros(values)) for _ in at]

    def add(read: Any, write: Any) -> None:
        w = read(x, line)
        for s, a in zip(sums, at, strict=True):
            s.value = fma(read(values, a), w, s.value)

    sweep(d, add, fetching(values, ahead))
    found: Traced = across(*(s.value for s in sums))
    return found


@emitted(LANES)
def dots(values: Traced, at: list[Traced], d: Traced, x: Traced, line: Traced, near: Traced) -> Traced:
    """The products of the rows that begin at `at` and a line of x."""
    together = {1: lambda: (dots_together(values, at, d, x, line),)}
    return chosen(near, together, lambda: (dots_in_order(values, at, d, x, line),))[0]


@emitted(types.none)
def add_eight(values: Traced, at: list[Traced], d: Traced, s: Traced, g: Traced, line: Traced) -> None:
    """g[line:] += Σ s_i·(row that begins at at[i])."""
    add_block(values, at, d, s, g, line)


def add_block(
    values: Traced, at: list[Traced], d: Traced, s: Traced, g: Traced, line: Traced, ahead: Traced | None = None
) -> None:
    """g[line:] += Σ s_i·(row that begins at at[i]) for eight rows or fewer. With `ahead`, prefetch four rows' numbers
    from there on.
    """
    shares = [spread(lane(s, i)) for i in range(len(at))]

    def add(read: Any, write: Any) -> None:
        t, u = fma(read(values, at[0]), shares[0], read(g, line)), read(values, at[1]) * shares[1]
        for i in range(2, len(at), 2):
            t, u = fma(read(values, at[i]), shares[i], t), fma(read(values, at[i + 1]), shares[i + 1], u)
        write(g, t + u, line)

    sweep(d, add, fetching(values, ahead))


@emitted(types.none)
def add_row(values: Traced, a: Traced, d: Traced, share: Traced, g: Traced, line: Traced) -> None:
    """g[line:] += share·(row that begins at a)."""
    sweep(d, lambda read, write: write(g, fma(read(values, a), share, read(g, line)), line))


@pasted
def dense_margins(
    values: Any, d: int, index: Any, first: int, size: int, x: Any, outputs: int, bias: float, z: Any, near: bool
) -> None:
    for k in range(outputs):
        line = k * (d + 1)
        start = bias * x[line + d]
        i = 0
        while i + 8 <= size:
            sums = splat(start) + dots(values, places(index, first + i, 8, d), d, x, line, near)
            if outputs == 1:
                store(z, i, sums)
            else:
                for j in range(8):
                    z[(i + j) * outputs + k] = lane(sums, j)
            i += 8
        while i < size:
            z[i * outputs + k] = start + total(dot(values, index[first + i] * d, d, x, line))
            i += 1


@pasted
def dense_add(
    values: Any, d: int, index: Any, first: int, size: int, s: Any, outputs: int, bias: float, g: Any
) -> None:
    for k in range(outputs):
        line = k * (d + 1)
        i = 0
        while i + 8 <= size:
            shares = load(s, i) if outputs == 1 else load_apart(s, i * outputs + k, outputs)
            add_eight(values, places(index, first + i, 8, d), d, shares, g, line)
            g[line + d] += bias * total(shares)
            i += 8
        while i < size:
            add_row(values, index[first + i] * d, d, s[i * outputs + k], g, line)
            g[line + d] += bias * s[i * outputs + k]
            i += 1


@pasted
def scattered(index: Any, size: int, row: int) -> bool:
    """Whether rows of `row` bytes, taken in this order, have to be prefetched by the loop."""
    run = 1
    while run < size and run * row < RUN and index[run] == index[0] + run:
        run += 1
    return row < PAGE and run * row < RUN


@emitted(types.none)
def fetch_rows(values: Traced, at: list[Traced], d: Traced) -> None:
    """Prefetch eight dense rows that are about to be read."""
    for j in count_up(0, d, 8):
        for a in at:
            prefetch(values, a + j)


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
def has_repeats(indices: Any, starts: Any, seen: Any) -> bool:
    """Whether some row of a CSR matrix has two entries in one column. `seen` has a −1 for every column."""
    for i in range(starts.size - 1):
        repeats = 0
        for p in range(np.uint64(starts[i]), np.uint64(starts[i + 1])):  # signed places would be looked at for a minus
            column = np.uint64(indices[p])
            repeats += seen[column] == i
            seen[column] = i
        if repeats:
            return True
    return False


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
