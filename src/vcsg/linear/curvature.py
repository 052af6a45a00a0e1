"""The curvature of f, estimated from some of its rows: smoothness constants, and factors of the Hessian."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from vcsg.linear.kernels import hessian as kernel
from vcsg.linear.problem import Array, Problem, readable

SAMPLE = 256
"""The number of rows whose mean curvature is measured."""
ITERATIONS = 4
"""Power iterations for the largest eigenvalue."""
RAMP = 0.5 + np.arange(SAMPLE) / SAMPLE
"""The shares of the rows in the vector that they begin with: unlike any that would cancel."""


def smoothness(problem: Problem, norms: Array) -> tuple[float, float]:
    """The smoothness of the mean loss, κ·λ_max((1/n)Σ w_i a_i a_iᵀ) from the first rows, and the largest of one row."""
    size, bound, v = min(SAMPLE, problem.n), problem.loss.curvature, np.zeros((2, problem.d + 1))
    mean = kernel.largest_eigenvalue(problem.parts, problem.model[2], RAMP, size, problem.bias, v, ITERATIONS)
    return bound * mean, bound * float((problem.weight * norms).max())


def row_curvatures(problem: Problem, x: Array) -> Array:
    """w_i φ''_i / n at x: a line for every row, a column for every output."""
    out = np.empty((problem.n, problem.outputs))
    curvatures = kernel.row_curvatures if problem.outputs == 1 else kernel.class_row_curvatures
    curvatures(*problem.model, x, out)
    return out


def curvature_along(problem: Problem, x: Array, v: Array) -> float:
    """vᵀ∇²f(x)v, as the first rows have it; of several outputs the blocks on the diagonal alone."""
    part = problem.first_rows(min(SAMPLE, problem.n))
    change = np.asarray(part.rows @ v[:, :-1].T) + problem.bias * v[:, -1]
    losses = float(np.vdot(row_curvatures(part, x), change**2))
    return losses + problem.penalty.curvature * float((v[:, :-1] ** 2).sum())


LEAST, FLATTEST = 0.01, 2.0
"""The least share by which correlations in a plain sample's Hessian are brought nearer to 0; and the largest, in units
of the least pivot."""
FLOPS = 20
"""The time of a pass per number of X, in multiply-adds of a matrix product; it prices a Hessian in passes."""
SPARSE_ENTRY = 5.0
"""The time of a pass for one entry of sparse rows, in that for one number of dense rows."""
SCATTER = 60.0
"""The time of an addition to an entry of a Hessian somewhere in memory, in multiply-adds of a matrix product."""
SINGLE = (np.float32, 1e-10, (2e-6, 1e-3, 1.0))
DOUBLE = (np.float64, 1e-15, (1e-14, 1e-10, 1e-6, 1e-3, 1.0))
"""The type in which a Hessian is summed, and how much its diagonal is enlarged: by a share of the largest entry, and by
the first share of each entry that leaves it definite."""


class PlainSample(NamedTuple):
    """Rows that were drawn from a problem's, each with the same chance, and are few for its unknowns."""

    rows: Problem


def hessian_factors(problem: Problem | PlainSample, x: Array, exact: bool = False) -> Array:
    """The lower Cholesky factor of the Hessian at x, one for the diagonal block of each output.

    Single precision is enough for the Hessian of a sample of rows, unless it overflows; `exact` takes double precision.
    In that of a plain sample of dense rows correlations are brought nearer to 0, where that is safe.
    """
    problem, noisy = (problem.rows, True) if isinstance(problem, PlainSample) else (problem, False)
    weight, factors = row_curvatures(problem, x), np.empty((problem.outputs, problem.d + 1, problem.d + 1))
    if scatters(problem):
        for k, hessian in enumerate(factors):
            _factor(
                _apart(problem, _scattered_gram(problem, weight, k)), problem.penalty.curvature, *DOUBLE[1:], hessian
            )
        return factors
    dense = problem.rows.toarray() if problem.sparse else readable(problem.rows)
    for k, hessian in enumerate(factors):
        for dtype, floor, shares in (DOUBLE,) if exact else (SINGLE, DOUBLE):
            gram = _apart(problem, _gram(dense, weight, k, problem.bias, dtype))
            if _factor(gram, problem.penalty.curvature, floor, shares, hessian):
                if noisy and _shrink(gram, dense, weight[:, k], problem.bias, hessian):
                    _factor(gram, problem.penalty.curvature, floor, shares, hessian)
                break
    return factors


def _shrink(gram: Any, dense: Any, weight: Array, bias: float, hessian: Array) -> bool:
    """Bring the correlations in a sample's Hessian nearer to 0, by what their noise is of them; whether it is done.

    With m rows for d unknowns, eigenvalues are off by factors of up to (1 ± √(d/m))². In units in which the diagonal is
    1, correlations C and rows a_i, whose outer products have the sum C, the share is (Σ‖a_i‖⁴ − ‖C‖²/m)/‖C − 1‖²
    (Ledoit and Wolf 2004); with an intercept those of features less their means. Where a direction is flatter than that
    share, as the pivots of the factor tell, its curvature would be lost: features that are combinations of a few have
    such directions.
    """
    d = dense.shape[1]
    inner, shared = gram[:d, :d], np.zeros((d, 1), gram.dtype)
    if len(gram) > d:  # the intercept has the means of all features in common
        if not gram[d, d] > 0:
            return False
        shared = gram[:d, d:] / gram[d, d] ** 0.5
        inner -= shared * shared.T
    diagonal = np.einsum("jj->j", inner)
    whole = diagonal.astype(np.float64)
    scale = 1 / np.where(whole > 0, whole, np.inf)
    most = FLATTEST * float((np.einsum("jj->j", hessian)[:d] ** 2 * scale)[whole > 0].min(initial=math.inf))
    if not most >= LEAST:
        return False
    some, size = dense[:SAMPLE] - (bias * gram[d, :d] / gram[d, d] if len(gram) > d else 0.0), len(dense)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = weight[:SAMPLE] * (np.square(some, dtype=np.float64) @ scale)
        squares = float(scale @ np.square(inner) @ scale)
        noise = float(norms @ norms) * size / len(some) - squares / size
        share = min(1.0, noise / max(squares - np.count_nonzero(scale), 1e-300))
    if not LEAST <= share <= most:
        return False
    inner *= gram.dtype.type(1 - share)
    diagonal[:] = whole
    inner += shared * shared.T
    return True


def heavy_rows(problem: Problem, x: Array, size: int) -> Problem:
    """At most `size` rows, chosen for their part in the Hessian at x, with weights for which theirs stands for it.

    A row's chance is in proportion to its share w_iφ''_i‖a_i‖² of the trace, a tenth of it to 1, and its weight is
    divided by its chance. So rows of extreme norm, of which a plain sample has too few or too many, enter as they are.
    """
    share = row_curvatures(problem, x).sum(axis=1) * problem.norms
    whole = float(share.sum())
    even = 0.1 if whole > 0 else 1.0
    chance: Array = share * ((1 - even) / (whole or 1.0)) + even / problem.n
    ends = np.cumsum(chance)
    places = np.searchsorted(ends, (np.arange(size) + 0.5) / size * ends[-1], side="right")  # at even distances
    places = np.minimum(places, problem.n - 1)
    first = np.flatnonzero(np.diff(places, prepend=-1))  # in order, so equal ones are neighbours
    index, count = places[first], np.diff(first, append=size)
    part = problem.subset(index)
    weight = part.weight * count / chance[index] / problem.n * (len(index) / size)
    return replace(part, weight=weight)


def row_work(problem: Problem) -> float:
    """The time that a row takes in a Hessian, in multiply-adds of a product of dense matrices."""
    dense = (problem.d + 1.0) ** 2
    return min(dense, SCATTER * (problem.rows.nnz / max(1, problem.n) + 1) ** 2 / 2) if problem.sparse else dense


def pass_work(problem: Problem) -> float:
    """The time that a pass over all rows takes, in the same unit."""
    return FLOPS * (SPARSE_ENTRY * max(1, problem.rows.nnz) if problem.sparse else float(problem.n) * problem.d)


def scatters(problem: Problem) -> bool:
    """Whether a Hessian is summed entry by entry, as rows are so sparse that this is faster than as a dense matrix."""
    return problem.sparse and row_work(problem) < (problem.d + 1.0) ** 2


def _apart(problem: Problem, gram: Any) -> Any:
    """The matrix without what a fixed coefficient has in common with others."""
    if problem.fixed:
        last = problem.d - 1
        gram[last], gram[:, last], gram[last, last] = 0.0, 0.0, 1.0
    return gram


def _scattered_gram(problem: Problem, weight: Array, k: int) -> Array:
    """The lower triangle of Σ weight_ik·a_i a_iᵀ of sparse rows, the intercept's feature included where there is one. A
    factor is made from it alone.
    """
    gram = np.zeros((problem.d + 1, problem.d + 1))
    if not problem.rows.has_sorted_indices:
        problem = replace(problem, rows=problem.rows.sorted_indices())
    kernel.scatter_gram(*problem.parts, weight, k, problem.bias, gram)
    return gram if problem.bias else gram[:-1, :-1]


def _gram(dense: Any, weight: Array, k: int, bias: float, dtype: Any) -> Any:
    """Σ weight_ik·a_i a_iᵀ, the intercept's feature included where there is one."""
    scaled = np.empty((len(dense), dense.shape[1] + (bias != 0)), dtype)
    kernel.scale_rows(dense, weight, k, bias, scaled)
    with np.errstate(over="ignore", invalid="ignore"):
        return scaled.T @ scaled


def _complete(gram: Any, curvature: float, floor: float, relative: float, hessian: Array) -> float:
    """hessian ← gram and the penalty's part, its diagonal enlarged. Without an intercept its place has the entry 1.

    The diagonal gets `floor` of its largest entry and `relative` of each, so that a direction in which neither rows nor
    penalty are curved has some curvature. Returns the trace, which bounds all entries.
    """
    width, d = len(gram), len(hessian) - 1
    hessian[:width, :width] = gram
    if width == d:
        hessian[d], hessian[:, d], hessian[d, d] = 0.0, 0.0, 1.0
    diagonal = np.einsum("jj->j", hessian)
    diagonal[:d] += curvature
    diagonal += floor * max(1e-300, float(diagonal.max()))
    diagonal *= 1.0 + relative
    return float(diagonal.sum())


def _factor(gram: Any, curvature: float, floor: float, shares: tuple[float, ...], hessian: Array) -> bool:
    """hessian ← its lower factor, by Cholesky in place; where rounding has left it indefinite, with a larger diagonal.

    What is above the diagonal means nothing. Returns False where an entry has overflown.
    """
    for relative in shares:
        if not math.isfinite(_complete(gram, curvature, floor, relative, hessian)):
            return False
        # LAPACK's upper is our lower, by columns for rows.
        _, failed = linalg.lapack.dpotrf(hessian.T, lower=0, clean=0, overwrite_a=1)
        if not failed:
            return True
    _complete(gram, curvature, floor, 1.0, hessian)
    hessian[:] = np.diag(np.diagonal(hessian) ** 0.5)
    return True


def column_scales(problem: Problem) -> Array:
    """1/√(the curvature along each coordinate, or a bound on it): used in place of a factor of the Hessian.

    Of one output it is the bound, of K classes what f has at 0, where all of them have the probability 1/K: a bound is
    twice as large for three classes and ten times for twenty, which the penalty's part is not.
    """
    if problem.sparse:
        square = sparse.csr_matrix(
            (problem.rows.data**2, problem.rows.indices, problem.rows.indptr), problem.rows.shape
        )
    else:
        square = np.square(problem.rows, dtype=np.float64)
    bound, K = problem.loss.curvature if problem.loss.bounded else 1.0, problem.outputs
    if K > 1:
        bound = (K - 1) / K**2
    sums = np.asarray(square.T @ problem.weight, np.float64) / problem.n * bound
    sums += problem.penalty.curvature
    scales = np.append(sums, bound * problem.bias**2 or 1.0)
    scales[scales <= 1e-10 * scales.max()] = scales.max()
    return np.asarray(np.broadcast_to(scales**-0.5, problem.shape), np.float64)
