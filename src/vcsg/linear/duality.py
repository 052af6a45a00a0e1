"""The duality gap: a bound on how far f is above its minimum, from the slopes of the rows at one point.

f(w, c) = Σ (w_i/n) φ(z_i, y_i) + l1·‖w‖₁ + l2·‖w‖²/2 is at least D(θ) = −Σ (w_i/n) φ*(nθ_i/w_i) − P*(−Aᵀθ) for every θ
with Σθ_i = 0 (where there is an intercept), φ* and P* being the conjugates. The slopes θ_i = w_i φ'_i/n at a solution
are such a θ with D = f; near it they are made one by shrinking: those of the heavier sign, and all of them where
|Aᵀθ| > l1 and there is no l2.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import xlogy

from vcsg.linear.kernels.losses import LOGISTIC, SQUARED_HINGE, TWEEDIE, Loss
from vcsg.linear.problem import Array, PassResult, Problem

HALVINGS = 90
"""How often an interval is halved in search of the z with a given slope."""


def duality_gap(problem: Problem, x: Array, here: PassResult | None = None) -> float:
    """A bound on f(x) − min f; NaN where there is none: no penalty, one that is not convex, or several outputs.

    Args:
        problem: what is minimised.
        x: the point.
        here: the pass at x, if it is known; otherwise it is made.
    """
    terms = problem.penalty
    if not problem.loss.convex or problem.loss.kinked or terms.rational or problem.outputs > 1:
        return math.nan
    if not (terms.l1 or terms.l2):
        return math.nan
    here = problem.anchor(x) if here is None else here
    theta = here.kept[:, 0] / problem.n
    if problem.bias:
        theta = balanced(theta)
        slope = np.asarray(problem.rows.T @ theta, np.float64)
    else:
        slope = here.gradient[0, :-1]
    excess = -slope if terms.positive else np.abs(slope)
    if terms.l2:
        conjugate = float((np.maximum(excess - terms.l1, 0.0) ** 2).sum()) / (2 * terms.l2)
    else:
        conjugate, largest = 0.0, float(excess.max(initial=0.0))
        theta = theta * min(1.0, terms.l1 / largest) if largest > 0 else theta
    share, y = problem.shares, problem.y
    if problem.has_unused_rows:
        used = share > 0
        share, theta, y = share[used], theta[used], y[used]
    loss = share @ conjugates(problem.loss, problem.scale, theta / share, y)
    return max(0.0, here.value + float(loss) + conjugate)


def balanced(theta: Array) -> Array:
    """θ with the entries of the heavier sign shrunk until the sum is 0, which leaves each where φ* is finite."""
    above, below = float(theta[theta > 0].sum()), -float(theta[theta < 0].sum())
    if above > below:
        return np.where(theta > 0, theta * (below / above), theta)
    return np.where(theta < 0, theta * (above / below), theta) if below else theta


def conjugates(loss: Loss, scale: float, s: Array, y: Array) -> Array:
    """φ*(s) = sup_z sz − φ(z, y) for every row, where it is finite."""
    if loss.code == LOGISTIC:
        u = np.clip(-s * y, 0.0, 1.0)
        return np.asarray(xlogy(u, u) + xlogy(1 - u, 1 - u))
    if loss.code == SQUARED_HINGE:
        u = np.maximum(-s * y, 0.0)
        return u * u / 2 - u
    if loss.code == TWEEDIE:
        return _tweedie(scale, s, y)
    return s * (s / 2 + y)  # squared, and Huber's within |s| ≤ σ


def _tweedie(p: float, s: Array, y: Array) -> Array:
    if p == 1:
        u = np.maximum(s + y, 0.0)
        return np.asarray(xlogy(u, u) - u + 1)
    if p == 2:
        u = 1 - s
        return np.asarray(xlogy(u, u / y) - u + y)
    a, b = 2 - p, p - 1
    low, high = np.full(len(s), -60.0), np.full(len(s), 60.0)
    for _ in range(HALVINGS):
        z = (low + high) / 2
        short = np.exp(a * z) - y * np.exp(-b * z) < s
        low, high = np.where(short, z, low), np.where(short, high, z)
    return np.asarray(s * z - np.expm1(a * z) / a - y * np.expm1(-b * z) / b)
