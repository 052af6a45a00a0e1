"""Ends a fit when the loss on held-out rows falls no further, which is often before the minimum is reached.

L-BFGS runs on the other rows, from the gradient on: it moves along few directions at first, and the rest of them, which
fit the noise, come later. At every point the mean loss of the held-out rows is measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace

import numpy as np

from vcsg.linear.problem import Array, PassResult, Penalty, Problem
from vcsg.linear.solution import Journal, Solution
from vcsg.linear.solvers import lbfgs, quasi_newton

PATIENCE = 5
"""The points without a lower loss on the held-out rows after which a fit ends."""
HELD_OUT = "the loss on held-out rows falls no further"
"""Why a fit ended that did not reach its tolerance before."""


@dataclass
class HeldOutRows:
    """The losses of the held-out rows so far, and the point of the lowest one."""

    held: Problem
    losses: list[float] = field(default_factory=list)
    best: Array = field(default_factory=lambda: np.empty(0))

    def see(self, x: Array) -> None:
        """Measure at x; raise `Reached` where the loss has not fallen for a while."""
        loss = self.held.anchor(x, keep=False).value
        if loss < min(self.losses, default=math.inf):
            self.best = x.copy()
        self.losses.append(loss)
        if len(self.losses) - 1 - int(np.argmin(self.losses)) >= PATIENCE:
            raise quasi_newton.Reached


@dataclass(frozen=True)
class HeldOutProblem(Problem):
    """A problem that tells a watch of every point at which all of it is evaluated."""

    watch: HeldOutRows | None = None

    def anchor(
        self, x: Array, lo: int = 0, hi: int | None = None, keep: bool = True, parts: int = 1
    ) -> PassResult:  # fmt: skip
        """Evaluate f at x, and let the watch see x."""
        found = super().anchor(x, lo, hi, keep, parts)
        if self.watch is not None:
            self.watch.see(x)
        return found


def split(problem: Problem, fraction: float, seed: int) -> tuple[Problem, Problem]:
    """The problem on most of the rows, and on the rest of them without a penalty, drawn by the seed."""
    held = round(fraction * problem.n)
    if not 0 < held < problem.n:
        raise ValueError(
            f"validation_fraction = {fraction!r} of n_samples = {problem.n} is {held}: give a share that leaves rows "
            "on both sides"
        )
    order = np.random.default_rng(seed).permutation(problem.n)
    apart = replace(problem.subset(np.sort(order[:held])), penalty=Penalty())
    return problem.subset(np.sort(order[held:])), apart


def solve(
    problem: Problem, start: Array, tol: float, journal: Journal, fraction: float, seed: int
) -> tuple[Solution, list[float]]:
    """The point of the lowest loss on held-out rows, and these losses at every point in turn."""
    if problem.loss.kinked or problem.penalty.positive:
        raise ValueError("early_stopping=True needs a loss other than 'quantile' and positive=False")
    train, held = split(problem, fraction, seed)
    watch, names = HeldOutRows(held), [part.name for part in fields(Problem)]
    watched = HeldOutProblem(**{name: getattr(train, name) for name in names}, watch=watch)
    found = lbfgs.solve(watched, start, tol, journal)
    last = len(watch.losses) - 1 == int(np.argmin(watch.losses))
    found.x, found.solver, found.measured = watch.best, "l-bfgs", False
    if not last:
        found.converged, found.message = True, HELD_OUT
    return found, watch.losses
