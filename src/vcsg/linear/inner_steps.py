"""The inner steps of one epoch: picks the compiled loop that suits the rows, and returns the last or mean point."""

from __future__ import annotations

import numpy as np

from vcsg.linear.kernels.lazy import lazy_inner, scaled_inner
from vcsg.linear.kernels.loops import inner, inner_classes
from vcsg.linear.kernels.order import Index
from vcsg.linear.problem import Array, PassResult, Problem, aligned
from vcsg.method.weights import Weights

SNAPSHOTS, EACH = (8, 32), 1.5
"""The fewest and the most points that enter the mean of a lazy loop, and in between one for so many visits to each
coordinate: for each of them all coordinates have to catch up."""


def lazy(problem: Problem, b: int) -> bool:
    """Whether a mini-batch of b touches so few coordinates that updating the others later is faster."""
    return problem.sparse and 4 * b * problem.rows.nnz < problem.n * problem.d


def snapshots(problem: Problem, visits: int) -> int:
    """The number of points in the mean of a lazy loop that visits so many rows."""
    fewest, most = SNAPSHOTS
    entries = visits * problem.rows.nnz / max(1, problem.n)
    return min(most, max(fewest, int(entries / (EACH * problem.d))))


def constant_steps(
    problem: Problem, x: Array, kept: Array, pull: Array, index: Index, step: float, weights: Weights, average: bool
) -> Array:
    """x after the steps of `index`, or with `average` the mean over their second half; the array x is overwritten."""
    penalty, steps = problem.penalty, len(index)
    total = np.zeros(problem.shape)
    tail = steps // 2 if average else steps
    weight = step, float(weights.now), float(weights.anchor)
    if lazy(problem, index.shape[1]):
        parts, *model = problem.model
        state = *parts, *model, x, kept, pull, index, *weight
        every = max(1, (steps - tail) // snapshots(problem, index.size))
        if problem.outputs == 1 and not penalty.l1 and not penalty.rational and step * weights.now * penalty.l2 < 0.5:
            taken = scaled_inner(*state, penalty.l2, total, tail, every)
        else:
            taken = lazy_inner(*state, *penalty.terms, total, tail, every)
    else:
        steps_taken = inner if problem.outputs == 1 else inner_classes
        spare = aligned(total) if problem.far else np.empty(problem.shape)
        steps_taken(*problem.model, x, kept, pull, index, *weight, *penalty.terms, total, tail, spare)
        taken = steps - tail
    return total / taken if taken else x


def svrg_epoch(problem: Problem, x: Array, anchor: PassResult, index: Index, step: float, average: bool) -> Array:
    """The point that one epoch of SVRG, v = ∇f_I(x) − ∇f_I(y) + ∇f(y), reaches from y = x."""
    start = aligned(x) if problem.far else x.copy()
    return constant_steps(problem, start, anchor.kept, anchor.gradient, index, step, Weights(1, -1, 1), average)
