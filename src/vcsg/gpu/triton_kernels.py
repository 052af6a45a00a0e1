"""An inner step on the device in one or two kernels: test, v = a·∇f_I(x) + b·∇f_I(y) + c·m, x ← x − ηv.

The tensors of a model stay where they are: a table has their addresses, so that one launch goes over all of them and
every number is read and written once. Needs Triton, which comes with torch's builds for CUDA.
"""

from __future__ import annotations

import triton
import triton.language as tl

CONSTANT, NORM, LEMMA, ELEMENTWISE = (tl.constexpr(k) for k in range(4))
"""The tests that choose between two triples of weights."""
NOW, ANCHOR, MEAN, POINT, MOVED_POINT, MOVED_MEAN = (tl.constexpr(k) for k in range(6))
"""The rows of the table: ∇f_I(x), ∇f_I(y), m, x, and the y and m that an anchor moves to."""


@triton.jit
def _spot(table, row, tensors, i, at, DTYPE: tl.constexpr, ALIGNED: tl.constexpr):
    """The addresses of the entries `at` of tensor i of a row."""
    base = tl.load(table + row * tensors + i).to(tl.pointer_type(DTYPE))
    if ALIGNED:
        base = tl.multiple_of(base, 16)
    return base + at


@triton.jit
def compare(
    table, sizes, owner, start, sums, blocks, tensors,
    TEST: tl.constexpr, DTYPE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The two numbers that a test compares, as one pair of sums per program.

    ‖∇f_I(x)‖² or ⟨∇f_I(x), ∇f_I(y)⟩, and ‖∇f_I(y)‖².
    """
    first = tl.zeros([BLOCK], DTYPE)
    second = tl.zeros([BLOCK], DTYPE)
    k = tl.program_id(0)
    while k < blocks:
        i = tl.load(owner + k)
        at = tl.load(start + k) + tl.arange(0, BLOCK)
        inside = at < tl.load(sizes + i)
        now = tl.load(_spot(table, NOW, tensors, i, at, DTYPE, ALIGNED), mask=inside, other=0.0)
        anchor = tl.load(_spot(table, ANCHOR, tensors, i, at, DTYPE, ALIGNED), mask=inside, other=0.0)
        first += now * anchor if TEST == LEMMA else now * now
        second += anchor * anchor
        k += tl.num_programs(0)
    tl.store(sums + 2 * tl.program_id(0), tl.sum(first))
    tl.store(sums + 2 * tl.program_id(0) + 1, tl.sum(second))


@triton.jit
def descend(
    table, sizes, owner, start, sums, weights, eta, blocks, tensors, parts,
    TEST: tl.constexpr, HAS_ANCHOR: tl.constexpr, HAS_MEAN: tl.constexpr, MOVES: tl.constexpr,
    DTYPE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """x ← x − ηv, a block per program; where the anchor moves, y ← x before that and m ← v.

    It goes from the last block to the first: what `compare` read last may still be in the cache. And it asks for all
    that it needs before it adds up the sums, which takes about as long as the memory takes to answer.
    """
    k = blocks - 1 - tl.program_id(0)
    i = tl.load(owner + k)
    at = tl.load(start + k) + tl.arange(0, BLOCK)
    inside = at < tl.load(sizes + i)
    here = _spot(table, POINT, tensors, i, at, DTYPE, ALIGNED)
    x = tl.load(here, mask=inside)
    now = tl.load(_spot(table, NOW, tensors, i, at, DTYPE, ALIGNED), mask=inside, other=0.0)
    if HAS_ANCHOR:
        anchor = tl.load(_spot(table, ANCHOR, tensors, i, at, DTYPE, ALIGNED), mask=inside, other=0.0)
    if HAS_MEAN:
        mean = tl.load(_spot(table, MEAN, tensors, i, at, DTYPE, ALIGNED), mask=inside, other=0.0)
    a, b, c = tl.load(weights), tl.load(weights + 1), tl.load(weights + 2)
    a_else, b_else, c_else = tl.load(weights + 3), tl.load(weights + 4), tl.load(weights + 5)
    if TEST == NORM or TEST == LEMMA:  # noqa: SIM109 (Triton has no `in`)
        part = tl.arange(0, PARTS)
        first = tl.sum(tl.load(sums + 2 * part, mask=part < parts, other=0.0).to(tl.float64))
        second = tl.sum(tl.load(sums + 2 * part + 1, mask=part < parts, other=0.0).to(tl.float64))
        holds = first < second if TEST == NORM else second >= 2 * (1 - c.to(tl.float64)) * first
        a, b, c = tl.where(holds, a, a_else), tl.where(holds, b, b_else), tl.where(holds, c, c_else)
    v = a * now
    v_else = a_else * now
    if HAS_ANCHOR:
        v += b * anchor
        v_else += b_else * anchor
    if HAS_MEAN:
        v += c * mean
        v_else += c_else * mean
    if TEST == ELEMENTWISE:
        v = tl.where(now < anchor, v, v_else)
    if MOVES:
        tl.store(_spot(table, MOVED_POINT, tensors, i, at, DTYPE, ALIGNED), x, mask=inside)
        tl.store(_spot(table, MOVED_MEAN, tensors, i, at, DTYPE, ALIGNED), v, mask=inside)
    tl.store(here, x - tl.load(eta + i) * v, mask=inside)


@triton.jit
def remember(
    table, sizes, owner, start, squares, weights, tensors,
    REMEMBERS: tl.constexpr, DTYPE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """m ← m + a(g − m) for a gradient g (row NOW), or v = g where nothing is remembered; Σv² of every block."""
    k = tl.program_id(0)
    i = tl.load(owner + k)
    at = tl.load(start + k) + tl.arange(0, BLOCK)
    inside = at < tl.load(sizes + i)
    v = tl.load(_spot(table, NOW, tensors, i, at, DTYPE, ALIGNED), mask=inside, other=0.0)
    if REMEMBERS:
        held = _spot(table, MEAN, tensors, i, at, DTYPE, ALIGNED)
        mean = tl.load(held, mask=inside, other=0.0)
        v = mean + tl.load(weights) * (v - mean)
        tl.store(held, v, mask=inside)
    tl.store(squares + k, tl.sum(v * v))


@triton.jit
def _corner(places, tensors, i, at):
    """Where the numbers `at` of matrix i lie in its part of a stack, wide or turned."""
    columns, pitch = tl.load(places + i), tl.load(places + tensors + i)
    row, column = at // columns, at % columns
    return tl.where(tl.load(places + 2 * tensors + i) != 0, column * pitch + row, row * pitch + column)


@triton.jit
def stack(
    table, sizes, owner, start, squares, places, tensors,
    LEAST: tl.constexpr, STACKED: tl.constexpr, DTYPE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """Writes every matrix (row NOW), scaled to norm 1, to its part of a stack (row ANCHOR); other tensors are left.

    One whose norm is less than LEAST, and so not known, is divided by that.
    """
    k = tl.program_id(0)
    i = tl.load(owner + k)
    if tl.load(places + tensors + i) > 0:
        first, count = tl.load(places + 3 * tensors + i), tl.load(places + 4 * tensors + i)
        total = tl.zeros([PARTS], DTYPE)
        done = 0
        while done < count:
            part = done + tl.arange(0, PARTS)
            total += tl.load(squares + first + part, mask=part < count, other=0.0)
            done += PARTS
        norm = tl.sqrt(tl.sum(total))
        at = tl.load(start + k).to(tl.int32) + tl.arange(0, BLOCK)
        inside = at < tl.load(sizes + i)
        v = tl.load(_spot(table, NOW, tensors, i, at, DTYPE, ALIGNED), mask=inside, other=0.0)
        target = tl.load(table + ANCHOR * tensors + i).to(tl.pointer_type(STACKED))
        scaled = v / tl.maximum(norm, LEAST)
        tl.store(target + _corner(places, tensors, i, at), scaled.to(STACKED), mask=inside)


@triton.jit
def finish(
    table, sizes, owner, start, eta, decay, numbers, places, factors, tensors,
    RULED: tl.constexpr, AVERAGE: tl.constexpr, STACKED: tl.constexpr,
    DTYPE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x ← (1 − η·decay)·x − ηP(v); an average (row MOVED_POINT) takes x in with its weight.

    P(v) is v (row NOW) itself, or by the step rule: for a matrix what its part of a stack holds (row ANCHOR) times its
    factor; for other tensors v̂/(√ŝ + eps) times theirs, where s (row MOVED_MEAN) takes in the square of the gradient
    that was added (row MEAN). `numbers` has both corrections of a start at 0 and the weight of the average; `factors`
    begins with β₂ and eps.
    """
    k = tl.program_id(0)
    i = tl.load(owner + k)
    at = tl.load(start + k).to(tl.int32) + tl.arange(0, BLOCK)
    inside = at < tl.load(sizes + i)
    here = _spot(table, POINT, tensors, i, at, DTYPE, ALIGNED)
    x = tl.load(here, mask=inside, other=0.0)
    if RULED:
        if tl.load(places + tensors + i) > 0:
            factor = tl.load(table + ANCHOR * tensors + i).to(tl.pointer_type(STACKED))
            direction = tl.load(factor + _corner(places, tensors, i, at), mask=inside, other=0.0).to(DTYPE)
        else:
            beta, eps = tl.load(factors), tl.load(factors + 1)
            added = tl.load(_spot(table, MEAN, tensors, i, at, DTYPE, ALIGNED), mask=inside, other=0.0)
            held = _spot(table, MOVED_MEAN, tensors, i, at, DTYPE, ALIGNED)
            second = beta * tl.load(held, mask=inside, other=0.0) + (1 - beta) * added * added
            tl.store(held, second, mask=inside)
            v = tl.load(_spot(table, NOW, tensors, i, at, DTYPE, ALIGNED), mask=inside, other=0.0)
            direction = v * tl.load(numbers) / (tl.sqrt(second * tl.load(numbers + 1)) + eps)
        direction = direction * tl.load(factors + 2 + i)
    else:
        direction = tl.load(_spot(table, NOW, tensors, i, at, DTYPE, ALIGNED), mask=inside, other=0.0)
    step = tl.load(eta + i)
    x = x * (1 - step * tl.load(decay + i)) - step * direction
    tl.store(here, x, mask=inside)
    if AVERAGE:
        kept = _spot(table, MOVED_POINT, tensors, i, at, DTYPE, ALIGNED)
        mean = tl.load(kept, mask=inside, other=0.0)
        tl.store(kept, mean + tl.load(numbers + 2) * (x - mean), mask=inside)


@triton.jit
def absorb(
    table, sizes, owner, start, sums, share, blocks, tensors,
    DTYPE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Takes the gradient of a chunk (row NOW) into the mean of an anchor: d = g − m, m ← m + share·d, and Σd²."""
    total = tl.zeros([BLOCK], DTYPE)
    part = tl.load(share)
    k = tl.program_id(0)
    while k < blocks:
        i = tl.load(owner + k)
        at = tl.load(start + k) + tl.arange(0, BLOCK)
        inside = at < tl.load(sizes + i)
        held = _spot(table, MEAN, tensors, i, at, DTYPE, ALIGNED)
        mean = tl.load(held, mask=inside, other=0.0)
        gradient = tl.load(_spot(table, NOW, tensors, i, at, DTYPE, ALIGNED), mask=inside, other=0.0)
        deviation = gradient - mean
        total += deviation * deviation
        tl.store(held, mean + part * deviation, mask=inside)
        k += tl.num_programs(0)
    tl.store(sums + tl.program_id(0), tl.sum(total))
