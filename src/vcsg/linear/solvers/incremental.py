"""Newton steps block by block: a block of rows is evaluated at the newest point, and its gradient kept for a pass.

Of block k, with the share w_k of all rows, the gradient g_k at the point z_k of its last turn is known, and of ∇²f a
model H. So f is about Σ w_k(g_kᵀ(x − z_k) + ½(x − z_k)ᵀH(x − z_k)), whose minimum is z̄ − H⁻¹ḡ with the means z̄ and ḡ;
there the next block is evaluated (the incremental quasi-Newton method of Mokhtari, Eisen and Ribeiro 2018, with one H
for all blocks). With the gradient of all rows at one point, a step leaves of the distance to the solution a share δ,
the error of H relative to ∇²f. Here a pass leaves e^−λ of it with (e^λ − 1)/λ = 1/δ: 1/80 where δ = 1/18. H gets the
pairs of L-BFGS, changes of z̄ and ḡ from the end of a pass to the end of the next.

∇f is then known nowhere. So the point rests as soon as its gradient is expected to be small enough: after as many turns
as there are blocks, ∇f is that at one point, exactly.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from vcsg.linear.curvature import pass_work
from vcsg.linear.independent import IndependentFeatures
from vcsg.linear.problem import Array, PassResult, Problem
from vcsg.linear.solution import Journal
from vcsg.linear.solvers.quasi_newton import InverseHessian, Middle

STAGE = "incremental-newton"
"""What histories call it."""
BLOCKS, PARTS = 8, 4
"""The number of blocks, and the places of the data that each is taken from, as rows may be sorted."""
WORK = 1.5e8
"""The least work of a pass, in multiply-adds of a product of dense matrices: a turn takes some microseconds besides."""
FACTOR = 0.1
"""The most work with H in the turns of a pass, in units of that with the rows."""
FIRST = 0.2
"""The share of the rows that are evaluated at the start before the first step."""
CAUTION = 1.2
"""What an expected ‖∇f‖ is multiplied by."""
DRIFT = 3.0
"""The largest ‖∇f‖ at a point that rests, in units of the tolerance, as the blocks so far tell."""
GAIN = 3.0
"""The least factor by which ‖∇f‖ has to fall in a pass: L-BFGS does so much, too."""


def pays(problem: Problem, width: int) -> bool:
    """Whether what turns cost besides the rows is small. `width` is that of H, 0 if it is a diagonal."""
    work = pass_work(problem)
    return work >= WORK and 3 * BLOCKS * width**2 <= FACTOR * work


class Ending(NamedTuple):
    """Where a search ended."""

    x: Array
    here: PassResult | None
    """The pass at x; None if x was not evaluated by all rows."""
    message: str


class BlockwiseSearch:
    """Turns of the blocks, from x on, until ‖∇f‖ ≤ tol at the point where all have been evaluated."""

    def __init__(self, problem: Problem, x: Array, middle: Middle, tol: float, journal: Journal) -> None:
        self.problem, self.middle, self.tol, self.journal, self.count = problem, middle, tol, journal, BLOCKS
        length, count = problem.n // PARTS, BLOCKS
        self.ends = [length * k // count for k in range(count + 1)]
        sizes = [problem.rows_in(low, high, PARTS) for low, high in zip(self.ends, self.ends[1:], strict=False)]
        self.shares = np.array(sizes) / problem.n
        self.x, self.start = x, x
        self.points, self.slopes = np.zeros((2, count, x.size))
        """Where each block was evaluated last, and its gradient there."""
        self.values = np.zeros(count)
        self.point, self.slope = np.zeros((2, *x.shape))
        """Their means, weighted by shares, over what has been evaluated."""
        self.turns, self.held, self.seen = 0, 0, 0.0
        """The turns so far; those at x; and the share of the rows that were evaluated."""
        self.inverse: InverseHessian | None = None
        self.mark: tuple[Array, Array] | None = None
        """The means at the end of the last pass but the first."""
        self.start_value = math.inf
        """f at the start, from the rows that were evaluated there."""
        self.lowest, self.begin, self.fallen = x, x, math.inf
        """Where the model has its minimum, where it had it a pass ago, and ‖∇f‖ there, as the pass has told."""
        self.errors, self.moves = np.zeros((count, x.size)), np.zeros(count)
        """For each block, how far its last turn moved that minimum, for all rows; and how far its own point moved."""
        self.expected, self.caution = math.inf, CAUTION
        """‖∇f(x)‖, as is expected; and what such a number is multiplied by."""

    def run(self) -> Ending:
        """Take turns until the tolerance is reached, passes are used up, or L-BFGS would be as fast."""
        while True:
            if not self.turn():
                return Ending(self.start, None, "f or ∇f is not finite")
            if self.held == self.count:
                here = self.conclude()
                if here.norm <= self.tol:
                    return Ending(self.x, here, "‖∇f‖ ≤ tol")
                if self.journal.left < 1:
                    return Ending(self.x, here, "passes are used up")
            if self.seen < FIRST:
                continue
            self.minimise()
            if self.journal.left < 1:  # not enough to evaluate another point by all rows
                continue
            if self.slow():
                return self.give_up()
            if not self.rests():
                self.move()

    def give_up(self) -> Ending:
        """The point where the search was, or its start where f is higher there."""
        here = self.problem.anchor(self.lowest, keep=False)
        self.journal.passes += 1
        if not math.isfinite(here.value + here.norm) or here.value > self.start_value:
            return Ending(self.start, None, "f rises")
        self.journal.note(STAGE, self.problem.n, here.value, here.norm)
        return Ending(self.lowest, here, "‖∇f‖ ≤ tol" if here.norm <= self.tol else "‖∇f‖ falls slowly")

    def turn(self) -> bool:
        """Evaluate the next block at x; whether its gradient is finite."""
        k = self.turns % self.count
        found = self.problem.anchor(self.x, self.ends[k], self.ends[k + 1], keep=False, parts=PARTS)
        if not math.isfinite(found.value + found.norm):
            return False
        share = self.shares[k]
        move = self.x.ravel() - self.points[k]
        self.point += share * move
        self.slope += share * (found.smooth.ravel() - self.slopes[k])
        self.points[k], self.slopes[k], self.values[k] = self.x, found.smooth, found.value
        self.moves[k] = math.sqrt(move @ move) if self.turns >= self.count else 0.0
        self.journal.passes += share
        self.turns, self.held = self.turns + 1, self.held + 1
        self.seen = 1.0 if self.turns >= self.count else self.seen + share
        return True

    def conclude(self) -> PassResult:
        """f and ∇f at x, where all blocks have been evaluated; how wrong the expectation was tells for the next."""
        norm, value = float(np.linalg.norm(self.slope)), float(self.shares @ self.values)
        self.journal.note(STAGE, self.problem.n, value, norm)
        if self.expected < math.inf:
            self.caution *= min(30.0, max(CAUTION, CAUTION * norm / max(self.expected, 1e-300)))
        smooth = self.slope.copy()
        return PassResult(value, norm, smooth, smooth, np.empty((0, 1)))

    def minimise(self) -> None:
        """Find the minimum of the model, and how far the last turn has moved it."""
        point, slope = self.point / self.seen, self.slope / self.seen
        if self.inverse is None:
            self.inverse = InverseHessian(self.problem, self.middle, self.x)
            self.renew(self.x)
        before, self.lowest = self.lowest, self.below(point, slope, point, slope)
        if self.turns <= self.count:
            if self.turns in (self.count // 2, self.count):  # the first steps are long, and f is curved otherwise there
                self.renew(self.lowest)
            return
        k = (self.turns - 1) % self.count
        self.errors[k] = (self.lowest - before).ravel() / self.shares[k]
        if self.turns % self.count == 0:
            if self.mark:
                self.lowest = self.below(*self.mark, point, slope)
            self.mark = point, slope

    def below(self, last: Array, before: Array, point: Array, slope: Array) -> Array:
        """point − H⁻¹·slope; H gets the pair from `last` and the slope `before` to these, if it shows curvature."""
        assert self.inverse is not None
        found = np.empty(self.x.shape)
        self.inverse.turn(last, before, point, slope, found)
        return found

    def renew(self, x: Array) -> None:
        """Make a model of H for independent features anew; a Hessian stays as it is."""
        if self.inverse and isinstance(self.middle, IndependentFeatures):
            self.inverse.adopt(self.middle.at(x))

    def norm(self, step: Array) -> float:
        """‖H·step‖."""
        assert self.inverse is not None
        return float(np.linalg.norm(self.inverse.product(step)))

    def slow(self) -> bool:
        """Whether ‖∇f‖ falls too slowly, as is seen after each pass: it is about H times the way of the minimum."""
        if self.turns % self.count:
            return False
        before, self.fallen = self.fallen, self.norm(self.lowest - self.begin)
        self.begin = self.lowest
        return self.fallen > max(self.tol, before / GAIN)

    def rests(self) -> bool:
        """Whether x is expected to be good enough, so that the other blocks are evaluated there, too."""
        if self.held == self.turns:  # the gradient of what has been evaluated is one at one point
            return float(np.linalg.norm(self.slope)) <= self.tol * self.seen
        if self.turns <= self.count or self.held == self.count:
            return False
        if self.expected == math.inf:
            self.expected = self.expect(self.x)
        if self.expected > self.tol:
            return False
        return self.held == 1 or self.norm(self.lowest - self.x) * self.count <= DRIFT * self.tol * self.held

    def move(self) -> None:
        """Go to the minimum of the model."""
        if self.held == self.turns:
            self.start_value = float(self.shares[: self.held] @ self.values[: self.held]) / self.seen
        self.x, self.held = self.lowest, 0
        self.expected = self.expect(self.x)

    def expect(self, x: Array) -> float:
        """‖∇f(x)‖, from what the turns of all blocks would still change.

        That of a block is in proportion to the distance from its point, and else what its last turn has changed, or
        the mean of those of other blocks.
        """
        known = self.moves > 0
        if not known.any():
            return math.inf
        away = x.ravel() - self.points
        distances = self.shares * np.sqrt(np.einsum("ij,ij->i", away, away))
        changes = self.errors[known] / self.moves[known, None]
        total = distances[known] @ changes + distances[~known].sum() * changes.mean(axis=0)
        return self.caution * self.norm(total)
