"""L-BFGS from the point that the stochastic steps reached, with a Hessian in the middle of its recursion.

H ≈ ∇²f at the start, from some of the rows, so the first step is Newton's, and the pairs of later steps correct H.
Where d is too large for a factor, H is a diagonal. A step of scipy's L-BFGS-B takes as long as a pass over ten thousand
rows, so the recursion is compiled here. An L1 penalty needs bounds, and so scipy's L-BFGS-B.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy import optimize
from threadpoolctl import ThreadpoolController

from vcsg.linear.curvature import column_scales, hessian_factors
from vcsg.linear.kernels.compiled import njit
from vcsg.linear.problem import Array, PassResult, Problem

MEMORY = 10
"""The number of pairs (step, change of the gradient) that are remembered."""
SHORTENINGS = 30
"""How often a step may be shortened before f counts as not falling any more."""


class Reached(Exception):
    """Ends the search: the tolerance is reached, or the passes are used up."""


@dataclass
class CountedObjective:
    """f with a count of its passes; raises `Reached` at the first point where ‖∇f‖ ≤ tol, or at the budget's end."""

    problem: Problem
    tol: float
    budget: float
    """The largest number of passes."""
    report: Callable[[PassResult], None]
    x: Array
    """The best point so far."""
    best: PassResult
    """The pass at the best point."""
    passes: int = 0

    def __call__(self, x: Array) -> PassResult:
        seen, best = self.problem.anchor(x), self.best
        self.passes += 1
        self.report(seen)
        if seen.value <= best.value or seen.below(best, 0.0):
            self.x, self.best = x, seen
            if seen.norm <= self.tol:
                raise Reached
        if self.passes >= self.budget:
            raise Reached
        return seen


def minimise(
    problem: Problem, sample: Problem | None, start: Array, known: PassResult, tol: float, budget: float,
    report: Callable[[PassResult], None],
) -> tuple[Array, float, str]:  # fmt: skip
    """Minimise f; return x, ‖∇f(x)‖ and a sentence on how it ended.

    Args:
        problem: what to minimise.
        sample: the rows that H is made from; None for a diagonal H.
        start: where to begin.
        known: the pass at the start.
        tol: the search ends where ‖∇f‖ ≤ tol.
        budget: the largest number of passes.
        report: called with the result of each pass.
    """
    f = CountedObjective(problem, tol, budget, report, x=start, best=known)
    message = "‖∇f‖ ≤ tol"
    with suppress(Reached):
        message = _restarted(f) if problem.penalty.l1 else _search(f, start, known, sample)
    return f.x, f.best.norm, message


def _search(f: CountedObjective, x: Array, here: PassResult, sample: Problem | None) -> str:
    """Steps along −(the inverse Hessian of the last pairs, with H⁻¹ in the middle)·∇f, shortened until f falls."""
    inverse = _inverse(f.problem, sample, x)
    steps, changes = np.empty((MEMORY, x.size)), np.empty((MEMORY, x.size))
    products, direction, kept = np.empty(MEMORY), np.empty(x.shape), 0
    last, before = x, here.smooth
    while True:
        step, trial = 1.0, np.empty(x.shape)
        slope, kept = _next(last, before, x, here.smooth, steps, changes, products, kept, inverse, direction, trial)
        if not slope < 0:
            return "no direction leads down any more"
        for _ in range(SHORTENINGS):
            there = f(trial)
            if there.below(here, 1e-4 * step * slope):
                break
            # To the minimum of the parabola through what is known, within bounds.
            above = there.value - here.value - step * slope
            step *= min(0.5, max(0.1, -step * slope / (2 * above))) if math.isfinite(above) else 0.1
            trial = x + step * direction
        else:
            return "f falls no further, for rounding"
        last, before, x, here = x, here.smooth, trial, there


@njit
def _next(
    last: Any, before: Any, x: Any, gradient: Any, steps: Any, changes: Any, products: Any, kept: int, inverse: Any,
    direction: Any, trial: Any,
) -> tuple[float, int]:  # fmt: skip
    """Remember the step from `last` to x, if there was one, and find the next direction.

    `trial` becomes x + direction. Returns the slope along the direction, and the number of pairs so far.
    """
    kept += _remember(last, before, x, gradient, steps, changes, products, kept % len(products))
    slope = _descent(gradient, steps, changes, products, kept, inverse, direction)
    trial[:] = x + direction
    return slope, kept


@njit
def _remember(
    last: Any, before: Any, x: Any, gradient: Any, steps: Any, changes: Any, products: Any, place: int
) -> int:
    """Store the pair (step, change of the gradient) and return 1; return 0 where it shows no curvature."""
    s, y = (x - last).reshape(-1), (gradient - before).reshape(-1)
    product, square = 0.0, 0.0
    for j in range(s.size):
        product += s[j] * y[j]
        square += y[j] * y[j]
    if not product > 1e-12 * square:
        return 0
    steps[place], changes[place], products[place] = s, y, product
    return 1


@njit
def _descent(gradient: Any, steps: Any, changes: Any, products: Any, kept: int, inverse: Any, direction: Any) -> float:
    """direction ← −(inverse Hessian)·∇f by the two loops of L-BFGS (Nocedal 1980), and the slope of f along it.

    Args:
        gradient: ∇f.
        steps: s of the last pairs, in turn.
        changes: y of the last pairs.
        products: sᵀy of the last pairs.
        kept: the number of pairs so far.
        inverse: H⁻¹ in the middle of the recursion: a factor of H for every output, or the inverse of a diagonal.
        direction: the array that the direction is written to.
    """
    g, r = gradient.reshape(-1), direction.reshape(-1)
    memory, size = steps.shape
    shares = np.empty(memory)
    r[:] = g
    for p in range(kept - 1, max(kept - memory, 0) - 1, -1):
        s, y = steps[p % memory], changes[p % memory]
        share = 0.0
        for j in range(size):
            share += s[j] * r[j]
        share /= products[p % memory]
        shares[p % memory] = share
        for j in range(size):
            r[j] -= share * y[j]
    if inverse.ndim == 3:
        for k in range(inverse.shape[0]):
            _substitute(inverse[k], direction[k])
    else:
        direction *= inverse
    for p in range(max(kept - memory, 0), kept):
        s, y = steps[p % memory], changes[p % memory]
        share = 0.0
        for j in range(size):
            share += y[j] * r[j]
        share = shares[p % memory] - share / products[p % memory]
        for j in range(size):
            r[j] += share * s[j]
    slope = 0.0
    for j in range(size):
        r[j] = -r[j]
        slope += g[j] * r[j]
    return slope


@njit
def _substitute(factor: Any, v: Any) -> None:
    """v ← H⁻¹v with H = LLᵀ, by rows of L in both directions."""
    for i in range(v.size):
        row, s = factor[i], 0.0
        for j in range(i):
            s += row[j] * v[j]
        v[i] = (v[i] - s) / row[i]
    for i in range(v.size - 1, -1, -1):
        row = factor[i]
        v[i] /= row[i]
        s = v[i]
        for j in range(i):
            v[j] -= s * row[j]


def _inverse(problem: Problem, sample: Problem | None, x: Array) -> Array:
    """The factors of H from the sample, or, without a sample, the inverse of a diagonal."""
    if sample is None:
        return np.asarray(column_scales(problem) ** 2)
    with blas_threads(sample):
        return hessian_factors(sample, x)


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of this process; finding them takes milliseconds, so it is done once."""
    return ThreadpoolController()


def blas_threads(sample: Problem) -> AbstractContextManager[object]:
    """Limit BLAS to the problem's threads, where the Hessian is large enough for the setting to pay."""
    large = sample.outputs * sample.n * sample.d**2 > 1e8
    return _blas().limit(limits=sample.threads, user_api="blas") if large else nullcontext()


def _restarted(f: CountedObjective) -> str:
    """Run scipy's L-BFGS-B, again from the best point as long as that helps: its line search may fail."""
    before, message = math.inf, ""
    while f.best.norm < before:
        before, message = f.best.norm, _search_split(f, f.x)
    return message


def _search_split(f: CountedObjective, start: Array) -> str:
    """Minimise with an L1 penalty by scipy: w = p − q with p, q ≥ 0, for which l1·Σ(p + q) is smooth."""
    scales, l1 = column_scales(f.problem), f.problem.penalty.l1
    free = np.zeros(start.shape, bool)
    free[:, -1] = True
    u = start / scales
    both = np.stack([np.where(free, u, np.maximum(u, 0)), np.where(free, 0, np.maximum(-u, 0))])
    lower = np.stack([np.where(free, -np.inf, 0.0), np.zeros(start.shape)])
    upper = np.stack([np.full(start.shape, np.inf), np.where(free, 0.0, np.inf)])

    def split(v: Array) -> tuple[float, Array]:
        p, q = v.reshape(both.shape)
        seen = f(scales * (p - q))
        slope = scales * seen.smooth
        cost = np.where(free, 0.0, l1 * scales)
        # f counts l1·|p − q|; what p and q have in common costs in addition.
        extra = float((cost * 2 * np.minimum(p, q)).sum())
        return seen.value + extra, np.stack([slope + cost, cost - slope]).reshape(-1)

    bounds = optimize.Bounds(lower.reshape(-1), upper.reshape(-1))
    options = {"maxcor": 10, "ftol": 0.0, "gtol": 0.0, "maxiter": 10**6, "maxfun": 10**7, "maxls": 40}
    result = optimize.minimize(split, both.reshape(-1), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return str(result.message)
