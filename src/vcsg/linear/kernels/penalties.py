"""The penalty l1·|w| + l2·w²/2 + rational·w²/(1 + w²) of one line of coefficients, and its part of a step.

A line has d weights and the intercept, which is not penalised. All is eight numbers at a time.
"""

from __future__ import annotations

from typing import Any

from numba import types

from vcsg.linear.kernels.compiled import pasted
from vcsg.linear.kernels.emitted import Traced, Variable, emitted, when
from vcsg.linear.kernels.lanes import fma, number, store_number, sweep, total, where_negative, zeros


@pasted
def penalty_slope(l2: float, rational: float, x: float) -> float:
    """The derivative of l2·x²/2 + rational·x²/(1 + x²)."""
    q = 1.0 + x * x
    return l2 * x + rational * 2.0 * x / (q * q)


@pasted
def shrunk(x: float, by: float) -> float:
    """The proximal step of by·|x|."""
    return max(x - by, 0.0) + min(x + by, 0.0)


def shrunk_lanes(x: Traced, by: Traced) -> Traced:
    """`shrunk` for eight numbers."""
    above, below = x - by, x + by
    found: Traced = where_negative(above, 0.0, above) + where_negative(below, below, 0.0)
    return found


@emitted(types.float64)
def add_penalty_line(g: Traced, x: Traced, d: Traced, l1: Traced, l2: Traced, rational: Traced) -> Traced:
    """The penalty of a line x; g += the gradient of its smooth part."""
    sums = Variable(zeros(d))

    def add(read: Any, write: Any) -> None:
        w = read(x)
        square = w * w
        q = 1.0 / (square + 1.0)
        sums.value = sums.value + l1 * where_negative(w, -w, w) + 0.5 * l2 * square + rational * square * q
        write(g, fma(w, l2 + 2.0 * rational * q * q, read(g)))

    sweep(d, add)
    found: Traced = total(sums.value)
    return found


@emitted(types.float64)
def square_violation(slopes: Traced, x: Traced, d: Traced, l1: Traced) -> Traced:
    """The square of the norm of the subgradient of least norm, of a smooth part with these slopes plus l1·|w|."""
    sums, last = Variable(zeros(d)), number(slopes, d)

    def add(read: Any, write: Any) -> None:
        w, slope = read(x), read(slopes)
        still = where_negative(-w, slope + l1, shrunk_lanes(slope, l1))
        slope = where_negative(w, slope - l1, still)
        sums.value = fma(slope, slope, sums.value)

    sweep(d, add)
    found: Traced = total(sums.value) + last * last
    return found


@emitted(types.none)
def take_mean(g: Traced, smooth: Traced, size: Traced, count: Traced) -> None:
    """g ← g/count, and `smooth` the same."""

    def divide(read: Any, write: Any) -> None:
        mean = read(g) / count
        write(g, mean)
        write(smooth, mean)

    sweep(size, divide)


@emitted(types.none)
def drift(
    x: Traced, pull: Traced, d: Traced, step: Traced, now: Traced, l2: Traced, rational: Traced, out: Traced
) -> None:
    """out ← x − η(now·P'(x) + pull), without the L1 part: the part of a step that is the same for all rows."""
    keep, back, bent = 1.0 - step * now * l2, -step, 2.0 * step * now * rational

    def plain(read: Any, write: Any) -> None:
        write(out, fma(read(pull), back, read(x) * keep))

    def curved(read: Any, write: Any) -> None:
        w = read(x)
        q = fma(w, w, 1.0)
        write(out, fma(read(pull), back, w * keep - bent * w / (q * q)))

    with when(rational.compare("==", 0.0)):
        sweep(d, plain)
    with when(rational.compare("!=", 0.0)):
        sweep(d, curved)
    store_number(out, d, number(x, d) - step * number(pull, d))


@emitted(types.none)
def shrink_line(x: Traced, d: Traced, by: Traced) -> None:
    """The proximal step of by·|w|."""
    sweep(d, lambda read, write: write(x, shrunk_lanes(read(x), by)))


@emitted(types.none)
def add_line(sums: Traced, x: Traced, size: Traced) -> None:
    """sums += x."""
    sweep(size, lambda read, write: write(sums, read(sums) + read(x)))


@emitted(types.none)
def clear_line(x: Traced, size: Traced) -> None:
    """x ← 0."""
    sweep(size, lambda read, write: write(x, zeros(size)))


@emitted(types.none)
def divide_line(x: Traced, size: Traced, by: Traced) -> None:
    """x ← x/by."""
    sweep(size, lambda read, write: write(x, read(x) / by))
