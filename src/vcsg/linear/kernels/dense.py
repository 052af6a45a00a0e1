"""Dense rows and one output: passes and inner steps with eight rows at a time in registers."""

from __future__ import annotations

from numba import types

from vcsg.linear.kernels.emitted import BLOCK, WIDTH, Traced, Variable, blocks, count_up, eights, emitted, spread, when
from vcsg.linear.kernels.lanes import (
    first_lanes,
    fma,
    gathered,
    indexed,
    load,
    load_some,
    number,
    room,
    store,
    store_number,
    store_some,
    total,
    zeros,
)
from vcsg.linear.kernels.losses import loss_and_slope, second_derivative
from vcsg.linear.kernels.penalties import add_line, drift, shrink_line
from vcsg.linear.kernels.rows import (
    AHEAD,
    add_block,
    add_eight,
    distance,
    dots,
    dots_together,
    fetch_rows,
)


def successive(first: Traced, apart: Traced, d: Traced) -> list[Traced]:
    """The offsets at which the rows of a turn of `eights` begin."""
    return [first * d + d * apart * i for i in range(WIDTH)]


@emitted(types.float64)
def dense_anchor(
    values: Traced, d: Traced, y: Traced, weight: Traced, code: Traced, scale: Traced, bias: Traced, x: Traced,
    lo: Traced, hi: Traced, kept: Traced, g: Traced, keep: Traced,
) -> Traced:  # fmt: skip
    """Σ w_i φ_i over the rows lo to hi; kept ← w_i φ'_i where they are to be kept, g += Σ w_i φ'_i·a_i.

    Rows are taken by sixteens: all margins, then all losses, then all sums, each for eight rows at once. A loss is a
    long chain of operations, and the processor works at both chains at a time. Meanwhile every line of later rows is
    prefetched, in order and evenly, half of them with the margins and half with the sums, so that memory never waits
    and rows are in a cache when their margins are taken.
    """
    start, zero, slope = spread(bias * number(x, d)), d.constant(0), room(values, BLOCK)
    four, far = d * (WIDTH // 2), distance(values, d)
    losses, slopes = Variable(zeros(d)), Variable(zeros(d))
    for block, groups, count, apart in blocks(lo, hi):
        for group in count_up(0, groups):
            at = successive(block + group * WIDTH, apart, d)
            ahead = block * d + far + group * four
            store(slope, group * WIDTH, start + dots_together(values, at, d, x, zero, ahead))
        for group in count_up(0, groups):
            first = block + group * WIDTH
            w, target = load_some(weight, first, count), load_some(y, first, count)
            value, bend = loss_and_slope(code, scale, load(slope, group * WIDTH), target)
            losses.value = fma(w, value, losses.value)
            slopes.value = fma(w, bend, slopes.value)
            with when(keep):
                store_some(kept, first, count, w * bend)
            store(slope, group * WIDTH, w * bend)
        for group in count_up(0, groups):
            at = successive(block + group * WIDTH, apart, d)
            ahead = block * d + far + (groups + group) * four
            add_block(values, at, d, load(slope, group * WIDTH), g, zero, ahead)
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
