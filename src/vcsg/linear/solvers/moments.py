"""Least squares with an L1 penalty from the second moments of the rows: a path of weights without a row being read.

For the best intercept c, Σ (w_i/n)(a_iᵀw + c − y_i)²/2 is m/2 − bᵀw + wᵀGw/2, where G is the weighted covariance of the
rows, b that of rows and targets, and m the variance of the targets; without an intercept they are taken about 0. To
make G takes one multiplication of matrices; all that follows is cheap.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vcsg.linear.kernels.column_steps import POINTS
from vcsg.linear.kernels.gram_steps import REACHED, ROUNDED, USED_UP, descend_path
from vcsg.linear.kernels.losses import SQUARED
from vcsg.linear.problem import Array, Penalty, Problem
from vcsg.linear.solution import HistoryEntry, Solution
from vcsg.linear.solvers.quasi_newton import blas_threads

NAME = "coordinate-descent"
"""What histories call it."""
WIDEST = 2000
"""The largest number of features of a Gram matrix."""
TALLEST = 1
"""The fewest rows for each feature: with fewer, G is singular, and a weak penalty takes coordinate descent long."""
BLOCK = 1 << 18
"""The numbers of rows that are centred at a time: as many as stay in a cache."""
AT_ONCE = 1e8
"""The numbers of G that one compiled call may read, which takes a tenth of a second: it cannot be interrupted."""


@dataclass
class Moments:
    """The second moments of rows and targets about their weighted means, or about 0 without an intercept."""

    G: Array
    """Σ (w_i/n)(a_i − centre)(a_i − centre)ᵀ; 0 for columns that are constant beside an intercept."""
    b: Array
    """Σ (w_i/n)(y_i − level)(a_i − centre)."""
    square: float
    """Σ (w_i/n)(y_i − level)²."""
    centre: Array
    """The weighted mean of the rows; 0 where there is no intercept."""
    level: float
    """The weighted mean of the targets; 0 where there is no intercept."""


def moments(problem: Problem) -> Moments | None:
    """The second moments; None for other losses, sparse or few rows, many features, or numbers that are too large."""
    n, d = problem.n, problem.d
    if problem.loss.code != SQUARED or problem.sparse or n < TALLEST * d or d > WIDEST:
        return None
    share = problem.shares
    centre, level = np.zeros(d), 0.0
    if problem.bias:
        centre, level = np.asarray(share @ problem.rows, np.float64), float(share @ problem.y)
    y = problem.y - level
    plain = not problem.bias and problem.rows.dtype == np.float64 and bool((problem.weight == 1).all())
    with blas_threads(problem):
        if plain:
            G, b = problem.rows.T @ problem.rows / n, y @ problem.rows / n
        else:
            G, b = _weighted(problem, centre, y)
    if not np.isfinite(G).all():
        return None
    constant = G.diagonal() <= (n * np.finfo(float).eps * centre) ** 2  # what rounding of the mean may leave
    if constant.any():
        G[constant], G[:, constant], b[constant] = 0.0, 0.0, 0.0
    return Moments(np.ascontiguousarray(G), np.asarray(b), float(share @ (y * y)), centre, level)


def _weighted(problem: Problem, centre: Array, y: Array) -> tuple[Array, Array]:
    """G and b, block by block of rows."""
    d, root, even = problem.d, np.sqrt(problem.shares), bool((problem.weight == 1).all())
    G, b, height = np.zeros((d, d)), np.zeros(d), max(64, BLOCK // d)
    room = np.empty((min(height, problem.n), d))
    for low in range(0, problem.n, height):
        part = slice(low, low + height)
        rows = np.subtract(problem.rows[part], centre, out=room[: problem.n - low])
        if even:
            G, b = G + rows.T @ rows, b + y[part] @ rows
        else:
            rows *= root[part, None]
            G, b = G + rows.T @ rows, b + (root[part] * y[part]) @ rows
    return (G / problem.n, b / problem.n) if even else (G, b)


def solve_path(
    known: Moments, alphas: Array, unit: Penalty, bias: float, tol: float, passes: float, tick: Callable[[int], None],
    start: Array | None = None,
) -> list[Solution]:  # fmt: skip
    """The solutions for falling weights of an L1 penalty or a bound, each from those before.

    Args:
        known: the second moments.
        alphas: the weights.
        unit: the penalty of the weight 1.
        bias: the value of the intercept's feature; 0 for no intercept.
        tol: the bound on ‖∇f‖, in units of the weight of ‖w‖₁ where that is below 1.
        passes: the largest number of passes for each weight, the first of which is its start; a pass reads all of G.
        tick: called again and again, with the number of solutions since the call before.
        start: the coefficients at which the first weight begins; 0 unless given.
    """
    count, d = len(alphas), len(known.b)
    points, seen = np.zeros((count, d + 1)), np.zeros((count, 6))
    if start is not None:
        points[0, :d] = np.where(known.G.diagonal() > 0, start, 0.0)  # constant columns stay as they are
    epochs, moved = [np.empty((POINTS + 1, d)) for _ in range(2)], [np.empty(d) for _ in range(2)]
    room = moved[0], *epochs, np.empty(POINTS), np.empty((d, d)), moved[1], np.empty(d, np.int64)
    weights = np.ascontiguousarray(alphas, np.float64)
    solutions: list[Solution] = []
    messages, last = _messages(passes), 0
    while last < count:
        began, first = time.perf_counter(), last
        last = descend_path(
            known.G, known.b, known.square, weights, unit.l1, unit.l2, unit.positive, tol, passes, first, AT_ONCE / d,
            points, seen, *room,
        )  # fmt: skip
        if bias:
            points[first:last, -1] = (known.level - points[first:last, :-1] @ known.centre) / bias
        seconds = time.perf_counter() - began
        for k, (value, norm, gap, read, ended, _) in enumerate(seen[first:last].tolist(), first):
            if not math.isfinite(value + norm):
                raise FloatingPointError(f"f = {value} and ‖∇f‖ = {norm}")
            history = [HistoryEntry(NAME, 0, value, norm, read, seconds)]
            solutions.append(Solution(points[k : k + 1], history, not ended, messages[int(ended)], NAME, gap=gap))
        tick(last - first)
    return solutions


def _messages(passes: float) -> dict[int, str]:
    """By how a descent ended, a sentence on it."""
    used_up = f"{passes:g} passes are used up"
    return {REACHED: "‖∇f‖ ≤ tol", USED_UP: used_up, ROUNDED: "f falls no further, for rounding"}
