"""The compiled loops: the anchor's mean gradient, and the inner steps between two anchors.

The anchor leaves the slope φ'(a_iᵀy) of every row, so an inner step evaluates each of its rows once, at x. Which rows a
step takes is a line of `index`. The penalty is l1·|w| + l2·w²/2 + rational·w²/(1 + w²), not on the intercept.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vcsg.linear.kernels.classes import dense_classes, padded, sparse_classes
from vcsg.linear.kernels.compiled import Function, njit, pasted
from vcsg.linear.kernels.dense import dense_anchor, dense_steps
from vcsg.linear.kernels.lanes import (
    fma,
    keep_alive,
    load,
    located,
    offset_pointer,
    pointer,
    splat,
    store,
    take,
)
from vcsg.linear.kernels.losses import batch_slopes, loss_and_slope
from vcsg.linear.kernels.penalties import (
    add_line,
    add_penalty_line,
    clear_line,
    drift,
    shrink_line,
    square_violation,
    take_mean,
)
from vcsg.linear.kernels.rows import AHEAD, NEAR, add_rows, margins, scattered
from vcsg.linear.kernels.sparse import sparse_anchor


@pasted
def penalty_terms(g: Any, x: Any, outputs: int, d: int, l1: float, l2: float, rational: float) -> float:
    """P(x); g += the gradient of its smooth part."""
    value = 0.0
    for k in range(outputs):
        line = k * (d + 1)
        value += add_penalty_line(offset_pointer(g, line), offset_pointer(x, line), d, l1, l2, rational)
    return value


@njit
def add_penalty(g: Any, x: Any, l1: float, l2: float, rational: float) -> float:
    """Return P(x), and add the gradient of its smooth part to g."""
    return float(penalty_terms(pointer(g), pointer(x), x.shape[0], x.shape[1] - 1, l1, l2, rational))


@pasted
def conclude(loss: float, count: int, x: Any, g: Any, smooth: Any, l1: float, l2: float, rational: float) -> Any:
    """f and ‖∇f‖ from the sums of a pass over `count` rows; g becomes their mean, `smooth` ∇ of all but l1·|w|.

    With an L1 part the norm is that of the subgradient of least norm.
    """
    outputs, d, point, slopes = x.shape[0], x.shape[1] - 1, pointer(x), pointer(smooth)
    take_mean(pointer(g), slopes, x.size, float(count))
    value, square = loss / count + penalty_terms(slopes, point, outputs, d, l1, l2, rational), 0.0
    for k in range(outputs):
        line = k * (d + 1)
        square += square_violation(offset_pointer(slopes, line), offset_pointer(point, line), d, l1)
    return value, math.sqrt(square)


def _evaluation(single: bool) -> Function:
    """A pass over rows, compiled for one output or for any number: with one, much is left out and compiles faster."""

    @njit
    def evaluate(
        rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, lo: int, hi: int, parts: int,
        kept: Any, g: Any, smooth: Any, l1: float, l2: float, rational: float,
    ) -> Any:  # fmt: skip
        """f, ‖∇f‖ and ∇f from one pass over the rows lo to hi of each of so many equal parts of all rows, in one
        compiled call. The rows that are left beyond the last part belong to its last rows."""
        sums, d, keep = pointer(g), x.shape[1] - 1, kept.size > 0
        length, loss, count = y.size // parts, 0.0, 0
        clear_line(sums, x.size)
        for part in range(parts):
            low, high = part * length + lo, part * length + hi
            if part == parts - 1 and hi == length:
                high = y.size
            count += high - low
            if len(rows) == 1 and not single:
                loss += dense_classes(
                    pointer(rows[0]), d, pointer(y), pointer(weight), bias, pointer(x), x.shape[0], low, high,
                    pointer(kept), keep, sums, rows[0].nbytes <= NEAR,
                )  # fmt: skip
            elif not single:
                loss += sparse_classes(
                    pointer(rows[0]), pointer(rows[1]), pointer(rows[2]), d, pointer(y), pointer(weight), bias,
                    pointer(x), x.shape[0], low, high, pointer(kept), keep, sums,
                )  # fmt: skip
            elif len(rows) == 1:
                loss += dense_anchor(
                    pointer(rows[0]), d, pointer(y), pointer(weight), code, scale, bias, pointer(x), low, high,
                    pointer(kept), sums, keep,
                )  # fmt: skip
            else:
                loss += sparse_anchor(
                    pointer(rows[0]), pointer(rows[1]), pointer(rows[2]), d, pointer(y), pointer(weight), code, scale,
                    bias, pointer(x), low, high, pointer(kept), sums, rows[0].nbytes <= NEAR, keep,
                )  # fmt: skip
        return conclude(loss, count, x, g, smooth, l1, l2, rational)

    return evaluate


evaluate, evaluate_classes = _evaluation(True), _evaluation(False)


@njit
def join_parts(loss: float, x: Any, g: Any, smooth: Any, l1: float, l2: float, rational: float) -> Any:
    """f and ‖∇f‖ from the mean loss and its gradient g, which threads have found; `smooth` as in `conclude`."""
    return conclude(loss, 1, x, g, smooth, l1, l2, rational)


@njit
def shrink(x: Any, by: float) -> None:
    """The proximal step of by·|w|."""
    for k in range(x.shape[0]):
        shrink_line(offset_pointer(pointer(x), k * x.shape[1]), x.shape[1] - 1, by)


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
        step: float, now: float, then: float, l1: float, l2: float, rational: float, total: Any, tail: int, spare: Any,
    ) -> None:  # fmt: skip
        """x ← prox(x − η(now·∇f_I(x) + then·∇f_I(y) + pull)) for every line I of `index`; total += x from `tail` on.

        `pull` holds all that does not change from step to step: c·m, and the penalty's part at y. `spare` is room for a
        point.
        """
        steps, size, d, order = index.shape[0], index.shape[1], x.shape[1] - 1, pointer(index)
        near, point = rows[0].nbytes <= NEAR, pointer(x)
        if len(rows) == 1 and single:
            fetching = not near and scattered(order, index.size, d * rows[0].itemsize)
            dense_steps(
                pointer(rows[0]), d, pointer(y), pointer(weight), code, scale, bias, point, pointer(spare),
                pointer(kept), pointer(pull), order, steps, size, step, now, then, l1, l2, rational, pointer(total),
                tail, near, index.size - AHEAD - 7 if fetching else 0,
            )  # fmt: skip
        else:
            general_steps(
                located(rows), y, weight, code, scale, bias, point, kept, pointer(pull), order, steps, size, d,
                1 if single else x.shape[0], step, now, then, l1, l2, rational, pointer(total), tail, pointer(spare),
                near,
            )  # fmt: skip
        if steps % 2:
            clear_line(point, x.size)
            add_line(point, pointer(spare), x.size)

    return inner


@pasted
def general_steps(
    matrix: Any, y: Any, weight: Any, code: int, scale: float, bias: float, point: Any, kept: Any, pull: Any,
    order: Any, steps: int, size: int, d: int, outputs: int, step: float, now: float, then: float, l1: float, l2: float,
    rational: float, total: Any, tail: int, following: Any, near: bool,
) -> None:  # fmt: skip
    """`inner` for rows of any kind; after an odd number of steps the last point is where `following` was."""
    z_array = np.zeros((8, outputs))
    z, targets, weights, slopes = pointer(z_array), pointer(y), pointer(weight), pointer(kept)
    for t in range(steps):
        for k in range(outputs):
            line = k * (d + 1)
            drift(
                offset_pointer(point, line), offset_pointer(pull, line), d, step, now, l2, rational,
                offset_pointer(following, line),
            )  # fmt: skip
        for first in range(t * size, (t + 1) * size, 8):
            count = min(8, (t + 1) * size - first)
            margins(matrix, d, order, first, count, point, outputs, bias, z, near)
            differences(
                z, order, first, count, outputs, targets, weights, code, scale, slopes, now, then, -step / size
            )  # fmt: skip
            add_rows(matrix, d, order, first, count, z, outputs, bias, following)
        point, following = following, point
        if l1 > 0.0:
            for k in range(outputs):
                shrink_line(offset_pointer(point, k * (d + 1)), d, step * l1)
        if t >= tail:
            add_line(total, point, outputs * (d + 1))
    keep_alive(z_array)


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
        for k in range(outputs):
            line = k * (d + 1)
            here = offset_pointer(pointer(x), line)
            drift(here, offset_pointer(pointer(mean), line), d, step, 1.0, l2, rational, here)
        for k in range(outputs):
            for j in range(x.shape[1]):
                x[k, j] -= step / size * change[k, j]
                mean[k, j] += change[k, j] / n
        if l1 > 0.0:
            shrink(x, step * l1)
