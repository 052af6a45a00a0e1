"""Least squares of many rows as least squares of d rows: the same f up to a constant, from the Gram matrix.

Σ (w_i/n)(a_iᵀw + c − y_i)²/2 is ‖R(w − w₀)‖²/2 plus a constant for the best c, where RᵀR = G is the weighted covariance
of the rows and w₀ the solution without a penalty. So √d·R are rows and √d·Rw₀ targets of a problem with d rows that has
the same minimum under any penalty on w. To make G takes one multiplication of matrices; all that follows is cheap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from vcsg.linear.kernels.losses import SQUARED
from vcsg.linear.problem import Array, Problem
from vcsg.linear.solvers.lbfgs import blas_threads

WIDEST = 2000
"""The largest number of features of a Gram matrix."""
TALLEST = 2
"""The fewest rows for each feature for which it pays to make a Gram matrix for a whole path."""
BLOCK = 1 << 18
"""The numbers of rows that are centred at a time: as many as stay in a cache."""
SINGULAR = 1e-10
"""The least pivot of G, relative to its diagonal, for which it counts as regular."""


@dataclass
class Condensed:
    """A least-squares problem with d rows, and how its points belong to those of the problem with all rows."""

    problem: Problem
    """The problem with d rows, without an intercept."""
    centre: Array
    """The weighted mean of the rows; 0 where there is no intercept."""
    level: float
    """The weighted mean of the targets; 0 where there is no intercept."""

    def whole(self, x: Array, bias: float) -> Array:
        """The point of the problem with all rows, with the best intercept."""
        x = x.copy()
        x[0, -1] = (self.level - float(self.centre @ x[0, :-1])) / bias if bias else 0.0
        return x


def condensed(problem: Problem) -> Condensed | None:
    """The problem with d rows; None for other losses, sparse or few rows, many features, or a singular Gram matrix."""
    n, d = problem.n, problem.d
    if problem.loss.code != SQUARED or problem.sparse or n < TALLEST * d or d > WIDEST:
        return None
    share, intercept = problem.weight / n, problem.bias != 0
    centre = share @ problem.rows if intercept else np.zeros(d)
    level = float(share @ problem.y) if intercept else 0.0
    G, b, root, height = np.zeros((d, d)), np.zeros(d), np.sqrt(share), max(64, BLOCK // d)
    plain = not intercept and problem.rows.dtype == np.float64 and bool((problem.weight == 1).all())
    with blas_threads(problem):
        if plain:
            G, b = problem.rows.T @ problem.rows / n, problem.y @ problem.rows / n
        for low in range(0, 0 if plain else n, height):
            part = slice(low, low + height)
            rows = (problem.rows[part] - centre) * root[part, None]
            G += rows.T @ rows
            b += rows.T @ (root[part] * (problem.y[part] - level))
    try:
        R = linalg.cholesky(G)
    except linalg.LinAlgError:
        return None
    if not (np.diagonal(R) ** 2 > SINGULAR * np.diagonal(G)).all():
        return None
    y = linalg.solve_triangular(R, b, trans=1)
    scale = math.sqrt(d)
    rows, ones = np.ascontiguousarray(scale * R), np.ones(d)
    return Condensed(replace(problem, rows=rows, y=scale * y, weight=ones, bias=0.0), np.asarray(centre), level)
