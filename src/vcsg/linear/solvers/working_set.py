"""The L1 penalty by a working set: few columns at a time, chosen by the gradient of all, solved by coordinate descent.

Most coefficients of a sparse solution are 0 and stay so. A pass over all rows tells which columns violate optimality;
the worst of them join those in use, and a Newton-like method works on these alone: a quadratic model of the loss, its
minimum with the L1 penalty by coordinate descent, a step shortened until f falls. Passes are few, and each is exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from vcsg.linear.kernels import column_steps as kernel
from vcsg.linear.kernels.losses import SQUARED
from vcsg.linear.problem import Array, PassResult, Problem, violation
from vcsg.linear.solution import Journal, Solution

SMALLEST = 64
"""The fewest columns of a working set."""
GROWTH = 2
"""The columns of a working set for each coefficient that is not 0."""
CLOSE = 0.3
"""The accuracy of a working set's solution, in units of tol; of the quadratic model's, in that of its first epoch."""
FAR = 0.05
"""The accuracy of a working set's solution, in units of ‖∇f‖ of all columns when it was chosen."""
FLOOR = 1e-4
"""The least curvature of a row, in units of its bound, so that a model has a minimum."""
LEAST = 1e-8
"""The least curvature of a row where there is no bound on it."""
ROUGH, EXACT = 0.1, 1e-3
"""How far coordinate descent goes on a quadratic model, in steps of the first epoch: further where the model is f."""
EPOCHS = 100
"""The largest number of epochs of coordinate descent on one quadratic model."""
NEWTON = 50
"""The largest number of quadratic models for one working set."""
HALVINGS = 30
"""How often a step may be halved before f counts as not falling any more."""


class WorkingSet:
    """The problem on some of its columns: margins, slopes and curvatures of all rows at the present point."""

    def __init__(self, problem: Problem, columns: Any, chosen: npt.NDArray[np.int64], x: Array) -> None:
        self.problem, self.chosen = problem, chosen
        if problem.sparse:
            part = columns[:, chosen]
            self.columns: tuple[Any, ...] = part.data, part.indices, part.indptr
            self.share = part.nnz / max(1, columns.nnz)
        else:
            self.columns = (np.ascontiguousarray(problem.rows[:, chosen].T, np.float64),)
            self.share = len(chosen) / problem.d
        self.w = np.append(x[0, chosen], x[0, -1])
        self.z, self.slopes, self.curvatures = (np.empty(problem.n) for _ in range(3))
        self.gradient = np.empty(len(chosen))
        self.floor = FLOOR * problem.loss.curvature if problem.loss.bounded else LEAST
        self.value = self.evaluate(self.w)

    def margins(self, w: Array) -> Array:
        """The margins of all rows at w."""
        z = np.empty(self.problem.n)
        kernel.add_columns(self.columns, w[:-1], self.problem.bias * w[-1], z)
        return z

    def evaluate(self, w: Array) -> float:
        """f at w; leaves the slopes and curvatures of the rows."""
        problem, terms = self.problem, self.problem.penalty
        self.z = self.margins(w)
        loss = kernel.loss_terms(
            self.z, problem.y, problem.weight, problem.loss.code, problem.scale, self.floor,
            self.slopes, self.curvatures,
        )  # fmt: skip
        coef = w[:-1]
        return float(loss + terms.l1 * np.abs(coef).sum() + terms.l2 / 2 * (coef @ coef))

    def norm(self) -> float:
        """‖∇f‖ on these columns: of the subgradient of least norm."""
        terms, coef = self.problem.penalty, self.w[:-1]
        kernel.products(self.columns, self.slopes, self.gradient)
        slope = violation(self.gradient + terms.l2 * coef, coef, terms.l1, terms.positive)
        return math.hypot(float(np.linalg.norm(slope)), self.problem.bias * float(self.slopes.sum()))

    def step(self) -> int:
        """Move w towards the minimum of the quadratic model; the epochs that took, 0 where f does not fall any more."""
        terms, squares, target = self.problem.penalty, np.empty(len(self.chosen)), self.w.copy()
        kernel.weighted_squares(self.columns, self.curvatures, squares)
        slopes, v = self.slopes.copy(), self.slopes.copy()
        epochs = kernel.model_minimum(
            self.columns,
            self.curvatures,
            v,
            squares,
            self.problem.bias,
            target,
            terms.l1,
            terms.l2,
            terms.positive,
            EXACT if self.problem.loss.code == SQUARED else ROUGH,
            EPOCHS,
        )
        direction, before = target - self.w, self.value
        slope = self.fall(direction, slopes, target)
        length = 1.0
        for _ in range(HALVINGS):
            trial = self.w + length * direction
            value = self.evaluate(trial)
            if value <= before + 1e-4 * length * slope or abs(value - before) <= 1e-14 * abs(before):
                self.w, self.value = trial, value
                return int(epochs)
            length /= 2
        self.value = self.evaluate(self.w)
        return 0

    def fall(self, direction: Array, slopes: Array, target: Array) -> float:
        """The change of f along the direction to first order, L1 penalty included: not above 0."""
        terms = self.problem.penalty
        loss = float(self.gradient @ direction[:-1]) + self.problem.bias * float(slopes.sum()) * float(direction[-1])
        penalty = terms.l2 * float(self.w[:-1] @ direction[:-1])
        return loss + penalty + terms.l1 * float(np.abs(target[:-1]).sum() - np.abs(self.w[:-1]).sum())


def solve(
    problem: Problem, start: Array, tol: float, journal: Journal, columns: Any = None, stronger: float = 0.0
) -> Solution:
    """Minimise f with an L1 penalty and one output: working sets until ‖∇f‖ ≤ tol over all columns.

    Args:
        problem: what to minimise.
        start: the point to begin at.
        tol: the bound on ‖∇f‖, the subgradient of least norm.
        journal: counts the passes and keeps the history.
        columns: sparse rows by columns, where they are known.
        stronger: the larger weight of ‖w‖₁ for which the start is the solution, along a path. The first working set
            then has the columns that the strong rule keeps (Tibshirani et al. 2012).
    """
    x, before = start.copy(), (math.inf, math.inf)
    columns = problem.rows.tocsc() if problem.sparse and columns is None else columns
    threshold = 2 * problem.penalty.l1 - stronger if stronger else problem.penalty.l1
    while True:
        here = problem.anchor(x)
        journal.passes += 1
        journal.note("working-set", problem.n, here.value, here.norm)
        if not math.isfinite(here.value + here.norm):
            raise FloatingPointError(f"f = {here.value} and ‖∇f‖ = {here.norm}")
        if here.norm <= tol or journal.left <= 0:
            return Solution(x, journal.history, here.norm <= tol, "‖∇f‖ ≤ tol", last=here)
        if (here.value, here.norm) >= before:
            return Solution(x, journal.history, False, "f falls no further, for rounding", last=here)
        before = here.value, here.norm
        part = WorkingSet(problem, columns, chosen(problem, x, here, max(threshold, 0.0)), x)
        threshold = problem.penalty.l1
        improve(part, max(CLOSE * tol, FAR * here.norm), journal)
        x = np.zeros(problem.shape)
        x[0, part.chosen], x[0, -1] = part.w[:-1], part.w[-1]


def chosen(problem: Problem, x: Array, here: PassResult, l1: float) -> npt.NDArray[np.int64]:
    """The columns in use, and those that violate optimality for this weight of ‖w‖₁ most."""
    w, slope = x[0, :-1], here.smooth[0, :-1]
    scores = np.where(w != 0, np.inf, np.abs(violation(slope, w, l1, problem.penalty.positive)))
    candidates = np.flatnonzero(scores)  # few: numpy takes long to find the largest of many equal numbers
    size = max(SMALLEST, GROWTH * int(np.count_nonzero(w)))
    if len(candidates) > size:
        first = len(candidates) - size
        candidates = np.sort(candidates[np.argpartition(scores[candidates], first)[first:]])
    return candidates


def improve(part: WorkingSet, tol: float, journal: Journal) -> None:
    """Newton-like steps on a working set until ‖∇f‖ ≤ tol there."""
    for _ in range(NEWTON):
        if part.norm() <= tol or journal.left <= 0:
            return
        epochs = part.step()
        journal.passes += part.share * (epochs + 2)  # of coordinate descent, and for the model and the step
        if not epochs:
            return
