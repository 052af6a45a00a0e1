"""Newton steps with the Hessian of a sample, for rows that are read: every evaluation is a read of all of them.

f's smooth part has a quadratic model about x: the gradient over all rows, and B, the Hessian of a sample of the rows,
its diagonal as that of all rows, corrected by the pairs (step, change of the gradient) of the reads so far, as BFGS
does. The minimum of the model plus an L1 penalty or bounds is found in memory, by coordinate descent on working columns
(a proximal Newton step). A read there tells f and ∇f. Where f has not fallen, the model is damped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, cg

from vcsg.linear.curvature import row_curvatures
from vcsg.linear.kernels.losses import LOSSES
from vcsg.linear.problem import Array, PassResult, Penalty, Problem, violation
from vcsg.linear.solution import Journal
from vcsg.linear.solvers import working_set
from vcsg.linear.solvers.quasi_newton import MEMORY, WIDEST, blas_threads

Places = npt.NDArray[np.int64]
"""Numbers of unknowns in a flattened point."""

STAGE = "sampled-newton"
ROUNDS = 20
"""How often working columns are chosen anew for one model."""
CONJUGATE = 200
"""The most conjugate gradients for one model without kinks."""
CLOSE, FAR = 0.1, 1e-3
"""The accuracy of a model's minimum: in units of tol, or of ‖∇f‖ where the model is made."""
UNLIKE = 4.0
"""The ratio of the diagonals' entries from which on a column of the sample counts as unlike that of all rows."""
LEAST = 1e-10
"""The least entry of a diagonal, in units of the largest."""
SLOW = 0.3
"""The sample's Hessian is made anew where a step has left more than this share of ‖∇f‖."""
DAMPED = 0.1
"""The share of the diagonal that is added to B after the first step along which f has not fallen."""
AGAIN = 4.0
"""How many times more it is after each further one, and less after each step that did what the model said."""
FAILURES = 15
"""The reads in a row that may find f not to have fallen."""
SHIFTS = (1e-12, 1e-9, 1e-6, 1e-3, 1.0)
"""The shares of its diagonal by which a matrix is enlarged: the first that leaves it definite."""


class Reading(NamedTuple):
    """What one read of all rows tells about a point."""

    found: PassResult
    gap: float
    """The duality gap; NaN where there is none."""
    diagonal: Array
    """The diagonal of the loss's Hessian over all rows."""


def hessian_diagonal(problem: Problem, curvatures: Array) -> Array:
    """The diagonal of the Hessian of a loss, from the curvatures of its rows."""
    rows = problem.rows
    if problem.sparse:
        features = (rows.multiply(rows).T @ curvatures).T
    else:
        features = np.einsum("ik,ij,ij->kj", curvatures, rows, rows, dtype=np.float64)
    return np.column_stack([features, problem.bias**2 * curvatures.sum(axis=0)])


@dataclass
class SampleHessian:
    """The Hessian of a sample at a point, the L2 penalty included: a block for each output, nothing between them.

    Its rows and columns are scaled so that the diagonal is that of all rows. Where the two are unlike, as in a column
    of which the sample has next to nothing, what is missing is added to the diagonal.
    """

    sample: Problem
    at: Array
    whole: Array
    """The diagonal of the loss's Hessian over all rows."""
    shrinkage: float
    """How much of its diagonal is added to it, for a sample with few rows for each unknown."""

    def __post_init__(self) -> None:
        self.curvatures = row_curvatures(self.sample, self.at)
        self.known: tuple[Places, Array] = np.empty(0, np.int64), np.empty((0, 0))
        own = hessian_diagonal(self.sample, self.curvatures)
        alike = (own < UNLIKE * self.whole) & (self.whole < UNLIKE * own)
        self.scales = np.sqrt(np.divide(self.whole, own, out=np.ones(own.shape), where=alike))
        self.added = np.where(alike, 0.0, np.maximum(self.whole - own, 0.0))
        self.added[:, :-1] += self.sample.penalty.curvature
        diagonal = own * self.scales**2 + self.added
        self.diagonal: Array = np.maximum(diagonal, LEAST * max(float(diagonal.max()), 1e-300))
        self.added += self.shrinkage * self.diagonal

    def times(self, step: Array) -> Array:
        """The product with a step."""
        rows, bias, scaled = self.sample.rows, self.sample.bias, self.scales * step
        pulls = (rows @ scaled[:, :-1].T + bias * scaled[:, -1]) * self.curvatures
        product = np.column_stack([(rows.T @ pulls).T, bias * pulls.sum(axis=0)])
        return np.asarray(self.scales * product + self.added * step)

    def block(self, places: Places) -> Array:
        """The entries for some unknowns; the last ones asked for are kept."""
        if not np.array_equal(places, self.known[0]):
            width, whole = self.sample.d + 1, np.zeros((len(places), len(places)))
            with blas_threads(self.sample):
                for k in range(self.sample.outputs):
                    inside = np.flatnonzero(places // width == k)
                    whole[np.ix_(inside, inside)] = self._gram(places[inside] % width, k)
            self.known = places, whole
        return self.known[1]

    def _gram(self, columns: Places, k: int) -> Array:
        """The entries for some columns of output k; the column d is the intercept's."""
        rows, root = self.sample.rows, np.sqrt(self.curvatures[:, k])
        features = columns[columns < self.sample.d]
        last = (root * self.sample.bias)[:, None]
        if self.sample.sparse:
            part = sparse.diags_array(root) @ rows[:, features]
            part = sparse.hstack([part, last], format="csr") if len(features) < len(columns) else part
            gram = (part.T @ part).toarray()
        else:
            part = (rows if len(features) == self.sample.d else rows[:, features]) * root[:, None]
            part = np.hstack([part, last]) if len(features) < len(columns) else part
            gram = np.asarray(part.T @ part, np.float64)
        gram *= np.outer(self.scales[k, columns], self.scales[k, columns])
        np.einsum("jj->j", gram)[:] += self.added[k, columns]
        return np.asarray(gram)


@dataclass
class CorrectedHessian:
    """The sample's Hessian H corrected by pairs (s, y), and damped: B = H − UᵀM⁻¹U + damping·diag(H).

    U has the lines H·s and y of all pairs (Byrd, Nocedal and Schnabel 1994, theorem 2.3); without damping B·s = y for
    the last of them.
    """

    base: SampleHessian
    damping: float = 0.0
    steps: list[Array] = field(default_factory=list)
    products: list[Array] = field(default_factory=list)
    changes: list[Array] = field(default_factory=list)

    def add(self, step: Array, change: Array) -> None:
        """Take a pair, unless f is not curved along the step; the oldest of too many is forgotten."""
        if not float((step * change).sum()) > 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            return
        self.steps.append(step)
        self.products.append(self.base.times(step))
        self.changes.append(change)
        for line in (self.steps, self.products, self.changes):
            del line[:-MEMORY]

    def renew(self, at: Array, diagonal: Array) -> None:
        """Take the sample's Hessian at another point, and keep the pairs."""
        self.base = SampleHessian(self.base.sample, at, diagonal, self.base.shrinkage)
        self.products = [self.base.times(step) for step in self.steps]

    def correction(self) -> tuple[Array, Array]:
        """U as lines, and M⁻¹U."""
        count = len(self.steps)
        if not count:
            return np.empty((0, self.base.at.size)), np.empty((0, self.base.at.size))
        s, hs, y = (np.stack(line).reshape(count, -1) for line in (self.steps, self.products, self.changes))
        sy = s @ y.T
        lower = np.tril(sy, -1)
        U, M = np.vstack([hs, y]), np.block([[s @ hs.T, lower], [lower.T, -np.diag(np.diagonal(sy))]])
        try:
            return U, np.linalg.solve(M, U)
        except np.linalg.LinAlgError:  # steps that are parallel to rounding
            return U, np.linalg.lstsq(M, U, rcond=None)[0]

    def times(self, step: Array) -> Array:
        """The product with a step."""
        U, solved = self.correction()
        whole = self.base.times(step) + self.damping * self.base.diagonal * step
        return np.asarray(whole - (solved.T @ (U @ step.ravel())).reshape(step.shape))

    def block(self, places: Places) -> Array:
        """The entries for some unknowns."""
        U, solved = self.correction()
        out = self.base.block(places) - U[:, places].T @ solved[:, places]
        np.einsum("jj->j", out)[:] += self.damping * self.base.diagonal.ravel()[places]
        return out


def model_minimum(hessian: CorrectedHessian, x: Array, slope: Array, terms: Penalty, tol: float) -> Array:
    """The minimum of the quadratic model about x plus the penalty, until its least subgradient has the norm tol."""
    if not (terms.l1 or terms.positive):
        return x + smooth_step(hessian, slope, tol)
    best, here = x.copy(), slope
    for _ in range(ROUNDS):
        least = here.copy()
        least[:, :-1] = violation(here[:, :-1], best[:, :-1], terms.l1, terms.positive)
        if float(np.linalg.norm(least)) <= tol:
            break
        places = working_places(best, least)
        best.ravel()[places] = block_minimum(hessian, best, here, places, terms, tol / 2)
        here = slope + hessian.times(best - x)
    return best


def smooth_step(hessian: CorrectedHessian, slope: Array, tol: float) -> Array:
    """The step −B⁻¹∇f to the minimum of a model without kinks or bounds: by a factor, or by conjugate gradients."""
    size, step = slope.size, np.zeros(slope.shape)
    if size > WIDEST:
        diagonal = hessian.base.diagonal.ravel()
        product = LinearOperator((size, size), lambda v: hessian.times(v.reshape(slope.shape)).ravel(), dtype=float)
        scaled = LinearOperator((size, size), lambda v: v / diagonal, dtype=float)
        step.ravel()[:] = cg(product, -slope.ravel(), rtol=0.0, atol=tol, maxiter=CONJUGATE, M=scaled)[0]
        return step
    places = np.arange(size)
    places = places if hessian.base.sample.bias else places[places % slope.shape[1] < slope.shape[1] - 1]
    factor = upper_factor(hessian.block(places))
    step.ravel()[places] = -linalg.cho_solve((factor, False), slope.ravel()[places])
    return step


def working_places(x: Array, least: Array) -> Places:
    """The unknowns of a working set: all where they are few, else those in use and those that violate optimality."""
    if x.size <= WIDEST:
        return np.arange(x.size)
    scores, used = np.abs(least).ravel(), x != 0
    used[:, -1] = True
    candidates = np.flatnonzero(used.ravel() | (scores > 0))
    if len(candidates) > WIDEST:
        candidates = np.sort(candidates[np.argsort(scores[candidates])[-WIDEST:]])
    return candidates


def block_minimum(
    hessian: CorrectedHessian, x: Array, slope: Array, places: Places, terms: Penalty, tol: float
) -> Array:
    """The values of some unknowns at the minimum of the model, where all others stay as they are.

    Intercepts have no penalty and follow the others: with B = [[P, Q], [Qᵀ, F]] they take the step −F⁻¹(g_F + Qᵀv) for
    the step v of the others, for which P − QF⁻¹Qᵀ = RᵀR and g_P − QF⁻¹g_F remain. What is minimised is then a
    least-squares problem with the rows R, under the penalty alone, as coordinate descent takes it.
    """
    B, g, at, step = hessian.block(places), slope.ravel()[places], x.ravel()[places], np.zeros(len(places))
    intercepts = places % x.shape[1] == x.shape[1] - 1
    held, free = ~intercepts, intercepts & bool(hessian.base.sample.bias)
    P, Q, F = B[np.ix_(held, held)], B[np.ix_(held, free)], B[np.ix_(free, free)]
    follow = linalg.cho_solve((upper_factor(F), False), np.column_stack([Q.T, g[free]]))
    R, rest = upper_factor(P - Q @ follow[:, :-1]), g[held] - Q @ follow[:, -1]
    scale = math.sqrt(len(R))
    targets = scale * (R @ at[held] - linalg.solve_triangular(R, rest, trans=1))
    part = Problem(
        np.ascontiguousarray(scale * R), targets, np.ones(len(R)), LOSSES["squared"], bias=0.0,
        penalty=Penalty(l1=terms.l1, positive=terms.positive),
    )  # fmt: skip
    start = np.append(at[held], 0.0)[None, :]
    step[held] = working_set.solve(part, start, tol, Journal(1e4)).x[0, :-1] - at[held]
    step[free] = -follow[:, -1] - follow[:, :-1] @ step[held]
    return np.asarray(at + step)


def upper_factor(matrix: Array) -> Array:
    """R with RᵀR = the matrix, its diagonal enlarged where it is not definite."""
    diagonal = np.diagonal(matrix)
    level = np.maximum(diagonal, 1e-3 * max(float(diagonal.max(initial=0.0)), 1e-300))
    for share in SHIFTS:
        try:
            return np.asarray(linalg.cholesky(matrix + np.diag(share * level)))
        except linalg.LinAlgError:
            continue
    return np.diag(np.sqrt(level))


def solve(
    read: Callable[[Array], Reading], n: int, sample: Problem, start: Array, known: Reading, tol: float,
    journal: Journal,
) -> tuple[Array, Reading, str]:  # fmt: skip
    """Minimise f; return x, the reading there, and how it ended.

    Args:
        read: evaluates f over all rows.
        n: the number of all rows.
        sample: the problem of a sample of the rows, in memory.
        start: where to begin.
        known: what a read at the start has told.
        tol: the search ends where ‖∇f‖ ≤ tol, with an L1 penalty that of the subgradient of least norm.
        journal: counts the reads and keeps the history.
    """
    x, here, terms, failures = start, known, sample.penalty, 0
    shrinkage = min(1.0, (np.count_nonzero(start) / sample.n) ** 2)
    hessian = CorrectedHessian(SampleHessian(sample, start, known.diagonal, shrinkage))
    while here.found.norm > tol and journal.left > 0:
        slope = here.found.smooth
        target = model_minimum(hessian, x, slope, terms, max(CLOSE * tol, FAR * here.found.norm))
        step = target - x
        fall = float((slope * step).sum()) + terms.l1 * float(np.abs(target).sum() - np.abs(x).sum())
        fall -= terms.l1 * float(np.abs(target[:, -1]).sum() - np.abs(x[:, -1]).sum())
        if not fall < 0 or failures > FAILURES:
            return x, here, "f falls no further, for rounding"
        there = read(target)
        journal.passes += 1
        journal.note(STAGE, n, there.found.value, there.found.norm)
        expected = fall + float((step * hessian.times(step)).sum()) / 2
        if math.isfinite(there.found.value + there.found.norm):
            hessian.add(step, there.found.smooth - slope)
        if not there.found.below(here.found, 1e-4 * fall):
            hessian.damping, failures = max(AGAIN * hessian.damping, DAMPED), failures + 1
            continue
        if there.found.value - here.found.value < 0.75 * expected:
            hessian.damping = hessian.damping / AGAIN if hessian.damping > DAMPED / 10 else 0.0
        if there.found.norm > SLOW * here.found.norm:
            hessian.renew(target, there.diagonal)
        x, here, failures = target, there, 0
    return x, here, "‖∇f‖ ≤ tol"
