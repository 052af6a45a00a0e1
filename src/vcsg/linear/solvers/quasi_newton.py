"""The steps of L-BFGS, with a Hessian in the middle of its recursion, and what takes over where they are slow.

H ≈ ∇²f at the start, from some of the rows, so the first step is Newton's, and the pairs of later steps correct H.
Where features hardly depend on each other, a model of H is made of a diagonal and its first pairs. Where d is too large
for a factor, H is a diagonal. Where rows are fewer than features and it is slow, Newton's method among the combinations
of rows takes over. A step of scipy's L-BFGS-B takes as long as a pass over ten thousand rows, so the recursion is
compiled here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

import numpy as np
from scipy.linalg import blas
from threadpoolctl import ThreadpoolController

from vcsg.linear.curvature import (
    PlainSample,
    column_scales,
    curvature_along,
    heavy_rows,
    hessian_factors,
    pass_work,
    row_work,
    scatters,
)
from vcsg.linear.independent import Curvature, IndependentFeatures
from vcsg.linear.kernels.recursion import next_direction
from vcsg.linear.problem import Array, PassResult, Problem
from vcsg.linear.solvers import row_space, takeover

Middle = Problem | PlainSample | IndependentFeatures | Literal["identity", "diagonal"]

MEMORY = 10
"""The number of pairs (step, change of the gradient) that are remembered."""
SHORTENINGS = 30
"""How often a step may be shortened before f counts as not falling any more."""
WIDEST = 2000
"""The largest number of unknowns of an output for which a Hessian is factored."""
DENSE_COPY = 4e7
"""The most numbers of sparse rows that are copied densely for a Hessian."""
HEAVY = 64
"""The rows of a new Hessian for each unknown, where there are more; those with the largest part in it are chosen."""
CHOOSING = 2.0
"""The passes that it takes to choose them."""
ROUGH_STEPS = 5.0
"""The passes that it takes to copy rows in single precision, and to make up for it afterwards."""
SOONEST = 4
"""The fewest passes between two Hessians, and those that one is expected to need."""
PATIENT = 2
"""How often H is made anew, for a squared loss and for losses of unbounded curvature, before it is for every step."""
LARGE = 1e6
"""The least n·d for which a model of H takes less time than the pass that a better one can save."""
ANEW = 1, 2
"""The steps for which a model of H is made anew, for small and for large data."""
MIDWAY, SETTLED = 4, (0.25, 0.05)
"""How often the first of them, which is long, gets the model of its middle at most; no more once the slope along it
changes by no more than this share, for small and for large data."""
FLAT = 0.1
"""The least diagonal of a model of H, in units of the one before: where losses are flat, steps would lead too far."""
FAR = 4.0
"""The distance of the lowest point along −∇f from which on the first step goes there."""
ENOUGH = 1e-4
"""The share of what its slope promises by which f has to fall on a step."""
STRAIGHT, LEAST = 0.9, 4.0
"""Where the change of f drowns in rounding: the share of its slope that may be left at the end of a step, and ‖∇f‖
there in units of the least."""
PATIENCE = 20
"""The most steps in a row that find no better point."""
LEVELLINGS, LEVEL, FURTHER = 50, 1e-14, 1.9
"""The most steps to the best mean of all classes, the size of one that ends them, and the longest in units of that to
the lowest point of the parabola: 2 would lead to where it is as high again."""
ROUNDED = "f falls no further, for rounding"


class Reached(Exception):
    """Ends the search: the tolerance is reached, or the passes are used up."""


@dataclass
class CountedObjective:
    """f with a count of its passes; raises `Reached` at the first point where ‖∇f‖ ≤ tol, or at the budget's end."""

    problem: Problem
    tol: float
    budget: float
    """The largest number of passes."""
    report: Callable[[str, PassResult], None]
    """Called with the name of the stage and the result of each pass."""
    x: Array
    """The best point so far."""
    best: PassResult
    """The pass at the best point."""
    passes: int = 0
    stage: str = "l-bfgs"

    def __call__(self, x: Array, keep: bool = False) -> PassResult:
        seen, best = self.problem.anchor(x, keep=keep), self.best
        self.passes += 1
        self.report(self.stage, seen)
        if seen.below(best):
            self.x, self.best = x, seen
            if seen.norm <= self.tol:
                raise Reached
        if self.passes >= self.budget:
            raise Reached
        return seen


def invariant(problem: Problem) -> bool:
    """Whether the same added to the coefficients of all classes changes no loss, and the penalty is differentiable."""
    return problem.outputs > 1 and not problem.penalty.l1


def levelled(problem: Problem, x: Array) -> Array:
    """The point near x of the same loss where the penalty is least: all classes get the same in addition.

    The best mean of a square is 0. Of Σ_k w_k²/(1 + w_k²) each step goes to the lowest point of a parabola that touches
    it and is nowhere below it; or further, by the true curvature, but not to where that parabola is as high again.
    """
    rational, l2 = problem.penalty.rational, problem.penalty.l2
    if not rational:
        return np.asarray(x - x.mean(axis=0))
    x = x.copy()
    x[:, -1] -= x[:, -1].mean()
    w = x[:, :-1]
    for _ in range(LEVELLINGS):
        q = 1 / (1 + w * w)
        above = l2 + 2 * rational * q * q
        curvature = l2 + 2 * rational * (1 - 3 * w * w) * q**3
        step = (above * w).sum(axis=0) / np.maximum(curvature.sum(axis=0), above.sum(axis=0) / FURTHER)
        w -= step
        if np.abs(step).max() <= LEVEL * (1 + np.abs(w).max()):
            break
    return x


def renewal_cost(problem: Problem) -> float:
    """The time of a new Hessian and its factor, in passes; infinite where there is to be none."""
    width, sums, size = problem.d + 1, scatters(problem), hessian_size(problem)
    copied = problem.sparse and not sums
    if width > WIDEST or problem.penalty.l1 or (copied and size * problem.d > DENSE_COPY):
        return math.inf
    # Products in double precision take twice as long as those that are the unit, and as the first of a squared loss.
    rough = problem.loss.quadratic and not sums
    each = row_work(problem) if sums else (1 if rough else 2) * width**2
    work = problem.outputs * (size * each + 2 * width**3 / 3) / max(1.0, pass_work(problem))
    return work + (CHOOSING if size < problem.n else 0.0) + (ROUGH_STEPS if rough else 0.0)


def hessian_size(problem: Problem) -> int:
    """The number of rows of a new Hessian: all, or where that takes long those with the largest part in it."""
    return min(problem.n, HEAVY * (problem.d + 1))


class InverseHessian:
    """H⁻¹ by the recursion of L-BFGS: a factor or a diagonal in its middle, and the last pairs (step, change of ∇f)."""

    def __init__(self, problem: Problem, middle: Middle, x: Array) -> None:
        self.factors, self.diagonal = _inverse(problem, middle, x)
        self.steps, self.changes = np.empty((MEMORY + 1, x.size)), np.empty((MEMORY + 1, x.size))
        self.products, self.shares = np.empty(MEMORY + 1), np.empty(MEMORY + 1)
        self.direction, self.kept, self.modelled = np.empty(x.shape), 0, 0

    def turn(self, last: Array, before: Array, x: Array, slope: Array, trial: Array, unit: float = 1.0) -> float:
        """Remember the pair from `last` and ∇f there to x and ∇f here, if it shows curvature; direction ← −H⁻¹·slope,
        trial ← x + direction; the slope along it.
        """
        found, self.kept = next_direction(
            last, before, x, slope, self.steps, self.changes, self.products, self.kept, self.factors, self.diagonal,
            unit, self.direction, trial, self.shares,
        )  # fmt: skip
        return float(found)

    def adopt(self, model: Curvature) -> None:
        """Take a model of H: its diagonal for the middle, and its pairs in the first places, before those of steps."""
        flatter = float(model.diagonal @ self.diagonal[0]) < FLAT * model.diagonal.size
        if self.kept and (flatter or len(model.pairs) != self.modelled):
            return
        self.diagonal, self.modelled = 1 / model.diagonal[None], len(model.pairs)
        self.kept = max(self.kept, self.modelled)
        for k, (step, change) in enumerate(model.pairs):
            self.steps[k], self.changes[k], self.products[k] = step, change, step @ change

    def product(self, step: Array) -> Array:
        """H·step, by what is in the middle alone."""
        if not self.factors.size:
            return step / self.diagonal
        upper = self.factors[0].T  # of what is above the diagonal LAPACK knows nothing
        return np.asarray(blas.dtrmv(upper, blas.dtrmv(upper, step.ravel()), trans=1))


class Search:
    """Steps along −(the inverse Hessian of the last pairs, with H⁻¹ in the middle)·∇f, shortened until f falls.

    H is made anew, from all rows at the present point, when the steps since it was made have taken as long as that
    does and are expected to need that long again; and where no step leads down any more. With fewer rows than features
    Newton's method among the combinations of rows can be quicker than that, and takes its place.
    """

    def __init__(self, f: CountedObjective, x: Array, here: PassResult, middle: Middle) -> None:
        self.f, self.x, self.here = f, x, here
        self.last, self.before = x, here.smooth
        self.invariant = invariant(f.problem)
        self.scaled = isinstance(middle, str)
        """Whether H is a diagonal whose scale is known after the first step alone."""
        self.shortest = 1.0 if self.scaled and middle == "diagonal" else 0.0
        """The first step has at most the length 1 in the metric of a diagonal, and exactly that for the identity."""
        self.inverse = InverseHessian(f.problem, middle, x)
        self.cost, by_rows = renewal_cost(f.problem), row_space.cost(f.problem)
        self.by_rows, self.cost = by_rows < self.cost, min(by_rows, self.cost)
        """Whether combinations of rows are what takes over; and the time of it or of a new H, in passes."""
        whole = f.problem.loss.quadratic and hessian_size(f.problem) == f.problem.n
        self.certain = self.by_rows or (whole and self.cost < math.inf and type(f.problem) is Problem)
        """Whether that is sure to end at the solution, and no one watches the way there, to stop early."""
        self.at_once = self.by_rows and not f.problem.loss.bounded
        """Whether it comes first: steps may lead far where the curvature has no bound."""
        self.model = middle if isinstance(middle, IndependentFeatures) else None
        self.taken = 0
        self.passes, self.norm, self.leasts = 0, here.norm, [here.norm]
        """The passes since H was made, ‖∇f‖ where it was, and the least after each step of them."""
        self.next_look = takeover.first_look(self.cost)
        """The steps after which it is seen whether a sure end pays."""
        self.best, self.waiting = f.best, 0
        """The best pass so far, and the steps since."""
        self.renewals, self.newton = 0, False
        """How often H was made anew, and whether it is for every step from now on: then these are Newton's."""
        self.renewed: PassResult | None = None
        """The best pass when H was last made anew."""

    def run(self) -> str:
        """Search until `Reached` is raised or no step leads down; how it ended."""
        while True:
            if self.newton or self.at_once or self.renewal_pays():
                self.renew()
            failure = self.step() or (ROUNDED if self.idle() else "")
            if failure:
                if not self.passes or self.cost == math.inf or self.f.best is self.renewed:
                    return failure
                self.renew()

    def step(self) -> str:
        """Take the next step; the reason where none leads down."""
        f, x, here, length, trial = self.f, self.x, self.here, 1.0, np.empty(self.x.shape)
        slope = self.aim(trial)
        if not slope < 0:
            return "no direction leads down any more"
        for _ in range(SHORTENINGS):
            if self.invariant:  # blocks of H for each class know nothing of it, and f is nearly flat along this way
                trial = levelled(f.problem, trial)
            there = f(trial)
            self.passes += 1
            self.leasts.append(min(self.leasts[-1], there.norm))
            if self.lower(there, length, slope):
                self.last, self.before, self.x, self.here = x, here.smooth, trial, there
                return ""
            # To the minimum of the parabola through what is known, within bounds.
            above = there.value - here.value - length * slope
            length *= min(0.5, max(0.1, -length * slope / (2 * above))) if math.isfinite(above) else 0.1
            trial = x + length * self.inverse.direction
        self.last, self.before = x, here.smooth
        return ROUNDED

    def aim(self, trial: Array) -> float:
        """direction ← that of the next step, trial ← where it leads; the slope along it.

        A model of H is made anew for the first steps; for the first of them, which is long, half way along it.
        """
        if self.model is None:
            return self.turn(trial)
        place, before, large = self.x, 0.0, self.f.problem.n * self.f.problem.d >= LARGE
        for _ in range(1 if self.taken else 1 + MIDWAY):
            if self.taken < ANEW[large]:
                self.inverse.adopt(self.model.at(place))
            slope = self.turn(trial)
            if abs(slope - before) <= SETTLED[large] * abs(slope):
                break
            place, before = self.x + self.inverse.direction / 2, slope
        self.taken += 1
        return slope

    def turn(self, trial: Array) -> float:
        """direction ← that of the pairs and H as they are, trial ← where it leads; the slope along it."""
        unit = self.unit() if self.scaled else 1.0
        slope = self.inverse.turn(self.last, self.before, self.x, self.here.smooth, trial, unit)
        self.last, self.before = self.x, self.here.smooth
        return slope

    def lower(self, there: PassResult, length: float, slope: float) -> bool:
        """Whether f falls enough on a step of this length: by a share of what its slope promises.

        Where the change of f drowns in rounding, ‖∇f‖ falls, or the slopes at both ends tell (Hager and Zhang 2005):
        between them a parabola falls by that share as long as the slope at the end is not as steep upwards. Then the
        slope has to change on the way, and ‖∇f‖ may not be far above the least: along a direction in which f is
        flat, slopes are rounding too, and steps would have no end.
        """
        here = self.here
        if not there.level_with(here):
            return there.value <= here.value + ENOUGH * length * slope
        end = float(np.vdot(there.smooth, self.inverse.direction))
        falls = STRAIGHT * slope <= end <= (2 * ENOUGH - 1) * slope
        return there.norm < here.norm or (falls and there.norm <= LEAST * self.f.best.norm)

    def idle(self) -> bool:
        """Whether the last steps have found neither a lower f, but for rounding, nor a lower ‖∇f‖."""
        improved = self.f.best is not self.best
        self.best, self.waiting = self.f.best, 0 if improved else self.waiting + 1
        return self.waiting > PATIENCE

    def unit(self) -> float:
        """The scale of a diagonal H⁻¹: for the identity 1/(the curvature of the last pair); at first, short steps."""
        change = self.here.smooth - self.before
        square = float(np.vdot(change, change))
        if not square > 0:
            return self.first_unit()
        return max(float(np.vdot(self.x - self.last, change)) / square, 1e-12) if not self.shortest else 1.0

    def first_unit(self) -> float:
        """The scale of a diagonal H⁻¹ before the first step, which gets the length 1; for "diagonal", at most.

        Rows of few entries and norm 1, as texts have, are curved so little that their lowest point along −∇f can be
        far beyond that. There the step goes as far as some rows tell.
        """
        slope, problem = self.here.smooth, self.f.problem
        length = math.sqrt(float((slope**2 * self.inverse.diagonal).sum())) or 1.0
        if problem.sparse and not self.shortest:
            curvature = curvature_along(problem, self.x, slope)
            far = length**3 / curvature if curvature > 0 else 0.0
            if FAR < far < math.inf:
                return far / length
        return 1 / max(self.shortest, length)

    def renewal_pays(self) -> bool:
        """Whether what takes over is expected to save as many passes as it costs, and old steps have cost as many."""
        if self.certain:
            if len(self.leasts) <= self.next_look:
                return False
            self.next_look = len(self.leasts) - 1 + takeover.EVERY
            return takeover.sure_end_pays(self.leasts, self.f.tol, self.cost)
        if self.passes < max(SOONEST, self.cost):
            return False
        gained = math.log(self.norm / self.here.norm) if self.here.norm < self.norm else 0.0
        left = math.log(self.here.norm / max(self.f.tol, 1e-15 * self.here.norm))
        return left * self.passes > gained * (self.cost + SOONEST)

    def renew(self) -> None:
        """Make H from all rows at x, and forget the pairs; or go on from where combinations of rows lead.

        Where curvatures have no bound, rows of extreme norm can turn f by magnitudes within a step; for a squared loss
        one of all rows is the end. So there, if two have not been enough, all steps have their own, from every row.
        """
        if self.by_rows:
            self.combine_rows()
            return
        with blas_threads(self.f.problem):
            self.renewals += 1
            loss = self.f.problem.loss
            self.newton = self.renewals > PATIENT and (loss.quadratic or not loss.bounded)
            size = self.f.problem.n if self.newton else hessian_size(self.f.problem)
            part = self.f.problem if size == self.f.problem.n else heavy_rows(self.f.problem, self.x, size)
            rough = loss.quadratic and self.renewals == 1  # the steps that follow make up for single precision
            self.inverse.factors = hessian_factors(part, self.x, exact=not rough)
        self.scaled, self.model, self.inverse.kept, self.passes = False, None, 0, 0
        self.norm, self.leasts = self.here.norm, [self.here.norm]
        self.last, self.before, self.waiting, self.renewed = self.x, self.here.smooth, 0, self.f.best

    def combine_rows(self) -> None:
        """Go to the solution among the combinations of rows; if rounding keeps it away, go on from there."""
        self.f.stage = "newton"
        with blas_threads(self.f.problem):
            x = row_space.minimise(self.f.problem, self.x, self.f.tol, partial(self.f, keep=True))
        there = self.f(x)
        self.f.stage = "l-bfgs"
        if there.below(self.here):
            self.x, self.here = x, there
        self.by_rows = self.certain = self.at_once = False
        self.cost = renewal_cost(self.f.problem)
        self.passes, self.inverse.kept, self.waiting = 0, 0, 0
        self.norm, self.leasts = self.here.norm, [self.here.norm]
        self.last, self.before, self.renewed = self.x, self.here.smooth, self.f.best


def _inverse(problem: Problem, middle: Middle, x: Array) -> tuple[Array, Array]:
    """The factors of H from a sample of rows, empty where H is a diagonal; and the inverse of that diagonal."""
    none: Array = np.empty((0, 0, 0))
    if isinstance(middle, IndependentFeatures):
        return none, np.ones(problem.shape)
    if isinstance(middle, str):
        return none, np.ones(problem.shape) if middle == "identity" else np.asarray(column_scales(problem) ** 2)
    with blas_threads(middle.rows if isinstance(middle, PlainSample) else middle):
        return hessian_factors(middle, x), np.ones(problem.shape)


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of this process; finding them takes milliseconds, so it is done once."""
    return ThreadpoolController()


def blas_threads(sample: Problem) -> AbstractContextManager[object]:
    """Limit BLAS to the problem's threads, where the Hessian is large enough for the setting to pay."""
    large = sample.outputs * sample.n * sample.d**2 > 1e8
    return _blas().limit(limits=sample.threads, user_api="blas") if large else nullcontext()
