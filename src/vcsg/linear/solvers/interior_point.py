"""An interior-point method for quantile regression: it reaches the true minimum of a loss that has kinks.

f(β) = Σ_i (h_i·max(r_i, 0) − l_i·max(−r_i, 0)) + βᵀGβ/2 with r = y − Aβ, h_i = σw_i/n, l_i = −(1 − σ)w_i/n and G the L2
penalty. An L1 penalty is a row more for each coefficient: the target 0 and l = −h. Its dual is max θᵀy − βᵀGβ/2 with
Aᵀθ = Gβ and l ≤ θ ≤ h. With r = p − q, a point and a θ are optimal where p(h − θ) = q(θ − l) = 0; the method follows
p(h − θ) = q(θ − l) = μ down to μ = 0 by Newton steps (Portnoy and Koenker 1997; predictor and corrector of Mehrotra
1992). Each takes a weighted Gram matrix of the rows. f is above its minimum by at most its difference to the dual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse

from vcsg.linear.problem import Array, Problem
from vcsg.linear.solution import Journal, Solution

STEPS = 200
"""The largest number of Newton steps."""
CLOSE = 1e-11
"""The duality gap, in units of f at 0, down to which the method goes beyond the tolerance: it costs few steps."""
SHORT = 0.995
"""The share of the way to the bounds that a step goes."""


@dataclass
class CentralPath:
    """The point (β, θ, p, q), and what the equations are made of."""

    rows: Any
    y: Array
    low: Array
    high: Array
    quadratic: Array
    """The diagonal of G."""
    beta: Array
    theta: Array
    p: Array
    q: Array

    @property
    def gap(self) -> float:
        """f minus the dual's value, which is a bound where Aᵀθ = Gβ."""
        r = self.y - self.rows @ self.beta
        value = float(self.high @ np.maximum(r, 0.0) - self.low @ np.maximum(-r, 0.0))
        return value + float(self.quadratic @ self.beta**2) - float(self.theta @ self.y)

    def step(self) -> float:
        """Take one step of predictor and corrector; the largest entry of Aᵀθ − Gβ after it."""
        s, t = self.high - self.theta, self.theta - self.low
        d = 1 / (self.p / s + self.q / t)
        factor = self._factor(d)
        dual = self.rows.T @ self.theta - self.quadratic * self.beta
        primal = self.y - self.rows @ self.beta - self.p + self.q
        mu = float(self.p @ s + self.q @ t) / (2 * len(s))

        def direction(upper: Array, lower: Array) -> tuple[Array, Array, Array, Array]:
            """The Newton step for p·s = upper and q·t = lower, which are what p·s and q·t shall become."""
            e = primal - (upper / s - self.p) + (lower / t - self.q)
            beta = linalg.cho_solve(factor, dual + self.rows.T @ (d * e))
            theta = d * (e - self.rows @ beta)
            return beta, theta, (upper + self.p * theta) / s - self.p, (lower - self.q * theta) / t - self.q

        zero = np.zeros(len(s))
        _, theta, p, q = direction(zero, zero)
        length = self._longest(theta, p, q)
        ahead = float((self.p + length * p) @ (s - length * theta) + (self.q + length * q) @ (t + length * theta))
        center = mu * (ahead / (2 * len(s)) / mu) ** 3
        beta, theta, p, q = direction(center + p * theta, center - q * theta)
        length = min(1.0, SHORT * self._longest(theta, p, q))
        self.beta, self.theta = self.beta + length * beta, self.theta + length * theta
        self.p, self.q = self.p + length * p, self.q + length * q
        return float(np.abs(self.rows.T @ self.theta - self.quadratic * self.beta).max())

    def _longest(self, theta: Array, p: Array, q: Array) -> float:
        """The longest step, up to 1/SHORT, that leaves everything within its bounds."""
        longest = 1 / SHORT
        pairs = (self.p, p), (self.q, q), (self.high - self.theta, -theta), (self.theta - self.low, theta)
        for value, change in pairs:
            falls = change < 0
            if falls.any():
                longest = min(longest, float((-value[falls] / change[falls]).min()))
        return longest

    def _factor(self, d: Array) -> Any:
        """The Cholesky factor of G + AᵀDA, its diagonal enlarged as far as rounding asks."""
        if sparse.issparse(self.rows):
            gram = (self.rows.T @ self.rows.multiply(d[:, None]).tocsr()).toarray()
        else:
            gram = (self.rows * d[:, None]).T @ self.rows
        gram[np.diag_indices_from(gram)] += self.quadratic
        unit = np.diagonal(gram).max() or 1.0
        for share in (0.0, 1e-14, 1e-12, 1e-10):
            gram[np.diag_indices_from(gram)] += share * unit
            try:
                return linalg.cho_factor(gram)
            except linalg.LinAlgError:
                continue
        raise FloatingPointError("the rows' weighted Gram matrix has no factor")


def begin(problem: Problem) -> CentralPath:
    """The start: β = 0 and θ = 0, with p − q = y and both above 0."""
    used = problem.weight > 0
    rows, y, weight = problem.rows[used], problem.y[used], problem.weight[used] / problem.n
    bias = np.full((len(y), 1 if problem.bias else 0), problem.bias)
    l1, d = problem.penalty.l1, problem.d
    high, low = problem.scale * weight, (problem.scale - 1) * weight
    if problem.sparse:
        rows = sparse.csr_matrix(sparse.hstack([rows, bias]), dtype=np.float64)
    else:
        rows = np.hstack([np.asarray(rows, np.float64), bias])
    if l1:
        more = np.eye(d, d + bias.shape[1])
        rows = sparse.vstack([rows, sparse.csr_matrix(more)]).tocsr() if problem.sparse else np.vstack([rows, more])
        y, high, low = np.append(y, np.zeros(d)), np.append(high, np.full(d, l1)), np.append(low, np.full(d, -l1))
    quadratic = np.zeros(d + bias.shape[1])
    quadratic[:d] = problem.penalty.l2
    room = float(np.abs(y).mean()) or 1.0
    p, q = np.maximum(y, 0.0) + room, np.maximum(-y, 0.0) + room
    return CentralPath(rows, y, low, high, quadratic, np.zeros(len(quadratic)), np.zeros(len(y)), p, q)


def solve(problem: Problem, tol: float, journal: Journal) -> Solution:
    """Minimise until the duality gap is ≤ tol, and beyond as far as is cheap; the history has the gap for ‖∇f‖."""
    path, x, best = begin(problem), np.zeros(problem.shape), math.inf
    close = min(tol, CLOSE * path.gap)  # at β = θ = 0 the gap is f
    if not (np.isfinite(path.y).all() and np.isfinite(path.rows.sum())):
        raise FloatingPointError("f is not finite")
    for _ in range(STEPS):
        rest = path.step()
        journal.passes += 1
        x[0, : problem.d] = path.beta[: problem.d]
        x[0, -1] = path.beta[-1] if problem.bias else 0.0
        found, gap = problem.anchor(x), max(path.gap, rest)
        journal.note("interior-point", problem.n, found.value, gap)
        if gap <= close or journal.left <= 0 or not gap < 4 * best:
            break
        best = min(best, gap)
    message = "the duality gap is ≤ tol" if gap <= tol else "the duality gap falls no further, for rounding"
    return Solution(x, journal.history, gap <= tol, message, measured=False, gap=gap)
