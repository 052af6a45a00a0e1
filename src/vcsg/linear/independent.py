"""The Hessian of dense rows whose features hardly depend on each other: whether they do, and a model of it.

For normal features that are independent of each other, the integral of φ''(aᵀx + c)·aaᵀ is a diagonal D and a multiple
of (Dx)(Dx)ᵀ (Stein 1981): a feature depends on another through the margin alone. So a diagonal and the curvature along
x, from some rows, are the Hessian of all n rows up to what is left of their correlations, about √(d/n); a Hessian that
is made from m rows is off by √(d/m).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from vcsg.linear.curvature import row_curvatures
from vcsg.linear.problem import Array, Problem

PEEK, SPREAD, PAIR = 128, 1.06, 0.5
"""The number of rows that are looked at for correlations of features; the largest mean square of their eigenvalues, and
the largest correlation of two features, that count as none."""
CURVED = 0.4
"""The least mean curvature of the losses of rows, in units of its bound, that counts as curved."""
SCALES, TOGETHER = 6.0, 2.0
"""The largest mean square of a feature in units of the least, as few rows tell, that counts as of one scale; and of the
sum of all features, in units of what it is for independent ones."""
BLOCK = 256
"""The rows whose squares are taken at a time."""
LEAST = 0.01
"""The least curvature along x, in units of the diagonal's, that counts as one."""


def curved(problem: Problem, x: Array) -> bool:
    """Whether the loss is curved in many of the first rows: where it is not, as in separable data, few rows make the
    Hessian, and it changes on the way, so that no model of it holds.
    """
    some = problem.first_rows(min(PEEK, problem.n))
    return float(row_curvatures(some, x).sum()) >= CURVED * problem.loss.curvature


def uncorrelated(problem: Problem) -> bool:
    """Whether features of dense rows hardly depend on each other, as far as the first rows tell.

    Correlations are about 0, and the intercept's feature is one of them. For two rows drawn independently, in units in
    which the squares of each feature have the mean 1, E(aᵀa')² is the sum of the squares of the correlations'
    eigenvalues, whatever the number of rows; their largest eigenvalue would say less, for with d features and m rows it
    reaches (1 + √(d/m))² without any correlation. Few pairs of features hardly change that sum, so they are looked for.
    """
    return _uncorrelated(problem.rows[: min(PEEK, problem.n)], problem.bias, math.inf)


def alike(problem: Problem) -> bool:
    """Whether features hardly depend on each other and are of one scale, as rows from all over the data tell."""
    step = max(1, problem.n // PEEK)
    some = problem.rows[: step * PEEK : step]
    sums = some.sum(axis=1, dtype=np.float64)  # features that go together, as of a mean far from 0, show in them
    squares = float(np.vdot(some, some))
    return bool(sums @ sums <= TOGETHER * squares) and _uncorrelated(some, problem.bias, SCALES)


def _uncorrelated(some: Any, bias: float, scales: float) -> bool:
    """Whether features have next to no correlations in these rows, and mean squares up to this factor apart."""
    size, d = some.shape
    rows = np.empty((size, d + (bias != 0)), np.float32)
    rows[:, :d] = some
    rows[:, d:] = bias
    squares = np.einsum("ij,ij->j", rows, rows) / size
    if scales < math.inf and squares[:d].max() > scales * squares[:d].min():
        return False
    rows /= np.sqrt(np.where(squares > 0, squares, 1.0))
    products = rows @ rows.T
    own, pairs = np.einsum("ii->i", products), size * (size - 1) * max(1, int((squares > 0).sum()))
    if not float(np.vdot(products, products) - own @ own) <= SPREAD * pairs:
        return False
    correlations = rows.T @ rows
    np.einsum("jj->j", correlations)[:] = 0.0
    return bool(max(correlations.max(), -correlations.min()) <= PAIR * size)


class Curvature(NamedTuple):
    """A model of the Hessian: a diagonal, updated as BFGS does for pairs (s, Bs) that are conjugate."""

    diagonal: Array
    """D, for the features and the intercept."""
    pairs: list[tuple[Array, Array]]
    """s and Bs; sᵀBs' = 0 for any two of the s."""


@dataclass(frozen=True)
class IndependentFeatures:
    """What a model of the Hessian is made from, at any point: some rows of a problem with one output."""

    sample: Problem
    start: Array
    """The point at which the curvatures of rows tell how the squares of features count."""

    @cached_property
    def squares(self) -> Array:
        """The mean square of each feature, rows in proportion to their curvature at the start."""
        rows, found = self.sample.rows, np.zeros(self.sample.d)
        weight = row_curvatures(self.sample, self.start)[:, 0]
        room = np.empty((min(BLOCK, self.sample.n), self.sample.d))  # new memory for all of them takes longer
        for first in range(0, self.sample.n, BLOCK):
            part = rows[first : first + BLOCK]
            found += weight[first : first + BLOCK] @ np.square(part, out=room[: len(part)], dtype=np.float64)
        found /= float(weight.sum()) or 1.0
        return found

    def at(self, x: Array) -> Curvature:
        """The model of the Hessian at x.

        Along x and along the intercept it is curved as the sample is. With C the sample's Hessian on these two
        directions, the columns of V, and G = VᵀDV, it is D + DV·M·VᵀD, whose M follows from VᵀBV = C.
        """
        sample, penalty = self.sample, self.sample.penalty.curvature
        weight, w = row_curvatures(sample, x)[:, 0], x[0, :-1]
        mean, diagonal = float(weight.sum()), np.empty(sample.d + 1)
        alone = mean * sample.bias**2
        np.multiply(self.squares, mean, out=diagonal[:-1])
        diagonal[:-1] += penalty
        diagonal[-1] = alone or 1.0
        diagonal += 1e-10 * float(diagonal.max())
        margins, shares = sample.rows @ w, diagonal.copy()
        shares[:-1] *= w
        shares[-1] = 0.0
        even = float(w @ shares[:-1])
        along = float(weight @ margins**2) + penalty * float(w @ w)
        if not even > 0:
            return Curvature(diagonal, [])
        point, pairs = x[0].copy(), []
        point[-1] = 0.0
        if alone > 0:
            shared = sample.bias * float(weight @ margins)
            intercept, change = np.zeros(sample.d + 1), shares * (shared / even)
            intercept[-1], change[-1] = 1.0, diagonal[-1]
            pairs.append((intercept, change))
            along -= shared**2 / alone
            point[-1] = -shared / alone
        if along > LEAST * even:
            pairs.append((point, shares * (along / even)))
        return Curvature(diagonal, pairs)
