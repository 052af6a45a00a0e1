"""The Hessian of a linear model in compiled code: curvatures of rows, weighted Gram matrices, Cholesky factors."""

from __future__ import annotations

import math
from typing import Any

from numba import types

from vcsg.linear.kernels.compiled import Function, njit, pasted
from vcsg.linear.kernels.dense import dense_curvatures, dense_product
from vcsg.linear.kernels.emitted import Traced, count_up, emitted, spread
from vcsg.linear.kernels.lanes import (
    fma,
    keep_alive,
    load_some,
    located,
    number,
    offset_pointer,
    pointer,
    store_some,
    sweep,
    total,
    zeros,
)
from vcsg.linear.kernels.losses import MULTINOMIAL, class_curvatures, second_derivative
from vcsg.linear.kernels.penalties import clear_line, divide_line
from vcsg.linear.kernels.rows import add_row, counted, dot, margins, neighbours

PIVOT = 1e-13
"""The pivot, relative to its diagonal entry, below which a matrix counts as singular."""


def _row_curvatures(single: bool) -> Function:
    """Curvatures of rows, compiled for one output or for any number."""

    @njit
    def row_curvatures(rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, out: Any) -> None:
        """Write w_i φ''_i / n at x to `out`: a line for every row, a column for every output."""
        n, d, z, targets = out.shape[0], x.shape[1] - 1, pointer(out), pointer(y)
        if len(rows) == 1 and single:
            dense_curvatures(
                pointer(rows[0]), n, d, targets, pointer(weight), code, scale, bias, pointer(x), z, 1.0 / n
            )  # fmt: skip
        else:
            outputs, counting = out.shape[1], counted(n)
            margins(located(rows), d, pointer(counting), 0, n, pointer(x), outputs, bias, z, True)
            if code == MULTINOMIAL and not single:
                for i in range(n):
                    class_curvatures(z, i * outputs, outputs)
            else:
                for i in range(0, n, 8):
                    count = min(8, n - i)
                    bend = second_derivative(code, scale, load_some(z, i, count), load_some(targets, i, count))
                    store_some(z, i, count, bend)
            for i in range(n):
                for k in range(outputs):
                    out[i, k] *= weight[i] / n
            keep_alive(counting)

    return row_curvatures


row_curvatures, class_row_curvatures = _row_curvatures(True), _row_curvatures(False)


@njit
def largest_eigenvalue(rows: Any, weight: Any, ramp: Any, size: int, bias: float, v: Any, iterations: int) -> float:
    """λ_max of the mean of w_i a_i a_iᵀ over the first rows, by power iteration from the sum of ramp_i·w_i·a_i.

    `v` has two lines, of 0 at first.
    """
    d, found = v.shape[1] - 1, 0.0
    here, there = pointer(v), offset_pointer(pointer(v), d + 1)
    for t in range(iterations + 1):
        clear_line(there, d + 1)
        shift = 0.0 if t else 1.0
        if len(rows) == 1:
            dense_product(pointer(rows[0]), size, d, pointer(weight), shift, pointer(ramp), bias, here, there)
        else:
            for i in range(size):
                z = bias * here[d] + shift * ramp[i]
                for p in range(rows[2][i], rows[2][i + 1]):
                    z += rows[0][p] * here[rows[1][p]]
                z *= weight[i]
                for p in range(rows[2][i], rows[2][i + 1]):
                    there[rows[1][p]] += z * rows[0][p]
                there[d] += bias * z
        found = math.sqrt(total(dot(there, 0, d + 1, there, 0)))
        if found == 0.0:
            break
        divide_line(there, d + 1, found)
        here, there = there, here
    return found / size


@emitted(types.none)
def scale_row(values: Traced, a: Traced, d: Traced, root: Traced, out: Traced, b: Traced) -> None:
    """out[b:] ← root·(row that begins at a)."""
    sweep(d, lambda read, write: write(out, root * read(values, a), b))


@njit
def scale_rows(dense: Any, weight: Any, k: int, bias: float, scaled: Any) -> None:
    """scaled ← √weight_ik·(row i, and bias where `scaled` has a column for it)."""
    (n, d), width, outputs = dense.shape, scaled.shape[1], weight.shape[1]
    values, shares, out = pointer(dense), pointer(weight), pointer(scaled)
    for i in range(n):
        root = math.sqrt(shares[i * outputs + k])
        scale_row(values, i * d, d, root, out, i * width)
        if width > d:
            out[i * width + d] = bias * root


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


@emitted(types.none)
def add_products(values: Traced, at: list[Traced], width: Traced, out: Traced) -> None:
    """out += Σ a_i a_iᵀ of the rows that begin at `at`: the lower triangle, and some of what is beside it."""
    for j in count_up(0, width):
        shares, line, ahead = [spread(number(values, a + j)) for a in at], j * width, (j & -8) + 8

        def add(read: Any, write: Any, shares: list[Traced] = shares, line: Traced = line) -> None:
            sums = [read(out, line), zeros(width)]
            for i, (a, share) in enumerate(zip(at, shares, strict=True)):
                sums[i % 2] = fma(read(values, a), share, sums[i % 2])
            write(out, sums[0] + sums[1], line)

        sweep(ahead.compare("<", width).choose(ahead, width), add)


@njit
def gram(scaled: Any, out: Any) -> None:
    """out ← scaledᵀ·scaled, the lower triangle."""
    (n, width), values, sums = scaled.shape, pointer(scaled), pointer(out)
    clear_line(sums, width * width)
    for i in range(0, n - 7, 8):
        add_products(values, neighbours(i, width), width, sums)
    for i in range(n // 8 * 8, n):
        add_products(values, (i * width,), width, sums)


@njit
def factor(matrix: Any) -> bool:
    """matrix ← its lower Cholesky factor, from its lower triangle; False where it is singular up to rounding."""
    return bool(factor_lines(pointer(matrix), matrix.shape[0]))


@pasted
def factor_lines(L: Any, size: int) -> bool:
    """`factor`, by pointers."""
    regular = True
    for i in range(size):
        for j in range(i):
            s = 0.0
            for k in range(j):
                s += L[i * size + k] * L[j * size + k]
            L[i * size + j] = (L[i * size + j] - s) / L[j * size + j]
        s = 0.0
        for k in range(i):
            s += L[i * size + k] * L[i * size + k]
        pivot = L[i * size + i] - s
        if not pivot > PIVOT * L[i * size + i]:
            regular = False
            break
        L[i * size + i] = math.sqrt(pivot)
    return regular


@njit
def substitute(lower: Any, v: Any) -> None:
    """v ← H⁻¹v with H = LLᵀ, by rows of L in both directions."""
    solve_factored(pointer(lower), pointer(v), v.size)


@pasted
def solve_factored(L: Any, v: Any, size: int) -> None:
    """`substitute`, by pointers."""
    for i in range(size):
        v[i] = (v[i] - total(dot(L, i * size, i, v, 0))) / L[i * size + i]
    for i in range(size - 1, -1, -1):
        v[i] /= L[i * size + i]
        add_row(L, i * size, i, -v[i], v, 0)
