"""Coordinate ascent in the dual of L2-logistic regression on sparse rows, one pass over the rows at a time.

With w = (1/λn)Σ α_i y_i a_i, a row's step solves its own part exactly: after it α_i = w_i σ(−t_i) holds for the row's
margin t_i = y_i(a_iᵀw + c) (Yu, Huang and Lin 2011). The intercept c has no penalty. It stays during a pass, which
tells how it should move: −∂f/∂c = (1/n)Σα_i y_i, and as every row gives way to c by 1/(1 + q_i h_i), with the curvature
h_i of its loss and q_i = ‖a_i‖²/(λn), ∂²f/∂c² is about (1/n)Σ h_i/(1 + q_i h_i) when w follows.
"""

from __future__ import annotations

import math
from typing import Any

from vcsg.linear.kernels.compiled import inlined, njit
from vcsg.linear.kernels.lanes import pointer, prefetch

NEWTON = 60
"""The largest number of Newton steps for one row."""
CLOSE = 0.1
"""How near a row's margin has to come to its own solution, in units of its change.

As the last Newton step squares the error, it is mostly far nearer than that. A thousandth takes as many passes.
"""


@inlined
def agreed_sigma(t: float, q: float, weight: float, alpha: float) -> tuple[float, float]:
    """σ(−t), and σ(−s) for the margin s with h(s) = s − t − q·(weight·σ(−s) − alpha) = 0, by Newton steps.

    h grows and is bent one way on each side of 0, so steps that stay on the root's side, or stop at 0, come from there
    without turning back. Elsewhere, steps across 0 can go to and fro between two points for ever.
    """
    positive = t + q * (0.5 * weight - alpha) > 0.0
    sigma = before = 1.0 / (1.0 + math.exp(min(t, 700.0)))
    s = t
    if (t > 0.0) != positive:
        s, sigma = 0.0, 0.5
    for _ in range(NEWTON):
        h = s - t - q * (weight * sigma - alpha)
        if abs(h) <= CLOSE * abs(s - t) + 1e-15 * (1.0 + q):  # the slope of h is at least 1, so s is as near as that
            break
        s -= h / (1.0 + q * weight * sigma * (1.0 - sigma))
        s = max(s, 0.0) if positive else min(s, 0.0)
        sigma = 1.0 / (1.0 + math.exp(min(s, 700.0)))
    return before, sigma


@njit
def dual_pass(
    data: Any, indices: Any, indptr: Any, y: Any, weight: Any, bias: float, order: Any, x: Any, alpha: Any, unit: float
) -> tuple[float, float]:  # fmt: skip
    """Take a step for every row, in the given order.

    Args:
        data: the entries of the rows.
        indices: their columns.
        indptr: where the rows begin.
        y: the targets, −1 and 1.
        weight: the weights of the rows.
        bias: the value of the intercept's feature, 0 for none.
        order: the numbers of the rows.
        x: the coefficients, which move along with alpha, and the intercept, in one line.
        alpha: the dual variables.
        unit: 1/(λn).

    Returns:
        About ‖∇f‖²: (1/n²)Σ(α_i − w_iσ(−t_i))²‖a_i‖² with the margins that the rows met, and with an intercept the
        square of ∂f/∂c; and the Newton step for the intercept.
    """
    n, d, w = alpha.size, x.shape[1] - 1, pointer(x)
    values, columns = pointer(data), pointer(indices)
    total = pull = stiffness = 0.0
    for r in range(n):
        i = order[r]
        first, last = indptr[i], indptr[i + 1]
        following = order[min(r + 1, n - 1)]
        for e in range(indptr[following], indptr[following + 1], 8):
            prefetch(values, e)
            prefetch(columns, e)
        z, square = bias * w[d], 0.0
        for e in range(first, last):
            z += values[e] * w[columns[e]]
            square += values[e] * values[e]
        q = square * unit
        before, sigma = agreed_sigma(y[i] * z, q, weight[i], alpha[i])
        off = alpha[i] - weight[i] * before
        total += off * off * square
        step = (weight[i] * sigma - alpha[i]) * unit * y[i]
        alpha[i] = weight[i] * sigma
        for e in range(first, last):
            w[columns[e]] += step * values[e]
        curvature = weight[i] * sigma * (1.0 - sigma)
        pull += alpha[i] * y[i]
        stiffness += curvature / (1.0 + q * curvature)
    if bias != 0.0:
        total += pull * pull
    return total / (float(n) * n), pull / max(stiffness, 1e-300)
