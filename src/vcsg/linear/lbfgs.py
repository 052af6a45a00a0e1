"""The hand-over: scipy's L-BFGS-B from where the stochastic steps got to, in coordinates where f is round.

With H ≈ ∇²f at the start, from some of the rows, and H⁻¹ = MMᵀ, the variable is u, x = x₀ + Mu: in u the Hessian is
near the identity and the first step is Newton's. Where d is too large for a factor, M is a diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize
from threadpoolctl import threadpool_limits

from vcsg.linear.curvature import column_scales, inverse_factors
from vcsg.linear.problem import Array, Problem


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
    """(x, ‖∇f(x)‖, what scipy said).

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


def _search(f: Watched, start: Array, known: tuple[float, Array], sample: Problem | None) -> str:
    value0, gradient0 = known
    if sample is None:
        scales = column_scales(f.problem)
        forth: Callable[[Array], Array] = lambda u: scales * u  # noqa: E731
        back: Callable[[Array], Array] = forth
    else:
        with blas_threads(sample):
            factors = inverse_factors(sample, start)
        forth = lambda u: np.einsum("kij,kj->ki", factors, u)  # noqa: E731
        back = lambda g: np.einsum("kji,kj->ki", factors, g)  # noqa: E731
    # scipy's first step has length 1. In the unit below that is Newton's step where H is exact.
    unit = float(np.linalg.norm(back(gradient0))) or 1.0
    first = [known]

    def scaled(v: Array) -> tuple[float, Array]:
        value, gradient = first.pop() if first else f(start + forth(unit * v.reshape(start.shape)))
        return (value - value0) / unit**2, back(gradient).reshape(-1) / unit

    return _lbfgs(scaled, np.zeros(start.size))


def blas_threads(sample: Problem) -> AbstractContextManager[object]:
    """As many threads for the Hessian as for the rows, where it is large enough for the setting to pay."""
    large = sample.outputs * sample.n * sample.d**2 > 1e8
    return threadpool_limits(sample.threads, "blas") if large else nullcontext()


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
    return _lbfgs(split, both.reshape(-1), bounds)


def _lbfgs(f: Callable[[Array], tuple[float, Array]], start: Array, bounds: Any = None) -> str:
    options = {"maxcor": 10, "ftol": 0.0, "gtol": 0.0, "maxiter": 10**6, "maxfun": 10**7, "maxls": 40}
    result = optimize.minimize(f, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return str(result.message)
