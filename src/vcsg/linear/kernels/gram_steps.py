"""Least squares with an L1 penalty from second moments: a whole path of penalty weights as one compiled call.

With the Gram matrix G, b = Σ (w_i/n) y_i a_i and m = Σ (w_i/n) y_i², f(w) = m/2 − bᵀw + wᵀGw/2 + l1·‖w‖₁ + l2·‖w‖²/2,
so that no row is read. Coordinate descent keeps the slopes s = Gw − b: a coefficient that stays costs one comparison,
one that moves a line of G. Where epochs have cost as much as a factor of G for the coefficients in use, f is minimised
over these at once: columns that are nearly alike would take coordinate descent thousands of epochs.
"""

from __future__ import annotations

import math
from typing import Any

from vcsg.linear.kernels.column_steps import POINTS, combination, least_slope
from vcsg.linear.kernels.compiled import njit, pasted
from vcsg.linear.kernels.hessian import factor_lines, solve_factored
from vcsg.linear.kernels.lanes import offset_pointer, pointer
from vcsg.linear.kernels.penalties import shrunk
from vcsg.linear.kernels.rows import add_row

STILL = 2e-15
"""The steps of an epoch, times curvature, that are rounding alone: in units of b and of w times curvature."""
FACTOR = 3.0
"""The operations of a factor are k³/FACTOR for k coefficients, those of an epoch k lines of G."""
DROPS = 8
"""How many coefficients may become 0 before the next epoch."""
REACHED, USED_UP, ROUNDED, PAUSED = 0, 1, 2, 3
"""How the descent ended: ‖∇f‖ ≤ tol, no passes are left, rounding, or for now, as the call has read enough of G."""


@pasted
def set_slopes(gram: Any, b: Any, d: int, w: Any, s: Any) -> float:
    """s ← Gw − b; the sum of the squares of b and of w_j·G_jj, beside which steps may be rounding alone."""
    size = 0.0
    for j in range(d):
        s[j] = -b[j]
        bent = gram[j * d + j] * w[j]
        size += b[j] * b[j] + bent * bent
    for j in range(d):
        if w[j] != 0.0:
            add_row(gram, j * d, d, w[j], s, 0)
    return size


@pasted
def go_on(before: Any, last: Any, ratio: float, d: int, w: Any) -> None:
    """w ← a start for the next weight, `ratio` further on the line through the last two solutions.

    A coefficient that is 0 at one of the two, or would change its sign, stays as it is.
    """
    for j in range(d):
        further = last[j] + ratio * (last[j] - before[j])
        w[j] = last[j] if before[j] == 0.0 or last[j] * further <= 0.0 else further


@pasted
def square_norm(d: int, w: Any, s: Any, l1: float, l2: float, positive: bool) -> float:
    """‖∇f‖², of the subgradient of least norm."""
    found = 0.0
    for j in range(d):
        slope = least_slope(s[j] + l2 * w[j], w[j], l1, positive)
        found += slope * slope
    return found


@pasted
def epoch(gram: Any, d: int, w: Any, s: Any, l1: float, l2: float, positive: bool) -> tuple[float, int]:
    """Minimise f over one coefficient after the other; the sum of (step times curvature)², and the number of steps."""
    moved, count = 0.0, 0
    for j in range(d):
        a = gram[j * d + j]
        if a + l2 > 0.0:
            target = a * w[j] - s[j]
            step = (max(target - l1, 0.0) if positive else shrunk(target, l1)) / (a + l2) - w[j]
            if step != 0.0:
                w[j] += step
                moved += (a + l2) * (a + l2) * step * step
                add_row(gram, j * d, d, step, s, 0)
                count += 1
    return moved, count


@pasted
def minimise_in_use(
    gram: Any, d: int, w: Any, s: Any, l1: float, l2: float, matrix: Any, step: Any, index: Any
) -> bool:
    """Go to the minimum of f over the coefficients that are not 0, or to where the first of them becomes 0 (True).

    While none of them changes its sign f is quadratic, so that f falls all the way. `matrix`, `step` and `index` are
    room for as many numbers as G and w have.
    """
    size, length, first = 0, 1.0, -1
    for j in range(d):
        if w[j] != 0.0:
            index[size] = j
            size += 1
    for a in range(size):
        j = index[a]
        for c in range(a + 1):
            matrix[a * size + c] = gram[j * d + index[c]]
        matrix[a * size + a] += l2
        step[a] = -(s[j] + l2 * w[j] + math.copysign(l1, w[j]))
    if factor_lines(matrix, size):
        solve_factored(matrix, step, size)
        for a in range(size):
            j = index[a]
            if (w[j] + length * step[a]) * w[j] < 0.0:
                length, first = -w[j] / step[a], a
        for a in range(size):
            j = index[a]
            change = -w[j] if a == first else length * step[a]
            w[j] += change
            add_row(gram, j * d, d, change, s, 0)
    return first >= 0


@pasted
def value(b: Any, d: int, w: Any, s: Any, l1: float, l2: float) -> float:
    """f(w) − f(0) = wᵀ(s − b)/2 + l1·‖w‖₁ + l2·‖w‖²/2."""
    found = 0.0
    for j in range(d):
        found += w[j] * (s[j] - b[j] + l2 * w[j]) / 2.0 + l1 * abs(w[j])
    return found


@pasted
def extrapolate(
    points: Any, slopes: Any, coefficients: Any, b: Any, d: int, w: Any, s: Any, l1: float, l2: float, positive: bool
) -> None:
    """Move w and s to the combination of the last epochs' points and slopes, where f is lower there.

    `points` and `slopes` have POINTS + 1 lines of d numbers, the first of which becomes the combination.
    """
    least = 0.0
    for j in range(d):
        point, slope = 0.0, 0.0
        for m in range(POINTS):
            point += coefficients[m] * points[(m + 1) * d + j]
            slope += coefficients[m] * slopes[(m + 1) * d + j]
        points[j], slopes[j] = point, slope
        least = min(least, point)
    if not (positive and least < 0.0) and value(b, d, points, slopes, l1, l2) < value(b, d, w, s, l1, l2):
        for j in range(d):
            w[j], s[j] = points[j], slopes[j]


@pasted
def duality_gap(residual: float, d: int, w: Any, s: Any, l1: float, l2: float, positive: bool) -> float:
    """What f is above its minimum at most, from the dual point tθ, θ_i = (w_i/n)(a_iᵀw − y_i), for which Aᵀθ = s.

    t = 1 where there is an l2, else the largest for which |ts| ≤ l1. With r = Σ (w_i/n)(a_iᵀw − y_i)², the argument
    `residual`, the gap is (1 − t)²r/2 + Σ_j (t·w_j·s_j + l1·|w_j| + l2·w_j²/2 + (|s_j| − l1)₊²/(2·l2)), and no term of
    the sum is below 0 but by rounding.
    """
    largest, t, found = 0.0, 1.0, 0.0
    for j in range(d):
        excess = -s[j] if positive else abs(s[j])
        largest = max(largest, excess)
        if l2 > 0.0 and excess > l1:
            found += (excess - l1) * (excess - l1) / (2.0 * l2)
    if l2 == 0.0 and largest > l1:
        t = l1 / largest
    for j in range(d):
        found += w[j] * (t * s[j] + l2 * w[j] / 2.0) + l1 * abs(w[j])
    return max(found + (1.0 - t) * (1.0 - t) * residual / 2.0, 0.0)


@njit
def descend(
    gram: Any, b: Any, w: Any, s: Any, l1: float, l2: float, positive: bool, tol: float, budget: float, passes: float,
    spent: float, lines: float, recent: Any, recent_slopes: Any, coefficients: Any, matrix: Any, step: Any, index: Any,
) -> Any:  # fmt: skip
    """Move w to where ‖∇f‖ ≤ tol, and s with it; return ‖∇f‖, the new passes, spent and lines, and how it ended.

    A pass is as many lines of G as there are; to look at all coefficients counts as one line. Every few epochs, their
    points are extrapolated (Anderson). What is returned is measured with s = Gw − b computed anew, for steps and
    extrapolations leave their rounding in s. `passes` are those of the calls before, `spent` the lines that epochs have
    read since f was minimised over all coefficients in use, and `lines` those that may be read before a pause, a factor
    being as many as take as long. `descend_path` says what the other arguments are.
    """
    d, kept, kept_slopes = s.size, pointer(recent), pointer(recent_slopes)
    slopes, entries, targets = pointer(s), pointer(gram), pointer(b)
    size, fresh, count = set_slopes(entries, targets, d, w, slopes), True, 0
    passes += 1.0
    while True:
        norm = math.sqrt(square_norm(d, w, slopes, l1, l2, positive))
        if norm <= tol or passes >= budget:
            if fresh:
                return norm, passes, spent, lines, REACHED if norm <= tol else USED_UP
            size, fresh = set_slopes(entries, targets, d, w, slopes), True
            continue
        if lines <= 0.0:
            return norm, passes, spent, lines, PAUSED
        exact = fresh
        moved, used = epoch(entries, d, w, slopes, l1, l2, positive)
        passes, lines, fresh = passes + (used + 1.0) / d, lines - (used + 1.0), False
        spent += used
        if moved <= STILL * STILL * size:
            size, fresh = set_slopes(entries, targets, d, w, slopes), True
            if exact:
                norm = math.sqrt(square_norm(d, w, slopes, l1, l2, positive))
                return norm, passes, spent, lines, ROUNDED
        cost = float(used) ** 3 / (FACTOR * d)
        if spent >= cost:
            for _ in range(DROPS):
                cut = minimise_in_use(entries, d, w, slopes, l1, l2, pointer(matrix), pointer(step), pointer(index))
                passes, lines = passes + used / d, lines - cost
                if not cut or lines <= 0.0:
                    break
            spent, count = 0.0, 0
        for j in range(d):
            kept[count * d + j], kept_slopes[count * d + j] = w[j], slopes[j]
        if count == POINTS:
            if combination(recent, coefficients):
                extrapolate(kept, kept_slopes, pointer(coefficients), targets, d, w, slopes, l1, l2, positive)
            for j in range(d):
                kept[j], kept_slopes[j] = w[j], slopes[j]
            count = 0
        count += 1


@njit
def descend_path(
    gram: Any, b: Any, square: float, alphas: Any, l1: float, l2: float, positive: bool, tol: float, budget: float,
    first: int, lines: float, points: Any, seen: Any, s: Any, recent: Any, recent_slopes: Any, coefficients: Any,
    matrix: Any, step: Any, index: Any,
) -> Any:  # fmt: skip
    """Solve for the weights alphas[first:] of the penalty, each from the solutions before, as far as `lines` allow.

    Args:
        gram: G, d × d; a column that is to have the coefficient 0 has a line and a column of 0.
        b: the products of columns and targets.
        square: m, the mean of y².
        alphas: the weights.
        l1: the share of ‖w‖₁: its weight is alpha·l1.
        l2: the share of ‖w‖²/2.
        positive: whether coefficients stay at 0 or above.
        tol: the bound on ‖∇f‖, in units of the weight of ‖w‖₁ where that is below 1.
        budget: the largest number of passes for each weight, one of them for the start.
        first: the number of the first weight, which a call before may have begun with.
        lines: the lines of G that this call may read.
        points: a line for each weight, whose first d numbers become the solution; those of the first weight are its
            start.
        seen: becomes a line for each weight: f, ‖∇f‖, the duality gap, the passes, how the descent ended, and the lines
            read since f was minimised over all coefficients in use; of 0 for a weight that has not been begun with.
        s: room for slopes.
        recent: room for the points of POINTS + 1 epochs.
        recent_slopes: room for their slopes.
        coefficients: room for POINTS numbers.
        matrix: room for d × d numbers.
        step: room for d numbers.
        index: room for d whole numbers.

    Returns:
        The number of the first weight that is not done.
    """
    d, width, targets, slopes = b.size, points.shape[1], pointer(b), pointer(s)
    for k in range(first, alphas.size):
        w, one, two = offset_pointer(pointer(points), k * width), alphas[k] * l1, alphas[k] * l2
        if k > 0 and seen[k, 3] == 0.0:
            earlier = max(k - 2, 0)
            apart = alphas[k - 1] - alphas[earlier]
            ratio = (alphas[k] - alphas[k - 1]) / apart if apart != 0.0 else 0.0
            places = earlier * width, (k - 1) * width
            go_on(offset_pointer(pointer(points), places[0]), offset_pointer(pointer(points), places[1]), ratio, d, w)
        bound = tol * min(1.0, one) if one > 0.0 else tol
        norm, passes, spent, lines, ended = descend(
            gram, b, w, s, one, two, positive, bound, budget, seen[k, 3], seen[k, 5], lines, recent, recent_slopes,
            coefficients, matrix, step, index,
        )  # fmt: skip
        residual = square
        for j in range(d):
            residual += w[j] * (slopes[j] - targets[j])
        seen[k, 0] = square / 2.0 + value(targets, d, w, slopes, one, two)
        seen[k, 1], seen[k, 2] = norm, duality_gap(max(residual, 0.0), d, w, slopes, one, two, positive)
        seen[k, 3], seen[k, 4], seen[k, 5] = passes, ended, spent
        if ended == PAUSED:
            return k
    return alphas.size
