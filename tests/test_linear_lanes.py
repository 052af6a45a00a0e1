"""Eight numbers at a time: every operation beside numpy's, and the loss to its stated accuracy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from vcsg.linear.kernels import lanes
from vcsg.linear.kernels.compiled import njit
from vcsg.linear.kernels.lanes import (
    across,
    fma,
    lane,
    load,
    load_apart,
    load_some,
    offset_pointer,
    pointer,
    scale_by_power,
    splat,
    store,
    store_some,
    take,
    total,
    where_negative,
)  # fmt: skip
from vcsg.linear.kernels.losses import decay, logistic


@njit
def arithmetic(a: Any, b: Any, out: Any) -> None:
    x, y, o = load(pointer(a), 0), load(pointer(b), 0), pointer(out)
    store(o, 0, x + y)
    store(o, 8, x - y)
    store(o, 16, x * y)
    store(o, 24, x / y)
    store(o, 32, fma(x, y, splat(3.0)))
    store(o, 40, where_negative(x, y, splat(7.0)))
    store(o, 48, across(x, y, x, y, x + x, y, splat(1.0), x))


def test_arithmetic() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 8))
    out = np.empty((7, 8))
    arithmetic(a, b, out)
    sums = [a.sum(), b.sum(), a.sum(), b.sum(), 2 * a.sum(), b.sum(), 8.0, a.sum()]
    expected = np.array([a + b, a - b, a * b, a / b, a * b + 3, np.where(a < 0, b, 7.0), sums])
    np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-13)


@njit
def moves(a: Any, index: Any, count: int, out: Any) -> float:
    p, o = pointer(a), pointer(out)
    store(o, 0, load(offset_pointer(p, 2), 1))
    store(o, 8, load_some(p, 3, count))
    store(o, 16, load_apart(p, 1, 2))
    store(o, 24, take(p, pointer(index), 1, count))
    store_some(o, 32, count, load(p, 0))
    return lane(load(p, 0), 5) + total(load(p, 0))


@pytest.mark.parametrize("count", [1, 3, 8])
def test_moves(count: int) -> None:
    a = np.arange(20.0)
    index = np.array([9, 4, 0, 7, 3, 1, 2, 8, 5], np.uint32)
    out = np.full(40, -1.0)
    assert moves(a, index, count, out) == 5 + 28
    assert out[:8].tolist() == list(range(3, 11))
    assert out[8:16].tolist() == [*range(3, 3 + count), *[0] * (8 - count)]
    assert out[16:24].tolist() == list(range(1, 16, 2))
    taken = a[index[1 : 1 + count]].tolist()
    assert out[24:32].tolist() == taken + taken[-1:] * (8 - count)
    assert out[32:].tolist() == [*range(count), *[-1] * (8 - count)]


@njit
def loads(a: Any, count: int, out: Any) -> None:
    store(pointer(out), 0, load(pointer(a), 3))
    store(pointer(out), 8, load_some(pointer(a), 3, count))


@pytest.mark.parametrize("count", [1, 3, 8])
def test_single_precision_becomes_double(count: int) -> None:
    out = np.empty(16)
    loads(np.arange(20, dtype=np.float32), count, out)
    assert out.tolist() == [*range(3, 11), *range(3, 3 + count), *[0] * (8 - count)]


@njit
def powers(a: Any, k: Any, out: Any) -> None:
    store(pointer(out), 0, scale_by_power(load(pointer(a), 0), load(pointer(k), 0)))


def test_powers_of_two() -> None:
    a, k = np.linspace(1, 2, 8), np.array([-1000, -3, -1, 0, 1, 2, 10, 900])
    out = np.empty(8)
    powers(a, k + 6755399441055744.0, out)
    assert out.tolist() == [x * 2.0**e for x, e in zip(a, k, strict=True)]


@njit
def losses(z: Any, y: Any, out: Any) -> None:
    for i in range(0, z.size, 8):
        t = load(pointer(z), i)
        value, slope = logistic(t, load(pointer(y), i))
        store(pointer(out), i, decay(t))
        store(pointer(out), z.size + i, value)
        store(pointer(out), 2 * z.size + i, slope)


def test_the_logistic_loss_is_as_accurate_as_stated() -> None:
    """Beside the standard library, in which each is one function of 1e-16."""
    z = np.concatenate([np.linspace(-720, 720, 1001), np.linspace(-3, 3, 2000), np.geomspace(1e-300, 1, 999)])
    y = np.where(np.arange(z.size) % 2, 1.0, -1.0)
    out = np.empty((3, z.size))
    losses(z, y, out)
    small = [math.exp(max(-abs(t), -700.0)) for t in z]
    np.testing.assert_allclose(out[0], small, rtol=5e-16)
    t = y * z
    value = [max(0.0, -u) + math.log1p(e) for u, e in zip(t, small, strict=True)]
    np.testing.assert_allclose(out[1], value, rtol=2e-15)
    slope = [-s * (e if u > 0 else 1.0) / (1 + e) for s, u, e in zip(y, t, small, strict=True)]
    np.testing.assert_allclose(out[2], slope, rtol=2e-15)


def test_what_is_not_a_number_stays_so() -> None:
    z, out = np.full(8, np.nan), np.empty((3, 8))
    losses(z, np.ones(8), out)
    assert np.isnan(out).all()


def test_lanes_are_eight() -> None:
    assert lanes.WIDTH == 8
