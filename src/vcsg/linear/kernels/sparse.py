"""Sparse rows and one output: passes that find the margins of some rows, and then add the rows up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from numba import types

from vcsg.linear.kernels.emitted import WIDTH, Traced, Variable, chosen, count_up, emitted, spread, when
from vcsg.linear.kernels.lanes import (
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
