"""The compiled loops: the anchor's mean gradient, and the inner steps between two anchors.

The anchor leaves the slope φ'(a_iᵀy) of every row, so an inner step evaluates each of its rows once, at x. Which rows a
step takes is a line of `index`. The penalty is l1·|w| + l2·w²/2 + rational·w²/(1 + w²), not on the intercept.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vcsg.linear.kernels.compiled import Function, njit, pasted
from vcsg.linear.kernels.lanes import fma, keep_alive, load, load_some, pointer, splat, store, store_some, take, total
from vcsg.linear.kernels.losses import batch_slopes, class_slopes, loss_and_slope
from vcsg.linear.kernels.rows import (
    AHEAD,
    NEAR,
    add_eight,
    add_rows,
    counted,
    dots_in_order,
    dots_together,
    fetch_rows,
    located,
    margins,
    neighbours,
    rows_from,
    scattered,
)

BLOCK = 256
"""The rows evaluated together where registers do not hold everything: few enough to stay in the cache."""


@pasted
def dense_anchor(
    values: Any, d: int, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, lo: int, hi: int, kept: Any,
    g: Any, near: bool,
) -> float:  # fmt: skip
    """`anchor` for dense rows and one output, eight rows at a time in registers."""
    start, losses, slopes = splat(bias * x[d]), splat(0.0), splat(0.0)
    for first in range(lo, hi - 7, 8):
        at = neighbours(first, d)
        z = start + (dots_together(values, at, d, x, 0) if near else dots_in_order(values, at, d, x, 0))
        w = load(weight, first)
        value, slope = loss_and_slope(code, scale, z, load(y, first))
        losses, slope = fma(w, value, losses), w * slope
        store(kept, first, slope)
        slopes = slopes + slope
        add_eight(values, at, d, slope, g, 0)
    g[d] += bias * total(slopes)
    return float(total(losses))


@pasted
def penalty_slope(l2: float, rational: float, x: float) -> float:
    """The derivative of l2·x²/2 + rational·x²/(1 + x²)."""
    q = 1.0 + x * x
    return l2 * x + rational * 2.0 * x / (q * q)


@pasted
def shrunk(x: float, by: float) -> float:
    """The proximal step of by·|x|."""
    return max(x - by, 0.0) + min(x + by, 0.0)


@pasted
def penalty_terms(g: Any, x: Any, outputs: int, d: int, l1: float, l2: float, rational: float) -> float:
    """P(x); g += the gradient of its smooth part."""
    value = 0.0
    for k in range(outputs):
        for j in range(k * (d + 1), k * (d + 1) + d):
            w = x[j]
            value += l1 * abs(w) + l2 / 2 * w * w + rational * w * w / (1.0 + w * w)
            g[j] += penalty_slope(l2, rational, w)
    return value


@njit
def add_penalty(g: Any, x: Any, l1: float, l2: float, rational: float) -> float:
    """Return P(x), and add the gradient of its smooth part to g."""
    return float(penalty_terms(pointer(g), pointer(x), x.shape[0], x.shape[1] - 1, l1, l2, rational))


@pasted
def anchor(
    rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, lo: int, hi: int, kept: Any, g: Any,
    outputs: int,
) -> float:  # fmt: skip
    """Σ w_i φ_i over the rows lo to hi; kept ← w_i φ'_i, g += Σ w_i φ'_i·a_i."""
    d, near = x.shape[1] - 1, rows[0].nbytes <= NEAR
    counting, z_array = counted(BLOCK), np.zeros((BLOCK, outputs))
    index, whole, point, sums, z = pointer(counting), located(rows), pointer(x), pointer(g), pointer(z_array)
    targets, weights, slopes = pointer(y), pointer(weight), pointer(kept)
    loss = 0.0
    if len(rows) == 1 and outputs == 1:
        loss = dense_anchor(whole[0], d, targets, weights, code, scale, bias, point, lo, hi, slopes, sums, near)
        lo = hi - (hi - lo) % 8
    for start in range(lo, hi, BLOCK):
        size, part = min(BLOCK, hi - start), rows_from(whole, d, start)
        margins(part, d, index, 0, size, point, outputs, bias, z, near)
        if outputs == 1:
            for i in range(0, size, 8):
                count = min(8, size - i)
                w = load_some(weights, start + i, count)
                value, slope = loss_and_slope(code, scale, load(z, i), load_some(targets, start + i, count))
                loss += total(w * value)
                store(z, i, w * slope)
                store_some(slopes, start + i, count, w * slope)
        else:
            for i in range(size):
                w = weights[start + i]
                loss += w * class_slopes(z, i * outputs, outputs, targets[start + i])
                for k in range(i * outputs, (i + 1) * outputs):
                    z[k] *= w
                    slopes[start * outputs + k] = z[k]
        add_rows(part, d, index, 0, size, z, outputs, bias, sums)
    keep_alive(counting)
    keep_alive(z_array)
    return float(loss)


@pasted
def conclude(loss: float, count: int, x: Any, g: Any, smooth: Any, l1: float, l2: float, rational: float) -> Any:
    """f and ‖∇f‖ from the sums of a pass over `count` rows; g becomes their mean, `smooth` ∇ of all but l1·|w|.

    With an L1 part the norm is that of the subgradient of least norm.
    """
    outputs, d, point, mean, slopes = x.shape[0], x.shape[1] - 1, pointer(x), pointer(g), pointer(smooth)
    for j in range(x.size):
        mean[j] /= count
        slopes[j] = mean[j]
    value, square = loss / count + penalty_terms(slopes, point, outputs, d, l1, l2, rational), 0.0
    for k in range(outputs):
        for j in range(k * (d + 1), (k + 1) * (d + 1)):
            slope = slopes[j]
            if l1 > 0.0 and j < k * (d + 1) + d:
                slope = shrunk(slope, l1) if point[j] == 0.0 else slope + math.copysign(l1, point[j])
            square += slope * slope
    return value, math.sqrt(square)


def _evaluation(single: bool) -> Function:
    """A pass over rows, compiled for one output or for any number: with one, much is left out and compiles faster."""

    @njit
    def evaluate(
        rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, lo: int, hi: int, kept: Any,
        g: Any, smooth: Any, l1: float, l2: float, rational: float,
    ) -> Any:  # fmt: skip
        """Do `anchor` and `conclude` in one compiled call."""
        sums = pointer(g)
        for j in range(x.size):
            sums[j] = 0.0
        outputs = 1 if single else x.shape[0]
        loss = anchor(rows, y, weight, code, scale, bias, x, lo, hi, kept, g, outputs)
        return conclude(loss, hi - lo, x, g, smooth, l1, l2, rational)

    return evaluate


evaluate, evaluate_classes = _evaluation(True), _evaluation(False)


@njit
def join_parts(loss: float, x: Any, g: Any, smooth: Any, l1: float, l2: float, rational: float) -> Any:
    """f and ‖∇f‖ from the mean loss and its gradient g, which threads have found; `smooth` as in `conclude`."""
    return conclude(loss, 1, x, g, smooth, l1, l2, rational)


@pasted
def drift(
    x: Any, pull: Any, outputs: int, d: int, step: float, now: float, l2: float, rational: float, out: Any
) -> None:
    """out ← x − η(now·P'(x) + pull): the part of a step that is the same for all rows."""
    for k in range(outputs):
        line = k * (d + 1)
        if rational == 0.0:
            keep, back = splat(1.0 - step * now * l2), splat(-step)
            whole = d // 8 * 8
            for j in range(line, line + whole, 8):
                store(out, j, fma(load(pull, j), back, load(x, j) * keep))
            if whole < d:
                j, m = line + whole, d - whole
                store_some(out, j, m, fma(load_some(pull, j, m), back, load_some(x, j, m) * keep))
        else:
            for j in range(line, line + d):
                out[j] = x[j] - step * (now * penalty_slope(l2, rational, x[j]) + pull[j])
        out[line + d] = x[line + d] - step * pull[line + d]


@pasted
def shrink_all(x: Any, outputs: int, d: int, by: float) -> None:
    for k in range(outputs):
        for j in range(k * (d + 1), k * (d + 1) + d):
            x[j] = shrunk(x[j], by)


@njit
def shrink(x: Any, by: float) -> None:
    """The proximal step of by·|w|."""
    shrink_all(pointer(x), x.shape[0], x.shape[1] - 1, by)


@pasted
def add_to(total: Any, x: Any, size: int) -> None:
    whole = size // 8 * 8
    for j in range(0, whole, 8):
        store(total, j, load(total, j) + load(x, j))
    for j in range(whole, size):
        total[j] += x[j]


@pasted
def padded(size: int) -> int:
    """The size rounded up to a multiple of eight: margins are written eight at a time."""
    return (size + 7) // 8 * 8


@pasted
def differences(
    z: Any, index: Any, first: int, size: int, outputs: int, y: Any, weight: Any, code: int, scale: float, kept: Any,
    now: float, then: float, factor: float,
) -> None:  # fmt: skip
    """z ← factor·(now·w_i φ'(z) + then·kept_i) for the rows of a batch."""
    if outputs == 1:
        for i in range(0, size, 8):
            count = min(8, size - i)
            _, slope = loss_and_slope(code, scale, load(z, i), take(y, index, first + i, count))
            slope = splat(factor * now) * take(weight, index, first + i, count) * slope
            store(z, i, fma(splat(factor * then), take(kept, index, first + i, count), slope))
    else:
        batch_slopes(code, scale, z, index, first, size, outputs, y)
        for i in range(size):
            r = index[first + i]
            for k in range(outputs):
                z[i * outputs + k] = factor * (now * weight[r] * z[i * outputs + k] + then * kept[r * outputs + k])


def _inner_steps(single: bool) -> Function:
    """Inner steps, compiled for one output or for any number."""

    @njit
    def inner(
        rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, kept: Any, pull: Any, index: Any,
        step: float, now: float, then: float, l1: float, l2: float, rational: float, total: Any, tail: int,
    ) -> None:  # fmt: skip
        """x ← prox(x − η(now·∇f_I(x) + then·∇f_I(y) + pull)) for every line I of `index`; total += x from `tail` on.

        `pull` holds all that does not change from step to step: c·m, and the penalty's part at y. The next point takes
        the place of the last but one, so that eight rows are done with, at x, before the next eight are read.
        """
        size, outputs, d = index.shape[1], 1 if single else x.shape[0], x.shape[1] - 1
        z_array, spare = np.zeros((8, outputs)), np.empty(x.shape)
        matrix, order, constant, z = located(rows), pointer(index), pointer(pull), pointer(z_array)
        point, following = pointer(x), pointer(spare)
        targets, weights, slopes_kept, sums = pointer(y), pointer(weight), pointer(kept), pointer(total)
        near = rows[0].nbytes <= NEAR
        asked = index.size - AHEAD - 7 if not near and scattered(order, index.size, d * rows[0].itemsize) else 0
        for t in range(index.shape[0]):
            drift(point, constant, outputs, d, step, now, l2, rational, following)
            for first in range(t * size, (t + 1) * size, 8):
                count = min(8, (t + 1) * size - first)
                margins(matrix, d, order, first, count, point, outputs, bias, z, near)
                differences(
                    z, order, first, count, outputs, targets, weights, code, scale, slopes_kept, now, then, -step / size
                )  # fmt: skip
                if first < asked:
                    fetch_rows(matrix, d, order, first + AHEAD, count)
                add_rows(matrix, d, order, first, count, z, outputs, bias, following)
            point, following = following, point
            if l1 > 0.0:
                shrink_all(point, outputs, d, step * l1)
            if t >= tail:
                add_to(sums, point, x.size)
        if index.shape[0] % 2:
            for k in range(outputs):
                for j in range(d + 1):
                    x[k, j] = spare[k, j]
        keep_alive(z_array)
        keep_alive(spare)

    return inner


inner, inner_classes = _inner_steps(True), _inner_steps(False)


@njit
def renewing(
    rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, kept: Any, mean: Any, index: Any,
    step: float, l1: float, l2: float, rational: float,
) -> None:  # fmt: skip
    """Steps of SAGA: the slopes in `kept` are replaced as their rows are used, and `mean` follows them."""
    n, size, outputs, d = kept.shape[0], index.shape[1], x.shape[0], x.shape[1] - 1
    z, change = np.zeros((padded(size), outputs)), np.empty(x.shape)
    for t in range(index.shape[0]):
        margins(located(rows), d, pointer(index), t * size, size, pointer(x), outputs, bias, pointer(z), True)
        batch_slopes(code, scale, pointer(z), pointer(index), t * size, size, outputs, pointer(y))
        for i in range(size):
            r = index[t, i]
            for k in range(outputs):
                slope = weight[r] * z[i, k]
                z[i, k] = slope - kept[r, k]
                kept[r, k] = slope
        for k in range(outputs):
            for j in range(d + 1):
                change[k, j] = 0.0
        add_rows(located(rows), d, pointer(index), t * size, size, pointer(z), outputs, bias, pointer(change))
        drift(pointer(x), pointer(mean), outputs, d, step, 1.0, l2, rational, pointer(x))
        for k in range(outputs):
            for j in range(x.shape[1]):
                x[k, j] -= step / size * change[k, j]
                mean[k, j] += change[k, j] / n
        if l1 > 0.0:
            shrink(x, step * l1)
