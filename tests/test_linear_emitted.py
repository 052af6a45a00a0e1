"""Functions that write their own instructions: choices and loops beside plain Python, passes and steps beside numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import types
from scipy import sparse

from vcsg.linear import LOSSES, Penalty, Problem
from vcsg.linear.inner_steps import svrg_epoch
from vcsg.linear.kernels.compiled import njit
from vcsg.linear.kernels.emitted import Traced, Variable, chosen, count_up, emitted, when
from vcsg.linear.kernels.lanes import number, pointer, room, store_number, sweep
from vcsg.linear.kernels.rows import NEAR
from vcsg.linear.problem import aligned


@emitted(types.UniTuple(types.float64, 2))
def odd_sum(a: Traced, size: Traced, code: Traced) -> list[Traced]:
    """The sum of every other number, of those above 0.5 alone; and by the code its double, its half or 7."""
    found = Variable(number(a, 0) * 0.0)
    for i in count_up(1, size, 2):
        with when(number(a, i).compare(">", 0.5)):
            found.value = found.value + number(a, i)
    cases = {1: lambda: (2.0 * found.value,), 4: lambda: (found.value / 2.0,)}
    return [found.value, *chosen(code, cases, lambda: (found.value.constant(7.0),))]


@njit
def odd_sums(a: Any, code: int) -> Any:
    return odd_sum(pointer(a), a.size, code)


def test_choices_loops_and_variables() -> None:
    a = np.random.default_rng(0).random(13)
    expected = sum(value for value in a[1::2] if value > 0.5)
    for code, by in ((1, 2 * expected), (4, expected / 2), (0, 7.0)):
        assert odd_sums(a, code) == pytest.approx((expected, by))


@emitted(types.none)
def combine(a: Traced, size: Traced, share: Traced, out: Traced, at: Traced) -> None:
    sweep(size, lambda read, write: write(out, 1.0 - share * read(a, at) / 2.0, at))


@njit
def combined(a: Any, first: int, size: int, share: float, out: Any) -> None:
    combine(pointer(a), size, share, pointer(out), first)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 24, 29])
def test_a_sweep_takes_every_number_once_and_no_other(size: int, dtype: type[np.floating]) -> None:
    a = np.arange(40, dtype=dtype)
    out = np.full(40, -1, dtype)
    combined(a, 3, size, 3.0, out)
    expected = np.full(40, -1, dtype)
    expected[3 : 3 + size] = 1 - 1.5 * a[3 : 3 + size]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "lo", "hi"), [(1, 0, 1), (7, 0, 7), (8, 0, 8), (30, 3, 22), (100_003, 5, 100_002)])
@pytest.mark.parametrize("d", [1, 8, 19])
def test_passes_of_any_number_of_rows(n: int, lo: int, hi: int, d: int, dtype: type[np.floating]) -> None:
    """f, its gradient and the slopes of rows lo to hi, where eight do not divide their number."""
    rng = np.random.default_rng(n + d)
    rows, y, weight = rng.normal(size=(n, d)).astype(dtype), np.sign(rng.normal(size=n)), rng.random(n)
    problem = Problem(rows, y, weight, LOSSES["logistic"], penalty=Penalty(l1=0.1, l2=0.3, rational=0.2))
    x = rng.normal(size=problem.shape) * (rng.random(problem.shape) < 0.7)
    found = problem.anchor(x, lo, hi)
    table, w = np.column_stack([rows[lo:hi], np.ones(hi - lo)]).astype(np.float64), x[0, :-1]
    z = table @ x[0] * y[lo:hi]
    slopes = -weight[lo:hi] * y[lo:hi] / (1 + np.exp(z))
    value = (weight[lo:hi] * np.logaddexp(0, -z)).mean() + (0.1 * abs(w) + 0.15 * w**2 + 0.2 * w**2 / (1 + w**2)).sum()
    gradient = table.T @ slopes / (hi - lo)
    gradient[:-1] += 0.3 * w + 0.4 * w / (1 + w**2) ** 2
    least = np.append(
        np.where(w == 0, np.sign(gradient[:-1]) * np.maximum(abs(gradient[:-1]) - 0.1, 0), 0), gradient[-1]
    )
    least[:-1] += np.where(w == 0, 0, gradient[:-1] + 0.1 * np.sign(w))
    assert found.value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found.kept[lo:hi, 0], slopes, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.smooth[0], gradient, rtol=1e-11, atol=1e-14)
    assert found.norm == pytest.approx(np.linalg.norm(least), rel=1e-11)


@pytest.mark.parametrize(
    ("n", "d", "kind"),
    [(14_003, 60, "dense"), (14_002, 57, "dense"), (1901, 431, "dense"), (1905, 441, "dense"), (1031, 37, "sparse"),
     (2500, 300, "sparse"), (5, 9, "sparse"), (3003, 301, "long sparse")],
)  # fmt: skip
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_passes_of_rows_from_memory_and_of_sparse_rows(n: int, d: int, kind: str, loss: str) -> None:
    """Dense rows that are taken by fours, or prefetched, sparse rows of 0 to 9 entries, and of some 270 that are
    prefetched, beside the formula.
    """
    rng = np.random.default_rng(n)
    rows, y, weight = rng.normal(size=(n, d)), np.sign(rng.normal(size=n)), rng.random(n)
    if kind == "sparse":
        rows *= rng.random((n, d)) < rng.random((n, 1)) * 9 / d
    elif kind == "long sparse":
        rows *= rng.random((n, d)) < 0.9
    if kind != "sparse":
        assert 8 * np.count_nonzero(rows) > NEAR
    problem = Problem(rows if kind == "dense" else sparse.csr_matrix(rows), y, weight, LOSSES[loss])
    x, lo, hi = rng.normal(size=problem.shape) / d**0.5, 2, n - 1
    found, bare = problem.anchor(x, lo, hi), problem.anchor(x, lo, hi, keep=False)
    table = np.column_stack([rows, np.ones(n)])[lo:hi]
    z, y, weight = table @ x[0], y[lo:hi], weight[lo:hi]
    value = np.logaddexp(0, -y * z) if loss == "logistic" else (z - y) ** 2 / 2
    slopes = weight * (-y / (1 + np.exp(y * z)) if loss == "logistic" else z - y)
    assert found.value == pytest.approx((weight * value).mean(), rel=1e-12)
    np.testing.assert_allclose(found.kept[lo:hi, 0], slopes, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(found.smooth[0], table.T @ slopes / (hi - lo), rtol=1e-10, atol=1e-13)
    assert bare.kept.size == 0
    assert (bare.value, bare.norm) == (found.value, found.norm)


@emitted(types.float64)
def leave_behind(value: Traced, size: Traced) -> Traced:
    """Write a number all over the memory that the next compiled call takes for its room."""
    left = room(value, 1 << 15)
    for i in count_up(0, size):
        store_number(left, i, value)
    last: Traced = number(left, size - 1)
    return last


@njit
def left_behind(value: float, size: int) -> Any:
    return leave_behind(value, size)


@pytest.mark.parametrize("left", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_pass_of_sparse_rows_reads_no_memory_that_it_has_not_written(loss: str, left: float) -> None:
    rows, y = sparse.csr_matrix(np.eye(9, 4)), np.array([1.0, -1.0, 1.0] * 3)
    problem = Problem(rows, y, np.ones(9), LOSSES[loss])
    x = np.arange(5.0)[None]
    dense = Problem(rows.toarray(), y, np.ones(9), LOSSES[loss]).anchor(x)
    problem.anchor(x)
    left_behind(left, 1 << 15)
    found = problem.anchor(x)
    assert (found.value, found.norm) == pytest.approx((dense.value, dense.norm), rel=1e-13)


@pytest.mark.parametrize(("b", "n", "d"), [(1, 40, 13), (5, 40, 13), (8, 40, 13), (11, 40, 13), (8, 30_001, 29)])
def test_steps_of_any_number_of_rows(b: int, n: int, d: int) -> None:
    """x after an odd number of steps with mini-batches that eight does not divide, beside the formula in numpy."""
    rng = np.random.default_rng(b)
    rows, y, weight = rng.normal(size=(n, d)), np.sign(rng.normal(size=n)), rng.random(n)
    problem = Problem(rows, y, weight, LOSSES["logistic"], penalty=Penalty(l1=0.02, l2=0.3, rational=0.2))
    start = rng.normal(size=problem.shape)
    assert problem.far == (n > 40)
    index = rng.integers(0, n, size=(41, b)).astype(np.uint32)
    anchor = problem.anchor(start)
    table, x = np.column_stack([rows, np.ones(n)]), start[0].copy()
    for batch in index:
        slope = -weight[batch] * y[batch] / (1 + np.exp(y[batch] * (table[batch] @ x)))
        v = table[batch].T @ (slope - anchor.kept[batch, 0]) / b + anchor.gradient[0]
        v[:-1] += 0.3 * x[:-1] + 0.4 * x[:-1] / (1 + x[:-1] ** 2) ** 2
        x = x - 0.1 * v
        x[:-1] = np.sign(x[:-1]) * np.maximum(abs(x[:-1]) - 0.1 * 0.02, 0)
    found = svrg_epoch(problem, start, anchor, index, 0.1, average=False)
    np.testing.assert_allclose(found[0], x, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("size", [1, 8, 31])
def test_a_copy_begins_with_a_line_of_the_cache(size: int) -> None:
    x = np.arange(float(size))[None, :]
    copies = [aligned(x) for _ in range(5)]
    for copy in copies:
        assert copy.ctypes.data % 64 == 0
        np.testing.assert_array_equal(copy, x)
