"""Sparse rows and one output: passes that find the margins of some rows, and then add the rows up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llvmlite import ir
from numba import types

from vcsg.linear.kernels.emitted import DOUBLE, WIDTH, Traced, Variable, chosen, count_up, emitted, spread, when
from vcsg.linear.kernels.lanes import (
    at,
    fma,
    load_some,
    number,
    place_number,
    prefetch,
    room,
    store,
    store_number,
    store_some,
    total,
    zeros,
)
from vcsg.linear.kernels.losses import loss_and_slope

BLOCK = 1024
"""The rows whose margins are found before they are added up. What they are multiplied by and what they are added to
share the first cache, so that the two should not take turns too often."""
DISTANCE = 2048
"""How many entries ahead of these the rows that come from memory are prefetched: single entries are read too slowly for
the processor to be far ahead by itself."""

TWO = ir.VectorType(DOUBLE, 2)
"""Two numbers that lie side by side."""
AHEAD = 16
"""How many rows ahead inner steps prefetch those that come from memory: they jump between places after every few."""


def each_entry(low: Traced, high: Traced, body: Callable[[Traced, int], None]) -> None:
    """Do `body`, which gets the place of an entry, for those from low to high: four in each turn of a loop, numbered
    from 0, and those that are left one by one.
    """
    whole = high - ((high - low) & 3)
    for p in count_up(low, whole, 4):
        for k in range(4):
            body(p + k, k)
    for p in count_up(whole, high):
        body(p, 0)


def sparse_dot(data: Traced, columns: Traced, low: Traced, high: Traced, x: Traced, far: bool) -> Traced:
    """The product of the entries low to high and x, in two sums: one would wait for each addition. `far` for entries
    that come from memory.
    """
    sums = [Variable(number(x, 0).constant(0.0)) for _ in range(2)]

    def add(p: Traced, k: int) -> None:
        s = sums[k % 2]
        if far and k == 0:
            prefetch(data, p + DISTANCE)
            prefetch(columns, p + DISTANCE)
        s.value = s.value + number(data, p) * number(x, place_number(columns, p))

    each_entry(low, high, add)
    return sums[0].value + sums[1].value


def sparse_add(data: Traced, columns: Traced, low: Traced, high: Traced, share: Traced, g: Traced) -> None:
    """g += share·(the entries low to high)."""

    def add(p: Traced, _: int) -> None:
        column = place_number(columns, p)
        store_number(g, column, number(g, column) + share * number(data, p))

    each_entry(low, high, add)


@emitted(types.UniTuple(types.float64, 2))
def paired_dots(data: Traced, columns: Traced, low: Traced, high: Traced, cells: Traced) -> list[Traced]:
    """The products of the entries low to high and the first and the second numbers of cells of two."""
    builder = data.builder
    zero = Traced(builder, ir.Constant(TWO, [0.0, 0.0]))
    sums = [Variable(zero) for _ in range(2)]

    def add(p: Traced, k: int) -> None:
        place = builder.bitcast(at(cells, place_number(columns, p) * 2), TWO.as_pointer())
        value, s = number(data, p).value, sums[k % 2]
        both = zero.value
        for i in range(2):
            both = builder.insert_element(both, value, ir.IntType(32)(i))
        s.value = Traced(builder, builder.fadd(builder.fmul(builder.load(place, align=8), both), s.value.value))

    each_entry(low, high, add)
    found = builder.fadd(*(s.value.value for s in sums))
    return [Traced(builder, builder.extract_element(found, ir.IntType(32)(i))) for i in range(2)]


@emitted(types.none)
def add_to_cells(data: Traced, columns: Traced, low: Traced, high: Traced, share: Traced, cells: Traced) -> None:
    """The first number of each cell += share·(the entries low to high)."""

    def add(p: Traced, _: int) -> None:
        place = place_number(columns, p) * 2
        store_number(cells, place, number(cells, place) + share * number(data, p))

    each_entry(low, high, add)


@emitted(types.none)
def fetch_entries(data: Traced, columns: Traced, low: Traced, high: Traced) -> None:
    """Prefetch the entries low to high."""
    for p in count_up(low, high, 16):
        prefetch(data, p)
        prefetch(data, p + 8)
        prefetch(columns, p)


@emitted(types.float64)
def sparse_anchor(
    data: Traced, columns: Traced, starts: Traced, d: Traced, y: Traced, weight: Traced, code: Traced, scale: Traced,
    bias: Traced, x: Traced, lo: Traced, hi: Traced, kept: Traced, g: Traced, near: Traced,
    keep: Traced,
) -> Traced:  # fmt: skip
    """Σ w_i φ_i over the rows lo to hi; kept ← w_i φ'_i where they are to be kept, g += Σ w_i φ'_i·a_i. `near` for rows
    that are in a cache.
    """
    start, losses, slopes = spread(bias * number(x, d)), Variable(zeros(d)), Variable(zeros(d))
    z = room(d, BLOCK)

    def margins(block: Traced, size: Traced, far: bool) -> tuple[()]:
        for i in count_up(0, size):
            low, high = (place_number(starts, block + i + side) for side in range(2))
            store_number(z, i, sparse_dot(data, columns, low, high, x, far))
        return ()

    for block in count_up(lo, hi, BLOCK):
        size = (hi - block).compare("<", BLOCK).choose(hi - block, BLOCK)
        chosen(near, {1: partial(margins, block, size, False)}, partial(margins, block, size, True))
        for i in count_up(0, size, WIDTH):
            left = size - i
            count, first = left.compare("<", WIDTH).choose(left, WIDTH), block + i
            w = load_some(weight, first, count)
            value, slope = loss_and_slope(code, scale, start + load_some(z, i, count), load_some(y, first, count))
            losses.value, slope = fma(w, value, losses.value), w * slope
            with when(keep):
                store_some(kept, first, count, slope)
            slopes.value = slopes.value + slope
            store(z, i, slope)
        for i in count_up(0, size):
            low, high = (place_number(starts, block + i + side) for side in range(2))
            sparse_add(data, columns, low, high, number(z, i), g)
    store_number(g, d, number(g, d) + bias * total(slopes.value))
    found: Traced = total(losses.value)
    return found
