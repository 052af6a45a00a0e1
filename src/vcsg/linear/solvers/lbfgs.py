"""L-BFGS from a start, or from the point that stochastic steps reached: conjugate gradients for a squared loss.

An L1 penalty needs bounds, and so scipy's L-BFGS-B.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from scipy import optimize

from vcsg.linear.curvature import column_scales
from vcsg.linear.problem import Array, PassResult, Problem
from vcsg.linear.solution import Journal, Solution
from vcsg.linear.solvers.conjugate import ParabolicSearch
from vcsg.linear.solvers.quasi_newton import CountedObjective, Middle, Reached, Search, invariant, levelled


def minimise(
    problem: Problem, middle: Middle, start: Array, known: PassResult, tol: float, budget: float,
    report: Callable[[str, PassResult], None],
) -> tuple[Array, PassResult, str]:  # fmt: skip
    """Minimise f; return x, the pass there and a sentence on how it ended.

    Args:
        problem: what to minimise.
        middle: what stands in the middle of the recursion: the rows that H is made from, a model of H for independent
            features, "identity", or "diagonal" for a bound on H's.
        start: where to begin.
        known: the pass at the start.
        tol: the search ends where ‖∇f‖ ≤ tol.
        budget: the largest number of passes.
        report: called with the name of the stage and the result of each pass.
    """
    level = levelled(problem, start) if invariant(problem) else start
    if np.abs(level - start).max() > 1e-12 * np.abs(start).max():
        start = level
        known = problem.anchor(start, keep=False)
    f = CountedObjective(problem, tol, budget, report, x=start, best=known)
    message = "‖∇f‖ ≤ tol"
    with suppress(Reached):
        if problem.penalty.l1:
            message = _restarted(f)
        else:
            search = ParabolicSearch if problem.loss.quadratic and problem.smooth else Search
            message = search(f, start, known, middle).run()
    return f.x, f.best, message


def finish(
    problem: Problem, middle: Middle, x: Array, known: PassResult, tol: float, journal: Journal
) -> tuple[Array, float, str]:
    """Do `minimise` with the passes that a journal has left, and enter them there, that at x last; ‖∇f(x)‖ beside x."""

    def report(stage: str, seen: PassResult) -> None:
        journal.passes += 1
        journal.note(stage, problem.n, seen.value, seen.norm)

    x, best, message = minimise(problem, middle, x, known, tol, max(1.0, journal.left), report)
    if journal.history[-1].gradient_norm != best.norm:
        journal.note("l-bfgs", problem.n, best.value, best.norm)
    return x, best.norm, message


def solve(problem: Problem, start: Array, tol: float, journal: Journal, middle: Middle = "identity") -> Solution:
    """L-BFGS from the start on, without stochastic steps before it."""
    known = problem.anchor(start, keep=False)
    journal.passes += 1
    journal.note("l-bfgs", problem.n, known.value, known.norm)
    if not math.isfinite(known.value + known.norm):
        raise FloatingPointError(f"at the start f = {known.value} and ‖∇f‖ = {known.norm}")
    if known.norm <= tol or journal.left <= 0:
        return Solution(start, journal.history, known.norm <= tol, "‖∇f‖ ≤ tol")
    x, norm, message = finish(problem, middle, start, known, tol, journal)
    return Solution(x, journal.history, norm <= tol, message)


def _restarted(f: CountedObjective) -> str:
    """Run scipy's L-BFGS-B, again from the best point as long as that helps: its line search may fail.

    f may fall while ‖∇f‖ rises, along a valley.
    """
    before, message = None, ""
    while f.best is not before:
        before, message = f.best, _search_split(f, f.x)
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
