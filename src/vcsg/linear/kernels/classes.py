"""Passes with several classes: the margins, losses and sums of a block of rows.

Margins and slopes have a line of `BLOCK` numbers for every class, so that eight rows are one vector. For sparse rows
the coefficients of a column lie side by side, those of all classes: an entry is then read once for eight of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from vcsg.linear.kernels.compiled import pasted
from vcsg.linear.kernels.emitted import VECTOR, WHOLE, WIDTH, Traced, Variable, count_up, emitted, spread
from vcsg.linear.kernels.lanes import (
    call,
    fma,
    gathered,
    keep_alive,
    lane,
    load,
    load_apart,
    load_some,
    number,
    offset_pointer,
    place_number,
    pointer,
    store,
    store_number,
    total,
    zeros,
)
from vcsg.linear.kernels.losses import decay
from vcsg.linear.kernels.rows import add_eight, add_row, dot, dots, neighbours
from vcsg.linear.kernels.sparse import each_entry, sparse_add, sparse_dot

BLOCK = 256
"""The rows evaluated together: few enough to stay in the cache."""
TURNED = 8
"""The fewest entries for each column for which that pays: all columns of x are copied, and all sums of the gradient."""


@emitted(types.none)
def dense_class_margins(
    values: Traced, d: Traced, start: Traced, size: Traced, x: Traced, outputs: Traced, bias: Traced, z: Traced,
    near: Traced,
) -> None:  # fmt: skip
    """z ← the margins of the rows from `start` on."""
    whole = size - (size & (WIDTH - 1))
    for i in count_up(0, whole, WIDTH):
        at = neighbours(start + i, d)
        for k in count_up(0, outputs):
            line = k * (d + 1)
            store(z, k * BLOCK + i, spread(bias * number(x, line + d)) + dots(values, at, d, x, line, near))
    for i in count_up(whole, size):
        for k in count_up(0, outputs):
            line = k * (d + 1)
            found = bias * number(x, line + d) + total(dot(values, (start + i) * d, d, x, line))
            store_number(z, k * BLOCK + i, found)


@emitted(types.none)
def add_dense_classes(
    values: Traced, d: Traced, start: Traced, size: Traced, s: Traced, outputs: Traced, bias: Traced, g: Traced
) -> None:
    """g += Σ s_i·(row i, bias) for the rows from `start` on."""
    whole = size - (size & (WIDTH - 1))
    for i in count_up(0, whole, WIDTH):
        at = neighbours(start + i, d)
        for k in count_up(0, outputs):
            shares, line = load(s, k * BLOCK + i), k * (d + 1)
            add_eight(values, at, d, shares, g, line)
            store_number(g, line + d, number(g, line + d) + bias * total(shares))
    for i in count_up(whole, size):
        for k in count_up(0, outputs):
            share, line = number(s, k * BLOCK + i), k * (d + 1)
            add_row(values, (start + i) * d, d, share, g, line)
            store_number(g, line + d, number(g, line + d) + bias * share)


@emitted(types.none)
def turn(x: Traced, outputs: Traced, width: Traced, bias: Traced, wide: Traced, out: Traced) -> None:
    """out ← the columns of x, each with room for `wide` classes; the last one, of intercepts, times the bias."""
    for j in count_up(0, width):
        for k in count_up(0, outputs):
            store_number(out, j * wide + k, number(x, k * width + j))
    last = (width - 1) * wide
    for k in count_up(0, outputs):
        store_number(out, last + k, bias * number(out, last + k))


@emitted(types.none)
def add_turned(columns: Traced, outputs: Traced, width: Traced, bias: Traced, wide: Traced, g: Traced) -> None:
    """g += these columns, of which the last one, of intercepts, counts times the bias."""
    last = width - 1
    for j in count_up(0, last):
        for k in count_up(0, outputs):
            store_number(g, k * width + j, number(g, k * width + j) + number(columns, j * wide + k))
    for k in count_up(0, outputs):
        store_number(g, k * width + last, number(g, k * width + last) + bias * number(columns, last * wide + k))


@emitted(types.none)
def single_class_margins(
    data: Traced, indices: Traced, starts: Traced, d: Traced, start: Traced, size: Traced, x: Traced, outputs: Traced,
    bias: Traced, z: Traced,
) -> None:  # fmt: skip
    """z ← the margins of the rows from `start` on, one class after the other."""
    for k in count_up(0, outputs):
        line = offset_pointer(x, k * (d + 1))
        for i in count_up(0, size):
            low, high = (place_number(starts, start + i + side) for side in range(2))
            found = bias * number(line, d) + sparse_dot(data, indices, low, high, line, far=False)
            store_number(z, k * BLOCK + i, found)


@emitted(types.none)
def add_single_classes(
    data: Traced, indices: Traced, starts: Traced, d: Traced, start: Traced, size: Traced, s: Traced, outputs: Traced,
    bias: Traced, g: Traced,
) -> None:  # fmt: skip
    """g += Σ s_i·(row i, bias) for the rows from `start` on, one class after the other."""
    for k in count_up(0, outputs):
        line = offset_pointer(g, k * (d + 1))
        for i in count_up(0, size):
            low, high = (place_number(starts, start + i + side) for side in range(2))
            share = number(s, k * BLOCK + i)
            sparse_add(data, indices, low, high, share, line)
            store_number(line, d, number(line, d) + bias * share)


@emitted(types.none)
def sparse_class_margins(
    data: Traced, indices: Traced, starts: Traced, d: Traced, start: Traced, size: Traced, x: Traced, wide: Traced,
    z: Traced,
) -> None:  # fmt: skip
    """z ← the margins of the rows from `start` on; x as `turn` has it."""
    for i in count_up(0, size):
        low, high = (place_number(starts, start + i + side) for side in range(2))
        for k in count_up(0, wide, WIDTH):
            sums = [Variable(load(x, d * wide + k)), Variable(zeros(x))]

            def add(p: Traced, turn: int, k: Traced = k, sums: Any = sums) -> None:
                column, s = place_number(indices, p) * wide + k, sums[turn % 2]
                s.value = fma(load(x, column), spread(number(data, p)), s.value)

            each_entry(low, high, add)
            found = sums[0].value + sums[1].value
            for j in range(WIDTH):
                store_number(z, (k + j) * BLOCK + i, lane(found, j))


@emitted(types.none)
def add_sparse_classes(
    data: Traced, indices: Traced, starts: Traced, d: Traced, start: Traced, size: Traced, s: Traced, wide: Traced,
    g: Traced,
) -> None:  # fmt: skip
    """g += Σ s_i·(row i, 1) for the rows from `start` on; g has the columns of `turn`."""
    apart = size.constant(BLOCK)
    for i in count_up(0, size):
        low, high = (place_number(starts, start + i + side) for side in range(2))
        for k in count_up(0, wide, WIDTH):
            shares, last = load_apart(s, k * BLOCK + i, apart), d * wide + k

            def add(p: Traced, _: int, k: Traced = k, shares: Traced = shares) -> None:
                column = place_number(indices, p) * wide + k
                store(g, column, fma(spread(number(data, p)), shares, load(g, column)))

            each_entry(low, high, add)
            store(g, last, load(g, last) + shares)


@emitted(types.float64)
def class_losses(z: Traced, size: Traced, outputs: Traced, y: Traced, weight: Traced, start: Traced) -> Traced:
    """Σ w_i φ_i of the multinomial loss, and z ← w_i φ'_i, for the margins z of the rows from `start` on."""
    losses, builder = Variable(zeros(z)), z.builder
    for i in count_up(0, size, WIDTH):
        left = size - i
        count = left.compare("<", WIDTH).choose(left, WIDTH)
        w, classes = load_some(weight, start + i, count), load_some(y, start + i, count)
        numbers = [Traced(builder, builder.fptosi(lane(classes, j).value, WHOLE)) for j in range(WIDTH)]
        own = [numbers[j] * BLOCK + i + j for j in range(WIDTH)]
        margin, top, sums = gathered(z, own), Variable(load(z, i)), Variable(zeros(z))
        for k in count_up(1, outputs):
            other = load(z, k * BLOCK + i)
            top.value = other.compare(">", top.value).choose(other, top.value)
        most = top.value
        for k in count_up(0, outputs):
            t = load(z, k * BLOCK + i) - most
            e = decay(t)
            store(z, k * BLOCK + i, e)
            sums.value = sums.value + (e + (t - t))  # `decay` does not tell that a number is not finite
        scale = w / sums.value
        for k in count_up(0, outputs):
            store(z, k * BLOCK + i, load(z, k * BLOCK + i) * scale)
        for j in range(WIDTH):
            store_number(z, own[j], number(z, own[j]) - lane(w, j))
        logarithm = Traced(builder, call(builder, f"llvm.log.v{WIDTH}f64", VECTOR, [sums.value.value]))
        losses.value = fma(w, most + logarithm - margin, losses.value)
    found: Traced = total(losses.value)
    return found


@emitted(types.none)
def keep_slopes(z: Traced, size: Traced, outputs: Traced, start: Traced, kept: Traced) -> None:
    """kept ← the slopes of a block, a line for every row."""
    for k in count_up(0, outputs):
        for i in count_up(0, size):
            store_number(kept, (start + i) * outputs + k, number(z, k * BLOCK + i))


@pasted
def padded(size: int) -> int:
    """The size rounded up to a multiple of eight: margins are written eight at a time."""
    return (size + 7) // 8 * 8


@pasted
def dense_classes(
    values: Any, d: int, y: Any, weight: Any, bias: float, x: Any, outputs: int, lo: int, hi: int, kept: Any,
    keep: bool, g: Any, near: bool,
) -> float:  # fmt: skip
    """`dense_anchor` for the multinomial loss."""
    z_array, loss = np.zeros((padded(outputs), BLOCK)), 0.0
    z = pointer(z_array)
    for start in range(lo, hi, BLOCK):
        size = min(BLOCK, hi - start)
        dense_class_margins(values, d, start, size, x, outputs, bias, z, near)
        loss += class_losses(z, size, outputs, y, weight, start)
        if keep:
            keep_slopes(z, size, outputs, start, kept)
        add_dense_classes(values, d, start, size, z, outputs, bias, g)
    keep_alive(z_array)
    return loss


@pasted
def sparse_classes(
    data: Any, indices: Any, starts: Any, d: int, y: Any, weight: Any, bias: float, x: Any, outputs: int, lo: int,
    hi: int, kept: Any, keep: bool, g: Any,
) -> float:  # fmt: skip
    """`sparse_anchor` for the multinomial loss."""
    wide, turned = padded(outputs), starts[hi] - starts[lo] >= TURNED * d
    columns = d + 1 if turned else 0
    z_array, point_array, sums_array = np.zeros((wide, BLOCK)), np.zeros((columns, wide)), np.zeros((columns, wide))
    z, point, sums, loss = pointer(z_array), pointer(point_array), pointer(sums_array), 0.0
    if turned:
        turn(x, outputs, d + 1, bias, wide, point)
    for start in range(lo, hi, BLOCK):
        size = min(BLOCK, hi - start)
        if turned:
            sparse_class_margins(data, indices, starts, d, start, size, point, wide, z)
        else:
            single_class_margins(data, indices, starts, d, start, size, x, outputs, bias, z)
        loss += class_losses(z, size, outputs, y, weight, start)
        if keep:
            keep_slopes(z, size, outputs, start, kept)
        if turned:
            add_sparse_classes(data, indices, starts, d, start, size, z, wide, sums)
        else:
            add_single_classes(data, indices, starts, d, start, size, z, outputs, bias, g)
    if turned:
        add_turned(sums, outputs, d + 1, bias, wide, g)
    keep_alive(z_array)
    keep_alive(point_array)
    keep_alive(sums_array)
    return loss
