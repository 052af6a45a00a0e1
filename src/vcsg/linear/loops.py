"""The compiled loops: the anchor's mean gradient, and the inner steps between two anchors.

The anchor leaves the slope φ'(a_iᵀy) of every row, so an inner step evaluates each of its rows once, at x. Which rows a
step takes is a line of `index`. The penalty is l1·|w| + l2·w²/2 + rational·w²/(1 + w²), not on the intercept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vcsg.linear.compiled import inlined, njit
from vcsg.linear.losses import LOGISTIC, logistic_block, loss_and_slopes, slopes
from vcsg.linear.rows import add_rows, margins

BLOCK = 64
"""Rows that are evaluated at once in an anchor: few enough to be in the cache when they are read the second time."""


@njit
def anchor(
    rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, lo: int, hi: int, kept: Any, g: Any
) -> float:
    """Σ w_i φ_i over the rows lo to hi; kept ← w_i φ'_i, g += Σ w_i φ'_i·a_i."""
    z = np.empty((BLOCK, x.shape[0]))
    index = np.empty(BLOCK, np.uint32)
    power = np.empty((BLOCK, 2))
    bits = power.view(np.int64)
    total = 0.0
    for start in range(lo, hi, BLOCK):
        size = min(BLOCK, hi - start)
        for i in range(size):
            index[i] = start + i
        margins(rows, index[:size], x, bias, z)
        if code == LOGISTIC:
            total += logistic_block(z, y, weight, index[:size], power, bits)
        else:
            for i in range(size):
                r = index[i]
                total += weight[r] * loss_and_slopes(code, scale, z[i], y[r])
                for k in range(x.shape[0]):
                    z[i, k] *= weight[r]
        for i in range(size):
            for k in range(x.shape[0]):
                kept[start + i, k] = z[i, k]
        add_rows(rows, index[:size], z, bias, g)
    return total


@inlined
def penalty_slope(l2: float, rational: float, x: float) -> float:
    """The derivative of l2·x²/2 + rational·x²/(1 + x²)."""
    q = 1.0 + x * x
    return l2 * x + rational * 2.0 * x / (q * q)


@inlined
def shrunk(x: float, by: float) -> float:
    """The proximal step of by·|x|."""
    return max(x - by, 0.0) + min(x + by, 0.0)


@njit
def drift(x: Any, pull: Any, step: float, now: float, l2: float, rational: float) -> None:
    """x ← x − η(now·P'(x) + pull): the part of a step that is the same for all rows."""
    d = x.shape[1] - 1
    for k in range(x.shape[0]):
        w, c = x[k], pull[k]
        if rational == 0.0:
            keep = 1.0 - step * now * l2
            for j in range(d):
                w[j] = keep * w[j] - step * c[j]
        else:
            for j in range(d):
                w[j] -= step * (now * penalty_slope(l2, rational, w[j]) + c[j])
        w[d] -= step * c[d]


@njit
def shrink(x: Any, by: float) -> None:
    for k in range(x.shape[0]):
        w = x[k]
        for j in range(x.shape[1] - 1):
            w[j] = shrunk(w[j], by)


@njit
def add_to(total: Any, x: Any) -> None:
    for k in range(x.shape[0]):
        for j in range(x.shape[1]):
            total[k, j] += x[k, j]


@njit
def differences(
    z: Any, batch: Any, y: Any, weight: Any, code: int, scale: float, kept: Any, now: float, then: float, factor: float
) -> None:
    """z ← factor·(now·w_i φ'(z) + then·kept_i) for the rows of a batch."""
    for i in range(batch.size):
        r = batch[i]
        slopes(code, scale, z[i], y[r])
        for k in range(z.shape[1]):
            z[i, k] = factor * (now * weight[r] * z[i, k] + then * kept[r, k])


@njit
def inner(
    rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, kept: Any, pull: Any, index: Any,
    step: float, now: float, then: float, l1: float, l2: float, rational: float, total: Any, tail: int,
) -> None:  # fmt: skip
    """x ← prox(x − η(now·∇f_I(x) + then·∇f_I(y) + pull)) for every line I of `index`; total += x from step `tail` on.

    `pull` holds all that does not change from step to step: c·m, and the penalty's part at y.
    """
    size = index.shape[1]
    z = np.empty((size, x.shape[0]))
    for t in range(index.shape[0]):
        batch = index[t]
        margins(rows, batch, x, bias, z)
        differences(z, batch, y, weight, code, scale, kept, now, then, -step / size)
        drift(x, pull, step, now, l2, rational)
        add_rows(rows, batch, z, bias, x)
        if l1 > 0.0:
            shrink(x, step * l1)
        if t >= tail:
            add_to(total, x)


@njit
def renewing(
    rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, kept: Any, mean: Any, index: Any,
    step: float, l1: float, l2: float, rational: float,
) -> None:  # fmt: skip
    """SAGA: the slopes in `kept` are renewed as rows come by, and `mean` follows them."""
    n, size = kept.shape[0], index.shape[1]
    z = np.empty((size, x.shape[0]))
    change = np.empty(x.shape)
    for t in range(index.shape[0]):
        batch = index[t]
        margins(rows, batch, x, bias, z)
        for i in range(size):
            r = batch[i]
            slopes(code, scale, z[i], y[r])
            for k in range(x.shape[0]):
                slope = weight[r] * z[i, k]
                z[i, k] = slope - kept[r, k]
                kept[r, k] = slope
        change[:] = 0.0
        add_rows(rows, batch, z, bias, change)
        drift(x, mean, step, 1.0, l2, rational)
        for k in range(x.shape[0]):
            for j in range(x.shape[1]):
                x[k, j] -= step / size * change[k, j]
                mean[k, j] += change[k, j] / n
        if l1 > 0.0:
            shrink(x, step * l1)
