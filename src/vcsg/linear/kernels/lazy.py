"""Inner steps on sparse rows at the cost of their non-zeros: a coordinate waits until a row needs it.

Between two visits a coordinate of x feels only `pull` and the penalty, x ← rx − ηp with r = 1 − ηl2. So x = αc − βp
with an α and a β that are the same for all coordinates and a c that does not change: nothing has to catch up
(`scaled_inner`, for one output and the L2 penalty or none). With another penalty the steps that a coordinate missed are
taken one after the other when it is needed, up to the first that changes nothing (`lazy_inner`); which for the rational
penalty takes so long that `growing` leaves such problems to L-BFGS.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vcsg.linear.kernels.classes import padded
from vcsg.linear.kernels.compiled import njit
from vcsg.linear.kernels.lanes import keep_alive, pointer
from vcsg.linear.kernels.loops import differences
from vcsg.linear.kernels.penalties import add_line, penalty_slope, shrunk
from vcsg.linear.kernels.rows import NEAR, sparse_add, sparse_margins
from vcsg.linear.kernels.sparse import AHEAD, add_to_cells, fetch_entries, paired_dots

TINY = 1e-6
"""The α at which c is written anew, so that αc − βp does not cancel."""


@njit
def scaled_inner(
    data: Any, indices: Any, indptr: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, kept: Any,
    pull: Any, index: Any, step: float, now: float, then: float, l2: float, total: Any, tail: int, every: int,
) -> int:  # fmt: skip
    """Do the steps of `loops.inner`, adding x to `total` every `every` steps from `tail` on; return how often."""
    size, d = index.shape[1], x.shape[1] - 1
    w, drag = x[0], pull[0]
    z_array, pairs = np.zeros(padded(size)), np.empty((d, 2))  # c and p side by side, for one visit to memory
    for j in range(d):
        pairs[j, 0], pairs[j, 1] = w[j], drag[j]
    values, columns, starts, order = pointer(data), pointer(indices), pointer(indptr), pointer(index)
    z, cells, targets, weights, slopes = pointer(z_array), pointer(pairs), pointer(y), pointer(weight), pointer(kept)
    far = data.nbytes > NEAR
    keep, alpha, beta, taken = 1.0 - step * now * l2, 1.0, 0.0, 0
    for t in range(index.shape[0]):
        first = t * size
        if far and first + AHEAD + size <= index.size:
            for i in range(first + AHEAD, first + AHEAD + size):
                row = order[i]
                fetch_entries(values, columns, starts[row], starts[row + 1])
        for i in range(size):
            row = order[first + i]
            c, p = paired_dots(values, columns, starts[row], starts[row + 1], cells)
            z[i] = alpha * c - beta * p + bias * w[d]
        differences(z, order, first, size, 1, targets, weights, code, scale, slopes, now, then, -step / size)
        w[d] -= step * drag[d]
        alpha, beta = keep * alpha, keep * beta + step
        for i in range(size):
            change, row = z[i] / alpha, order[first + i]
            add_to_cells(values, columns, starts[row], starts[row + 1], change, cells)
            w[d] += bias * z[i]
        if t >= tail and (t - tail) % every == 0:
            for j in range(d):
                total[0, j] += alpha * cells[2 * j] - beta * cells[2 * j + 1]
            total[0, d] += w[d]
            taken += 1
        if alpha < TINY:
            for j in range(d):
                cells[2 * j] = alpha * cells[2 * j] - beta * cells[2 * j + 1]
            alpha, beta = 1.0, 0.0
    for j in range(d):
        w[j] = alpha * pairs[j, 0] - beta * pairs[j, 1]
    keep_alive(z_array)
    return taken


@njit
def advance(
    x: Any, pull: Any, j: int, missed: int, step: float, now: float, l1: float, l2: float, rational: float
) -> None:
    """Take the `missed` steps of coordinate j: by a closed form without L1 and rational, else one after the other."""
    if l1 == 0.0 and rational == 0.0:
        keep = 1.0 - step * now * l2
        power = keep**missed
        sums = (1.0 - power) / (1.0 - keep) if keep != 1.0 else float(missed)
        for k in range(x.shape[0]):
            x[k, j] = power * x[k, j] - step * sums * pull[k, j]
        return
    for k in range(x.shape[0]):
        for _ in range(missed):
            before = x[k, j]
            x[k, j] = shrunk(before - step * (now * penalty_slope(l2, rational, before) + pull[k, j]), step * l1)
            if x[k, j] == before:
                break


@njit
def catch_up(
    x: Any, pull: Any, t: int, last: Any, step: float, now: float, l1: float, l2: float, rational: float
) -> None:
    """Bring every coordinate to its value before step t."""
    for j in range(x.shape[1] - 1):
        if last[j] < t:
            advance(x, pull, j, t - last[j], step, now, l1, l2, rational)
            last[j] = t


@njit
def lazy_inner(
    data: Any, indices: Any, indptr: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, kept: Any,
    pull: Any, index: Any, step: float, now: float, then: float, l1: float, l2: float, rational: float, total: Any,
    tail: int, every: int,
) -> int:  # fmt: skip
    """Do what `scaled_inner` does, for any number of outputs and every penalty."""
    N, size, d, outputs = index.shape[0], index.shape[1], x.shape[1] - 1, x.shape[0]
    z = np.zeros((padded(size), outputs))
    matrix = pointer(data), pointer(indices), pointer(indptr)
    order, point, margins, targets = pointer(index), pointer(x), pointer(z), pointer(y)
    weights, slopes = pointer(weight), pointer(kept)
    last = np.zeros(d, np.int64)
    taken = 0
    for t in range(N):
        batch = index[t]
        for i in range(size):
            for p in range(indptr[batch[i]], indptr[batch[i] + 1]):
                j = indices[p]
                if last[j] < t:
                    advance(x, pull, j, t - last[j], step, now, l1, l2, rational)
                    last[j] = t
        sparse_margins(matrix[0], matrix[1], matrix[2], d, order, t * size, size, point, outputs, bias, margins)
        differences(
            margins, order, t * size, size, outputs, targets, weights, code, scale, slopes, now, then, -step / size
        )  # fmt: skip
        for k in range(x.shape[0]):
            x[k, d] -= step * pull[k, d]
        for i in range(size):
            for p in range(indptr[batch[i]], indptr[batch[i] + 1]):
                j = indices[p]
                if last[j] == t:  # its share of this step; the threshold comes when all rows have been added
                    for k in range(x.shape[0]):
                        x[k, j] -= step * (now * penalty_slope(l2, rational, x[k, j]) + pull[k, j])
                    last[j] = -(t + 1)
        sparse_add(matrix[0], matrix[1], matrix[2], d, order, t * size, size, margins, outputs, bias, point)
        for i in range(size):
            for p in range(indptr[batch[i]], indptr[batch[i] + 1]):
                j = indices[p]
                if last[j] < 0:
                    last[j] = t + 1
                    if l1 > 0.0:
                        for k in range(x.shape[0]):
                            x[k, j] = shrunk(x[k, j], step * l1)
        if t >= tail and (t - tail) % every == 0:
            catch_up(x, pull, t + 1, last, step, now, l1, l2, rational)
            add_line(pointer(total), point, x.size)
            taken += 1
    catch_up(x, pull, N, last, step, now, l1, l2, rational)
    keep_alive(z)
    return taken
