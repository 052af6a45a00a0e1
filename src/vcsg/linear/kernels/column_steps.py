"""Coordinate descent over columns, for the L1 penalty: quadratic models of the loss, and their minima in a working set.

Columns are passed as a tuple: (lines,) for an array with a line per column, (data, indices, indptr) for a CSC matrix;
`places` has the numbers of those that belong to the working set.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vcsg.linear.kernels.compiled import inlined, njit
from vcsg.linear.kernels.lanes import load_some, located, pointer, splat, store_some, total
from vcsg.linear.kernels.losses import SQUARED, loss_and_slope, second_derivative
from vcsg.linear.kernels.penalties import shrunk

MODELS = 50
"""The largest number of quadratic models for one working set."""
EPOCHS = 100
"""The largest number of epochs of coordinate descent on one quadratic model."""
HALVINGS = 30
"""How often a step may be halved before f counts as not falling any more."""
ROUGH = 0.1
"""How far coordinate descent goes on a model that is not f itself, in steps of the first epoch."""
WITHIN = 0.5
"""How far it goes at most, in units of the bound on ‖∇f‖."""
LEVEL = 1e-10
"""The variance of a column, relative to its mean square, below which it counts as constant beside an intercept."""
POINTS = 5
"""The number of epochs after which their points are extrapolated (Anderson)."""
LOOK, EARLY = 6, 0.25
"""The epochs after which it is first asked how many are left, and those in units of the most that may be left."""
BEYOND = 3.0
"""The epochs that may be expected to be left, in units of those that the budget has: they mostly turn out fewer."""
THERE, SLOW, USED_UP = 0, 1, 2
"""How the descent on a model ended: at its minimum, with too many epochs left, or after as many as it may take."""


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
def column_dot(columns: Any, j: int, v: Any, n: int) -> float:
    """The product of column j and v."""
    s = 0.0
    if len(columns) == 1:
        for i in range(n):
            s += columns[0][j * n + i] * v[i]
    else:
        for e in range(columns[2][j], columns[2][j + 1]):
            s += columns[0][e] * v[columns[1][e]]
    return s


@inlined
def column_sums(columns: Any, j: int, h: Any, v: Any, n: int) -> tuple[float, float, float]:
    """Σ h_i a_ij², Σ h_i a_ij and Σ v_i a_ij, for one reading of the column."""
    square, weighted, product = 0.0, 0.0, 0.0
    if len(columns) == 1:
        for i in range(n):
            a = columns[0][j * n + i]
            square += h[i] * a * a
            weighted += h[i] * a
            product += v[i] * a
    else:
        for e in range(columns[2][j], columns[2][j + 1]):
            a, i = columns[0][e], columns[1][e]
            square += h[i] * a * a
            weighted += h[i] * a
            product += v[i] * a
    return square, weighted, product


@inlined
def add_column(columns: Any, j: int, factor: float, out: Any, n: int) -> None:
    """out += factor·(column j)."""
    if len(columns) == 1:
        for i in range(n):
            out[i] += factor * columns[0][j * n + i]
    else:
        for e in range(columns[2][j], columns[2][j + 1]):
            out[columns[1][e]] += factor * columns[0][e]


@inlined
def add_weighted(columns: Any, j: int, factor: float, h: Any, out: Any, n: int) -> None:
    """out_i += factor·h_i·a_ij."""
    if len(columns) == 1:
        for i in range(n):
            out[i] += factor * h[i] * columns[0][j * n + i]
    else:
        for e in range(columns[2][j], columns[2][j + 1]):
            i = columns[1][e]
            out[i] += factor * h[i] * columns[0][e]


@inlined
def summed(v: Any) -> float:
    """The sum of the numbers of v."""
    s = 0.0
    for i in range(v.size):
        s += v[i]
    return s


@inlined
def count_used(w: Any, k: int) -> int:
    """How many of k coefficients are not 0."""
    count = 0
    for j in range(k):
        count += w[j] != 0.0
    return count


@inlined
def least_slope(slope: float, w: float, l1: float, positive: bool) -> float:
    """The subgradient of least norm in one coordinate, of a smooth part with this slope and l1·|w|."""
    if positive:
        return slope + l1 if w > 0.0 else min(slope + l1, 0.0)
    return shrunk(slope, l1) if w == 0.0 else slope + math.copysign(l1, w)


@njit
def combination(points: Any, coefficients: Any) -> bool:
    """coefficients ← those of the affine combination of the points 1, 2, … whose step is shortest (Anderson 1965).

    The step that led to point m is that from point m − 1. False where the steps do not determine it.
    """
    m = points.shape[0] - 1
    matrix = np.empty((m, m))
    for a in range(m):
        for b in range(a + 1):
            s = 0.0
            for j in range(points.shape[1]):
                s += (points[a + 1, j] - points[a, j]) * (points[b + 1, j] - points[b, j])
            matrix[a, b] = matrix[b, a] = s
        coefficients[a] = 1.0
    for a in range(m):  # elimination: the matrix is symmetric and positive semi-definite
        pivot = matrix[a, a]
        if not pivot > 0.0:
            return False
        for b in range(a + 1, m):
            factor = matrix[b, a] / pivot
            for c in range(a, m):
                matrix[b, c] -= factor * matrix[a, c]
            coefficients[b] -= factor * coefficients[a]
    whole = 0.0
    for a in range(m - 1, -1, -1):
        for c in range(a + 1, m):
            coefficients[a] -= matrix[a, c] * coefficients[c]
        coefficients[a] /= matrix[a, a]
        whole += coefficients[a]
    for a in range(m):
        coefficients[a] /= whole
    return abs(whole) > 1e-300


@inlined
def model_value(h: Any, v: Any, w: Any, l1: float, l2: float) -> float:
    """The quadratic model at w up to a constant: its loss is Σ v_i²/(2h_i), where v are the slopes of the rows."""
    value = 0.0
    for i in range(v.size):
        if h[i] > 0.0:
            value += v[i] * v[i] / h[i]
    value /= 2.0
    for j in range(w.size - 1):
        value += l1 * abs(w[j]) + l2 / 2.0 * w[j] * w[j]
    return value


@njit
def extrapolate(points: Any, slopes: Any, h: Any, v: Any, w: Any, l1: float, l2: float, positive: bool) -> None:
    """Move w and v to the extrapolation of the last epochs' points and slopes, where the model is lower there."""
    coefficients, trial, there = np.empty(POINTS), np.zeros(w.size), np.zeros(v.size)
    if not combination(points, coefficients):
        return
    for m in range(POINTS):
        c = coefficients[m]
        for j in range(w.size):
            trial[j] += c * points[m + 1, j]
        for i in range(v.size):
            there[i] += c * slopes[m + 1, i]
    for j in range(w.size - 1):
        if positive and trial[j] < 0.0:
            return
    if model_value(h, there, trial, l1, l2) < model_value(h, v, w, l1, l2):
        for j in range(w.size):
            w[j] = trial[j]
        for i in range(v.size):
            v[i] = there[i]


@inlined
def next_move(moves: Any, epoch: int) -> float:
    """What the next epoch is expected to move, by the lesser of the last two falls: extrapolation makes one large."""
    return float(moves[epoch] * min(1.0, max(moves[epoch] / moves[epoch - 1], moves[epoch - 1] / moves[epoch - 2])))


@inlined
def moves_left(moves: Any, epoch: int, count: int, bound: float) -> float:
    """The epochs that are expected until one moves no more than `bound`, by how the least of the last `count` fell."""
    span, least, before = count // 2, math.inf, math.inf
    for i in range(epoch - count + 1, epoch + 1):
        least = min(least, moves[i])
        before = least if i <= epoch - span else before
    if least <= bound:
        return 0.0
    return span * math.log(least / bound) / math.log(before / least) if least < before else math.inf


@njit
def model_minimum(
    columns: Any, places: Any, h: Any, v: Any, bias: float, w: Any, l1: float, l2: float, positive: bool, most: float,
    share: float, enough: float, budget: float, price: float, early: float,
) -> tuple[float, int]:  # fmt: skip
    """Minimise the quadratic model over w (coefficients, the intercept last) by coordinate descent.

    The intercept follows every step, as if columns had the mean 0. An epoch over all columns is followed by some over
    those in use alone, unless these are most. Of every few epochs over the same columns the points are extrapolated.

    Args:
        columns: the columns.
        places: the numbers of those of the working set.
        h: the curvature of every row.
        v: the slope of every row, which follows the steps.
        bias: the value of the intercept's feature, 0 for none.
        w: the point, which moves.
        l1: the weight of ‖w‖₁.
        l2: the weight of ‖w‖²/2.
        positive: whether coefficients stay at 0 or above.
        most: the share of the columns in use from which on every epoch goes over all of them.
        share: descent ends when the steps of an epoch are this share of those of the first.
        enough: it ends, too, when the gradient along the steps of an epoch has at most this norm.
        budget: it ends, too, after as many epochs, in units of all columns.
        price: it ends, too, where more than so many epochs, or far more than the budget has, are expected to be left.
        early: the epochs before which that is not asked.

    Returns:
        The epochs it took, in units of all columns, and how it ended.
    """
    at, k, used, kept, alike = located(columns), places.size, 0.0, 0, 0
    whole, complete = summed(h) * bias * bias, True
    even = len(at) == 1 and h.min() == h.max()
    points, slopes = np.empty((POINTS + 1, w.size)), np.empty((POINTS + 1, v.size))
    weight, squares, sums, pull = summed(h), np.empty(k), np.empty(k), 0.0
    moves = np.empty(EPOCHS)
    if whole > 0.0:
        pull = -summed(v) / weight
        w[k] += pull / bias
        for i in range(v.size):
            v[i] += pull * h[i]
    for epoch in range(EPOCHS):
        moved, visited, pull = 0.0, 0, 0.0  # the slopes are v + pull·h, and their sum is 0 where there is an intercept
        for j in range(k):
            before = w[j]
            if not (complete or before != 0.0):
                continue
            if epoch == 0:
                squares[j], sums[j], slope = column_sums(at, places[j], pointer(h), pointer(v), v.size)
            else:
                slope = column_dot(at, places[j], pointer(v), v.size)
            a = squares[j]
            if a + l2 <= 0.0:
                continue
            visited += 1
            if whole > 0.0:
                a -= sums[j] * sums[j] / weight
            if a <= LEVEL * squares[j]:  # a constant column: the intercept does what it could do, without a penalty
                a, w[j] = squares[j], 0.0
            else:
                target = a * before - slope - pull * sums[j]
                w[j] = (max(target - l1, 0.0) if positive else shrunk(target, l1)) / (a + l2)
            step = w[j] - before
            if step != 0.0:
                moved += (a + l2) * (a + l2) * step * step
                if even:  # a third less to read
                    add_column(at, places[j], step * h[0], pointer(v), v.size)
                else:
                    add_weighted(at, places[j], step, pointer(h), pointer(v), v.size)
                if whole > 0.0:
                    pull -= step * sums[j] / weight
                    w[k] -= step * sums[j] / (weight * bias)
        if pull != 0.0:
            for i in range(v.size):
                v[i] += pull * h[i]
        used += visited / max(k, 1)
        moves[epoch], alike = moved, alike + 1
        bound = max(enough * enough, share * share * moves[0])
        done = moved <= bound or (complete and alike > 2 and next_move(moves, epoch) <= bound)
        if done and complete:
            return used, THERE
        if used >= budget:
            break
        limit = min(price, BEYOND * (budget - used))
        if alike > LOOK and used > early and moves_left(moves, epoch, alike, bound) * visited > limit * k:
            return used, SLOW
        further = done or count_used(pointer(w), k) >= most * k
        kept, alike = (kept + 1, alike) if further == complete else (0, 0)
        complete = further
        if epoch >= POINTS and not done:
            for j in range(w.size):
                points[kept, j] = w[j]
            for i in range(v.size):
                slopes[kept, i] = v[i]
            if kept == POINTS:
                extrapolate(points, slopes, h, v, w, l1, l2, positive)
                kept = -1
        else:
            kept = -1
    return used, USED_UP


@njit
def set_margins(columns: Any, places: Any, bias: float, w: Any, z: Any) -> None:
    """z ← the margins of all rows."""
    at = located(columns)
    for i in range(z.size):
        z[i] = bias * w[places.size]
    for j in range(places.size):
        if w[j] != 0.0:
            add_column(at, places[j], w[j], pointer(z), z.size)


@njit
def improve(
    columns: Any, places: Any, y: Any, weight: Any, code: int, scale: float, bias: float, floor: float, l1: float,
    l2: float, positive: bool, most: float, w: Any, gradient: Any, whole: bool, tol: float, budget: float,
    price: float,
) -> tuple[float, bool]:  # fmt: skip
    """Minimise f over the columns of a working set until ‖∇f‖ ≤ tol there: models, and steps to their minima.

    Args:
        columns: the columns.
        places: the numbers of those of the working set.
        y: the targets.
        weight: the weights of the rows.
        code: the number of the loss.
        scale: σ of the loss.
        bias: the value of the intercept's feature, 0 for none.
        floor: the least curvature of a row.
        l1: the weight of ‖w‖₁.
        l2: the weight of ‖w‖²/2.
        positive: whether coefficients stay at 0 or above.
        most: the share of the columns in use from which on every epoch goes over all of them.
        w: the point: a coefficient for each column of the working set, and the intercept; it moves.
        gradient: the gradient of f's smooth part there, without the intercept.
        whole: whether they are all columns, so that ∇f on them is measured by a pass over all rows afterwards.
        tol: the bound on ‖∇f‖.
        budget: the largest number of passes over the working set.
        price: it ends, too, where a model's minimum is expected to need more than so many of them.

    Returns:
        The passes over the working set, and whether a minimum needs too many.
    """
    at, k, n, passes, ended = located(columns), places.size, y.size, 0.0, USED_UP
    z, slopes, h, v, trial = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    target, early = np.empty(k + 1), EARLY * min(price, budget) if price < math.inf else math.inf
    set_margins(columns, places, bias, w, z)
    value = loss_terms(z, y, weight, code, scale, floor, slopes, h)
    for model in range(MODELS):
        if model > 0:
            slope = bias * summed(slopes)
            square = slope * slope
            for j in range(k):
                gradient[j] = column_dot(at, places[j], pointer(slopes), n) + l2 * w[j]
                slope = least_slope(gradient[j], w[j], l1, positive)
                square += slope * slope
            passes += 1.0
            if math.sqrt(square) <= tol or passes >= budget:
                break
            if code == SQUARED:  # without the rounding of the steps
                set_margins(columns, places, bias, w, z)
                loss_terms(z, y, weight, code, scale, floor, slopes, h)
                passes += 1.0
        for j in range(k + 1):
            target[j] = w[j]
        for i in range(n):
            v[i] = slopes[i]
        share = 0.0 if code == SQUARED else ROUGH
        used, ended = model_minimum(
            columns, places, h, v, bias, target, l1, l2, positive, most, share, WITHIN * tol, budget - passes, price,
            early - passes,
        )  # fmt: skip
        passes += used
        if code == SQUARED:  # the model is f itself, and v are the slopes at its minimum
            w[:], slopes[:] = target, v
            if ended == SLOW or (whole and ended == THERE):
                break
            continue
        for i in range(n):
            v[i] = bias * (target[k] - w[k])
        fall, before = bias * summed(slopes) * (target[k] - w[k]), value
        for j in range(k):
            step = target[j] - w[j]
            fall += gradient[j] * step + l1 * (abs(target[j]) - abs(w[j]))
            before += l1 * abs(w[j]) + l2 / 2.0 * w[j] * w[j]
            if step != 0.0:
                add_column(at, places[j], step, pointer(v), n)
        length, there, fallen = 1.0, before, False
        for _ in range(HALVINGS):
            for i in range(n):
                trial[i] = z[i] + length * v[i]
            value = loss_terms(trial, y, weight, code, scale, floor, slopes, h)
            there = value
            for j in range(k):
                moved = w[j] + length * (target[j] - w[j])
                there += l1 * abs(moved) + l2 / 2.0 * moved * moved
            fallen = there <= before + 1e-4 * length * fall or abs(there - before) <= 1e-14 * abs(before)
            if fallen:
                break
            length /= 2.0
        if not fallen:
            break
        for i in range(n):
            z[i] = trial[i]
        for j in range(k + 1):
            w[j] = target[j] if length == 1.0 else w[j] + length * (target[j] - w[j])
        passes += 1.0
    return passes, ended == SLOW
