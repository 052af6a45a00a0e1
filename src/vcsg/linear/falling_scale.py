"""Huber regression whose σ is far below the residuals: solved for a falling σ, each time from the solution before.

Rows with |r| > σ have a slope and no curvature. Where nearly all rows are such, no Newton step leads far; with σ at the
median of |r| half of them are curved, and each solution leaves the next a start near its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from vcsg.linear.inputs import weighted_median
from vcsg.linear.problem import Array, Problem
from vcsg.linear.solution import HistoryEntry, Solution

Solve = Callable[[Problem, Array, float, float], Solution]
"""Solves a problem from a start, to a tolerance, with a number of passes."""

FAR = 3.0
"""How far above σ the median of |r| is where σ is not taken at once."""
FALL = 4.0
"""How much smaller the next σ is."""
ROUGH = 0.01
"""How far ‖∇f‖ falls for every σ but the last."""
LEAST_PASSES = 4.0
"""The passes that have to be left for another value of σ."""


def scales(problem: Problem, x: Array) -> list[float]:
    """The falling values of σ, the problem's own not among them."""
    residuals = np.abs(problem.rows @ x[0, :-1] + problem.bias * x[0, -1] - problem.y)
    width, found = weighted_median(residuals, problem.weight), []
    while FAR * problem.scale < width < np.inf:
        found.append(width)
        width /= FALL
    return found


def solve_falling(problem: Problem, start: Array, tol: float, passes: float, solve: Solve) -> Solution:
    """Solve for falling values of σ, down to the problem's own; the history has all of them."""
    x, history, used = start, list[HistoryEntry](), 1.0  # the pass in which residuals are found
    for scale in scales(problem, start):
        if used + LEAST_PASSES > passes:
            break
        part = replace(problem, scale=scale)
        rough = max(tol, ROUGH * part.anchor(x).norm)
        found = solve(part, x, rough, passes - used - 2.0)  # a solver may end a pass later, and the last has one
        history += [entry._replace(passes=entry.passes + used) for entry in found.history]
        x, used = found.x, history[-1].passes + 1.0
    found = solve(problem, x, tol, max(1.0, passes - used) if history else passes)
    if history:
        history += [entry._replace(passes=entry.passes + used) for entry in found.history]
        found.history = history
    return found
