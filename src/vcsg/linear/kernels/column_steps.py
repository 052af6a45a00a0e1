"""Coordinate descent over columns, for the L1 penalty: a quadratic model of the loss, its minimum within a working set.

Columns are passed as a tuple: (lines,) for an array with a line per column, (data, indices, indptr) for a CSC matrix.
"""

from __future__ import annotations

from typing import Any

from vcsg.linear.kernels.compiled import inlined, njit
from vcsg.linear.kernels.lanes import load_some, pointer, splat, store_some, total
from vcsg.linear.kernels.loops import shrunk
from vcsg.linear.kernels.losses import loss_and_slope, second_derivative


@njit
def loss_terms(
    z: Any, y: Any, weight: Any, code: int, scale: float, floor: float, slopes: Any, curvatures: Any
) -> float:
    """The mean loss for margins z; slopes ← w_i φ'_i/n, curvatures ← w_i max(φ''_i, floor)/n."""
    n, loss = z.size, 0.0
    margins, targets, weights = pointer(z), pointer(y), pointer(weight)
    for i in range(0, n, 8):
        count = min(8, n - i)
        t, target, w = load_some(margins, i, count), load_some(targets, i, count), load_some(weights, i, count)
        value, slope = loss_and_slope(code, scale, t, target)
        loss += total(w * value)
        w = w / splat(float(n))
        store_some(pointer(slopes), i, count, w * slope)
        store_some(pointer(curvatures), i, count, second_derivative(code, scale, t, target))
    for i in range(n):
        curvatures[i] = max(curvatures[i], floor) * weight[i] / n
    return float(loss / n)


@inlined
def column_dot(columns: Any, j: int, v: Any) -> float:
    """The product of column j and v."""
    s = 0.0
    if len(columns) == 1:
        line = columns[0][j]
        for i in range(v.size):
            s += line[i] * v[i]
    else:
        for e in range(columns[2][j], columns[2][j + 1]):
            s += columns[0][e] * v[columns[1][e]]
    return s


@inlined
def summed(v: Any) -> float:
    """The sum of the numbers of v."""
    s = 0.0
    for i in range(v.size):
        s += v[i]
    return s


@njit
def products(columns: Any, v: Any, out: Any) -> None:
    """out[j] ← the product of column j and v."""
    for j in range(out.size):
        out[j] = column_dot(columns, j, v)


@njit
def weighted_squares(columns: Any, h: Any, out: Any) -> None:
    """out[j] ← Σ h_i a_ij²."""
    for j in range(out.size):
        s = 0.0
        if len(columns) == 1:
            line = columns[0][j]
            for i in range(h.size):
                s += h[i] * line[i] * line[i]
        else:
            for e in range(columns[2][j], columns[2][j + 1]):
                s += h[columns[1][e]] * columns[0][e] * columns[0][e]
        out[j] = s


@njit
def add_columns(columns: Any, factors: Any, offset: float, out: Any) -> None:
    """out ← offset + Σ factors[j]·(column j)."""
    for i in range(out.size):
        out[i] = offset
    for j in range(factors.size):
        f = factors[j]
        if f == 0.0:
            continue
        if len(columns) == 1:
            line = columns[0][j]
            for i in range(out.size):
                out[i] += f * line[i]
        else:
            for e in range(columns[2][j], columns[2][j + 1]):
                out[columns[1][e]] += f * columns[0][e]


@njit
def model_minimum(
    columns: Any, h: Any, v: Any, squares: Any, bias: float, w: Any, l1: float, l2: float, positive: bool,
    share: float, epochs: int,
) -> int:  # fmt: skip
    """Minimise the quadratic model over w (coefficients, the intercept last) by coordinate descent; the epochs it took.

    Args:
        columns: the columns of the working set.
        h: the curvature of every row.
        v: the slope of every row, which follows the steps.
        squares: Σ h_i a_ij² for every column.
        bias: the value of the intercept's feature, 0 for none.
        w: the point, which moves.
        l1: the weight of ‖w‖₁.
        l2: the weight of ‖w‖²/2.
        positive: whether coefficients stay at 0 or above.
        share: descent ends when the steps of an epoch are this share of those of the first.
        epochs: the largest number of epochs.
    """
    k, first = squares.size, 0.0
    whole = summed(h) * bias * bias
    for epoch in range(epochs):
        moved = 0.0
        for j in range(k):
            a = squares[j]
            if a + l2 <= 0.0:
                continue
            before = w[j]
            target = a * before - column_dot(columns, j, v)
            w[j] = (max(target - l1, 0.0) if positive else shrunk(target, l1)) / (a + l2)
            step = w[j] - before
            if step == 0.0:
                continue
            moved += a * a * step * step
            if len(columns) == 1:
                line = columns[0][j]
                for i in range(v.size):
                    v[i] += step * h[i] * line[i]
            else:
                for e in range(columns[2][j], columns[2][j + 1]):
                    i = columns[1][e]
                    v[i] += step * h[i] * columns[0][e]
        if whole > 0.0:
            step = -bias * summed(v) / whole
            w[k] += step
            moved += whole * whole * step * step
            for i in range(v.size):
                v[i] += step * bias * h[i]
        if epoch == 0:
            first = moved
        if moved <= share * share * first:
            return epoch + 1
    return epochs
