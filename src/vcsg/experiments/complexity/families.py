"""The families of problems: drawn linear models whose smoothness constant L, that of every f_i, is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vcsg.linear import LOSSES, Penalty, Problem
from vcsg.linear.problem import Array, variance
from vcsg.planted import PlantedData, planted_classes, planted_outliers, planted_regression

DIMENSION = 20


@dataclass(frozen=True)
class ProblemFamily:
    """A kind of problem, of which n rows can be drawn from a seed."""

    label: str
    loss: str
    L: float
    """A Lipschitz constant of every ∇f_i: the rows have unit norm."""
    draw: Callable[[int, int, int], PlantedData]
    rational: float = 0.0
    """The weight α of the non-convex regulariser αΣx²/(1 + x²)."""
    from_zero: bool = False
    """Whether runs begin at 0: far away a bounded loss is flat, and the planted start is all but stationary."""


FAMILIES = {
    "least-squares": ProblemFamily("least squares", "squared", 1.0, planted_regression),
    "nonconvex-logistic": ProblemFamily("non-convex logistic", "logistic", 0.35, planted_classes, rational=0.05),
    "robust-regression": ProblemFamily("robust regression", "geman-mcclure", 1.0, planted_outliers, from_zero=True),
}


@dataclass(frozen=True)
class DrawnProblem:
    """A problem of a family, with its start and what is known of it."""

    problem: Problem
    start: Array
    L: float
    variance: float
    """The variance S* of the single gradients at the start."""


@lru_cache(maxsize=1)
def drawn_problem(family: str, n: int, seed: int) -> DrawnProblem:
    """The problem of a family with n rows; the last one is kept, since tasks in a row use the same."""
    kind = FAMILIES[family]
    data = kind.draw(n, DIMENSION, seed)
    penalty = Penalty(rational=kind.rational)
    problem = Problem(data.rows, data.targets, np.ones(n), LOSSES[kind.loss], bias=0.0, penalty=penalty)
    planted = 0.0 * data.start if kind.from_zero else data.start
    start = np.append(planted, 0.0)[None]  # the last column is that of the intercept, which is not used
    return DrawnProblem(problem, start, kind.L, variance(problem.anchor(start), problem.norms, n))
