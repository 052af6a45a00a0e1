"""The L1 penalty: quadratic models over columns and their minima, working sets, and second moments."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from linear_data import make_problem
from scipy import optimize, sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso

from vcsg.linear import (
    LOSSES,
    LinearClassifier,
    LinearRegressor,
    LinearRegressorCV,
    Penalty,
    Problem,
    linear_path,
    solve,
)
from vcsg.linear.duality import duality_gap
from vcsg.linear.kernels import column_steps
from vcsg.linear.path import ProgressBar, ahead, solve_path
from vcsg.linear.solution import Journal, Solution
from vcsg.linear.solvers import lbfgs, moments, working_set

# --- the quadratic model


def columns_of(dense: np.ndarray, form: str) -> tuple[np.ndarray, ...]:
    thin = sparse.csc_matrix(dense)
    return (np.ascontiguousarray(dense.T),) if form == "dense" else (thin.data, thin.indices, thin.indptr)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("most", [0.5, np.inf])
@pytest.mark.parametrize(("positive", "l2", "bias"), [(False, 0.0, 1.0), (False, 0.1, 0.0), (True, 0.0, 1.0)])
def test_a_model_is_minimised(form: str, even: bool, most: float, positive: bool, l2: float, bias: float) -> None:
    """Coordinate descent with extrapolation finds what scipy finds with split variables, on six of seven columns."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(40, 7)) * (rng.random((40, 7)) < 0.6)
    dense[:, 6] = dense[:, 5] + 0.02 * dense[:, 4]  # nearly alike: many epochs
    places, h, slopes, l1 = np.arange(1, 7), rng.random(40) / 40, rng.normal(size=40) / 40, 0.01
    h = np.full(40, 0.02) if even else h
    part = np.column_stack([dense[:, places], np.full(40, bias)])

    def model(u: np.ndarray) -> tuple[float, np.ndarray]:
        w = u[:7] - u[7:]
        cost = np.append(np.full(6, l1), 0.0)
        change = part @ w
        value = slopes @ change + change @ (h * change) / 2 + cost @ (u[:7] + u[7:]) + l2 / 2 * (w[:6] @ w[:6])
        slope = part.T @ (slopes + h * change) + l2 * np.append(w[:6], 0.0)
        return float(value), np.concatenate([slope + cost, cost - slope])

    negative = [(0, 0 if positive else None)] * 6 + [(0, None)]
    best = optimize.minimize(
        model, np.zeros(14), jac=True, method="L-BFGS-B", bounds=[(0, None)] * 7 + negative,
        options={"ftol": 0, "gtol": 1e-12, "maxiter": 10**5, "maxfun": 10**6},
    )  # fmt: skip
    w, v = np.zeros(7), slopes.copy()
    columns = columns_of(dense, form)
    for _ in range(5):
        column_steps.model_minimum(
            columns, places, h, v, bias, w, l1, l2, positive, most, 0.0, 1e-13, math.inf, math.inf, 0.0
        )
    np.testing.assert_allclose(v, slopes + h * (part @ w), atol=1e-12)
    assert model(np.concatenate([np.maximum(w, 0), np.maximum(-w, 0)]))[0] <= best.fun + 1e-12
    assert l2 or (w[:6] == 0).any()
    assert not positive or (w[:6] >= 0).all()


def test_the_combination_with_the_shortest_step() -> None:
    """min ‖Σ c_m·(step m)‖² with Σ c_m = 1, by the equations that Lagrange's multiplier gives."""
    points = np.random.default_rng(0).normal(size=(column_steps.POINTS + 1, 9))
    steps, found = np.diff(points, axis=0), np.empty(column_steps.POINTS)
    assert column_steps.combination(points, found)
    m = len(steps)
    equations = np.block([[steps @ steps.T, np.ones((m, 1))], [np.ones((1, m)), np.zeros((1, 1))]])
    np.testing.assert_allclose(found, np.linalg.solve(equations, np.append(np.zeros(m), 1.0))[:m], atol=1e-10)
    assert not column_steps.combination(np.zeros_like(points), found)


def test_the_epochs_that_are_left_are_told_from_the_fall() -> None:
    """Of moves that fall by the same factor both are exact, and one large fall alone says nothing of the next."""
    falling = 100.0 * 0.5 ** np.arange(12)
    assert column_steps.next_move(falling, 5) == falling[6]
    assert column_steps.moves_left(falling, 6, 7, falling[11]) == pytest.approx(5.0)
    assert column_steps.moves_left(falling, 11, 8, falling[11]) == 0.0
    assert column_steps.moves_left(np.ones(12), 6, 7, 0.5) == math.inf
    apart = np.where(np.arange(12) % 2 == 1, 100.0, falling)  # every second epoch is a jump
    assert column_steps.moves_left(apart, 10, 9, falling[14 - 3]) == pytest.approx(1.0)
    jump = np.array([1.0, 0.9, 0.01])
    assert column_steps.next_move(jump, 2) == pytest.approx(0.009)
    assert column_steps.next_move(np.array([1.0, 2.0, 3.0]), 2) == 3.0


def test_extrapolation_ends_a_slow_descent() -> None:
    """Columns with a correlation of 0.99: descent alone needs thousands of epochs, as a plain loop shows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1)) + 0.1 * rng.normal(size=(60, 8))
    y = X @ rng.normal(size=8) + 0.01 * rng.normal(size=60)
    problem = Problem(X, y, np.ones(60), LOSSES["squared"], bias=0.0, penalty=Penalty(l1=1e-6))
    found = solve(problem, np.zeros(problem.shape), tol=1e-9, passes=10_000, solver="working-set")
    assert found.converged
    w, v, epochs = np.zeros(8), -y / 60, 0
    while problem.anchor(np.append(w, 0.0)[None, :]).norm > 1e-9 and epochs < 20_000:
        for j in range(8):
            a = X[:, j] @ X[:, j] / 60
            target = a * w[j] - X[:, j] @ v
            step = np.sign(target) * max(abs(target) - 1e-6, 0) / a - w[j]
            w[j] += step
            v += step * X[:, j] / 60
        epochs += 1
    assert found.history[-1].passes < epochs / 4
    np.testing.assert_allclose(found.x[0, :-1], w, atol=1e-4)


# --- working sets


@pytest.mark.parametrize("name", ["squared", "huber", "logistic", "squared-hinge"])
@pytest.mark.parametrize("form", ["dense", "sparse", "float32"])
@pytest.mark.parametrize("terms", [Penalty(l1=0.02), Penalty(l1=0.02, l2=0.05)], ids=str)
def test_working_sets_end_at_the_minimum(name: str, form: str, terms: Penalty) -> None:
    """The subgradient of least norm is small, and no point of scipy's L-BFGS-B with split variables is lower."""
    problem = make_problem(name, n=200, d=150, bias=1.0, penalty=terms, form=form, weighted=True)
    found = solve(problem, np.zeros(problem.shape), tol=1e-6, passes=2000, solver="working-set")
    assert found.converged
    assert found.solver == "working-set"
    assert problem.anchor(found.x).norm <= 1e-6
    assert 0 < np.count_nonzero(found.x[0, :-1]) < 150
    other = lbfgs.minimise(
        problem, "identity", found.x * 0.9, problem.anchor(found.x * 0.9), 1e-5, 2000, lambda *_: None
    )
    assert problem.anchor(found.x).value <= problem.anchor(other[0]).value + 1e-9


@pytest.mark.parametrize("intercept", [True, False])
def test_working_sets_find_the_lasso_of_wide_data(intercept: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 1500))
    y = X[:, :3] @ np.array([3.0, -2, 1]) + rng.normal(size=100) + 2
    ours = LinearRegressor(penalty="l1", alpha=0.2, fit_intercept=intercept, tol=1e-8).fit(X, y)
    assert ours.solver_ == "working-set"
    peer = Lasso(alpha=0.2, fit_intercept=intercept, tol=1e-12, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(peer.intercept_, abs=1e-6)


def test_working_sets_keep_to_their_budget_and_take_a_warm_start() -> None:
    problem = make_problem("logistic", n=200, d=150, bias=1.0, penalty=Penalty(l1=0.01))
    short = solve(problem, np.zeros(problem.shape), tol=1e-12, passes=3, solver="working-set")
    assert not short.converged
    assert short.message == "3 passes are used up"
    full = solve(problem, np.zeros(problem.shape), tol=1e-6, solver="working-set")
    again = solve(problem, full.x * 1.01, tol=1e-6, solver="working-set")
    assert again.converged
    np.testing.assert_allclose(again.x, full.x, atol=1e-4)


# --- paths from second moments

PATH_TERMS = [
    Penalty(l1=1.0), Penalty(l1=0.4, l2=0.6), Penalty(l1=1.0, positive=True), Penalty(l1=0.3, l2=0.7, positive=True),
    Penalty(l2=1.0, positive=True),
]  # fmt: skip
FALLING = np.geomspace(2.0, 0.01, 12)


def nothing(fits: int) -> None:
    """Count no fit."""


def regression(intercept: bool, n: int = 300, dtype: type = np.float64) -> Problem:
    """Weighted rows about a mean of 3, with neighbouring columns alike and one that is constant."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 12)) + 3
    X[:, 1:6] += 2 * X[:, :5]
    X[:, 11] = 5.0
    y = X[:, :11] @ np.where(np.arange(11) % 3, rng.normal(size=11), 0.0) + rng.normal(size=n)
    weight = rng.random(n) * (rng.random(n) < 0.9)
    return Problem(X.astype(dtype), y, weight * n / weight.sum(), LOSSES["squared"], bias=float(intercept))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("unit", PATH_TERMS, ids=str)
def test_a_path_from_moments_is_that_of_all_rows(unit: Penalty, intercept: bool, dtype: type) -> None:
    """f, ‖∇f‖ and the gap are those of a pass over all rows; the coefficients are those of working sets."""
    problem = regression(intercept, dtype=dtype)
    known = moments.moments(problem)
    assert known is not None
    found = moments.solve_path(known, FALLING, unit, problem.bias, 1e-7, 1e4, nothing)
    for alpha, solution in zip(FALLING, found, strict=True):
        part = problem.with_penalty(unit.times(float(alpha)))
        here, last = part.anchor(solution.x), solution.history[-1]
        assert here.norm <= 1e-7
        assert last.objective == pytest.approx(here.value, rel=1e-12)
        assert last.gradient_norm == pytest.approx(here.norm, abs=1e-11)
        assert solution.gap == pytest.approx(duality_gap(part, solution.x), abs=1e-11)
        assert (solution.converged, solution.message) == (True, "‖∇f‖ ≤ tol")
        assert not intercept or solution.x[0, 11] == 0
        rows = working_set.solve(part, np.zeros(part.shape), 1e-9, Journal(1e4))
        np.testing.assert_allclose(solution.x, rows.x, atol=2e-5)
        assert not unit.positive or (solution.x[0, :-1] >= 0).all()


@pytest.mark.parametrize("unit", PATH_TERMS, ids=str)
def test_the_gap_from_moments_far_from_the_solution(unit: Penalty) -> None:
    problem = regression(True)
    known = moments.moments(problem)
    assert known is not None
    for passes in (1.0, 1.5, 2.0):
        found = moments.solve_path(known, FALLING, unit, 1.0, 0.0, passes, nothing)
        for alpha, solution in zip(FALLING, found, strict=True):
            part = problem.with_penalty(unit.times(float(alpha)))
            assert solution.gap == pytest.approx(duality_gap(part, solution.x), rel=1e-9, abs=1e-11)
        assert found[-1].history[-1].passes < passes + 8
        if passes == 1:
            assert {(solution.converged, solution.message) for solution in found} == {(False, "1 passes are used up")}


def test_a_path_from_moments_is_that_of_scikit_learn() -> None:
    problem = regression(True)
    path = linear_path(
        problem.rows, problem.y, penalty="elasticnet", l1_ratio=0.4, alphas=FALLING, sample_weight=problem.weight,
        tol=1e-9,
    )  # fmt: skip
    assert path.solutions[0].solver == "coordinate-descent"
    for alpha, coef, intercept in zip(path.alphas, path.coefs[:, 0], path.intercepts[:, 0], strict=True):
        peer = ElasticNet(alpha=alpha, l1_ratio=0.4, tol=1e-14, max_iter=10**5).fit(
            problem.rows, problem.y, problem.weight
        )
        np.testing.assert_allclose(coef, peer.coef_, atol=1e-6)
        assert intercept == pytest.approx(peer.intercept_, abs=1e-5)


def test_a_path_from_moments_in_several_calls_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    known, ticks = moments.moments(regression(True)), list[int]()
    assert known is not None

    def solved() -> np.ndarray:
        found = moments.solve_path(known, FALLING, PATH_TERMS[0], 1.0, 1e-6, 1e3, ticks.append)
        return np.concatenate([solution.x for solution in found])

    whole = solved()
    for size in (1.0, 5 * 12**2):
        monkeypatch.setattr(moments, "AT_ONCE", size)
        np.testing.assert_allclose(solved(), whole, atol=1e-13)
    assert sum(ticks) == 3 * len(FALLING)


def test_a_path_from_moments_ends_where_rounding_does() -> None:
    problem = regression(False)
    known = moments.moments(problem)
    assert known is not None
    for solution in moments.solve_path(known, FALLING, PATH_TERMS[1], 0.0, 0.0, 1e6, nothing):
        assert solution.message == "f falls no further, for rounding"
        assert solution.history[-1].gradient_norm < 1e-11
        assert solution.history[-1].passes < 1e5


def test_what_has_no_moments() -> None:
    problem = make_problem("squared", n=60, d=8, bias=1.0)
    assert moments.moments(problem) is not None
    assert moments.moments(replace(problem, loss=LOSSES["huber"])) is None
    assert moments.moments(make_problem("squared", n=60, d=8, bias=1.0, form="sparse")) is None
    assert moments.moments(make_problem("squared", n=7, d=8, bias=1.0)) is None
    with np.errstate(over="ignore", invalid="ignore"):
        assert moments.moments(replace(problem, rows=problem.rows * 1e200)) is None


def test_a_path_of_columns_that_are_nearly_alike() -> None:
    """Coordinate descent alone takes more than a thousand epochs: every weight is met by a step over all in use."""
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.normal(size=(300, 12)) * np.append(1.0, np.full(11, 0.01)), axis=1)
    y = X @ (rng.normal(size=12) + 0.5) + rng.normal(size=300)
    for positive in (False, True):
        path = linear_path(X, y, n_alphas=30, tol=1e-7, positive=positive)
        assert {solution.solver for solution in path.solutions} == {"coordinate-descent"}
        assert all(solution.converged and solution.history[-1].passes < 100 for solution in path.solutions)
        for alpha, coef in zip(path.alphas[::7], path.coefs[::7, 0], strict=True):
            peer = Lasso(alpha=alpha, tol=1e-12, max_iter=10**6, positive=positive).fit(X, y)
            np.testing.assert_allclose(coef, peer.coef_, atol=1e-4)


def test_a_path_of_equal_columns() -> None:
    """G is singular: any share of the one coefficient will do, and their sum is that of one column."""
    problem = regression(True)
    rows = np.repeat(problem.rows[:, :3], 2, axis=1)
    once = linear_path(np.ascontiguousarray(problem.rows[:, :3]), problem.y, alphas=FALLING, tol=1e-8)
    twice = linear_path(rows, problem.y, alphas=FALLING, tol=1e-8)
    np.testing.assert_allclose(twice.coefs[:, 0, ::2] + twice.coefs[:, 0, 1::2], once.coefs[:, 0], atol=1e-6)


def test_a_path_whose_gram_matrix_is_too_rough_is_solved_by_all_rows() -> None:
    """Columns of sizes from 1 to 1e7 about a far mean: the covariance has lost too many digits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6)) * 10.0 ** np.arange(2, 8)
    y = X @ (rng.normal(size=6) / 10.0 ** np.arange(2, 8)) + rng.normal(size=200)
    path = linear_path(X, y, n_alphas=5, tol=1e-7)
    for alpha, coef, intercept in zip(path.alphas, path.coefs, path.intercepts, strict=True):
        problem = Problem(X, y, np.ones(200), LOSSES["squared"], penalty=Penalty(l1=float(alpha)))
        assert problem.anchor(np.append(coef, intercept)[None, :]).norm <= 1e-7 * min(1, alpha) + 1e-9


def test_a_path_goes_on_along_its_line() -> None:
    """Orthonormal columns: each coefficient is soft-thresholded, so the next solution is met exactly by the line."""
    alphas = np.array([0.5, 0.4, 0.3])
    targets = np.array([1.0, -0.45, 0.2])

    def at(alpha: float) -> Solution:
        return Solution(
            np.append(np.sign(targets) * np.maximum(np.abs(targets) - alpha, 0), 0.0)[None, :], [], True, ""
        )

    start = ahead(alphas, [at(0.5), at(0.4)])
    np.testing.assert_allclose(start, [[0.7, -0.05, 0.0, 0.0]])  # the second was 0 before, and stays as it is
    assert ahead(np.array([0.4, 0.4, 0.3]), [at(0.4), at(0.4)])[0, 0] == pytest.approx(0.6)


def test_a_long_descent_from_moments_pauses_between_compiled_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is noticed in the midst of a weight that takes many passes, and pauses change no solution."""
    rng, ticks = np.random.default_rng(0), list[int]()
    rows = rng.normal(size=(60, 20))
    rows[:, 10:] = rows[:, :10] + 1e-4 * rows[:, 10:]
    problem = Problem(rows, rng.normal(size=60), np.ones(60), LOSSES["squared"])
    known = moments.moments(problem)
    assert known is not None
    whole = moments.solve_path(known, FALLING / 4, PATH_TERMS[0], 1.0, 1e-9, 1e4, nothing)
    monkeypatch.setattr(moments, "AT_ONCE", 20 * 20.0)
    parts = moments.solve_path(known, FALLING / 4, PATH_TERMS[0], 1.0, 1e-9, 1e4, ticks.append)
    assert ticks.count(0) > len(FALLING)
    assert sum(ticks) == len(FALLING)
    assert all(solution.converged for solution in whole + parts)
    for one, other in zip(whole, parts, strict=True):
        assert one.history[-1].objective == pytest.approx(other.history[-1].objective, rel=1e-12)

    def interrupt(fits: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        moments.solve_path(known, FALLING[:1] / 100, PATH_TERMS[0], 1.0, 0.0, 1e9, interrupt)


@pytest.mark.parametrize("offset", [1e5, 1e6, 1e7])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the intercept has not enough digits
def test_a_path_of_columns_far_from_0_is_that_of_centred_ones(offset: float) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 6))
    y = rows @ np.arange(6.0) + rng.normal(size=300)
    plain = linear_path(rows, y, alphas=[1.0, 0.3, 0.1], tol=1e-8)
    far = linear_path(rows + offset * np.array([0, 1, 0, -1, 0, 1]), y, alphas=[1.0, 0.3, 0.1], tol=1e-8)
    np.testing.assert_allclose(far.coefs, plain.coefs, atol=1e-15 * offset)
    wide = LinearRegressorCV(alphas=[1.0, 0.3, 0.1], tol=1e-8)
    wide.fit(rows + offset, y)
    assert wide.alpha_ == LinearRegressorCV(alphas=[1.0, 0.3, 0.1], tol=1e-8).fit(rows, y).alpha_


def test_constant_columns_have_no_coefficient_on_a_path() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(10_000, 4))
    rows[:, 1], rows[:, 2] = 0.1, -1e8 / 3
    path = linear_path(rows, rows[:, 0] + rng.normal(size=10_000), sample_weight=rng.random(10_000), n_alphas=10)
    assert not path.coefs[:, 0, 1:3].any()
    assert path.coefs[-1, 0, 0] != 0


def unreached(known: Any, alphas: Any, *args: Any) -> list[Solution]:
    """A path from second moments of which one solution in the middle is not one, and says so."""
    found = SOLVED(known, alphas, *args)
    found[1].x[0, 0] += 0.1
    found[1] = replace(found[1], converged=False, message="5 passes are used up")
    return found


SOLVED = moments.solve_path


def test_what_moments_do_not_reach_is_solved_from_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, bar = regression(True), ProgressBar(4, False)
    monkeypatch.setattr(moments, "solve_path", unreached)
    found = solve_path(problem, FALLING[:4], "l1", 0.5, 1e-5, 1e3, tick=bar.tick)
    assert bar.done == 4
    for alpha, solution in zip(FALLING, found, strict=False):
        assert solution.converged
        norm = problem.with_penalty(Penalty(l1=float(alpha))).anchor(solution.x).norm
        assert norm <= 1e-5 * min(1.0, alpha)


def test_threads_end_while_a_path_is_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, bar = regression(True), ProgressBar(4, False)

    def stopped(*args: Any) -> list[Solution]:
        found = unreached(*args)
        bar.stop()
        return found

    monkeypatch.setattr(moments, "solve_path", stopped)
    with pytest.raises(RuntimeError, match="interrupted"):
        solve_path(problem, FALLING[:4], "l1", 0.5, 1e-5, 1e3, tick=bar.tick)


def test_a_path_that_does_not_reach_its_tolerance_warns() -> None:
    problem = regression(True)
    with pytest.warns(ConvergenceWarning, match=r"of 100 solutions did not reach tol = 1e-12 \(2 passes are used up\)"):
        linear_path(problem.rows, problem.y, tol=1e-12, max_iter=2)


def test_a_warning_of_cross_validation_names_the_unit_of_tol() -> None:
    problem = regression(True)
    with pytest.warns(ConvergenceWarning, match=r"is above tol = 1e-12 times \S+, the weight of ‖w‖₁"):
        LinearRegressorCV(tol=1e-12, max_iter=2, n_alphas=10).fit(problem.rows, problem.y)


# --- second moments in a single fit


@pytest.mark.parametrize("bias", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("terms", [Penalty(l1=0.01), Penalty(l1=0.01, l2=0.1), Penalty(l1=0.01, positive=True)])
@pytest.mark.parametrize("moved", [0.0, 30.0])
def test_a_single_fit_from_moments_is_that_of_the_rows(
    terms: Penalty, bias: float, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With weights, a constant column, and columns far from 0."""
    monkeypatch.setattr(working_set, "IN_USE", 0.0)
    rng = np.random.default_rng(4)
    X, weight = rng.normal(size=(90, 10)) + moved, rng.uniform(0.2, 2, size=90)
    X[:, 3] = 2.0
    y = X @ np.append(rng.normal(size=9), 0.0) + rng.normal(size=90)
    problem = Problem(X, y, weight / weight.mean(), LOSSES["squared"], bias=bias, penalty=terms)
    start = np.zeros(problem.shape)
    assert working_set.moments_pay(problem, start, Journal(10))
    found = working_set.solve(problem, start, 1e-8, Journal(1e5))
    again = working_set.solve(problem, found.x, 1e-8, Journal(1e5))
    monkeypatch.setattr(working_set, "NARROW", 0)
    rows = working_set.solve(problem, start, 1e-8, Journal(1e5))
    assert found.converged
    assert rows.converged
    assert len(found.history) == 1
    assert len(again.history) == 1
    assert problem.anchor(found.x).norm == found.history[-1].gradient_norm <= 1e-8
    assert found.history[-1].objective == pytest.approx(rows.history[-1].objective, rel=1e-12)
    np.testing.assert_allclose(found.x, rows.x, atol=1e-5)


def test_moments_are_left_out_where_few_columns_are_in_use_or_rows_are_few() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 20))
    y = 3 * X[:, 0] + rng.normal(size=400)

    def pay(problem: Problem) -> bool:
        start = np.zeros(problem.shape)
        return working_set.has_moments(problem) and working_set.moments_pay(problem, start, Journal(10))

    weak = Problem(X, y, np.ones(400), LOSSES["squared"], penalty=Penalty(l1=1e-3))
    assert pay(weak)
    assert not pay(weak.with_penalty(Penalty(l1=0.5)))
    assert not pay(replace(weak, loss=LOSSES["huber"]))
    assert not pay(replace(weak, rows=sparse.csr_matrix(X)))
    assert not pay(weak.subset(np.arange(60)))


def test_second_moments_take_over_where_columns_are_correlated() -> None:
    """Three factors in 300 columns: coordinate descent over the rows takes more than a thousand passes."""
    rng = np.random.default_rng(0)
    X = 0.4 * rng.normal(size=(3000, 300)) + rng.normal(size=(3000, 3)) @ rng.normal(size=(3, 300))
    y = X @ rng.normal(size=300) / 30 + rng.normal(size=3000)
    ours = LinearRegressor(penalty="l1", alpha=1e-3, tol=1e-7, max_iter=150).fit(X, y)
    assert ours.history_[-1].gradient_norm <= 1e-7
    exact = Lasso(alpha=1e-3, tol=1e-12, max_iter=10**6, precompute=True).fit(X, y)
    np.testing.assert_allclose(ours.coef_, exact.coef_, atol=1e-5)


def test_second_moments_take_over_as_soon_as_many_epochs_are_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do within the time that they take themselves, and not where few epochs are left."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1200, 200))
    for j in range(1, 200):
        X[:, j] = 0.95 * X[:, j - 1] + np.sqrt(1 - 0.95**2) * X[:, j]
    problem = Problem(X, X @ rng.normal(size=200), np.ones(1200), LOSSES["squared"], penalty=Penalty(l1=0.02))
    start, price = np.zeros(problem.shape), working_set.PRICE[0] + working_set.PRICE[1] * 200
    coarse = 0.2 * problem.anchor(start).norm

    def passes(tol: float) -> float:
        found = working_set.solve(problem, start, tol, Journal(1e4))
        assert problem.anchor(found.x).norm <= tol
        return found.history[-1].passes

    fine, rough = passes(1e-6), passes(coarse)
    assert fine < 1.5 * price
    monkeypatch.setattr(working_set, "TALL", math.inf)
    assert passes(1e-6) > 2 * price
    assert passes(coarse) == rough < price


def test_a_path_from_moments_begins_at_a_given_point() -> None:
    known, unit = moments.moments(regression(True)), PATH_TERMS[0]
    assert known is not None
    cold = moments.solve_path(known, FALLING[-1:], unit, 1.0, 1e-9, 1e4, nothing)[0]
    for away in (0.0, 3.0):  # also for the constant column, whose coefficient is 0
        start = cold.x[0, :-1] + away
        warm = moments.solve_path(known, FALLING[-1:], unit, 1.0, 1e-9, 1e4, nothing, start)[0]
        np.testing.assert_allclose(warm.x, cold.x, atol=1e-6)
        assert (warm.history[-1].passes == 1.0) == (away == 0.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_more_passes_never_end_at_a_larger_f() -> None:
    """Second moments take over somewhere among these, and begin where coordinate descent over the rows has ended."""
    rng = np.random.default_rng(0)
    X = np.sqrt(0.95) * rng.normal(size=(1600, 1)) + np.sqrt(0.05) * rng.normal(size=(1600, 320))
    y = X[:, :20] @ rng.normal(size=20) + rng.normal(size=1600)
    ends = [
        LinearRegressor(penalty="l1", alpha=1e-3, tol=1e-8, max_iter=most).fit(X, y).history_[-1].objective
        for most in (40, 55, 57, 58, 59, 60, 61, 62, 64, 70, 80, 90, 200, 300)
    ]
    assert all(later <= before for before, later in pairwise(ends))


def test_classes_with_an_l1_penalty_go_on_where_the_gradient_grows() -> None:
    """Sorted by class: f falls along a valley in which ‖∇f‖ is larger than where L-BFGS began."""
    for seed in (0, 2):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((20_000, 3))
        y = np.argmax(X @ rng.standard_normal((3, 3)) + rng.gumbel(size=X.shape), 1)
        order = np.argsort(y, kind="stable")
        model = LinearClassifier(penalty="l1", alpha=1e-4, tol=1e-6, random_state=0).fit(X[order], y[order])
        assert model.history_[-1].gradient_norm <= 1e-6


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_l_bfgs_takes_over_where_columns_are_correlated(loss: str) -> None:
    rng = np.random.default_rng(0)
    X = 0.3 * rng.normal(size=(5000, 60)) + rng.normal(size=(5000, 1))
    mean = np.exp(0.3 * (X @ rng.normal(size=60) / 8 + 0.3))
    y = rng.poisson(mean).astype(float) if loss == "poisson" else rng.gamma(2, mean / 2)
    ours = LinearRegressor(loss, penalty="l1", alpha=1e-4, tol=1e-6, max_iter=400).fit(X, y)
    assert ours.solver_ == "working-set, then l-bfgs"
    assert ours.history_[-1].gradient_norm <= 1e-6
    alone = LinearRegressor(loss, penalty="l1", alpha=1e-4, tol=1e-6, max_iter=400, solver="working-set")
    with pytest.warns(ConvergenceWarning):
        alone.fit(X, y)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_most_columns_in_use_are_solved_at_once(correlation: float, intercept: bool, ratio: float) -> None:
    """The coefficients are those of scikit-learn, after one working set."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 150))
    for j in range(1, 150):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j] + 0.1
    y = X @ rng.normal(size=150) + rng.normal(size=400) + 3
    model = LinearRegressor(penalty="elasticnet", l1_ratio=ratio, alpha=0.03, tol=1e-8, fit_intercept=intercept)
    model.fit(X, y)
    peer = ElasticNet(alpha=0.03, l1_ratio=ratio, tol=1e-14, max_iter=10**5, fit_intercept=intercept).fit(X, y)
    assert len(model.history_) == 2
    assert np.count_nonzero(model.coef_) > 75
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-6)
    assert model.intercept_ == pytest.approx(peer.intercept_, abs=1e-6)


def test_columns_at_once_are_those_that_are_to_be_used() -> None:
    """Of few true coefficients most columns have small slopes at the start, which are chance: these do not count."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 300))

    def first(coef: np.ndarray, terms: Penalty, rows: int = 400) -> int:
        problem = Problem(X[:rows], X[:rows] @ coef, np.ones(rows), LOSSES["squared"], bias=0.0, penalty=terms)
        start = np.zeros(problem.shape)
        return len(working_set.chosen(problem, start, problem.anchor(start), terms.l1))

    many, few = rng.normal(size=300), np.where(np.arange(300) < 5, 5.0, 0.0)
    assert first(many, Penalty(l1=0.05)) == 300
    assert first(many, Penalty(l1=3.0)) < working_set.SMALLEST  # few columns violate optimality
    assert first(many, Penalty(l1=0.05), 310) == working_set.SMALLEST  # few rows
    assert first(few, Penalty(l1=0.05)) == working_set.SMALLEST


def test_what_rounding_of_moments_leaves_the_rows_solve() -> None:
    """Of a column of mean 1e7 moments have too few digits for this tolerance, which is still met over the rows."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 6)) * 10.0 ** np.arange(6)
    y = X @ (rng.normal(size=6) / 10.0 ** np.arange(6)) + 0.1 * rng.normal(size=200)
    problem = Problem(X, y, np.ones(200), LOSSES["squared"], penalty=Penalty(l1=1e-6))
    found = working_set.solve(problem, np.zeros(problem.shape), 1e-9, Journal(1e5))
    assert problem.anchor(found.x).norm <= 1e-9 or found.message == "f falls no further, for rounding"
    peer = Lasso(alpha=1e-6, tol=1e-14, max_iter=10**6).fit(X, y)
    scale = 10.0 ** np.arange(6)
    np.testing.assert_allclose(found.x[0, :-1] * scale, peer.coef_ * scale, atol=1e-4)
