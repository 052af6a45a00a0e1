"""Fits rows that are read by blocks, with few reads of all of them.

The first read checks the blocks, counts rows, classes and weights and draws a sample of the rows. The sample is solved
in memory, which gets as near as its size allows. Newton steps with the sample's Hessian (`sampled_newton`) then go on
with all rows, and each takes one read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from vcsg.linear import inputs, sampled_newton
from vcsg.linear.blocks import BlockSource
from vcsg.linear.curvature import row_curvatures
from vcsg.linear.duality import DualSums, dual_sums, has_gap, summed_gap
from vcsg.linear.kernels import loops
from vcsg.linear.kernels.losses import HUBER, LOSSES, TWEEDIE, Loss
from vcsg.linear.problem import Array, PassResult, Penalty, Problem
from vcsg.linear.row_sample import SAMPLE, RowSample, stored
from vcsg.linear.sampled_newton import Reading
from vcsg.linear.solution import Journal, Solution
from vcsg.linear.solvers.automatic import solve

OFFERED = 4
"""How many times its even share of the sample a block offers: the shares of small blocks go to the others."""


class Survey(NamedTuple):
    """What the first read of a block tells, and those of its rows that may be in the sample."""

    n: int
    d: int
    total: float
    """The sum of the weights."""
    least: float
    most: float
    """The smallest target; 0 for classes."""
    classes: Any
    """The sorted classes; None for a regression."""
    keys: Array
    """A number from 0 to 1 for each row that may be in the sample: those with the smallest ones are."""
    rows: Any
    y: Any
    weight: Array


@dataclass(frozen=True)
class Surveyor:
    """The work of the first read."""

    seed: int
    classifies: bool
    size: int
    """The largest size of the sample in bytes."""

    def __call__(self, number: int, rows: Any, y: Any, weight: Any) -> Survey:
        rows, y, share = checked(number, rows, y, weight)
        finite(number, rows, y, share)
        n, d = rows.shape
        keys = np.random.default_rng((self.seed, number)).random(n)
        kept = np.sort(np.argsort(keys)[: max(1, self.size * n // max(1, stored(rows)))])
        classes = np.unique(y) if self.classifies else None
        values = np.zeros(1) if self.classifies else np.asarray(y, np.float64)
        least, most = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
        return Survey(n, d, float(share.sum()), least, most, classes, keys[kept], rows[kept], y[kept], share[kept])


def checked(number: int, rows: Any, y: Any, weight: Any) -> tuple[Any, Any, Array]:
    """A block's rows as the loops take them, its targets and weights; refused where they do not belong together."""
    rows = sparse.csr_matrix(rows) if sparse.issparse(rows) else np.asarray(rows)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    rows = inputs.canonical(rows) if sparse.issparse(rows) else np.ascontiguousarray(rows)
    y = np.asarray(y)
    if rows.ndim != 2 or y.shape != (rows.shape[0],):
        raise ValueError(f"block {number} has rows of shape {rows.shape} and targets of shape {y.shape}: n × d and n")
    share = np.ones(len(y)) if weight is None else np.ascontiguousarray(weight, np.float64)
    if share.shape != y.shape:
        raise ValueError(f"block {number} has {len(y)} rows and weights of shape {share.shape}: one for each row")
    return rows, y, share


def finite(number: int, rows: Any, y: Any, share: Array) -> None:
    """Raise where a block has NaN or infinity, or weights below 0."""
    data = rows.data if sparse.issparse(rows) else rows
    for name, values in (("rows", data), ("targets", y), ("weights", share)):
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ValueError(
                f"block {number} has {name} with NaN or infinity: leave these rows out, or fill them in (SimpleImputer)"
            )
    if share.min(initial=0.0) < 0:
        raise ValueError(f"block {number} has the weight {share.min():g}: give weights of 0 and above")


class BlockSums(NamedTuple):
    """What a pass finds in a block."""

    n: int
    loss: float
    """Σ w_i φ_i."""
    gradient: Array
    diagonal: Array
    """The diagonal of the Hessian."""
    dual: tuple[DualSums, DualSums] | None
    """What a duality gap takes, where there is one."""


@dataclass(frozen=True)
class BlockPass:
    """The work of a pass: Σ w_i φ_i of a block at x, its gradient and more."""

    x: Array
    loss: Loss
    scale: float
    bias: float
    classes: Any
    threads: int
    certified: bool
    """Whether to find what a duality gap takes, too."""

    def targets(self, y: Any) -> Array:
        """The targets as the loops take them: −1 and 1 for two classes, numbers for more."""
        if self.classes is None:
            return np.ascontiguousarray(y, np.float64)
        codes: Array = np.searchsorted(self.classes, y).astype(np.float64)
        return 2 * codes - 1 if len(self.classes) == 2 else codes

    def problem(self, rows: Any, y: Any, weight: Array, penalty: Penalty) -> Problem:
        """The problem of some rows in memory."""
        outputs = len(self.x)
        return Problem(rows, self.targets(y), weight, self.loss, self.scale, outputs, self.bias, penalty, self.threads)

    def __call__(self, number: int, rows: Any, y: Any, weight: Any) -> BlockSums:
        rows, y, share = checked(number, rows, y, weight)
        if not len(y):
            return BlockSums(0, 0.0, np.zeros_like(self.x), np.zeros_like(self.x), None)
        n, problem = len(y), self.problem(rows, y, share, Penalty())
        found = problem.anchor(self.x)
        diagonal = sampled_newton.hessian_diagonal(problem, row_curvatures(problem, self.x) * n)
        dual = None
        if self.certified:
            above, below = dual_sums(problem, self.x, found)
            dual = above.times(n), below.times(n)
        return BlockSums(n, found.value * n, found.gradient * n, diagonal, dual)


@dataclass(frozen=True)
class BlockProblem(Problem):
    """The objective over all blocks: one evaluation is one read."""

    source: BlockSource = field(kw_only=True)
    count: int = field(kw_only=True)
    width: int = field(kw_only=True)
    total: float = field(kw_only=True)
    classes: Any = field(kw_only=True)

    @cached_property
    def n(self) -> int:
        return self.count

    @cached_property
    def d(self) -> int:
        return self.width

    def work(self, x: Array) -> BlockPass:
        """The work of a pass at x."""
        certified = self.penalty.l1 > 0 and has_gap(self)
        return BlockPass(x, self.loss, self.scale, self.bias, self.classes, self.threads, certified)

    def read(self, x: Array) -> Reading:
        """Evaluate f at x over all blocks; the slopes of single rows are not kept."""
        n, loss, gradient, diagonal, dual = 0, 0.0, np.zeros(self.shape), np.zeros(self.shape), None
        for part in self.source.map(self.work(x)):
            n, loss = n + part.n, loss + part.loss
            gradient += part.gradient
            diagonal += part.diagonal
            if part.dual:
                dual = part.dual if dual is None else (dual[0].plus(part.dual[0]), dual[1].plus(part.dual[1]))
        if n != self.n:
            raise ValueError(
                f"the blocks had {self.n} rows in the first read and {n} in read {self.source.reads}: let the function "
                "make its blocks anew, and all of them, each time it is called"
            )
        gradient /= self.total
        diagonal /= self.total
        smooth = np.empty(self.shape)
        value, norm = loops.join_parts(loss / self.total, x, gradient, smooth, *self.penalty.terms)
        found = self._bounded(PassResult(value, norm, smooth, gradient, np.empty((0, self.outputs))), x)
        if dual is None:
            return Reading(found, math.nan, diagonal)
        above, below = (part.times(1 / self.total) for part in dual)
        return Reading(found, summed_gap(found.value, self.penalty, self.bias, above, below), diagonal)


def survey(
    source: BlockSource, loss: str, scale: float, intercept: bool, penalty: Penalty, threads: int, seed: int
) -> tuple[BlockProblem, Problem]:
    """Read all blocks once: the problem of all rows, and that of a sample of them in memory."""
    classifies, sample = LOSSES[loss].classifies, RowSample(SAMPLE)
    widths: set[int] = set()
    n, total, least, most, known = 0, 0.0, math.inf, -math.inf, np.empty(0)
    # Where the number of blocks is known, each offers a few times its share of the sample and not more.
    each = SAMPLE if source.count is None else OFFERED * SAMPLE // max(1, source.count)
    for part in source.map(Surveyor(seed, classifies, each)):
        n, total, widths = n + part.n, total + part.total, widths | {part.d}
        least, most = min(least, part.least), max(most, part.most)
        if len(widths) > 1:
            raise ValueError(f"blocks have {sorted(widths)} columns: give all of them the same number")
        if classifies:
            known = np.unique(np.concatenate([known, part.classes])) if known.size else part.classes
        sample.add(part.keys, part.rows, part.y, part.weight, complete=len(part.keys) == part.n)
    if not n:
        raise ValueError("there are no rows: give at least one block with one row")
    if not total > 0:
        raise ValueError("all rows have the weight 0: give some row a weight above 0")
    if loss == "tweedie":
        inputs.counts(np.array([least, most]), scale)
    if classifies and len(known) < 2:
        raise ValueError(f"y has one class alone ({known[0]!r}): a classifier needs at least two classes")
    if len(known) > 2 and loss != "logistic":
        raise ValueError(f"loss = {loss!r} with {len(known)} classes: blocks of several have 'logistic' alone")
    several, d = len(known) > 2, widths.pop()
    whole = BlockProblem(
        np.empty((0, d)), np.empty(0), np.empty(0), LOSSES["multinomial" if several else loss], scale,
        len(known) if several else 1, 1.0 if intercept else 0.0, penalty, threads,
        source=source, count=n, width=d, total=total, classes=known if classifies else None,
    )  # fmt: skip
    _, rows, y, weight = sample.cut()
    weight = weight * (len(weight) / max(float(weight.sum()), 1e-300))
    return whole, whole.work(np.zeros(whole.shape)).problem(rows, y, weight, penalty)


def solve_blocks(whole: BlockProblem, sample: Problem, tol: float, journal: Journal, seed: int) -> Solution:
    """Solve the sample in memory, and from there all rows; a pass of the journal is a read of all blocks."""
    journal.passes = 1.0
    inner = solve(sample, first_point(sample), tol, 1000.0, seed)
    journal.note("sample", sample.n, inner.history[-1].objective, inner.history[-1].gradient_norm)
    name = f"sample of {sample.n} rows by {inner.solver}"
    if sample.n == whole.n:
        inner.history, inner.solver = journal.history, name
        return inner
    here = whole.read(inner.x)
    journal.passes += 1
    journal.note(sampled_newton.STAGE, whole.n, here.found.value, here.found.norm)
    if not math.isfinite(here.found.value + here.found.norm):
        raise FloatingPointError(f"f = {here.found.value} and ‖∇f‖ = {here.found.norm}")
    x, here, message = sampled_newton.solve(whole.read, whole.n, sample, inner.x, here, tol, journal)
    converged = here.found.norm <= tol
    if not converged and journal.left <= 0:
        message = f"{journal.budget:g} reads are used up"
    solver = f"{name}, then {sampled_newton.STAGE} on all rows"
    return Solution(x, journal.history, converged, message, solver, gap=here.gap)


def first_point(sample: Problem) -> Array:
    """Where the sample's solver begins: at 0, with an intercept for the losses that `LinearRegressor` gives one."""
    x, mean = np.zeros(sample.shape), float(sample.shares @ sample.y)
    if sample.bias and sample.loss.code == TWEEDIE and mean > 0:
        x[0, -1] = math.log(mean)
    elif sample.bias and sample.loss.code == HUBER:
        x[0, -1] = inputs.weighted_median(sample.y, sample.weight)
    return x
