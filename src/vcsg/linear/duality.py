"""The duality gap: a bound on how far f is above its minimum, from the slopes of the rows at one point.

f(w, c) = Σ (w_i/n) φ(z_i, y_i) + l1·‖w‖₁ + l2·‖w‖²/2 is at least D(θ) = −Σ (w_i/n) φ*(nθ_i/w_i) − P*(−Aᵀθ) for every θ
with Σθ_i = 0 (where there is an intercept), φ* and P* being the conjugates. The slopes θ_i = w_i φ'_i/n at a solution
are such a θ with D = f; near it they are made one by shrinking: those of the heavier sign, and all of them where
|Aᵀθ| > l1 and there is no l2.

Where rows are read by blocks, the factor t by which slopes are shrunk is known after the read alone. φ* is convex, so
φ*(tθ) is at most what lies on the line between two of φ*(0), φ*(0.99θ) and φ*(θ), whose sums over the rows with slopes
of either sign suffice; at the slopes themselves φ*(φ'(z)) = φ'(z)z − φ(z). The bound is at least the one from the
slopes of all rows, and vanishes with it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from vcsg.linear.kernels.losses import LOGISTIC, SQUARED_HINGE, TWEEDIE, Loss
from vcsg.linear.problem import Array, PassResult, Penalty, Problem

NEAR = 0.99
"""A factor of the slopes at which φ* is summed, too."""
HALVINGS = 90
"""How often an interval is halved in search of the z with a given slope."""


def duality_gap(problem: Problem, x: Array, here: PassResult | None = None) -> float:
    """A bound on f(x) − min f; NaN where there is none: no penalty, one that is not convex, or several outputs.

    Args:
        problem: what is minimised.
        x: the point.
        here: the pass at x, if it is known; otherwise it is made.
    """
    if not has_gap(problem):
        return math.nan
    here = problem.anchor(x) if here is None else here
    theta = here.kept[:, 0] / problem.n
    if problem.bias:
        theta = balanced(theta)
        slope = np.asarray(problem.rows.T @ theta, np.float64)
    else:
        slope = here.gradient[0, :-1]
    shrink, conjugate = penalty_conjugate(problem.penalty, slope)
    theta = theta * shrink if shrink < 1 else theta
    share, y = problem.shares, problem.y
    if problem.has_unused_rows:
        used = share > 0
        share, theta, y = share[used], theta[used], y[used]
    loss = share @ conjugates(problem.loss, problem.scale, theta / share, y)
    return max(0.0, here.value + float(loss) + conjugate)


class DualSums(NamedTuple):
    """Sums over rows, all with slopes of one sign where there is an intercept: what a bound from one read takes."""

    slope: Array
    """Σ (w_i/n)φ'_i a_i, the intercept's feature last: the gradient of their loss."""
    conjugate: float
    """Σ (w_i/n)φ*(φ'_i)."""
    near: float
    """Σ (w_i/n)φ*(0.99φ'_i)."""
    rest: float
    """Σ (w_i/n)φ*(0)."""

    def plus(self, other: DualSums) -> DualSums:
        """The sums over the rows of both."""
        sums = self.conjugate + other.conjugate, self.near + other.near, self.rest + other.rest
        return DualSums(self.slope + other.slope, *sums)

    def times(self, factor: float) -> DualSums:
        """The sums for weights that are multiplied by a factor."""
        return DualSums(factor * self.slope, factor * self.conjugate, factor * self.near, factor * self.rest)

    def shrunk(self, t: float) -> float:
        """A bound on Σ (w_i/n)φ*(tφ'_i), for t from 0 to 1."""
        if t >= NEAR:
            return self.near + (self.conjugate - self.near) * (t - NEAR) / (1 - NEAR)
        return self.rest + (self.near - self.rest) * t / NEAR


def has_gap(problem: Problem) -> bool:
    """Whether there is a gap: for a convex loss with a penalty and one output."""
    terms = problem.penalty
    convex = problem.loss.convex and not problem.loss.kinked and not terms.rational
    return bool(convex and problem.outputs == 1 and (terms.l1 or terms.l2))


def dual_sums(problem: Problem, x: Array, here: PassResult) -> tuple[DualSums, DualSums]:
    """The sums over rows of positive slopes, and over the others; without an intercept all of them are in the first."""
    rest = problem.shares * conjugates_at_zero(problem.loss, problem.scale, problem.y)
    near, loss = _near_conjugates(problem, here), here.value - problem.penalty.add_to(np.zeros(x.shape), x)
    every = DualSums(here.gradient, float((here.gradient * x).sum()) - loss, float(near.sum()), float(rest.sum()))
    if not problem.bias:
        return every, every.times(0.0)
    rising = here.kept[:, 0] > 0
    part = replace(problem, weight=problem.weight * rising, penalty=Penalty()).anchor(x)
    conjugate = float((part.gradient * x).sum()) - part.value
    above = DualSums(part.gradient, conjugate, float(near[rising].sum()), float(rest[rising].sum()))
    return above, every.plus(above.times(-1.0))


def _near_conjugates(problem: Problem, here: PassResult) -> Array:
    """(w_i/n)φ*(0.99φ'_i) for every row."""
    slopes = np.divide(here.kept[:, 0], problem.weight, out=np.zeros(problem.n), where=problem.weight > 0)
    return problem.shares * conjugates(problem.loss, problem.scale, NEAR * slopes, problem.y)


def summed_gap(value: float, terms: Penalty, bias: float, above: DualSums, below: DualSums) -> float:
    """A bound on f(x) − min f, from f(x) and the sums of all rows at x."""
    up, down = bias * float(above.slope[0, -1]), -bias * float(below.slope[0, -1])
    shares = min(1.0, down / up) if up > 0 else 1.0, min(1.0, up / down) if down > 0 else 1.0
    slope = shares[0] * above.slope[0, :-1] + shares[1] * below.slope[0, :-1]
    shrink, conjugate = penalty_conjugate(terms, slope)
    for share, part in zip(shares, (above, below), strict=True):
        conjugate += part.shrunk(shrink * share)
    return max(0.0, value + conjugate)


def penalty_conjugate(terms: Penalty, slope: Array) -> tuple[float, float]:
    """The factor that brings Aᵀθ to where P* is finite, and P*(−Aᵀθ) there."""
    excess = -slope if terms.positive else np.abs(slope)
    if terms.l2:
        return 1.0, float((np.maximum(excess - terms.l1, 0.0) ** 2).sum()) / (2 * terms.l2)
    largest = float(excess.max(initial=0.0))
    return min(1.0, terms.l1 / largest) if largest > 0 else 1.0, 0.0


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


def conjugates_at_zero(loss: Loss, scale: float, y: Array) -> Array:
    """φ*(0) = −min φ for every row: the Tweedie losses are least at e^z = y, or as z → −∞ for y = 0, the others 0."""
    if loss.code != TWEEDIE:
        return np.zeros(len(y))
    a, b = 2 - scale, scale - 1
    if not a or not b:
        return _tweedie(scale, np.zeros(len(y)), y)
    return np.asarray((1 - y**a) / a + (y - y**a) / b)


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
