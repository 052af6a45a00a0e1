"""An interior-point method for quantile regression: it reaches the true minimum of a loss that has kinks.

f(β) = Σ_i (h_i·max(r_i, 0) − l_i·max(−r_i, 0)) + βᵀGβ/2 with r = y − Aβ, h_i = σw_i/n, l_i = −(1 − σ)w_i/n and G the L2
penalty. An L1 penalty is a row more for each coefficient: the target 0 and l = −h. Its dual is max θᵀy − βᵀGβ/2 with
Aᵀθ = Gβ and l ≤ θ ≤ h. With r = p − q, a point and a θ are optimal where p(h − θ) = q(θ − l) = 0; the method follows
p(h − θ) = q(θ − l) = μ down to μ = 0 by Newton steps (Portnoy and Koenker 1997; predictor and corrector of Mehrotra
1992). Each takes a weighted Gram matrix of the rows. f is above its minimum by at most its difference to the dual.

Where rows are many, most residuals have the same sign at the solution of a part of them, and at that of all. Rows whose
residuals are far from 0 there are replaced by two means, that of the positive ones and that of the others (Portnoy and
Koenker 1997). φ is convex, so what is left is nowhere above f, and its dual's value bounds the minimum of f from below
whatever the signs turn out to be; where they are as expected, the two are equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse

from vcsg.linear.kernels.order import Draws, sample
from vcsg.linear.problem import Array, Problem
from vcsg.linear.row_sample import joined_rows
from vcsg.linear.solution import Journal, Solution
from vcsg.linear.solvers.newton import EXACT

STEPS = 200
"""The largest number of Newton steps."""
CLOSE = 1e-11
"""The duality gap, in units of f at 0, that is small for any f, and down to which small data (`EXACT`) are solved."""
PART, FEWEST = 0.5, 4.0
"""The rows of a part, in units of (n·unknowns)^(2/3), and the fewest parts for which rows are replaced by means."""
ROUGH = 0.5
"""The duality gap of a part, in units of f and the unknowns for each row, by which its solution is off anyway."""
LEAST = 1e-18
"""The least weight of a row that is not left out, in units of the largest: its dual number has little room to move."""
ROUNDING = np.finfo(np.float64).eps
"""What rounding may leave of f and of the dual's value, in units of f here and at 0."""
TINY = 1e-30
"""What keeps the norm of a row above 0."""
COARSE = 0.001
"""The largest duality gap that ends the search whatever the tolerance, in units of f: y may have small units."""
PATIENCE = 20
"""The most steps in a row that find neither a smaller duality gap nor a larger bound: the first ones may go up."""
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
    def lower(self) -> float:
        """The dual's value: a bound on the minimum from below where Aᵀθ = Gβ."""
        return float(self.theta @ self.y) - float(self.quadratic @ self.beta**2) / 2

    def point(self, problem: Problem) -> Array:
        """β as a point of the problem."""
        x = np.zeros(problem.shape)
        x[0, : problem.d] = self.beta[: problem.d]
        x[0, -1] = self.beta[-1] if problem.bias else 0.0
        return x

    def step(self) -> float:
        """Take one step of predictor and corrector; what rounding leaves of (Aᵀθ − Gβ)ᵀβ, by which the dual is off."""
        s, t = self.high - self.theta, self.theta - self.low
        d = 1 / (self.p / s + self.q / t)
        factor = self._factor(d)
        dual = self.rows.T @ self.theta - self.quadratic * self.beta
        primal = self.y - self.rows @ self.beta - self.p + self.q
        mu = float(self.p @ s + self.q @ t) / (2 * len(s))

        def direction(upper: Array, lower: Array) -> tuple[Array, Array, Array, Array]:
            """The Newton step for p·s = upper and q·t = lower, which are what p·s and q·t shall become."""
            e = primal - (upper / s - self.p) + (lower / t - self.q)
            beta = linalg.cho_solve(factor, dual + self.rows.T @ (d * e), check_finite=False)
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
        return float(np.abs(self.rows.T @ self.theta - self.quadratic * self.beta) @ np.abs(self.beta))

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
            scaled = self.rows * np.sqrt(d)[:, None]
            gram = scaled.T @ scaled  # of a matrix and itself half of the products are taken
        gram[np.diag_indices_from(gram)] += self.quadratic
        unit = np.diagonal(gram).max() or 1.0
        for share in (0.0, 1e-14, 1e-12, 1e-10):
            gram[np.diag_indices_from(gram)] += share * unit
            try:
                return linalg.cho_factor(gram)
            except (linalg.LinAlgError, ValueError):  # of numbers that are not finite
                continue
        raise FloatingPointError("the rows' weighted Gram matrix has no factor")


def begin(problem: Problem) -> CentralPath:
    """The start: β = 0 and θ = 0, with p − q = y and both above 0."""
    used = problem.weight > LEAST * problem.weight.max()  # without the others f is no larger, as a bound has to be
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


def solve(problem: Problem, tol: float, journal: Journal, seed: int = 0) -> Solution:
    """Minimise until the duality gap is ≤ tol, small data as far as is cheap; the history has the gap for ‖∇f‖."""
    size = int(PART * (problem.n * (problem.d + 1.0)) ** (2 / 3))
    if problem.n * problem.d <= EXACT:
        x, gap = follow(problem, tol, 0.0, journal, problem.n)
    elif FEWEST * size <= problem.n:
        x, gap = by_parts(problem, tol, journal, size, seed)
    else:
        x, gap = follow(problem, tol, COARSE, journal, problem.n)
    message = "the duality gap is ≤ tol" if gap <= tol else "the duality gap falls no further, for rounding"
    return Solution(x, journal.history, gap <= tol, message, measured=False, gap=gap)


def at_zero(problem: Problem) -> float:
    """f at 0, which is the duality gap at β = θ = 0."""
    return problem.anchor(np.zeros(problem.shape), keep=False).value


def follow(problem: Problem, tol: float, share: float, journal: Journal, n: int) -> tuple[Array, float]:
    """Follow the central path until the duality gap is ≤ tol and a share of f, or falls no longer; return both.

    The point comes first. A step counts as a pass over as many of n rows as the problem has.
    """
    path, zero = begin(problem), at_zero(problem)
    best, least, lowest, bound, waiting = np.zeros(problem.shape), math.inf, math.inf, -math.inf, 0
    if not (np.isfinite(path.y).all() and np.isfinite(path.rows.sum())):
        raise FloatingPointError("f is not finite")
    for _ in range(STEPS):
        try:
            with np.errstate(all="ignore"):  # at the end of the path p, q and the distances to bounds round to 0
                rest = path.step()
        except FloatingPointError:
            break
        journal.passes += problem.n / n
        x = path.point(problem)
        value = problem.anchor(x, keep=False).value
        gap = max(value - path.lower, 0.0) + rest + ROUNDING * (value + zero)
        if not math.isfinite(gap):
            break
        journal.note("interior-point", problem.n, value, gap)
        waiting = 0 if gap < least or path.lower > bound else waiting + 1
        bound = max(bound, path.lower)
        if gap < least:
            best, least, lowest = x, gap, value
        if (gap <= tol and gap <= max(share * value, CLOSE * zero)) or journal.left <= 0 or waiting > PATIENCE:
            break
    if not math.isfinite(least):
        raise FloatingPointError("the steps from the start are not finite")
    if waiting:
        journal.note("interior-point", problem.n, lowest, least)
    return best, least


def by_parts(problem: Problem, tol: float, journal: Journal, size: int, seed: int) -> tuple[Array, float]:
    """Minimise with most rows in two means; with all of them, where many are not on the side that a part tells."""
    n, zero, weighing = problem.n, at_zero(problem), np.flatnonzero(problem.weight > 0)
    part = problem.subset(weighing[sample(len(weighing), min(size, len(weighing)), Draws(seed))])
    x, _ = follow(part, math.inf, ROUGH * (problem.d + 1) / size, journal, n)
    r = residuals(problem, x)
    above, near, kept, used = r > 0, np.abs(r) / uncertainty(problem), np.zeros(n, bool), 0
    kept[np.argpartition(near, size)[:size]] = True
    journal.passes += 1.5  # a product with all rows is half a pass: of f at 0, the residuals, and the norms of rows
    while used + kept.sum() <= n:
        used += int(kept.sum())
        small = lumped(problem, kept, above)
        x, gap = follow(small, tol / 2, COARSE / 2, journal, n)
        value = problem.anchor(x, keep=False).value
        gap += max(value - small.anchor(x, keep=False).value, 0.0) + ROUNDING * (value + zero)
        r = residuals(problem, x)
        journal.passes += 1.5  # of the means, f, and the residuals
        journal.note("interior-point", n, value, gap)
        wrong = np.flatnonzero(~kept & (above != (r > 0)))
        if (gap <= tol and gap <= max(COARSE * value, CLOSE * zero)) or journal.left <= 0:
            return x, gap
        if not wrong.size:
            break
        # Too few rows lead far off, where most signs are others: those that were nearest to 0 come first.
        kept[wrong[np.argsort(near[wrong])[: kept.sum()]]] = True
    return follow(problem, tol, COARSE, journal, n)


def residuals(problem: Problem, x: Array) -> Array:
    """y − Aβ of all rows."""
    return np.asarray(problem.y - problem.rows @ x[0, :-1] - x[0, -1] * problem.bias)


def uncertainty(problem: Problem) -> Array:
    """How far a row's margin is off in comparison to others: its norm, where each feature has the mean square 1."""
    rows = problem.rows
    if problem.sparse:
        squares = rows.multiply(rows).tocsr()
        means = np.asarray(squares.mean(axis=0)).ravel()
    else:
        means = np.einsum("ij,ij->j", rows, rows, dtype=np.float64) / problem.n
    units = np.divide(1.0, means, out=np.zeros(problem.d), where=means > 0)
    sums = squares @ units if problem.sparse else np.einsum("ij,ij,j->i", rows, rows, units)
    return np.asarray(np.sqrt(sums + problem.bias**2 + TINY))


def lumped(problem: Problem, kept: npt.NDArray[np.bool_], above: npt.NDArray[np.bool_]) -> Problem:
    """The problem with two means in place of the rows that are not kept: of those above the fit, and of the others.

    Its f is nowhere above that of the problem, and equal where the residuals of both kinds have one sign.
    """
    rows, y, weight = [problem.rows[kept].astype(np.float64)], [problem.y[kept]], [problem.weight[kept]]
    for side in (~kept & above, ~kept & ~above):
        share = np.where(side, problem.weight, 0.0)
        total = float(share.sum())
        if total > 0:
            mean = (problem.rows.T @ share / total)[None, :]
            rows.append(sparse.csr_matrix(mean) if problem.sparse else mean)
            y.append(np.array([share @ problem.y / total]))
            weight.append(np.array([total]))
    count = sum(map(len, y))
    joined = joined_rows(rows)
    return replace(problem, rows=joined, y=np.concatenate(y), weight=np.concatenate(weight) * count / problem.n)
