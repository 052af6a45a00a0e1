"""The L1 penalty by a working set: few columns at a time, chosen by the gradient of all, solved by coordinate descent.

Most coefficients of a sparse solution are 0 and stay so. A pass over all rows tells which columns violate optimality;
the worst of them join those in use, and a Newton-like method works on these alone: a quadratic model of the loss, its
minimum with the L1 penalty by coordinate descent, a step shortened until f falls. Passes are few, and each is exact.

Least squares of few features and many rows, most of whose columns are to be used, are solved from their second moments
first, where an epoch costs next to nothing. What rounding has left is then a working set's. With more features than
that, the first working set has all columns. Where more epochs are expected to be left than second moments cost, these
take over; where rows are few for the features and epochs do not come to an end, Newton's method for the residuals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcsg.linear.kernels import column_steps as kernel
from vcsg.linear.kernels.losses import SQUARED
from vcsg.linear.problem import Array, PassResult, Problem, readable, violation
from vcsg.linear.solution import Journal, Solution
from vcsg.linear.solvers import moments, residual_newton

Places = npt.NDArray[np.int64]

SMALLEST = 64
"""The fewest columns of a working set."""
GROWTH, SPARSE_GROWTH = 2, 4
"""The columns of a working set for each coefficient that is not 0; more where columns are sparse, and so cheaper."""
CLOSE, WHOLE = 0.3, 0.9
"""The accuracy of a working set's solution, in units of tol, and of that over all columns."""
FAR = 0.05
"""The accuracy of a working set's solution, in units of ‖∇f‖ of all columns when it was chosen."""
MOST = 0.8
"""The share in use from which on every epoch goes over all columns of the problem. Where a working set has only a part
of them, epochs over those in use cost little beside a pass, and solve it further."""
BLOCK = 64
"""The rows whose columns are copied together."""
NARROW, TALL = 128, 4.0
"""The most features, and the fewest rows for each, for which second moments come first, and the fewest for which
they come at all."""
PRICE = (3.0, 0.1)
"""The passes of coordinate descent that take as long as second moments, and those for each feature."""
NEWTON_PRICE, NEWTON_STEPS, NEWTON_PASSES = (4.0, 0.09), 60.0, 250.0
"""The passes that take as long as a Newton step for the residuals, and those for each min(n, d)²/d; the steps that they
mostly take, and the passes that they may count."""
PATIENCE = 3.0
"""The passes after which either takes over from coordinate descent whatever is left, in units of their price."""
IN_USE = 0.5
"""The least share of the columns that are in use, or would be by their slopes at the start, for which they do."""
MOMENT_PASSES = 4.0
"""The fewest passes left for which they do: they take one to see that, one for themselves, and one to measure ∇f."""
ROWS_EACH, EVEN = 1.2, 0.1
"""The fewest rows for each feature with which a working set has all columns at once, where as many are to be used, and
how many of them the violations at the start have to be spread over: by chance small ones are those of most columns."""


class Columns:
    """The columns of a problem as the compiled loops take them; dense ones are copied when they are first asked for."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.stored: tuple[Any, ...] = (np.empty((0, problem.n)),)
        self.place, self.count = np.full(problem.d, -1, np.int64), 0
        if problem.sparse:
            by_column = problem.rows.tocsc()
            starts = by_column.indptr.astype(np.int64, copy=False)
            self.stored = tuple(map(readable, (by_column.data, by_column.indices, starts)))
            self.place = np.arange(problem.d)

    def places(self, chosen: Places) -> Places:
        """Where these columns are in `stored`."""
        missing = chosen[self.place[chosen] < 0]
        if len(missing):
            lines, end = self.stored[0], self.count + len(missing)
            if end > len(lines):
                lines = np.empty((min(self.problem.d, max(end, 2 * len(lines))), self.problem.n))
                lines[: self.count] = self.stored[0][: self.count]
                self.stored = (lines,)
            rows = self.problem.rows
            for low in range(0, self.problem.n, BLOCK):  # by blocks, so that what is turned stays in the cache
                block = rows[low : low + BLOCK]
                block = block if len(missing) == self.problem.d else block.take(missing, axis=1)
                lines[self.count : end, low : low + BLOCK] = block.T
            self.place[missing] = np.arange(self.count, end)
            self.count = end
        return self.place[chosen]

    def share(self, places: Places) -> float:
        """The entries of some columns in those of all."""
        if not self.problem.sparse:
            return len(places) / self.problem.d
        starts = self.stored[2]
        return float((starts[places + 1] - starts[places]).sum()) / max(1, int(starts[-1]))


def solve(
    problem: Problem, start: Array, tol: float, journal: Journal, columns: Columns | None = None, stronger: float = 0.0
) -> Solution:
    """Minimise f with an L1 penalty and one output: working sets until ‖∇f‖ ≤ tol over all columns.

    Args:
        problem: what to minimise.
        start: the point to begin at.
        tol: the bound on ‖∇f‖, the subgradient of least norm.
        journal: counts the passes and keeps the history.
        columns: the problem's columns, where they are at hand.
        stronger: the larger weight of ‖w‖₁ for which the start is the solution, along a path. The first working set
            then has the columns that the strong rule keeps (Tibshirani et al. 2012).
    """
    x, best = start.copy(), start
    known: PassResult | None = None  # at the best point
    other = takeover(problem, columns is None)
    if other.solve is from_moments and moments_pay(problem, x, journal):
        x, other = from_moments(problem, x, CLOSE * tol, journal), ALONE
    if journal.left < 2 * other.needed:
        other = ALONE
    patience, taken_over = min(PATIENCE * other.price, journal.left - other.needed), False
    columns = columns or Columns(problem)
    threshold = 2 * problem.penalty.l1 - stronger if stronger else problem.penalty.l1
    while True:
        here = problem.anchor(x)
        journal.passes += 1
        journal.note("working-set", problem.n, here.value, here.norm)
        if not math.isfinite(here.value + here.norm):
            raise FloatingPointError(f"f = {here.value} and ‖∇f‖ = {here.norm}")
        if here.norm <= tol:
            return Solution(x, journal.history, True, "‖∇f‖ ≤ tol", last=here)
        if known is None or here.value < known.value or here.below(known):
            best, known, ended = x, here, ""
        else:
            journal.note("working-set", problem.n, known.value, known.norm)
            x, here, ended = best, known, "" if taken_over else "f falls no further, for rounding"
        if journal.left <= 0:
            ended = f"{journal.budget:g} passes are used up"
        if ended:
            return Solution(best, journal.history, False, ended, last=known)
        part = chosen(problem, x, here, max(threshold, 0.0))
        threshold = problem.penalty.l1
        if len(part) == problem.d:
            bound = WHOLE * tol
        elif stronger:  # along a path the first working set mostly suffices
            bound = CLOSE * tol
        else:
            bound = max(CLOSE * tol, FAR * here.norm)
        began = journal.passes
        x, slow = improved(problem, columns, part, x, here, bound, min(patience, journal.left), other.price, journal)
        patience -= journal.passes - began
        if other.solve and (slow or patience <= 0):
            x, taken_over = other.solve(problem, x, CLOSE * tol, journal), True
            other, patience = ALONE, math.inf
        else:
            taken_over = False


class Takeover(NamedTuple):
    """What takes over from coordinate descent where that is slow."""

    solve: Callable[[Problem, Array, float, Journal], Array] | None
    """Finds the solution from a point, for a bound on ‖∇f‖."""
    price: float
    """The passes of coordinate descent that take as long."""
    needed: float
    """The passes that it needs to be left."""


ALONE = Takeover(None, math.inf, 0.0)
"""Nothing does."""


def takeover(problem: Problem, single: bool) -> Takeover:
    """What takes over for a problem; along a path second moments have been tried before."""
    if has_moments(problem):
        price = PRICE[0] + PRICE[1] * problem.d
        return Takeover(from_moments, price, MOMENT_PASSES) if single else ALONE
    if residual_newton.taken(problem):
        step = NEWTON_PRICE[0] + NEWTON_PRICE[1] * min(problem.n, problem.d) ** 2 / problem.d
        return Takeover(residual_newton.minimise, NEWTON_STEPS * step, NEWTON_PASSES)
    return ALONE


def has_moments(problem: Problem) -> bool:
    """Whether second moments are known to be had, and to take less than the columns from a few epochs on."""
    tall = problem.d <= moments.WIDEST and problem.n >= TALL * problem.d
    return tall and problem.loss.code == SQUARED and not problem.sparse


def moments_pay(problem: Problem, x: Array, journal: Journal) -> bool:
    """Whether second moments are faster than coordinate descent, which takes long where many columns are in use."""
    if problem.d > NARROW or journal.left < MOMENT_PASSES:
        return False
    level, w = x.copy(), x[0, :-1]
    if problem.bias and not w.any():
        level[0, -1] = float(problem.shares @ problem.y) / problem.bias
    slope = problem.anchor(level, keep=False).smooth[0, :-1]
    journal.passes += 1
    use = (w != 0) | (violation(slope, w, problem.penalty.l1, problem.penalty.positive) != 0)
    return bool(np.count_nonzero(use) >= IN_USE * problem.d)


def from_moments(problem: Problem, x: Array, tol: float, journal: Journal) -> Array:
    """The point that has ‖∇f‖ ≤ tol by the second moments but for rounding, from x; x where there are none."""
    known, l1 = moments.moments(problem), problem.penalty.l1
    if known is None:
        return x
    left = max(1.0, journal.left - 2)  # without those of the moments and of the solution
    passes = left * problem.n / problem.d  # of moments, of which an epoch reads d² numbers
    bound = tol / min(1.0, l1 or 1.0)
    one, start = np.ones(1), x[0, :-1]
    found = moments.solve_path(known, one, problem.penalty, problem.bias, bound, passes, lambda _: None, start)[0]
    journal.passes += 1.0 + found.history[-1].passes * problem.d / problem.n
    return found.x


def chosen(problem: Problem, x: Array, here: PassResult, l1: float) -> Places:
    """The columns in use, and those that violate optimality for this weight of ‖w‖₁ most.

    For dense least squares with more rows than features these are all columns where that holds for most of them:
    coordinate descent then takes few epochs over all, and more over ever larger parts.
    """
    w, slope = x[0, :-1], here.smooth[0, :-1]
    scores = np.where(w != 0, np.inf, np.abs(violation(slope, w, l1, problem.penalty.positive)))
    candidates = np.flatnonzero(scores)  # few: numpy takes long to find the largest of many equal numbers
    tall = problem.loss.code == SQUARED and not problem.sparse and problem.n >= ROWS_EACH * problem.d
    if tall and len(candidates) >= IN_USE * problem.d and (w.any() or spread(scores) >= EVEN * problem.d):
        return np.arange(problem.d)
    growth = SPARSE_GROWTH if problem.sparse else GROWTH
    size = max(SMALLEST, growth * int(np.count_nonzero(w)))
    if len(candidates) > size:
        first = len(candidates) - size
        candidates = np.sort(candidates[np.argpartition(scores[candidates], first)[first:]])
    return candidates


def spread(sizes: Array) -> float:
    """How many numbers of one size would have the same sums of squares and of fourth powers."""
    largest = float(sizes.max(initial=0.0))
    if largest == 0.0:
        return 0.0
    squares = (sizes / largest) ** 2
    return float(squares.sum()) ** 2 / float(squares @ squares)


def improved(
    problem: Problem, columns: Columns, part: Places, x: Array, here: PassResult, tol: float, budget: float,
    price: float, journal: Journal,
) -> tuple[Array, bool]:  # fmt: skip
    """The point that has ‖∇f‖ ≤ tol on some columns, from x, which is 0 on all others, or one nearer to it.

    It is nearer after so many passes, or where more than `price` of them are expected to be left, which is told, too.
    """
    terms, places = problem.penalty, columns.places(part)
    floor = residual_newton.least_curvature(problem.loss)
    share, w = columns.share(places), np.append(x[0, part], x[0, -1])
    whole = len(part) == problem.d
    most = MOST if whole else math.inf
    passes, slow = kernel.improve(
        columns.stored, places, readable(problem.y), readable(problem.weight), problem.loss.code, problem.scale,
        problem.bias, floor, terms.l1, terms.l2, terms.positive, most, w, here.smooth[0, part], whole, tol,
        budget / max(share, 1e-9), price / max(share, 1e-9),
    )  # fmt: skip
    journal.passes += share * passes
    found = np.zeros(problem.shape)
    found[0, part], found[0, -1] = w[:-1], w[-1]
    return found, slow
