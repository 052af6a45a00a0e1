"""Least squares by conjugate gradients, and when an exact solution takes over."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vcsg.linear import LOSSES, LinearRegressor, Penalty, Problem
from vcsg.linear.problem import Array
from vcsg.linear.solvers import lbfgs, takeover
from vcsg.linear.solvers.conjugate import ParabolicSearch
from vcsg.linear.solvers.quasi_newton import CountedObjective


def least_squares(n: int, d: int, bias: float = 1.0, l2: float = 0.01, mixed: bool = False) -> Problem:
    rng = np.random.default_rng(n + d)
    X = rng.normal(size=(n, d)) + 0.3
    if mixed:
        X = X @ rng.normal(size=(d, d)) / math.sqrt(d)
    y = X @ rng.normal(size=d) / math.sqrt(d) + rng.normal(size=n) + 2
    weight = rng.uniform(0.5, 1.5, size=n)
    return Problem(X, y, weight / weight.mean(), LOSSES["squared"], bias=bias, penalty=Penalty(l2=l2))


def textbook_steps(problem: Problem, tol: float) -> int:
    """The steps of conjugate gradients as Hestenes and Stiefel have them, the intercept eliminated beforehand."""
    share = problem.weight / problem.n
    X, y = np.array(problem.rows), problem.y.copy()
    if problem.bias:
        X, y = X - share @ X, y - share @ y
    H = (X.T * share) @ X + problem.penalty.l2 * np.eye(problem.d)
    r = (X.T * share) @ y
    p, steps = r.copy(), 0
    while np.linalg.norm(r) > tol:
        rr, Hp = r @ r, H @ p
        r = r - rr / (p @ Hp) * Hp
        p = r + (r @ r) / rr * p
        steps += 1
    return steps


def search(problem: Problem, tol: float, most: int = 500) -> ParabolicSearch:
    start = np.zeros(problem.shape)
    known = problem.anchor(start, keep=False)
    f = CountedObjective(problem, tol, most, lambda stage, seen: None, start, known)
    return ParabolicSearch(f, start, known, "identity")


@pytest.mark.parametrize(("n", "d", "bias"), [(60, 300, 1.0), (60, 300, 2.0), (60, 300, 0.0), (300, 40, 0.0)])
def test_it_takes_the_steps_of_conjugate_gradients(n: int, d: int, bias: float) -> None:
    """And one pass more, at the last point; rounding may cost one step."""
    problem = least_squares(n, d, bias)
    start, passes = np.zeros(problem.shape), []
    known = problem.anchor(start, keep=False)
    found, best, message = lbfgs.minimise(
        problem, "identity", start, known, 1e-7, 400, lambda _, seen: passes.append(seen)
    )
    assert message == "‖∇f‖ ≤ tol"
    assert problem.anchor(found).norm == best.norm <= 1e-7
    assert len(passes) <= textbook_steps(problem, 1e-7) + 2


@pytest.mark.parametrize("bias", [0.0, 1.0, 3.0])
@pytest.mark.parametrize(("n", "d"), [(50, 120), (200, 30)])
def test_what_is_known_without_an_evaluation_is_what_an_evaluation_tells(n: int, d: int, bias: float) -> None:
    problem = least_squares(n, d, bias)
    one = search(problem, 0.0)
    for _ in range(12):
        assert not one.step()
        seen = problem.anchor(one.x)
        assert one.here.value == pytest.approx(seen.value, rel=1e-12)
        assert one.here.norm == pytest.approx(seen.norm, rel=1e-6)
        assert one.here.smooth == pytest.approx(seen.smooth, abs=1e-12 * float(np.abs(seen.smooth).max()) + 1e-13)


def test_the_rounding_of_a_long_extrapolation_is_made_good() -> None:
    """A first step of length 1, where the lowest point is thousands away, is followed by an evaluation there."""
    rng = np.random.default_rng(3)
    problem = Problem(1e-5 * rng.normal(size=(40, 9)), rng.normal(size=40), np.ones(40), LOSSES["squared"], bias=0.0)
    one = search(problem, 0.0)
    one.step()
    assert one.f.passes == 2
    assert one.here.norm == problem.anchor(one.x).norm


def test_it_ends_where_rounding_begins() -> None:
    problem = least_squares(80, 20)
    start = np.zeros(problem.shape)
    known = problem.anchor(start)
    _, best, message = lbfgs.minimise(problem, "identity", start, known, 0.0, 400, lambda stage, seen: None)
    assert best.norm <= 1e-14 * known.norm
    assert message != "‖∇f‖ ≤ tol"


def true_norm(model: LinearRegressor, X: Array, y: Array, alpha: float) -> float:
    slopes = X @ np.ravel(model.coef_) + model.intercept_ - y
    return float(np.linalg.norm(np.append(X.T @ slopes / len(y) + alpha * np.ravel(model.coef_), slopes.mean())))


@pytest.mark.parametrize("tol", [1e-5, 1e-10])
def test_a_factor_in_single_precision_is_enough_for_few_steps_more(tol: float) -> None:
    """Conjugate gradients would take 130 and 280 steps."""
    problem = least_squares(900, 120, l2=1e-4, mixed=True)
    assert textbook_steps(problem, tol) > 100
    model = LinearRegressor(alpha=1e-4, tol=tol).fit(problem.rows, problem.y)
    assert true_norm(model, problem.rows, problem.y, 1e-4) <= 1.01 * tol
    assert model.n_iter_ <= 20


def test_where_single_precision_is_not_enough_the_factor_is_made_anew() -> None:
    """With columns of scales that are eight magnitudes apart, single precision holds the largest alone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 60)) @ rng.normal(size=(60, 60)) * 10.0 ** np.linspace(-4, 4, 60)
    y = X @ (rng.normal(size=60) / np.abs(X).max(axis=0)) + rng.normal(size=800)
    model = LinearRegressor(alpha=1e-9, tol=1e-6).fit(X, y)
    assert true_norm(model, X, y, 1e-9) <= 1.01e-6
    assert model.n_iter_ <= 200


def steady(rate: float, passes: int) -> list[float]:
    return [rate**k for k in range(passes + 1)]


def by_a_power(power: float, passes: int) -> list[float]:
    return [1.0, *(k**-power for k in range(1, passes + 1))]


@pytest.mark.parametrize(
    ("least", "tol", "price", "pays"),
    [
        (steady(0.1, 6), 1e-9, 15, False),  # three passes are left
        (steady(0.98, 8), 1e-6, 15, True),  # seven hundred
        (by_a_power(2, 8), 1e-4, 10, True),  # 75, of which a fall by a constant factor would tell 15
        (by_a_power(2, 8), 1e-4, 60, False),  # 92 passes in all, and the price is 60
        ([1.0, *([0.5] * 8)], 1e-6, 15, True),  # it stands still
        ([10.0 ** -min(k, 6) for k in range(9)], 1e-7, 15, False),  # it does, but the whole way says: two are left
        (steady(0.7, 40), 1e-12, 60, False),  # 37
        (steady(0.7, 40), 1e-12, 40, True),  # 37, and the search has taken as long as the sure end
        ([1.0, *([1e-4] * 39), *([0.9e-4] * 41)], 0.8e-4, 100, False),  # 90 by what came last, 1 by the whole way
        ([1.0, *([1e-4] * 39), *([0.9e-4] * 41)], 0.8e-4, 80, True),  # and the whole way counts no more
        ([1.0, 0.5, 0.0], 1e-9, 1, False),  # it is at the end
    ],
)
def test_when_a_sure_end_pays(least: list[float], tol: float, price: float, pays: bool) -> None:
    assert takeover.sure_end_pays(least, tol, price) == pays


def test_a_cheap_end_is_thought_of_sooner() -> None:
    assert [takeover.first_look(price) for price in (1.0, 16.0, 1000.0, math.inf)] == [3, 4, 6, 6]
