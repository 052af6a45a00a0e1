"""Least squares with an L1 penalty by Newton's method for the residuals, where coordinate descent is slow.

It is slow where f is flat: with fewer rows than features and a weak penalty, or with one factor in all columns. So w
goes to the minimum of f(x) + ‖x − w‖²/(2σ), again and again (the proximal point method), and for a large σ a few times
are enough. With residuals r = b − Ax that minimum is x(r) = S(w + σAᵀr), S the proximal step of σ times the penalty,
and r is where ‖r‖²/2 − bᵀr + (1 + σ·l2)‖x(r)‖²/(2σ) is least. That is convex with the gradient r − b + Ax(r) and, U
the columns in use and s = σ/(1 + σ·l2), the Hessian I + s·A_U A_Uᵀ: Newton's steps enter and drop many columns at once.

For a loss of smooth curvature this is done for a quadratic model of it, again and again.

References:
    Li, Sun and Toh 2018, A highly efficient semismooth Newton augmented Lagrangian method for solving Lasso problems.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import linalg

from vcsg.linear.curvature import row_curvatures
from vcsg.linear.kernels.losses import LOGISTIC, LOSSES, SQUARED, TWEEDIE, Loss
from vcsg.linear.problem import Array, Penalty, Problem, violation
from vcsg.linear.solution import Journal, Solution
from vcsg.linear.solvers.quasi_newton import blas_threads

WIDEST, LARGEST = 2000, 1e8
"""The largest min(n, d), which is the size of the factors, and the largest n·d: the rows are copied."""
FIRST, GROWTH = 100.0, 3.0
"""The first σ, over the mean curvature along a column, and how much larger each further one is."""
ROUNDS, INNER = 25, 100
"""The largest number of σ, and of Newton steps for one of them."""
CLOSE = 0.3
"""The accuracy of the minimum for one σ, in units of tol."""
FALL = 0.1
"""The slope at the end of a step along it, in units of that at the start."""
TRIALS = 60
"""The largest number of trial lengths of a step."""
LEAST = 2.0
"""The fewest passes left for a step."""
FLOOR, FLAT = 1e-4, 1e-8
"""The least curvature of a row in a quadratic model, in units of its bound, and where there is none: so that it has a
minimum."""
MODELS, HALVINGS = 50, 30
"""The largest number of quadratic models, and how often the step to a minimum of one may be halved."""
ROUGH = 0.1
"""The accuracy of the minimum of a model, in units of ‖∇f‖ where it begins."""
PIVOT = 1e-14
"""What is added to the diagonal of AᵀA at least, in units of its largest entry."""


class Rows(NamedTuple):
    """Rows and targets about their weighted means, or about 0 without an intercept, times √(w_i/n)."""

    lines: Array
    """A line for each column; of 0 where a column is constant beside an intercept."""
    b: Array
    centre: Array
    level: float


def taken(problem: Problem) -> bool:
    """Whether `minimise` takes a problem: dense least squares of few rows or features."""
    return problem.loss.code == SQUARED and _small(problem)


def has_models(problem: Problem) -> bool:
    """Whether `minimise_models` takes a problem: a loss of smooth curvature, and fewer dense rows than features."""
    return problem.loss.code in (LOGISTIC, TWEEDIE) and problem.n < problem.d and _small(problem)


def _small(problem: Problem) -> bool:
    return not problem.sparse and min(problem.n, problem.d) <= WIDEST and problem.n * problem.d <= LARGEST


def least_curvature(loss: Loss) -> float:
    """The least curvature that a row has in a quadratic model."""
    return FLOOR * loss.curvature if loss.bounded else FLAT


def minimise_models(problem: Problem, x: Array, tol: float, journal: Journal) -> Solution:
    """Minimise f from x by quadratic models, each a problem of weighted least squares with the same penalty."""
    here, ended = problem.anchor(x), "f falls no further, for rounding"
    journal.passes += 1
    journal.note("residual-newton", problem.n, here.value, here.norm)
    for _ in range(MODELS):
        if here.norm <= tol or journal.left <= LEAST:
            break
        target = minimise(model(problem, x, here.kept[:, 0]), x, max(CLOSE * tol, ROUGH * here.norm), journal)
        for halvings in range(HALVINGS):
            trial = x + (target - x) / 2.0**halvings
            there = problem.anchor(trial)
            journal.passes += 1
            fallen = there.value < here.value or there.below(here)
            if fallen or journal.left <= 0:
                break
        if not fallen:
            break
        x, here = trial, there
        journal.note("residual-newton", problem.n, here.value, here.norm)
    converged = here.norm <= tol
    return Solution(x, journal.history, converged, "‖∇f‖ ≤ tol" if converged else ended, last=here)


def model(problem: Problem, x: Array, slopes: Array) -> Problem:
    """The quadratic model of the loss at x, where the rows have these slopes, as weighted least squares."""
    curvatures = problem.n * row_curvatures(problem, x)[:, 0]
    bent = np.maximum(curvatures, least_curvature(problem.loss) * problem.weight)
    step = np.divide(slopes, bent, out=np.zeros(problem.n), where=bent > 0)
    margins = problem.rows @ x[0, :-1] + problem.bias * x[0, -1]
    return replace(problem, loss=LOSSES["squared"], y=margins - step, weight=bent)


def minimise(problem: Problem, x: Array, tol: float, journal: Journal) -> Array:
    """The point with ‖∇f‖ ≤ tol but for rounding, from x; one nearer to it where passes or steps are used up."""
    with blas_threads(problem):
        rows, terms, w = centred(problem), problem.penalty, x[0, :-1]
        sigma = FIRST * problem.d / max(float(np.vdot(rows.lines, rows.lines)), 1e-300)
        for _ in range(ROUNDS):
            r = rows.b - w @ rows.lines
            q = rows.lines @ r
            journal.passes += 1
            norm = np.linalg.norm(violation(terms.l2 * w - q, w, terms.l1, terms.positive))
            if norm <= tol or journal.left <= LEAST:
                break
            w, sigma = proximal_step(rows, terms, sigma, w, r, q, CLOSE * tol, journal), sigma * GROWTH
    intercept = (rows.level - float(w @ rows.centre)) / problem.bias if problem.bias else 0.0
    return np.asarray(np.append(w, intercept)[None, :])


def centred(problem: Problem) -> Rows:
    """The rows and targets of a problem."""
    share, centre, level = problem.shares, np.zeros(problem.d), 0.0
    if problem.bias:
        mean = share / share.sum()
        centre, level = np.asarray(mean @ problem.rows, np.float64), float(mean @ problem.y)
    root = np.sqrt(share)
    lines = np.array(problem.rows.T, np.float64, order="C")  # one copy, and no other of this size
    lines -= centre[:, None]
    lines *= root
    rounding = share.sum() * (problem.n * np.finfo(float).eps * centre) ** 2  # what that of the mean may leave
    lines[np.einsum("ji,ji->j", lines, lines) <= rounding] = 0.0
    return Rows(lines, (problem.y - level) * root, centre, level)


def proximal_step(
    rows: Rows, terms: Penalty, sigma: float, w: Array, r: Array, q: Array, enough: float, journal: Journal
) -> Array:
    """The minimum of f(x) + ‖x − w‖²/(2σ), as far as it helps: ∇f is not below ‖x − w‖/σ there. w if it is not found.

    Args:
        rows: the rows and targets.
        terms: the penalty.
        sigma: σ.
        w: the point before.
        r: the residuals there, at which the search begins.
        q: Aᵀr.
        enough: the error of ∇f that is small enough, whatever ‖x − w‖/σ is.
        journal: counts the products with A as half a pass each.
    """
    l1, shrink, least = sigma * terms.l1, 1.0 + sigma * terms.l2, 0.0 if terms.positive else -np.inf

    def point(q: Array) -> Array:
        z = w + sigma * q
        return np.asarray(np.maximum(np.maximum(z - l1, 0.0) + np.minimum(z + l1, 0.0), least) / shrink)

    x = point(q)
    for _ in range(INNER):
        slope = r - rows.b + x @ rows.lines
        error = rows.lines @ slope
        journal.passes += 1
        bound = max(enough, float(np.linalg.norm(x - w)) / sigma)
        if np.linalg.norm(error) <= bound:
            return x
        if journal.left <= LEAST:
            break
        step = newton_step(rows.lines[x != 0], sigma / shrink, slope)
        along = rows.lines @ step
        journal.passes += 0.5
        first, curved = float(step @ (r - rows.b)), float(step @ step)

        def rise(t: float, first: float = first, curved: float = curved, q: Array = q, along: Array = along) -> float:
            return first + t * curved + float(along @ point(q + t * along))

        t = lowest(rise)
        r, q = r + t * step, q + t * along
        x = point(q)
    return w


def newton_step(lines: Array, s: float, slope: Array) -> Array:
    """−(I + s·AAᵀ)⁻¹·slope, where the columns of A are `lines`, by a factor of the lesser size."""
    k, n = lines.shape
    if k >= n:
        matrix = s * (lines.T @ lines)
        matrix[np.diag_indices(n)] += 1.0
        return np.asarray(-linalg.cho_solve(linalg.cho_factor(matrix, True, True, False), slope, check_finite=False))
    matrix = lines @ lines.T
    matrix[np.diag_indices(k)] += max(1.0 / s, PIVOT * float(matrix.diagonal().max(initial=0.0)))
    part = linalg.cho_solve(linalg.cho_factor(matrix, True, True, False), lines @ slope, check_finite=False)
    return np.asarray(part @ lines - slope)


def lowest(rise: Callable[[float], float]) -> float:
    """How far to go along a step: to its end, or to where the slope on the way, which only grows, is nearly 0."""
    first, low, high = rise(0.0), 0.0, 1.0
    before, after = first, rise(1.0)
    if after <= FALL * abs(first):
        return 1.0
    t = 1.0
    for trial in range(TRIALS):
        share = 0.5 if trial % 2 else -before / (after - before)  # false position may come near from one side alone
        t = low + share * (high - low)
        now = rise(t)
        if abs(now) <= FALL * abs(first):
            break
        low, before, high, after = (low, before, t, now) if now > 0 else (t, now, high, after)
    return t
