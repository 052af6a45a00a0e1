"""The hand-over: L-BFGS from where the stochastic steps got to, with a Hessian to begin with.

H ≈ ∇²f at the start, from some of the rows, so the first step is Newton's and the pairs of later steps correct H. Where
d is too large for a factor, H is a diagonal. A step of scipy's L-BFGS-B takes as long as a pass over ten thousand rows,
so this one is written out; with an L1 part, which takes bounds, scipy's is used.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import linalg, optimize
from threadpoolctl import ThreadpoolController

from vcsg.linear.curvature import column_scales, hessian_factors
from vcsg.linear.problem import Array, Problem

MEMORY = 10
"""Pairs of steps and changes of the gradient."""
SHORTENINGS = 30


class Reached(Exception):
    """The point that was asked for is found."""


@dataclass
class Watched:
    """f, counted and looked at: ends the search at the first point where ‖∇f‖ ≤ tol."""

    problem: Problem
    tol: float
    budget: float
    """Passes, at most."""
    report: Callable[[float, float], None]
    x: Array
    """The best point so far, f and ‖∇f‖ there."""
    lowest: float
    norm: float
    passes: int = 0

    def __call__(self, x: Array) -> tuple[float, Array]:
        value, gradient = self.problem.objective(x)
        self.passes += 1
        norm = float(np.linalg.norm(self.problem.stationarity(x, gradient)))
        self.report(value, norm)
        if value <= self.lowest or (norm < self.norm and value <= self.lowest + 1e-12 * abs(self.lowest)):
            self.x, self.lowest, self.norm = x.copy(), value, norm
            if norm <= self.tol:
                raise Reached
        if self.passes >= self.budget:
            raise Reached
        return value, gradient


def minimise(
    problem: Problem, sample: Problem | None, start: Array, known: tuple[float, Array], tol: float, budget: float,
    report: Callable[[float, float], None],
) -> tuple[Array, float, str]:  # fmt: skip
    """(x, ‖∇f(x)‖, how it ended).

    Args:
        problem: what to minimise.
        sample: the rows for H, None for a diagonal.
        start: where to begin.
        known: f and the gradient of its smooth part there.
        tol: for ‖∇f‖.
        budget: passes, at most.
        report: called with f and ‖∇f‖ after each.
    """
    norm = float(np.linalg.norm(problem.stationarity(start, known[1])))
    f = Watched(problem, tol, budget, report, x=start, lowest=known[0], norm=norm)
    message = "‖∇f‖ ≤ tol"
    with suppress(Reached):
        message = _search_split(f, start) if problem.penalty.l1 else _search(f, start, known, sample)
    return f.x, f.norm, message


def _search(f: Watched, x: Array, known: tuple[float, Array], sample: Problem | None) -> str:
    """Steps along −(the inverse Hessian of the last pairs, with H⁻¹ in the middle)·∇f, shortened until f falls."""
    (value, gradient), solve = known, _inverse(f.problem, sample, x)
    pairs: deque[tuple[Array, Array, float]] = deque(maxlen=MEMORY)
    while True:
        direction = -_product(pairs, gradient, solve)
        slope, step = float(np.vdot(gradient, direction)), 1.0
        if not slope < 0:
            return "no direction leads down any more"
        for _ in range(SHORTENINGS):
            trial = x + step * direction
            new_value, new_gradient = f(trial)
            if _lower(value, gradient, new_value, new_gradient, 1e-4 * step * slope):
                break
            # To the minimum of the parabola through what is known, within bounds.
            above = new_value - value - step * slope
            step *= min(0.5, max(0.1, -step * slope / (2 * above))) if math.isfinite(above) else 0.1
        else:
            return "f falls no further, for rounding"
        s, y = trial - x, new_gradient - gradient
        product = float(np.vdot(s, y))
        if product > 1e-12 * float(np.vdot(y, y)):
            pairs.append((s, y, product))
        x, value, gradient = trial, new_value, new_gradient


def _lower(value: float, gradient: Array, new_value: float, new_gradient: Array, change: float) -> bool:
    """Whether f has fallen by its share, or where rounding hides that, ‖∇f‖."""
    if abs(new_value - value) <= 1e-12 * abs(value):
        return float(np.vdot(new_gradient, new_gradient)) < float(np.vdot(gradient, gradient))
    return new_value <= value + change


def _product(pairs: deque[tuple[Array, Array, float]], gradient: Array, solve: Callable[[Array], Array]) -> Array:
    """The two loops of L-BFGS (Nocedal 1980)."""
    q, shares = gradient.copy(), []
    for s, y, product in reversed(pairs):
        shares.append(float(np.vdot(s, q)) / product)
        q -= shares[-1] * y
    r = solve(q)
    for (s, y, product), share in zip(pairs, reversed(shares), strict=True):
        r += (share - float(np.vdot(y, r)) / product) * s
    return r


def _inverse(problem: Problem, sample: Problem | None, x: Array) -> Callable[[Array], Array]:
    """v → H⁻¹v."""
    if sample is None:
        squares = column_scales(problem) ** 2
        return lambda v: squares * v
    with blas_threads(sample):
        factors = hessian_factors(sample, x)
    return lambda v: np.stack(
        [linalg.lapack.dpotrs(factor, line, lower=1)[0] for factor, line in zip(factors, v, strict=True)]
    )


@cache
def _blas() -> ThreadpoolController:
    """To look for the libraries takes milliseconds."""
    return ThreadpoolController()


def blas_threads(sample: Problem) -> AbstractContextManager[object]:
    """As many threads for the Hessian as for the rows, where it is large enough for the setting to pay."""
    large = sample.outputs * sample.n * sample.d**2 > 1e8
    return _blas().limit(limits=sample.threads, user_api="blas") if large else nullcontext()


def _search_split(f: Watched, start: Array) -> str:
    """With an L1 part: w = p − q with p, q ≥ 0, and l1·Σ(p + q) is smooth."""
    scales, l1 = column_scales(f.problem), f.problem.penalty.l1
    free = np.zeros(start.shape, bool)
    free[:, -1] = True
    u = start / scales
    both = np.stack([np.where(free, u, np.maximum(u, 0)), np.where(free, 0, np.maximum(-u, 0))])
    lower = np.stack([np.where(free, -np.inf, 0.0), np.zeros(start.shape)])
    upper = np.stack([np.full(start.shape, np.inf), np.where(free, 0.0, np.inf)])

    def split(v: Array) -> tuple[float, Array]:
        p, q = v.reshape(both.shape)
        value, gradient = f(scales * (p - q))
        slope = scales * gradient
        cost = np.where(free, 0.0, l1 * scales)
        # f counts l1·|p − q|; what p and q have in common costs in addition.
        extra = float((cost * 2 * np.minimum(p, q)).sum())
        return value + extra, np.stack([slope + cost, cost - slope]).reshape(-1)

    bounds = optimize.Bounds(lower.reshape(-1), upper.reshape(-1))
    options = {"maxcor": 10, "ftol": 0.0, "gtol": 0.0, "maxiter": 10**6, "maxfun": 10**7, "maxls": 40}
    result = optimize.minimize(split, both.reshape(-1), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return str(result.message)
