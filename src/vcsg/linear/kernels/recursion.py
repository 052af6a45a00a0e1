"""The recursion of L-BFGS in compiled code, with a factored Hessian or a diagonal in its middle."""

from __future__ import annotations

from typing import Any

from numba import types

from vcsg.linear.kernels.compiled import njit
from vcsg.linear.kernels.emitted import Traced, Variable, emitted
from vcsg.linear.kernels.hessian import solve_factored
from vcsg.linear.kernels.lanes import fma, offset_pointer, pointer, sweep, total, zeros
from vcsg.linear.kernels.penalties import add_line, clear_line
from vcsg.linear.kernels.rows import add_row, dot


@emitted(types.none)
def subtract(a: Traced, b: Traced, size: Traced, out: Traced, at: Traced) -> None:
    """out[at:] ← a − b."""
    sweep(size, lambda read, write: write(out, read(a) - read(b), at))


@emitted(types.none)
def multiply(x: Traced, scale: Traced, unit: Traced, size: Traced) -> None:
    """x ← unit·scale·x."""
    sweep(size, lambda read, write: write(x, unit * read(scale) * read(x)))


@emitted(types.float64)
def go_down(here: Traced, g: Traced, r: Traced, out: Traced, size: Traced) -> Traced:
    """r ← −r; out ← here + r; the product of g and r."""
    slope = Variable(zeros(size))

    def add(read: Any, write: Any) -> None:
        direction = -read(r)
        slope.value = fma(read(g), direction, slope.value)
        write(r, direction)
        write(out, read(here) + direction)

    sweep(size, add)
    found: Traced = total(slope.value)
    return found


@njit
def next_direction(
    last: Any, before: Any, x: Any, gradient: Any, steps: Any, changes: Any, products: Any, kept: int, factors: Any,
    diagonal: Any, unit: float, direction: Any, trial: Any, shares: Any,
) -> tuple[float, int]:  # fmt: skip
    """Remember the step from `last` to x, if there was one; direction ← −(inverse Hessian)·∇f by the two loops of
    L-BFGS (Nocedal 1980); trial ← x + direction.

    Args:
        last: the point before x.
        before: ∇f there.
        x: the point.
        gradient: ∇f at x.
        steps: s of the last pairs, in turn, and a line to spare.
        changes: y of the last pairs, and a line to spare.
        products: sᵀy of the last pairs, and a number to spare.
        kept: the number of pairs so far.
        factors: the lower factor of H for every output; empty where H is a diagonal.
        diagonal: the inverse of a diagonal H.
        unit: the number that the diagonal is multiplied by.
        direction: the array that the direction is written to.
        trial: the array that x + direction is written to.
        shares: room for as many numbers as there are products.

    Returns:
        The slope of f along the direction, and the number of pairs so far.
    """
    slots, size, place = products.size, x.size, kept % products.size
    g, r, S, Y = pointer(gradient), pointer(direction), pointer(steps), pointer(changes)
    subtract(pointer(x), pointer(last), size, S, place * size)
    subtract(g, pointer(before), size, Y, place * size)
    product = total(dot(S, place * size, size, Y, place * size))
    if product > 1e-12 * total(dot(Y, place * size, size, Y, place * size)):  # a pair that shows curvature
        products[place] = product
        kept += 1
    clear_line(r, size)
    add_line(r, g, size)
    first = max(kept - slots + 1, 0)
    for p in range(kept - 1, first - 1, -1):
        q = p % slots
        shares[q] = total(dot(S, q * size, size, r, 0)) / products[q]
        add_row(Y, q * size, size, -shares[q], r, 0)
    if factors.shape[0]:
        width = x.shape[1]
        for k in range(factors.shape[0]):
            solve_factored(offset_pointer(pointer(factors), k * width * width), offset_pointer(r, k * width), width)
    else:
        multiply(r, pointer(diagonal), unit, size)
    for p in range(first, kept):
        q = p % slots
        share = shares[q] - total(dot(Y, q * size, size, r, 0)) / products[q]
        add_row(S, q * size, size, share, r, 0)
    return go_down(pointer(x), g, r, pointer(trial), size), kept
