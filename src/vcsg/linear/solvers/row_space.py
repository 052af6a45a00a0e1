"""Newton's method among the combinations of rows, x = Xᵀu, where rows are fewer than features.

With an L2 penalty the solution is such a combination. Of the rows only K = XXᵀ is needed, once: a step is a
factor of n × n numbers, however many features there are and however they are scaled.

    f(u, b) = (1/n) Σ w_i φ(t_i) + (λ/2) uᵀKu,  t = Ku + βb          β: the intercept's feature
    (λI + DK) δu = −(r + λu) − Dβδb,  1ᵀ(u + δu) = 0                 r, D: the slopes and curvatures w φ'/n and w φ''/n

and (λI + DK)⁻¹v = (v − S·B⁻¹·SKv)/λ with S = √D and B = λI + SKS, which is never indefinite (Rasmussen and Williams
2006, Algorithm 3.1). What is solved for is the change of u, so that rounding is in proportion to what is left to do.

For a squared loss D is w/n wherever the point is, and (λI + DK)⁻¹v = S·B⁻¹·S⁻¹v: one factor is all that is needed. For
large data it is one of single precision, which takes half the time, and what its rounding leaves is solved for again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

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
ROUGH = 2e7
"""The least n²·d for which a factor of least squares is made in single precision first."""
BLOCK = 1 << 18
"""The numbers that are copied in single precision at a time: as many as stay in a cache; 256 columns at least."""
GAIN = 4.0
"""The fall of ‖∇f‖ that each step with the same factor has to make."""
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
    work = max(1.0, pass_work(problem))
    # Products in double precision take twice as long as those that are the unit.
    if problem.loss.quadratic:
        products = (1 if n * n * d >= ROUGH else 2) * (n * n * d + n**3 / 3)
        return (products + EXACT_STEPS * OVERHEAD) / work + 2 * EXACT_STEPS
    return (2 * n * n * d + STEPS * (2 * n**3 / 3 + OVERHEAD)) / work


def minimise(
    problem: Problem, start: Array, tol: float, evaluate: Callable[[Array], PassResult] | None = None
) -> Array:
    """A point near the solution, as a rule with ‖∇f‖ ≤ tol but for rounding; it begins at 0 and `start`'s intercept.

    Least squares need passes over the rows, for which `evaluate` may be given; it keeps the slopes of rows.
    """
    dense = problem.rows.toarray() if problem.sparse else problem.rows
    rows, intercept = np.asarray(dense, np.float64), float(start[0, -1])
    if problem.loss.quadratic:
        return least_squares(problem, rows, intercept, tol, evaluate or problem.anchor)
    return RowSpace(problem, rows).solve(intercept, tol)


def least_squares(
    problem: Problem, rows: Array, intercept: float, tol: float, evaluate: Callable[[Array], PassResult]
) -> Array:
    """Solve by a factor in single precision and, where its steps do not gain enough, by one in double precision."""
    x, u = np.append(np.zeros(problem.d), intercept), np.zeros(problem.n)
    norm, slopes = math.inf, problem.shares * (problem.bias * intercept - problem.y)
    for dtype in (np.float32, np.float64) if problem.n**2 * problem.d >= ROUGH else (np.float64,):
        try:
            steps = SquaredSteps(problem, rows, dtype)
        except linalg.LinAlgError:  # λ is nothing beside rounding
            continue
        for _ in range(MOST_STEPS):
            change, shift = steps.change(u, slopes)
            there = x + np.append(change @ rows, shift)
            if not np.isfinite(there).all():
                break
            seen, before = evaluate(there[None]), norm
            if seen.norm < norm:
                x, u, slopes, norm = there, u + change, seen.kept[:, 0] / problem.n, seen.norm
            if norm <= tol:
                return x[None]
            if not GAIN * norm <= before:
                break
    return x[None]


class SquaredSteps:
    """Steps to the solution of least squares, as near as the rounding of one factor of B = λI + SKS allows."""

    def __init__(self, problem: Problem, rows: Array, dtype: Any) -> None:
        self.l2, self.bias, self.root = problem.penalty.l2, problem.bias, np.sqrt(problem.shares)
        self.inverse = np.divide(1.0, self.root, out=np.zeros(problem.n), where=self.root > 0)
        self.factor = linalg.cho_factor(
            scaled_gram(rows, self.root, self.l2, dtype), lower=True, overwrite_a=True, check_finite=False
        )
        self.even = self.root * self.solved(self.root)
        """What u moves by for a change of all residuals by 1."""

    def solved(self, v: Array) -> Array:
        """B⁻¹v, for a v of any size."""
        size = float(np.abs(v).max(initial=0.0)) or 1.0
        found = linalg.cho_solve(self.factor, (v / size).astype(self.factor[0].dtype), check_finite=False)
        return np.asarray(found, np.float64) * size

    def change(self, u: Array, slopes: Array) -> tuple[Array, float]:
        """The change of u and that of the intercept, from u and the slopes w φ'/n of the rows there."""
        change = -self.root * self.solved(self.inverse * (slopes + self.l2 * u))
        lifted = float(self.even.sum())
        if not self.bias or not lifted > 0:
            return change, 0.0
        shift = (float(change.sum()) + float(u.sum())) / lifted
        return change - shift * self.even, shift / self.bias


def scaled_gram(rows: Array, root: Array, l2: float, dtype: Any) -> Array:
    """The lower triangle of λI + SKS, in the order of Fortran."""
    n, d = rows.shape
    width = d if dtype is np.float64 else max(256, BLOCK // n)
    gram, syrk = np.zeros((n, n), dtype, order="F"), linalg.get_blas_funcs("syrk", dtype=dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, d, width):
            block = rows[:, first : first + width].astype(dtype, copy=False)
            gram = syrk(1.0, block.T, beta=1.0, c=gram, trans=1, lower=1, overwrite_c=1)
        gram *= root[:, None].astype(dtype)
        gram *= root.astype(dtype)
    np.einsum("ii->i", gram)[:] += dtype(l2)
    return np.asarray(gram)


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
