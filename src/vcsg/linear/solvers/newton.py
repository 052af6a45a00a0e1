"""Newton's method for small problems. The smallest are solved as far as rounding allows: it costs next to nothing."""

from __future__ import annotations

import math

import numpy as np

from vcsg.linear.curvature import row_curvatures
from vcsg.linear.kernels.losses import MULTINOMIAL
from vcsg.linear.kernels.newton_steps import HALVINGS, newton_steps
from vcsg.linear.problem import Array, PassResult, Problem, readable
from vcsg.linear.solution import Journal, Solution

STEPS = 50
"""The largest number of Newton steps, each with a Hessian."""
PASSES = 4 * STEPS
"""The largest number of steps for one output, some of which take the Hessian of the one before."""
EXACT = 20_000
"""The largest n·d for which one output is solved as far as rounding allows, and not to the tolerance alone; other
solvers get rows of which equal ones are merged. So weights are repetitions there, whatever the tolerance."""


def hessian(problem: Problem, x: Array) -> Array:
    """∇²f at x, for a convex loss and the L2 penalty, with all pairs of outputs."""
    dense = problem.rows.toarray() if problem.sparse else np.asarray(problem.rows, np.float64)
    rows = np.column_stack([dense, np.full(problem.n, problem.bias)])
    K, D = problem.shape
    blocks = np.zeros((K, D, K, D))
    if problem.loss.code == MULTINOMIAL:
        z, weight = rows @ x.T, problem.weight / problem.n
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        for k in range(K):
            for j in range(k + 1):
                share = weight * p[:, k] * ((k == j) - p[:, j])
                blocks[k, :, j] = blocks[j, :, k] = (rows * share[:, None]).T @ rows
    else:
        blocks[0, :, 0] = (rows * row_curvatures(problem, x)).T @ rows
    for k in range(K):
        blocks[k, range(D - 1), k, range(D - 1)] += problem.penalty.l2
    return blocks.reshape(K * D, K * D)


def _solve(H: Array, gradient: Array) -> Array:
    """H⁻¹∇f, of least norm where H is singular, computed in units in which H has the diagonal 1."""
    diagonal = np.diagonal(H)
    units = np.where(diagonal > 0, diagonal, 1.0) ** -0.5
    return np.asarray(units * np.linalg.lstsq(units[:, None] * H * units, units * gradient, rcond=1e-14)[0])


def solve(problem: Problem, start: Array, tol: float, journal: Journal) -> Solution:
    """Newton's method from the start on, for a smooth convex f: for small data and for several outputs beyond tol, as
    far as rounding allows.
    """
    x, norm = start.copy(), math.inf
    if problem.outputs == 1:
        norm, regular = _compiled(problem, x, tol, journal)
    else:
        regular = False
    if not regular and journal.left > 0:
        x, here = descend(problem, x, tol, journal)
        norm = here.norm
    return Solution(x, journal.history, norm <= tol, "f falls no further, for rounding")


def _compiled(problem: Problem, x: Array, tol: float, journal: Journal) -> tuple[float, bool]:
    """Move x by compiled Newton steps; ‖∇f‖ there, and whether every Hessian had a factor."""
    dense = problem.rows.toarray() if problem.sparse else readable(problem.rows)
    kept, gradient, smooth = np.empty((problem.n, 1)), np.empty(x.shape), np.empty(x.shape)
    seen, model = np.empty((PASSES + 1, 3)), ((dense,), *problem.model[1:])
    budget = max(1, math.ceil(min(journal.left, 1e6)))
    n, width = problem.n, problem.d + (problem.bias != 0)
    room = np.empty((n, width)), np.empty((width, width)), np.empty((n, 1)), np.zeros(x.shape), np.empty(width)
    terms = problem.penalty.l2, tol, n * problem.d <= EXACT, budget
    lines, used, regular = newton_steps(*model, x, kept, gradient, smooth, *terms, seen, *room)
    before = journal.passes
    for passes, value, norm in seen[:lines].tolist():
        journal.passes = before + passes
        journal.note("newton", problem.n, value, norm)
    journal.passes = before + used
    if not math.isfinite(seen[0, 1] + seen[0, 2]):
        raise FloatingPointError(f"at the start f = {seen[0, 1]} and ‖∇f‖ = {seen[0, 2]}")
    return float(seen[lines - 1, 2]), bool(regular)


def descend(problem: Problem, x: Array, tol: float, journal: Journal) -> tuple[Array, PassResult]:
    """Take Newton steps, halved until f falls, until a step no longer halves ‖∇f‖; return x and the pass there."""
    here = _pass(problem, x, journal)
    journal.note("newton", problem.n, here.value, here.norm)
    if not math.isfinite(here.value + here.norm):
        raise FloatingPointError(f"at the start f = {here.value} and ‖∇f‖ = {here.norm}")
    for _ in range(STEPS):
        if here.norm == 0 or journal.left <= 0:
            break
        step = _solve(hessian(problem, x), here.smooth.reshape(-1)).reshape(x.shape)
        for _ in range(HALVINGS):
            trial = x - step
            there = _pass(problem, trial, journal)
            if there.below(here) or journal.left <= 0:
                break
            step /= 2
        if not there.below(here):
            break
        journal.note("newton", problem.n, there.value, there.norm)
        done = there.norm <= tol and there.norm > here.norm / 2
        x, here = trial, there
        if done:
            break
    return x, here


def _pass(problem: Problem, x: Array, journal: Journal) -> PassResult:
    journal.passes += 1
    return problem.anchor(x)
