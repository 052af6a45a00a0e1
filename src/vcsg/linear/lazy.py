"""Inner steps on sparse rows at the cost of their non-zeros: a coordinate catches up when a row needs it.

Between two visits a coordinate of x feels only `pull` and the penalty, x ← rx − ηp with r = 1 − ηl2; m steps of it
are r^m·x − ηp(1 + r + … + r^{m−1}). With a penalty that has no such form the m steps are taken one after the other,
up to the first that changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vcsg.linear.compiled import njit
from vcsg.linear.loops import add_to, differences, penalty_slope, shrunk
from vcsg.linear.rows import sparse_add, sparse_margins


@njit
def advance(
    x: Any, pull: Any, j: int, missed: int, powers: Any, sums: Any, step: float, now: float, l1: float, l2: float,
    rational: float,
) -> None:  # fmt: skip
    """Take the last `missed` steps of coordinate j."""
    for k in range(x.shape[0]):
        if l1 == 0.0 and rational == 0.0:
            x[k, j] = powers[missed] * x[k, j] - step * sums[missed] * pull[k, j]
            continue
        for _ in range(missed):
            before = x[k, j]
            x[k, j] = shrunk(before - step * (now * penalty_slope(l2, rational, before) + pull[k, j]), step * l1)
            if x[k, j] == before:
                break


@njit
def catch_up(
    x: Any, pull: Any, t: int, last: Any, powers: Any, sums: Any, step: float, now: float, l1: float, l2: float,
    rational: float,
) -> None:  # fmt: skip
    """Every coordinate to the point before step t."""
    for j in range(x.shape[1] - 1):
        if last[j] < t:
            advance(x, pull, j, t - last[j], powers, sums, step, now, l1, l2, rational)
            last[j] = t


@njit
def lazy_inner(
    data: Any, indices: Any, indptr: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, kept: Any,
    pull: Any, index: Any, step: float, now: float, then: float, l1: float, l2: float, rational: float, total: Any,
    tail: int, every: int,
) -> int:  # fmt: skip
    """As `loops.inner`, but total += x only after every so many steps from `tail` on; returns how often that was."""
    N, size, d = index.shape[0], index.shape[1], x.shape[1] - 1
    z = np.empty((size, x.shape[0]))
    last = np.zeros(d, np.int64)
    powers, sums = np.ones(N + 1), np.zeros(N + 1)
    for t in range(N):
        powers[t + 1] = powers[t] * (1.0 - step * now * l2)
        sums[t + 1] = sums[t] + powers[t]
    taken = 0
    for t in range(N):
        batch = index[t]
        for i in range(size):
            for p in range(indptr[batch[i]], indptr[batch[i] + 1]):
                j = indices[p]
                if last[j] < t:
                    advance(x, pull, j, t - last[j], powers, sums, step, now, l1, l2, rational)
                    last[j] = t
        sparse_margins(data, indices, indptr, batch, x, bias, z)
        differences(z, batch, y, weight, code, scale, kept, now, then, -step / size)
        for k in range(x.shape[0]):
            x[k, d] -= step * pull[k, d]
        for i in range(size):
            for p in range(indptr[batch[i]], indptr[batch[i] + 1]):
                j = indices[p]
                if last[j] == t:  # its share of this step; the threshold comes when all rows have been added
                    for k in range(x.shape[0]):
                        x[k, j] -= step * (now * penalty_slope(l2, rational, x[k, j]) + pull[k, j])
                    last[j] = -(t + 1)
        sparse_add(data, indices, indptr, batch, z, bias, x)
        for i in range(size):
            for p in range(indptr[batch[i]], indptr[batch[i] + 1]):
                j = indices[p]
                if last[j] < 0:
                    last[j] = t + 1
                    if l1 > 0.0:
                        for k in range(x.shape[0]):
                            x[k, j] = shrunk(x[k, j], step * l1)
        if t >= tail and (t - tail) % every == 0:
            catch_up(x, pull, t + 1, last, powers, sums, step, now, l1, l2, rational)
            add_to(total, x)
            taken += 1
    catch_up(x, pull, N, last, powers, sums, step, now, l1, l2, rational)
    return taken
