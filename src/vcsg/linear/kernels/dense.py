"""Dense rows and one output: passes and inner steps with eight rows at a time in registers."""

from __future__ import annotations

from numba import types

from vcsg.linear.kernels.emitted import WIDTH, Traced, Variable, count_up, eights, emitted, spread, when
from vcsg.linear.kernels.lanes import (
    first_lanes,
    fma,
    gathered,
    indexed,
    is_double,
    load_some,
    number,
    store_number,
    store_some,
    total,
    zeros,
)
from vcsg.linear.kernels.losses import loss_and_slope, second_derivative
from vcsg.linear.kernels.penalties import add_line, drift, shrink_line
from vcsg.linear.kernels.rows import (
    AHEAD,
    DISTANCE,
    MIDDLE,
    add_block,
    add_eight,
    dots,
    dots_in_order,
    dots_together,
    fetch_rows,
)


def successive(first: Traced, apart: Traced, d: Traced) -> list[Traced]:
    """The offsets at which the rows of a turn of `eights` begin."""
    return [first * d + d * apart * i for i in range(WIDTH)]


@emitted(types.float64)
def dense_anchor(
    values: Traced, d: Traced, y: Traced, weight: Traced, code: Traced, scale: Traced, bias: Traced, x: Traced,
    lo: Traced, hi: Traced, kept: Traced, g: Traced, near: Traced, keep: Traced,
) -> Traced:  # fmt: skip
    """Σ w_i φ_i over the rows lo to hi; kept ← w_i φ'_i where they are to be kept, g += Σ w_i φ'_i·a_i.

    Rows are read and then added up, eight at a time. Memory would wait meanwhile, so the next rows are prefetched where
    these are long. Rows of middle length are taken by fours, which leave more of the cache to the next ones. Short
    rows, and those in single precision, take longer to compute with than to read.
    """
    start, double, zero = spread(bias * number(x, d)), is_double(values), d.constant(0)
    losses, slopes = Variable(zeros(d)), Variable(zeros(d))

    def slope_of(products: Traced, first: Traced, count: Traced) -> Traced:
        w = load_some(weight, first, count)
        value, bend = loss_and_slope(code, scale, start + products, load_some(y, first, count))
        losses.value = fma(w, value, losses.value)
        slope: Traced = w * bend
        with when(keep):
            store_some(kept, first, count, slope)
        slopes.value = slopes.value + slope
        return slope

    rest, long = lo, d.compare(">=", MIDDLE[1])
    if double:
        short = d.compare("<", MIDDLE[0])
        rest = lo + near.choose(zero, short.choose(zero, long.choose(zero, (hi - lo) & -4)))
        for first in count_up(lo, rest, 4):
            at = [(first + i) * d for i in range(4)]
            slope = slope_of(dots_in_order(values, at, d, x, zero), first, d.constant(4))
            add_block(values, at, d, slope, g, zero, at[0] + DISTANCE)
    for first, count, apart in eights(rest, hi):
        at = successive(first, apart, d)
        slope = slope_of(dots(values, at, d, x, zero, near), first, count)
        with when(d.compare("<", MIDDLE[1])):
            add_block(values, at, d, slope, g, zero)
        with when(long):
            add_block(values, at, d, slope, g, zero, at[0] + d * WIDTH if double else None)
    store_number(g, d, number(g, d) + bias * total(slopes.value))
    found: Traced = total(losses.value)
    return found


@emitted(types.none)
def dense_curvatures(
    values: Traced, n: Traced, d: Traced, y: Traced, weight: Traced, code: Traced, scale: Traced, bias: Traced,
    x: Traced, out: Traced, share: Traced,
) -> None:  # fmt: skip
    """out ← share·w_i φ''_i for all n rows."""
    start = spread(bias * number(x, d))
    for first, count, apart in eights(0, n):
        z = start + dots_together(values, successive(first, apart, d), d, x, d.constant(0))
        bend = second_derivative(code, scale, z, load_some(y, first, count))
        store_some(out, first, count, share * load_some(weight, first, count) * bend)


@emitted(types.none)
def dense_product(
    values: Traced, n: Traced, d: Traced, weight: Traced, shift: Traced, ramp: Traced, bias: Traced, v: Traced,
    out: Traced,
) -> None:  # fmt: skip
    """out += Σ w_i(a_iᵀv + shift·ramp_i)·a_i over the first n rows."""
    start, line = spread(bias * number(v, d)), d.constant(0)
    for first, count, apart in eights(0, n):
        at = successive(first, apart, d)
        z = start + dots_together(values, at, d, v, line) + shift * load_some(ramp, first, count)
        share = load_some(weight, first, count) * z
        add_eight(values, at, d, share, out, line)
        store_number(out, d, number(out, d) + bias * total(share))


@emitted(types.none)
def dense_steps(
    values: Traced, d: Traced, y: Traced, weight: Traced, code: Traced, scale: Traced, bias: Traced, x: Traced,
    spare: Traced, kept: Traced, pull: Traced, index: Traced, steps: Traced, size: Traced, step: Traced, now: Traced,
    then: Traced, l1: Traced, l2: Traced, rational: Traced, sums: Traced, tail: Traced, near: Traced, asked: Traced,
) -> None:  # fmt: skip
    """`loops.inner` for dense rows and one output; rows are prefetched up to place `asked` of the index.

    The next point takes the place of the last but one, so that eight rows are done with, at x, before the next eight
    are read.
    """
    point, following, zero = Variable(x), Variable(spare), d.constant(0)
    factor = -step / size.real
    for t in count_up(0, steps):
        here, there, end = point.value, following.value, (t + 1) * size
        drift(here, pull, d, step, now, l2, rational, there)
        for first, count, apart in eights(t * size, end):
            rows = indexed(index, first, apart)
            with when(first.compare("<", asked)):
                fetch_rows(values, [row * d for row in indexed(index, first + AHEAD, apart)], d)
            at = [row * d for row in rows]
            z = spread(bias * number(here, d)) + dots(values, at, d, here, zero, near)
            _, slope = loss_and_slope(code, scale, z, gathered(y, rows))
            slope = factor * now * gathered(weight, rows) * slope
            change = first_lanes(fma(factor * then, gathered(kept, rows), slope), count)
            add_eight(values, at, d, change, there, zero)
            store_number(there, d, number(there, d) + bias * total(change))
        with when(l1.compare(">", 0.0)):
            shrink_line(there, d, step * l1)
        with when(t.compare(">=", tail)):
            add_line(sums, there, d + 1)
        point.value, following.value = there, here
