"""Inner steps that form both mini-batch gradients: for rules that compare them, and for anchors that move.

Slower than `loops.inner` (two evaluations, and two vectors of the size of x), as the method asks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vcsg.linear.kernels.classes import padded
from vcsg.linear.kernels.compiled import njit
from vcsg.linear.kernels.lanes import located, pointer
from vcsg.linear.kernels.loops import shrink
from vcsg.linear.kernels.losses import batch_slopes
from vcsg.linear.kernels.penalties import penalty_slope
from vcsg.linear.kernels.rows import add_rows, margins

NO_TEST, NORM, LEMMA, ELEMENTWISE = range(4)


@njit
def batch_gradient(
    rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, batch: Any, l2: float,
    rational: float, z: Any, g: Any,
) -> None:  # fmt: skip
    """g ← ∇f_I(x), the penalty's part included."""
    outputs, d, size = x.shape[0], x.shape[1] - 1, batch.size
    for k in range(outputs):
        for j in range(d):
            g[k, j] = penalty_slope(l2, rational, x[k, j])
        g[k, d] = 0.0
    margins(located(rows), d, pointer(batch), 0, size, pointer(x), outputs, bias, pointer(z), True)
    batch_slopes(code, scale, pointer(z), pointer(batch), 0, size, outputs, pointer(y))
    for i in range(size):
        for k in range(outputs):
            z[i, k] *= weight[batch[i]] / size
    add_rows(located(rows), d, pointer(batch), 0, size, pointer(z), outputs, bias, pointer(g))


@njit
def holds(test: int, gx: Any, gy: Any, lam: float) -> bool:
    """Whether the test of `weights.TESTS` holds for the two gradients as whole vectors."""
    xx = xy = yy = 0.0
    for k in range(gx.shape[0]):
        for j in range(gx.shape[1]):
            xx += gx[k, j] * gx[k, j]
            xy += gx[k, j] * gy[k, j]
            yy += gy[k, j] * gy[k, j]
    return xx < yy if test == NORM else test == NO_TEST or yy >= 2.0 * (1.0 - lam) * xy


@njit
def paired_inner(
    rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, anchor: Any, mean: Any, index: Any,
    step: float, test: int, passed: Any, failed: Any, moving: bool, l1: float, l2: float, rational: float,
) -> None:  # fmt: skip
    """x ← prox(x − ηv), v = a·∇f_I(x) + b·∇f_I(y) + c·m; with `moving`, y ← x and m ← v before each step."""
    z = np.zeros((padded(index.shape[1]), x.shape[0]))
    gx, gy = np.empty(x.shape), np.empty(x.shape)
    for t in range(index.shape[0]):
        batch_gradient(rows, y, weight, code, scale, bias, x, batch=index[t], l2=l2, rational=rational, z=z, g=gx)
        batch_gradient(rows, y, weight, code, scale, bias, anchor, batch=index[t], l2=l2, rational=rational, z=z, g=gy)
        whole = test != ELEMENTWISE and holds(test, gx, gy, passed[2])
        for k in range(x.shape[0]):
            for j in range(x.shape[1]):
                chosen = passed if whole or (test == ELEMENTWISE and gx[k, j] < gy[k, j]) else failed
                v = chosen[0] * gx[k, j] + chosen[1] * gy[k, j] + chosen[2] * mean[k, j]
                if moving:
                    anchor[k, j], mean[k, j] = x[k, j], v
                x[k, j] -= step * v
        if l1 > 0.0:
            shrink(x, step * l1)
