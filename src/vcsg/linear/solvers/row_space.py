"""Newton's method among the combinations of rows, x = Xᵀu, where rows are fewer than features.

With an L2 penalty the solution is such a combination. Of the rows only K = XXᵀ is needed, once: a step is a
factor of n × n numbers, however many features there are and however they are scaled.

    f(u, b) = (1/n) Σ w_i φ(t_i) + (λ/2) uᵀKu,  t = Ku + βb          β: the intercept's feature
    (λI + DK) δu = −(r + λu) − Dβδb,  1ᵀ(u + δu) = 0                 r, D: the slopes and curvatures w φ'/n and w φ''/n

and (λI + DK)⁻¹v = (v − S·B⁻¹·SKv)/λ with S = √D and B = λI + SKS, which is never indefinite (Rasmussen and Williams
2006, Algorithm 3.1). What is solved for is the change of u, so that rounding is in proportion to what is left to do.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import linalg

from vcsg.linear.curvature import pass_work, row_curvatures
from vcsg.linear.problem import Array, PassResult, Penalty, Problem

MOST_ROWS = 2000
"""The largest number of rows: K and a factor of this size take 64 MB."""
MOST_COPIED = 1e7
"""The most numbers of rows that are sparse or of single precision, which are copied."""
STEPS = 8
"""The steps that are expected, for a loss that is not quadratic; that one needs `EXACT_STEPS`."""
EXACT_STEPS = 2
OVERHEAD = 2e6
"""What a step costs besides, in multiply-adds of a matrix product."""
MOST_STEPS, HALVINGS = 50, 30
GOAL = 0.3
"""Where steps end, in units of the tolerance: rows are then read once more, and rounding may differ."""


class RowPoint(NamedTuple):
    """A point x = Xᵀu with an intercept, and what one evaluation tells there."""

    u: Array
    """The coefficients of the rows and, last, the intercept: one line."""
    seen: PassResult
    """f, and ‖∇f‖ in terms of x; its gradients are those of the losses alone, by u."""
    residual: Array
    """−(r + λu)."""
    change: Array
    """K times the residual."""


def cost(problem: Problem) -> float:
    """The time of the way to the solution in units of a pass over the rows; infinite where it cannot be gone."""
    n, d = problem.n, problem.d
    # What watches every point, or reads rows from a file, is a problem of another type.
    apt = type(problem) is Problem and problem.outputs == 1 and problem.smooth and problem.penalty.l2 > 0
    copied = problem.sparse or problem.rows.dtype != np.float64
    if not apt or problem.fixed or not n < d or n > MOST_ROWS or (copied and n * d > MOST_COPIED):
        return math.inf
    steps = EXACT_STEPS if problem.loss.quadratic else STEPS
    # Products in double precision take twice as long as those that are the unit.
    return (2 * n * n * d + steps * (2 * n**3 / 3 + OVERHEAD)) / max(1.0, pass_work(problem))


def minimise(problem: Problem, start: Array, tol: float) -> Array:
    """A point near the solution, as a rule with ‖∇f‖ ≤ tol but for rounding; it begins at 0 and `start`'s intercept."""
    dense = problem.rows.toarray() if problem.sparse else problem.rows
    rows = np.asarray(dense, np.float64)
    return RowSpace(problem, rows).solve(float(start[0, -1]), tol)


class RowSpace:
    """Newton steps for the coefficients of the rows."""

    def __init__(self, problem: Problem, rows: Array) -> None:
        self.rows, self.n, self.l2, self.bias = rows, problem.n, problem.penalty.l2, problem.bias
        self.gram: Array = rows @ rows.T
        y, weight, loss = problem.y, problem.weight, problem.loss
        self.inner = Problem(self.gram, y, weight, loss, problem.scale, bias=problem.bias, penalty=Penalty())
        """The losses as those of rows of K."""

    def solve(self, intercept: float, tol: float) -> Array:
        here = self.at(np.append(np.zeros(self.n), intercept)[None])
        for _ in range(MOST_STEPS):
            if here.seen.norm <= GOAL * tol or not math.isfinite(here.seen.value):
                break
            try:
                there = self.lower(here, self.step(here))
            except linalg.LinAlgError:  # λ is nothing beside rounding
                break
            if there is None:
                break
            here = there
        return np.append(here.u[0, :-1] @ self.rows, here.u[0, -1])[None]

    def at(self, u: Array) -> RowPoint:
        """Evaluate f and ∇f: the gradient is Xᵀ(r + λu), and that for the intercept βΣr."""
        seen, own = self.inner.anchor(u), u[0, :-1]
        slopes = seen.kept[:, 0] / self.n
        residual = -(slopes + self.l2 * own)
        change = self.gram @ residual
        value = seen.value + self.l2 / 2 * float(own @ (self.gram @ own))
        square, shift = float(residual @ change), self.bias * float(slopes.sum())
        norm = math.sqrt(max(0.0, square + shift * shift))
        return RowPoint(u, seen._replace(value=value, norm=norm), residual, change)

    def step(self, here: RowPoint) -> Array:
        """The change of u, and of the intercept."""
        root = np.sqrt(np.maximum(row_curvatures(self.inner, here.u)[:, 0], 0.0))
        matrix = self.gram * root
        matrix *= root[:, None]
        np.einsum("ii->i", matrix)[:] += self.l2
        factor = linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

        def solved(v: Array) -> Array:
            return np.asarray(root * linalg.cho_solve(factor, root * v, check_finite=False))

        change = (here.residual - solved(here.change)) / self.l2
        if not self.bias:
            return np.append(change, 0.0)[None]
        even = solved(np.ones(self.n))
        lifted = float(even.sum())
        shift = (float(change.sum()) + float(here.u[0, :-1].sum())) / lifted if lifted > 0 else 0.0
        return np.append(change - shift * even, shift / self.bias)[None]

    def lower(self, here: RowPoint, step: Array) -> RowPoint | None:
        """The point at the end of the step, which is halved until f falls; None where it does not."""
        with np.errstate(over="ignore", invalid="ignore"):
            for halvings in range(HALVINGS):
                there = self.at(here.u + step * 0.5**halvings)
                if math.isfinite(there.seen.value) and there.seen.below(here.seen):
                    return there
        return None
