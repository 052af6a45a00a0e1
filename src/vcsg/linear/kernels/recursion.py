"""The recursion of L-BFGS in compiled code, with a factored Hessian or a diagonal in its middle.

Loops over numbers stand where NumPy's expressions would be shorter: they compile in a fifth of the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vcsg.linear.kernels.compiled import njit
from vcsg.linear.kernels.hessian import substitute
from vcsg.linear.kernels.lanes import pointer


@njit
def next_direction(
    last: Any, before: Any, x: Any, gradient: Any, steps: Any, changes: Any, products: Any, kept: int, factors: Any,
    diagonal: Any, unit: float, direction: Any, trial: Any,
) -> tuple[float, int]:  # fmt: skip
    """Remember the step from `last` to x, if there was one; direction ← −(inverse Hessian)·∇f by the two loops of
    L-BFGS (Nocedal 1980); trial ← x + direction.

    Args:
        last: the point before x.
        before: ∇f there.
        x: the point.
        gradient: ∇f at x.
        steps: s of the last pairs, in turn.
        changes: y of the last pairs.
        products: sᵀy of the last pairs.
        kept: the number of pairs so far.
        factors: the lower factor of H for every output; empty where H is a diagonal.
        diagonal: the inverse of a diagonal H.
        unit: the number that the diagonal is multiplied by.
        direction: the array that the direction is written to.
        trial: the array that x + direction is written to.

    Returns:
        The slope of f along the direction, and the number of pairs so far.
    """
    memory, size, place = products.size, x.size, kept % products.size
    here, there, g, old, r = pointer(x), pointer(last), pointer(gradient), pointer(before), pointer(direction)
    S, Y, out, scale, shares = pointer(steps), pointer(changes), pointer(trial), pointer(diagonal), np.empty(memory)
    product, square = 0.0, 0.0
    for j in range(size):
        y = g[j] - old[j]
        product += (here[j] - there[j]) * y
        square += y * y
        r[j] = g[j]
    if product > 1e-12 * square:  # a pair that shows curvature
        products[place] = product
        kept += 1
        for j in range(size):
            S[place * size + j] = here[j] - there[j]
            Y[place * size + j] = g[j] - old[j]
    first = max(kept - memory, 0)
    for p in range(kept - 1, first - 1, -1):
        share, q = 0.0, p % memory
        for j in range(size):
            share += S[q * size + j] * r[j]
        share /= products[q]
        shares[q] = share
        for j in range(size):
            r[j] -= share * Y[q * size + j]
    if factors.shape[0]:
        for k in range(factors.shape[0]):
            substitute(factors[k], direction[k])
    else:
        for j in range(size):
            r[j] *= scale[j] * unit
    for p in range(first, kept):
        share, q = 0.0, p % memory
        for j in range(size):
            share += Y[q * size + j] * r[j]
        share = shares[q] - share / products[q]
        for j in range(size):
            r[j] += share * S[q * size + j]
    slope = 0.0
    for j in range(size):
        r[j] = -r[j]
        slope += g[j] * r[j]
        out[j] = here[j] + r[j]
    return slope, kept
