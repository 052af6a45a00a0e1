"""Fits rows that are read by blocks, with few reads of all of them.

The first read counts rows, classes and weights and draws a sample of the rows. The sample is solved in memory, which
gets as near as its size allows. L-BFGS then goes on with all rows: the sample's Hessian stands in the middle of its
recursion, so that its steps are nearly Newton's, and each takes one read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from vcsg.linear.blocks import BlockSource
from vcsg.linear.kernels.losses import LOSSES, Loss
from vcsg.linear.problem import Array, PassResult, Penalty, Problem
from vcsg.linear.row_sample import SAMPLE, RowSample, stored
from vcsg.linear.solution import Journal, Solution
from vcsg.linear.solvers import lbfgs
from vcsg.linear.solvers.automatic import solve

OFFERED = 4
"""How many times its even share of the sample a block offers: the shares of small blocks go to the others."""


class Survey(NamedTuple):
    """What the first read of a block tells, and those of its rows that may be in the sample."""

    n: int
    d: int
    total: float
    """The sum of the weights."""
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
        rows, y = checked(number, rows, y)
        n, d = rows.shape
        share = np.ones(n) if weight is None else np.asarray(weight, np.float64)
        keys = np.random.default_rng((self.seed, number)).random(n)
        kept = np.sort(np.argsort(keys)[: max(1, self.size * n // max(1, stored(rows)))])
        classes = np.unique(y) if self.classifies else None
        return Survey(n, d, float(share.sum()), classes, keys[kept], rows[kept], y[kept], share[kept])


def checked(number: int, rows: Any, y: Any) -> tuple[Any, Any]:
    """A block's rows as the loops take them, and its targets; refused where they do not belong together."""
    rows = sparse.csr_matrix(rows) if sparse.issparse(rows) else np.asarray(rows)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    rows = rows if sparse.issparse(rows) else np.ascontiguousarray(rows)
    y = np.asarray(y)
    if rows.ndim != 2 or y.shape != (rows.shape[0],):
        raise ValueError(f"block {number} has rows of shape {rows.shape} and targets of shape {y.shape}: n × d and n")
    return rows, y


@dataclass(frozen=True)
class BlockPass:
    """The work of a pass: Σ w_i φ_i of a block and its gradient at x."""

    x: Array
    loss: Loss
    scale: float
    bias: float
    classes: Any
    threads: int

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

    def __call__(self, number: int, rows: Any, y: Any, weight: Any) -> tuple[float, Array]:
        rows, y = checked(number, rows, y)
        share = np.ones(len(y)) if weight is None else np.ascontiguousarray(weight, np.float64)
        found = self.problem(rows, y, share, Penalty()).anchor(self.x)
        return found.value * len(y), found.gradient * len(y)


@dataclass(frozen=True)
class BlockProblem(Problem):
    """The objective over all blocks: one evaluation is one read."""

    source: BlockSource = field(kw_only=True)
    count: int = field(kw_only=True)
    width: int = field(kw_only=True)
    total: float = field(kw_only=True)
    classes: Any = field(kw_only=True)

    in_memory: ClassVar[bool] = False

    @cached_property
    def n(self) -> int:
        return self.count

    @cached_property
    def d(self) -> int:
        return self.width

    def work(self, x: Array) -> BlockPass:
        """The work of a pass at x."""
        return BlockPass(x, self.loss, self.scale, self.bias, self.classes, self.threads)

    def anchor(self, x: Array, lo: int = 0, hi: int | None = None) -> PassResult:
        """Evaluate f and ∇f at x over all blocks; the slopes of single rows are not kept."""
        loss, gradient = 0.0, np.zeros(self.shape)
        for value, slope in self.source.map(self.work(np.ascontiguousarray(x, np.float64))):
            loss += value
            gradient += slope
        gradient /= self.total
        smooth = gradient.copy()
        value = loss / self.total + self.penalty.add_to(smooth, x)
        return PassResult(value, float(np.linalg.norm(smooth)), smooth, gradient, np.empty((0, self.outputs)))


def survey(
    source: BlockSource, loss: str, scale: float, intercept: bool, penalty: Penalty, threads: int, seed: int
) -> tuple[BlockProblem, Problem]:
    """Read all blocks once: the problem of all rows, and that of a sample of them in memory."""
    classifies, sample = LOSSES[loss].classifies, RowSample(SAMPLE)
    widths: set[int] = set()
    n, total, known = 0, 0.0, np.empty(0)
    # Where the number of blocks is known, each offers a few times its share of the sample and not more.
    each = SAMPLE if source.count is None else OFFERED * SAMPLE // max(1, source.count)
    for part in source.map(Surveyor(seed, classifies, each)):
        n, total, widths = n + part.n, total + part.total, widths | {part.d}
        if len(widths) > 1:
            raise ValueError(f"blocks have {sorted(widths)} columns: give all of them the same number")
        if classifies:
            known = np.unique(np.concatenate([known, part.classes])) if known.size else part.classes
        sample.add(part.keys, part.rows, part.y, part.weight, complete=len(part.keys) == part.n)
    if not n:
        raise ValueError("there are no rows: give at least one block with one row")
    if not total > 0:
        raise ValueError("all rows have the weight 0: give some row a weight above 0")
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
    """Solve the sample in memory, and from there all rows by L-BFGS; a pass of the journal is a read of all blocks."""
    journal.passes = 1.0
    inner = solve(sample, np.zeros(sample.shape), tol, 1000.0, seed)
    journal.note("sample", sample.n, inner.history[-1].objective, inner.history[-1].gradient_norm)
    name = f"sample of {sample.n} rows by {inner.solver}"
    if sample.n == whole.n:
        inner.history, inner.solver = journal.history, name
        return inner
    known = whole.anchor(inner.x)
    journal.passes += 1
    journal.note("l-bfgs", whole.n, known.value, known.norm)
    if not math.isfinite(known.value + known.norm):
        raise FloatingPointError(f"f = {known.value} and ‖∇f‖ = {known.norm}")
    x, norm, message = inner.x, known.norm, "‖∇f‖ ≤ tol"
    if norm > tol and journal.left > 0:
        middle: lbfgs.Middle = sample if sample.outputs * (sample.d + 1) <= lbfgs.WIDEST else "identity"
        x, norm, message = lbfgs.finish(whole, middle, x, known, tol, journal)
    if norm > tol and journal.left <= 0:
        message = f"{journal.budget:g} reads are used up"
    return Solution(x, journal.history, norm <= tol, message, f"{name}, then l-bfgs on all rows")
