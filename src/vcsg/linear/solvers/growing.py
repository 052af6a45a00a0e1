"""The default solver: growing SVRG on rows copied side by side, then on all of them, then L-BFGS where that is faster.

A first anchor of a thousand rows or so gets far for a thousandth of the price, so anchors grow as the schedule
says. While they are small, their rows are read from a shuffled copy that fits a cache; once all n rows are asked for,
the data are read in place, in an order that mixes them (`order.py`). An epoch returns the mean of its later points:
constant steps leave a noise about the minimum that the mean has not. f's gradient at the anchor, exact when it has all
rows, ends the run, and its rate says when L-BFGS would be there sooner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from vcsg.linear.curvature import PlainSample, heavy_rows, pass_work, row_work, smoothness
from vcsg.linear.independent import PEEK, IndependentFeatures, alike, curved, uncorrelated
from vcsg.linear.inner_steps import lazy, svrg_epoch
from vcsg.linear.kernels import order
from vcsg.linear.problem import DENSE_FROM, Array, PassResult, Problem, variance
from vcsg.linear.solution import Journal, Solution
from vcsg.linear.solvers import incremental, lbfgs, quasi_newton
from vcsg.method.schedules import Facts, GrowingAnchor, Plan

STEP = 1.5
"""The step size in units of one over the expected smoothness of a mini-batch."""
CACHE = 1 << 20
"""The largest size in bytes of data whose rows can be read in any order without losing time."""
PILOT = 20 << 20
"""The largest size in bytes of the rows that are copied."""
SVRG_PASSES, SPARSE_CLASSES = (3.0, 2.5), 10.0
"""The time of an epoch of SVRG on all dense or sparse rows, in passes: an anchor, and steps that read less evenly; and
on sparse rows of several classes, whose coordinates catch up class by class."""
ROUGH = 40.0
"""The passes that L-BFGS is expected to need without a factor of the Hessian."""
HESSIAN = 32
"""The fewest rows of the Hessian for each unknown: its relative error is about 1/√HESSIAN."""
ROWS, STEEP = 24, 12.0
"""The fewest sparse rows for each feature, and the largest L_max/b in units of L_f, beyond which L-BFGS begins at once:
the largest rows make stochastic steps short, and there are not enough of them for a Hessian. So many dense rows for
each feature are needed for a model of one."""
UNEVEN, FEW_HEAVY = 50.0, 20.0
"""The largest ‖a_i‖² in units of their mean, and the mean in units of the median, from which on few rows have most of
Σ‖a_i‖². These make stochastic steps short, and L-BFGS begins with a Hessian of them."""
QUARTER, COARSE, ATTEMPTS = 4, 64.0, 40.0
"""L-BFGS then begins with one row of so many, until their ‖∇f‖ has fallen by this factor or it has evaluated them so
often."""
CHEAP = 0.3
"""The passes that a Hessian may take before it is worth a look whether features hardly depend on each other."""
LARGE, PRECISE = 2e6, 1000
"""The least n·d for which it is worth a look in any case, and the rows of a Hessian for each feature from which on it
is as near to that of all rows as a model for such features."""
MODELLED, TENTH = (512, 2048), 10
"""The fewest and the most rows that this model is made from, and one row of so many in between: it is made up to four
times, each of which takes about as long as a pass over its rows."""
FEW = 16
"""The rows for each unknown below which an epoch leaves much of the distance to the minimum of the pilot's rows, and
correlations in their Hessian are mostly noise."""
EASY = 1e6
"""The largest n·d for which L-BFGS begins at once where features are alike and hardly depend on each other: then it
needs few passes, and these are short. So beyond that a model for such features may pay."""
NEARLY = 0.8
"""The ‖∇f‖ of all rows, in units of the tolerance, as some of them tell, for which these are the last before all."""
ENOUGH, SHARE = 4096, 64
"""The rows that are copied where Newton's steps are to follow, or one of so many if these are more, and a Hessian takes
no more."""
LARGER = 1.5
"""The largest anchor, in units of the rows that are copied, in whose place all of these are taken."""
DEFAULT = GrowingAnchor()
"""The schedule of anchors and mini-batches."""


@dataclass
class Stages:
    """The stages of one fit, and what has been found and counted so far."""

    problem: Problem
    x: Array
    tol: float
    journal: Journal
    schedule: GrowingAnchor
    rng: order.Draws
    mix: Callable[[int, int, order.Random], order.Index] = order.interleaved
    """The order in which an epoch on all rows takes them."""
    smoothness: float = 0.0
    """The smoothness constant of the mean loss."""
    few_heavy: bool = False
    """Whether few rows have most of Σ‖a_i‖²."""
    largest: float = 0.0
    """The largest smoothness constant of a single row's loss."""
    independent: bool = False
    """Whether features hardly depend on each other, so that L-BFGS begins with a model of the Hessian."""
    noise: float = math.inf
    """‖∇f‖ where the rows that were used last have their minimum, as their variance tells."""
    message: str = ""
    slow: bool = False
    """Whether inner steps take much longer than the rows they read."""
    known: PassResult | None = None
    """The last finite evaluation."""
    sound: Array = field(default_factory=lambda: np.empty(0))
    """The last point where f and ‖∇f‖ were finite; at first the start."""

    def record(self, anchor: PassResult, stage: str, B: int) -> float:
        """Record an anchor of B rows and return ‖∇f‖ for them; infinity where f is not finite."""
        self.journal.note(stage, B, anchor.value, anchor.norm)
        if math.isfinite(anchor.norm + anchor.value):
            self.known, self.sound = anchor, self.x
            return anchor.norm
        if self.x is self.sound:
            raise FloatingPointError(f"at an anchor of {B} rows f = {anchor.value} and ‖∇f‖ = {anchor.norm}")
        return math.inf

    def grow(self, pilot: Problem, norms: Array) -> Plan | None:
        """Run epochs on the first B rows of the pilot, as long as the schedule asks for fewer than all rows.

        After the first epoch some of the distance from the start is left. SVRG on all rows makes up for it, but L-BFGS
        pays for it with a pass; so where L-BFGS has a Hessian, and comes early, there is a second epoch. With few rows
        for each unknown that would only find the minimum of their noise.
        """
        schedule, n = self.schedule, self.problem.n
        B, first, plan, epoch = schedule.first(n), math.nan, None, 1
        while B <= min(LARGER * pilot.n, n - 1) and self.journal.left > 0:
            B = min(B, pilot.n)
            anchor = pilot.anchor(self.x, 0, B)
            self.journal.passes += B / n
            if self.record(anchor, "growing", B) == math.inf:
                self.x = self.sound
                return plan
            spread = variance(anchor, norms[:B], n)
            first = spread if math.isnan(first) else first
            plan = schedule(Facts(epoch, n, spread, first))
            self.noise = math.sqrt(spread / B) if spread >= 0 else math.inf
            sure = self.noise**2 * (1 - math.sqrt(8 / (pilot.d + 1)))  # less two standard errors
            if self.noise <= self.tol and anchor.norm**2 - sure <= (NEARLY * self.tol) ** 2:
                return plan  # all rows are likely to have a gradient that is small enough
            index = order.sequential(B, plan.b, self.rng)
            step = self.step_size(plan)
            self.x = svrg_epoch(pilot, self.x, anchor, index, step, average=True)
            self.journal.passes += B / n
            again = self.again(pilot, epoch, B)
            B = max(plan.next_B, 2 * B)
            if again:
                B = min(B, pilot.n)
            epoch += 1
        return plan

    def again(self, pilot: Problem, epoch: int, B: int) -> bool:
        """Whether an epoch of B rows is to be followed by another on the pilot, though the schedule asks for more rows.

        So it is after the first, where L-BFGS has a Hessian or a model of it; after the second, where it had few rows
        for each unknown.
        """
        rows, width = self.hessian_rows(pilot), pilot.d + 1
        if epoch == 1:
            return rows >= (FEW if self.independent else HESSIAN) * width
        return epoch == 2 and not pilot.sparse and rows >= FEW * width and B < FEW * width

    def step_size(self, plan: Plan) -> float:
        """The step size η, from the expected smoothness of a mini-batch, about L_f + L_max/b (Gower et al. 2019)."""
        L = self.smoothness + self.largest / plan.b + self.problem.penalty.curvature
        return STEP * plan.factor / (L or 1.0)

    def full(self, whole: Problem, pilot: Problem, plan: Plan) -> bool:
        """Run SVRG on all rows until ‖∇f‖ ≤ tol (True), L-BFGS is expected to be faster, or passes run out (False)."""
        step = self.step_size(plan)
        rate, before, last = self.usual_rate, math.inf, self.sound
        while True:
            anchor = whole.anchor(self.x)
            self.journal.passes += 1
            norm = self.record(anchor, "full", whole.n)
            if norm <= self.tol:
                self.message = "‖∇f‖ ≤ tol"
                return True
            if not norm < 2 * before:  # diverged: back, with half the step
                self.x, step, rate = last, step / 2, 0.0
                anchor = whole.anchor(last)
                self.journal.passes += 1
                norm = self.record(anchor, "full", whole.n)
            elif before < math.inf:
                rate = 2 * math.log(before / norm)
            if self.journal.left <= 0:
                return False
            if self.hand_over_pays(norm, rate, pilot):
                return False
            before, last = norm, self.x
            index = self.mix(whole.n, plan.b, self.rng)
            self.x = svrg_epoch(whole, self.x, anchor, index, step, average=True)
            self.journal.passes += 1

    def hand_over_pays(self, norm: float, rate: float, pilot: Problem) -> bool:
        """Whether L-BFGS is expected to need fewer passes than SVRG, which gains `rate` of log ‖∇f‖² in two."""
        left = 2 * math.log(norm / max(self.tol, 1e-15 * norm))
        sparse, several = self.problem.sparse, self.problem.outputs > 1
        epoch = SPARSE_CLASSES if sparse and several else SVRG_PASSES[sparse]
        svrg = epoch * math.ceil(left / rate) if rate > 0 and not self.slow else math.inf
        if not self.hessian_rows(pilot):
            return svrg > ROUGH
        setup = 0.0 if self.independent else self.hessian_cost(pilot)
        return svrg > setup + math.ceil(left / self.gain(pilot))

    def gain(self, pilot: Problem) -> float:
        """How much of log ‖∇f‖² a step of L-BFGS is expected to gain: twice that of 1 over the error of its Hessian."""
        d, size = self.problem.d + 1, float(self.hessian_rows(pilot))
        if self.independent:  # its error is made up of correlations, √(d/n), and of few rows for each square
            size = 2 * d / (d / self.problem.n + 2 / self.modelled_rows(pilot))
        return math.log(max(2.0, size / (2 * d)))

    def hessian_cost(self, pilot: Problem) -> float:
        """The time of a Hessian and its factor, in passes."""
        work = self.hessian_rows(pilot) * row_work(pilot) + (self.problem.d + 1) ** 3 / 3
        return self.problem.outputs * work / pass_work(self.problem)

    def worth_a_look(self, pilot: Problem) -> bool:
        """Whether a model for independent features could be better than a Hessian by more than it takes to look."""
        if self.hessian_cost(pilot) > CHEAP:
            return True
        n, d = self.problem.n, self.problem.d
        return n * d >= LARGE and 0 < self.hessian_rows(pilot) < PRECISE * d

    def modelled_rows(self, pilot: Problem) -> int:
        """The number of rows that a model for independent features is made from."""
        fewest, most = MODELLED
        return min(pilot.n, most, max(fewest, self.problem.n // TENTH))

    def hessian_rows(self, pilot: Problem) -> int:
        """The number of rows that the Hessian is made from; 0 where there is to be none."""
        if not factored(self.problem):
            return 0
        return min(pilot.n, max(HESSIAN * (self.problem.d + 1), cheap_rows(self.problem, pilot)))

    def block_by_block(self, whole: Problem, pilot: Problem) -> bool:
        """Take Newton steps for blocks of rows in turn; whether they reached the tolerance."""
        search = incremental.BlockwiseSearch(whole, self.x, self.middle(whole, pilot), self.tol, self.journal)
        self.x, self.known, self.message = search.run()
        return self.known is not None and self.known.norm <= self.tol

    def blocks_pay(self, pilot: Problem) -> bool:
        """Whether Newton steps block by block are expected to be faster than all other steps.

        Where one step of L-BFGS is expected to be enough, that is as fast.
        """
        problem = self.problem
        if not problem.smooth or problem.outputs > 1 or self.few_heavy or problem.n < ROWS * problem.d:
            return False
        if not math.isfinite(self.noise):  # from a start that is not 0 no epochs have told it
            return False
        rows = self.hessian_rows(pilot)
        if not rows or not incremental.pays(problem, 0 if self.independent else problem.d + 1):
            return False
        left = 2 * math.log(max(self.noise, 1e-300) / max(self.tol, 1e-300))
        return left > self.gain(pilot) and self.hand_over_pays(self.noise, self.usual_rate, pilot)

    @property
    def usual_rate(self) -> float:
        """How much of log ‖∇f‖² an epoch of SVRG on all rows is expected to gain."""
        n, width = self.problem.n, self.problem.d + 1
        return math.log(n / (4 * width)) if n > 8 * width else math.inf

    def hand_over(self, whole: Problem, pilot: Problem) -> bool:
        """Let L-BFGS finish; whether it reached the tolerance."""
        middle, known = self.middle(whole, pilot), self.known
        while known is None:
            found = whole.anchor(self.x, keep=False)
            self.journal.passes += 1
            if self.record(found, "l-bfgs", whole.n) < math.inf:
                known = found
            else:
                self.x = self.sound
        self.x, norm, self.message = lbfgs.finish(whole, middle, self.x, known, self.tol, self.journal)
        return norm <= self.tol

    def middle(self, whole: Problem, pilot: Problem) -> quasi_newton.Middle:
        """What L-BFGS begins with."""
        size = self.hessian_rows(pilot)
        if not size:
            return "diagonal"
        if self.few_heavy:
            return heavy_rows(whole, self.x, quasi_newton.hessian_size(whole))
        if self.independent:
            return IndependentFeatures(pilot.first_rows(self.modelled_rows(pilot)), self.x)
        some = pilot if size == pilot.n else pilot.first_rows(size)
        return PlainSample(some) if size < min(self.problem.n, FEW * (self.problem.d + 1)) else some


def easy(problem: Problem) -> bool:
    """Whether L-BFGS is to begin at once, for a smooth f, dense rows and one output."""
    many = problem.outputs == 1 and not problem.sparse and problem.n >= ROWS * problem.d
    return many and problem.smooth and problem.n * problem.d <= EASY and alike(problem)


def coarse_solution(problem: Problem, x: Array, tol: float, journal: Journal, rng: order.Draws) -> Array:
    """Where L-BFGS gets to from x with a quarter of the rows, or as many as are copied at most.

    Rows of extreme norm make stochastic steps short, and most of what is left to do is the same for a part of the rows.
    """
    size = max(1, min(problem.n // QUARTER, PILOT * problem.n // max(1, stored(problem))))
    part = problem.subset(order.sample(problem.n, size, rng))
    known, share = part.anchor(x, keep=False), size / problem.n
    journal.note("l-bfgs", size, known.value, known.norm)
    if not math.isfinite(known.value + known.norm):
        raise FloatingPointError(f"at the start f = {known.value} and ‖∇f‖ = {known.norm}")
    tried = Journal(min(ATTEMPTS, journal.left / share))
    found, _, _ = lbfgs.finish(part, "identity", x, known, max(tol, known.norm / COARSE), tried)
    journal.passes += share * (1 + tried.passes)
    return found


def stored(problem: Problem) -> int:
    """The size of the rows in bytes."""
    return int(problem.rows.nbytes) if not problem.sparse else 12 * int(problem.rows.nnz)


def cheap_rows(problem: Problem, sample: Problem) -> int:
    """The number of a sample's rows whose Hessian takes an eighth of a pass over all of the problem's."""
    return int(pass_work(problem) / (8 * row_work(sample) * problem.outputs))


def factored(problem: Problem) -> bool:
    """Whether L-BFGS is to have a factor of the Hessian."""
    d = problem.d + 1
    small = d <= quasi_newton.WIDEST and problem.outputs * d * d <= 5 * quasi_newton.WIDEST**2
    return small and not problem.penalty.l1


def copied_rows(problem: Problem, schedule: GrowingAnchor = DEFAULT, hessian: bool = True) -> int:
    """The number of rows that are copied and read from the copy: all of them where n is small.

    Otherwise as many as the largest anchor within an eighth, and a cheap Hessian, have; an eighth where the second
    anchor is larger; or more where that is too few for a Hessian that takes no longer than two passes. Where Newton's
    steps are to follow, fewer: on all rows these gain as much as an epoch on a large part. And where there is to be no
    `hessian`, fewer still.
    """
    n, d = problem.n, problem.d
    if n < 2048:
        return n
    first, eighth = schedule.first(n), n // 8
    if first * schedule.growth <= eighth:
        anchor = first * schedule.growth ** math.floor(math.log(eighth / first, schedule.growth))
        eighth = min(eighth, max(math.ceil(anchor), cheap_rows(problem, problem)))
    dense = problem.sparse and problem.rows.nnz >= DENSE_FROM * n * d
    size = 8 * n * d if dense else stored(problem)
    whole = HESSIAN * (d + 1)
    each = (d + 1) ** 2 if dense else row_work(problem)
    wanted = max(eighth, whole) if whole * each <= 2 * pass_work(problem) else eighth
    if problem.smooth and problem.outputs == 1 and factored(problem):
        wanted = min(wanted, max(ENOUGH, n // SHARE, whole if hessian else FEW * (d + 1)))
    return min(n // 2, max(1024, min(wanted, PILOT * n // max(1, size))))


def solve(
    problem: Problem, start: Array, tol: float, journal: Journal, seed: int = 0, schedule: GrowingAnchor = DEFAULT
) -> Solution:
    """Find a point with ‖∇f‖ ≤ tol, or return the last one when the passes are used up.

    Args:
        problem: what to minimise.
        start: the point to begin at, of shape `problem.shape`.
        tol: the bound on ‖∇f‖; with an L1 penalty, on the subgradient of least norm.
        journal: counts the passes and keeps the history.
        seed: the seed of the order of rows.
        schedule: the sizes of anchors and mini-batches; the steps between two anchors are SVRG's.
    """
    run = Stages(problem, start.copy(), tol, journal, schedule, order.Draws(seed))
    run.sound = run.x
    warm = bool(start[:, :-1].any())  # an intercept alone is a mean, or a median
    n, size = problem.n, copied_rows(problem, schedule)
    index = order.sample(n, size, run.rng)
    many = problem.outputs == 1 and not problem.sparse and n >= ROWS * problem.d and n * problem.d > EASY
    if many and problem.smooth and run.worth_a_look(problem.first_rows(size)):
        run.independent = uncorrelated(problem.subset(index[:PEEK]))
    few = copied_rows(problem, schedule, hessian=not run.independent)
    pilot = problem.subset(index[:few])
    norms = pilot.norms
    mean = float(norms.mean())
    run.few_heavy = float(norms.max()) > UNEVEN * mean > UNEVEN * FEW_HEAVY * float(np.median(norms))
    run.smoothness, run.largest = smoothness(pilot, norms)
    steep = run.largest > STEEP * schedule.b * run.smoothness
    if problem.sparse and problem.smooth and n < ROWS * problem.d and steep:
        return lbfgs.solve(problem, start, tol, journal)
    if run.few_heavy and problem.smooth and run.hessian_rows(pilot) and not warm:
        x = coarse_solution(problem, start, tol, journal, run.rng)
        return lbfgs.solve(problem, x, tol, journal, heavy_rows(problem, x, quasi_newton.hessian_size(problem)))
    run.slow = problem.penalty.rational > 0 and lazy(problem, schedule(Facts(1, n, 0.0, 0.0)).b)
    # A warm start may be nearer to the solution than a part of the rows can tell.
    plan = None if run.slow or warm else run.grow(pilot, norms)
    if plan is None:
        plan = schedule(Facts(1, n, 0.0, 0.0))
    run.independent = run.independent and curved(pilot, run.x)
    if few < size and not run.independent:
        pilot = problem.subset(index)
        if not warm:
            plan = run.grow(pilot, pilot.norms) or plan
    whole = pilot if size == n else problem
    if size == n:
        run.mix = order.sequential
    elif stored(problem) <= CACHE:
        run.mix = order.shuffled
    converged = (run.block_by_block if run.blocks_pay(pilot) else partial(run.full, plan=plan))(whole, pilot)
    if not converged and (journal.left > 0 or run.known is None):
        converged = run.hand_over(whole, pilot)
    return Solution(run.x, journal.history, converged, run.message)
