"""Dual coordinate ascent: for L2-logistic regression on sparse rows with more features than rows.

Rows that share few features hardly disturb each other, and steps that are exact for each of them get far in a pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vcsg.linear.kernels.dual_steps import dual_pass
from vcsg.linear.kernels.order import Draws, permutation
from vcsg.linear.problem import Problem
from vcsg.linear.solution import Journal, Solution
from vcsg.linear.solvers import lbfgs

PATIENCE = 5
"""The passes in which the distance to the dual solution has to halve; otherwise L-BFGS finishes."""


@dataclass
class Relaxation:
    """Steps of the intercept, lengthened or shortened by how much of the one before was left to do.

    The curvature that a pass tells of takes rows for independent. If a step of θ times the proposed length leaves the
    share r of the proposal, the right factor is θ/(1 − r).
    """

    factor: float = 1.0
    last: float = 0.0

    def __call__(self, proposed: float) -> float:
        """The step to take where a pass proposes this one."""
        if self.last:
            self.factor /= 1 - min(0.75, max(-3.0, proposed / self.last))
        self.last = proposed
        return self.factor * proposed


def solve(problem: Problem, tol: float, journal: Journal, seed: int = 0) -> Solution:
    """Coordinate ascent from α = 0 until ‖∇f‖ ≤ tol, which is measured by a pass when it is expected to hold.

    Args:
        problem: what to minimise: the logistic loss with an L2 penalty, sparse rows.
        tol: the bound on ‖∇f‖.
        journal: counts the passes and keeps the history.
        seed: the seed of the order of rows.
    """
    n, rng, bias = problem.n, Draws(seed), problem.bias
    unit = 1 / (problem.penalty.l2 * n)
    intercept = Relaxation()
    x, alpha, ratio, distances = np.zeros(problem.shape), np.zeros(n), 1.0, [math.inf]
    while True:
        order = permutation(rng.random(n))
        square, shift = dual_pass(*problem.parts, problem.y, problem.weight, bias, order, x, alpha, unit)
        if bias:
            x[0, -1] += intercept(shift) / bias
        journal.passes += 1
        distances.append(math.sqrt(square))
        slow = len(distances) > PATIENCE and distances[-1] > distances[-1 - PATIENCE] / 2
        if distances[-1] * ratio > tol and not slow and journal.left > 1:
            continue
        found = problem.anchor(x)
        journal.passes += 1
        journal.note("dual", n, found.value, found.norm)
        ratio = found.norm / max(distances[-1], 1e-300)
        if found.norm <= tol or journal.left <= 0:
            return Solution(x, journal.history, found.norm <= tol, "‖∇f‖ ≤ tol")
        if slow:
            x, norm, message = lbfgs.finish(problem, "diagonal", x, found, tol, journal)
            return Solution(x, journal.history, norm <= tol, message)
