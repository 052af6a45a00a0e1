"""Newton's method among the combinations of rows: its steps, its solutions, and when L-BFGS leaves the rest to it."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from linear_data import autograd, make_problem
from scipy import sparse

from vcsg.linear import LOSSES, LinearClassifier, LinearRegressor, Penalty, Problem, solve
from vcsg.linear.early_stopping import HeldOutProblem
from vcsg.linear.problem import Array, PassResult
from vcsg.linear.solvers import newton, quasi_newton, row_space

SMOOTH = ("squared", "huber", "logistic", "squared-hinge", "tweedie")
CURVED = ("squared", "logistic", "tweedie")
FORMS = ("dense", "float32", "sparse")


def wide(seed: int, n: int = 40, d: int = 300, spread: float = 2.0) -> tuple[Array, Array]:
    """Rows fewer than features, whose scales are magnitudes apart, and targets."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * np.exp(spread * rng.normal(size=d))
    margins = rows @ rng.normal(size=d)
    return rows, margins / margins.std() + rng.normal(size=n)


@pytest.mark.parametrize("bias", [0.0, 1.0, 0.5])
@pytest.mark.parametrize("name", CURVED)
def test_a_step_is_newton_s_in_all_coefficients(name: str, bias: float) -> None:
    """δx = Xᵀδu solves ∇²f·δx = −∇f, with the Hessian of all d + 1 unknowns written out."""
    problem = make_problem(name, n=12, d=20, bias=bias, penalty=Penalty(l2=0.07), weighted=True)
    there = row_space.RowSpace(problem, np.asarray(problem.rows))
    rng = np.random.default_rng(3)
    here = there.at(np.append(0.1 * rng.normal(size=12), 0.2 if bias else 0.0)[None])
    x = np.append(here.u[0, :-1] @ problem.rows, here.u[0, -1])[None]
    f, gradient = autograd(problem, name, x)
    assert here.seen.value == pytest.approx(f, rel=1e-12)
    assert here.seen.norm == pytest.approx(np.linalg.norm(gradient), rel=1e-9)
    # A step of u keeps the part of x's that rows span; the intercept's sum of slopes is 0 at its end.
    step = there.step(here)
    moved = np.append(step[0, :-1] @ problem.rows, step[0, -1])
    hessian, width = newton.hessian(problem, x), 20 + (bias != 0)
    expected = np.zeros(21)
    expected[:width] = np.linalg.solve(hessian[:width, :width], -gradient[0, :width])
    np.testing.assert_allclose(moved, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_solution_has_no_gradient(name: str, bias: float, form: str) -> None:
    problem = make_problem(name, n=30, d=70, bias=bias, penalty=Penalty(l2=0.02), form=form, weighted=True)
    x = row_space.minimise(problem, np.zeros(problem.shape), tol=1e-8)
    assert np.linalg.norm(autograd(problem, name, x)[1][:, : 70 + (bias != 0)]) <= 1e-8


@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_regression_of_wide_rows_is_the_closed_form(intercept: bool) -> None:
    X, y = wide(0)
    alpha = 1 / len(y)
    model = LinearRegressor(alpha=alpha, fit_intercept=intercept, tol=1e-7).fit(X, y)
    centred, shift = (X - X.mean(0), y.mean()) if intercept else (X, 0.0)
    expected = centred.T @ np.linalg.solve(centred @ centred.T / len(y) + alpha * np.eye(len(y)), (y - shift) / len(y))
    np.testing.assert_allclose(np.ravel(model.coef_), expected, rtol=1e-5, atol=1e-7 * np.abs(expected).max())
    assert model.solver_ == "l-bfgs, then newton"
    assert model.n_iter_ <= 30


def closed_form(problem: Problem) -> Array:
    """The solution of wide least squares with an L2 penalty: (K + λI)u = y among centred rows of positive weight."""
    share, X, y = problem.shares, np.asarray(problem.rows), problem.y
    if problem.bias:
        X, y = X - share @ X, y - share @ y
    root = np.sqrt(share)
    rows = X * root[:, None]
    w = rows.T @ np.linalg.solve(rows @ rows.T + problem.penalty.l2 * np.eye(problem.n), root * y)
    level = float(share @ (problem.y - problem.rows @ w)) / problem.bias if problem.bias else 0.0
    return np.append(w, level)


@pytest.mark.parametrize("rough", [True, False])
@pytest.mark.parametrize("bias", [0.0, 1.0, 0.5])
def test_least_squares_of_wide_rows_are_solved_in_either_precision(
    bias: float, rough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rows of weight 0 among others, columns in several blocks, and an intercept that is far from 0."""
    monkeypatch.setattr(row_space, "ROUGH", 0.0 if rough else math.inf)
    rows, y = wide(3, n=40, d=700, spread=1.0)
    weight = np.random.default_rng(1).integers(0, 4, size=40).astype(float)
    share = weight / weight.mean()
    problem = Problem(rows, y + 50, share, LOSSES["squared"], bias=bias, penalty=Penalty(l2=0.01))
    reads: list[float] = []

    def evaluate(x: Array) -> PassResult:
        found = problem.anchor(x)
        reads.append(found.norm)
        return found

    x = row_space.minimise(problem, np.zeros(problem.shape), 1e-8, evaluate)
    assert problem.anchor(x).norm == reads[-1] <= 1e-8
    assert len(reads) <= (4 if rough else 2)
    expected = closed_form(problem)
    np.testing.assert_allclose(x[0], expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


def test_where_single_precision_is_not_enough_double_precision_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of features that are magnitudes apart single precision sees the largest, and may have no factor at all."""
    monkeypatch.setattr(row_space, "ROUGH", 0.0)
    types = []
    steps = row_space.SquaredSteps

    def noted(problem: Problem, rows: Array, dtype: Any) -> row_space.SquaredSteps:
        types.append(dtype)
        return steps(problem, rows, dtype)

    monkeypatch.setattr(row_space, "SquaredSteps", noted)
    for scale in (1e4, 1e25):
        rng = np.random.default_rng(2)
        rows = rng.normal(size=(50, 90))
        rows[:, 0] *= scale
        problem = Problem(rows, rng.normal(size=50), np.ones(50), LOSSES["squared"], penalty=Penalty(l2=1e-3))
        types.clear()
        x = row_space.minimise(problem, np.zeros(problem.shape), tol=1e-7)
        assert types == [np.float32, np.float64]
        assert np.isfinite(x).all()
        assert scale > 1e4 or problem.anchor(x).norm <= 1e-7


@pytest.mark.parametrize("name", ["logistic", "squared-hinge"])
def test_wide_rows_of_all_scales_are_classified_in_few_passes(name: str) -> None:
    X, y = wide(1, n=100, d=800)
    model = LinearClassifier(name, alpha=1 / len(y), tol=1e-6).fit(X, y > 0)
    assert model.solver_ == "l-bfgs, then newton"
    assert model.history_[-1].gradient_norm <= 1e-6
    assert model.n_iter_ <= 60


def test_counts_are_solved_among_the_rows_at_once() -> None:
    """The curvature of exp has no bound: no step comes before."""
    X, y = wide(2)
    counts = np.random.default_rng(0).poisson(np.exp(np.clip(y, -3, 2))).astype(float)
    model = LinearRegressor("poisson", alpha=0.1, tol=1e-8).fit(X, counts)
    assert model.solver_ == "l-bfgs, then newton"
    assert model.n_iter_ <= 5
    assert model.history_[-1].gradient_norm <= 1e-8


def test_quick_searches_are_left_alone() -> None:
    """Standard normal features: a few passes are enough, fewer than XXᵀ costs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2000))
    y = X @ rng.normal(size=2000) / 45 + rng.normal(size=200)
    assert LinearRegressor(alpha=1 / 200, tol=1e-4).fit(X, y).solver_ == "l-bfgs"


def test_what_it_costs_and_where_it_cannot_be_gone() -> None:
    problem = make_problem("squared", n=20, d=60, bias=1.0, penalty=Penalty(l2=0.1))
    assert 0 < row_space.cost(problem) < math.inf
    assert row_space.cost(problem) < row_space.cost(replace(problem, loss=LOSSES["logistic"]))
    assert 0 < row_space.cost(replace(problem, rows=sparse.csr_matrix(problem.rows))) < math.inf
    parts = {part.name: getattr(problem, part.name) for part in fields(Problem)}
    for refused in (
        make_problem("squared", n=60, d=60, bias=1.0, penalty=Penalty(l2=0.1)),
        make_problem("squared", n=20, d=60, bias=1.0),
        make_problem("squared", n=20, d=60, bias=1.0, penalty=Penalty(l1=0.1, l2=0.1)),
        make_problem("welsch", n=20, d=60, bias=1.0, penalty=Penalty(l2=0.1)),
        make_problem("multinomial", n=20, d=60, bias=1.0, penalty=Penalty(l2=0.1)),
        replace(problem, fixed=True),
        HeldOutProblem(**parts),
        make_problem(
            "squared", n=row_space.MOST_ROWS + 1, d=row_space.MOST_ROWS + 2, bias=1.0, penalty=Penalty(l2=1.0)
        ),
    ):
        assert row_space.cost(refused) == math.inf


def test_where_rounding_keeps_the_solution_away_the_search_goes_on() -> None:
    """λ is nothing beside the rounding of XXᵀ of rank 5, which then has no factor or a bad one."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 5)) @ rng.normal(size=(5, 90)) * 1e4
    y = np.where(rng.normal(size=40) > 0, 1.0, -1.0)
    problem = Problem(rows, y, np.ones(40), LOSSES["logistic"], penalty=Penalty(l2=1e-13))
    x = row_space.minimise(problem, np.zeros(problem.shape), tol=1e-9)
    assert np.isfinite(x).all()
    found = solve(problem, np.zeros(problem.shape), tol=1e-4, passes=400, solver="l-bfgs")
    assert found.history[-1].objective <= math.log(2)
    assert np.isfinite(found.x).all()


def test_counts_with_rows_of_extreme_norm_are_solved() -> None:
    """Where Hessians of some rows lead astray, Newton's method on all of them does not."""
    rng = np.random.default_rng(13)
    X = rng.normal(size=(6000, 20)) * (rng.pareto(1.2, size=(6000, 1)) + 1)
    margins = X @ rng.normal(size=20) / np.sqrt((X**2).sum(1).mean())
    counts = rng.poisson(np.exp(np.clip(margins, -5, 3))).astype(float)
    model = LinearRegressor("poisson", alpha=1 / 6000, tol=1e-4).fit(X, counts)
    slopes = np.exp(X @ np.ravel(model.coef_) + model.intercept_) - counts
    gradient = np.append(X.T @ slopes / 6000 + np.ravel(model.coef_) / 6000, slopes.mean())
    assert np.linalg.norm(gradient) <= 1.01e-4
    assert model.n_iter_ <= 100


def test_early_stopping_sees_the_whole_way() -> None:
    """A search that is watched is not cut short by an exact solution."""
    X, y = wide(4)
    problem = Problem(X[:, :30].copy(), y, np.ones(len(y)), LOSSES["squared"], penalty=Penalty(l2=0.01))
    start = np.zeros(problem.shape)
    known = problem.anchor(start, keep=False)
    watched = HeldOutProblem(**{part.name: getattr(problem, part.name) for part in fields(Problem)})
    for one, certain in ((problem, True), (watched, False)):
        f = quasi_newton.CountedObjective(one, 1e-6, 100, lambda stage, seen: None, start, known)
        assert quasi_newton.Search(f, start, known, "identity").certain == certain


def test_least_squares_with_rows_of_extreme_norm_end_at_the_solution() -> None:
    """Of more rows than a Hessian is made from: two of some rows lead nowhere, and one of all rows is the end."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(9000, 60)) * (rng.pareto(0.9, size=(9000, 1)) + 1)
    y = X @ rng.normal(size=60) / np.sqrt((X**2).sum(1).mean()) + rng.normal(size=9000)
    model = LinearRegressor(alpha=1 / 9000, tol=1e-3).fit(X, y)
    slopes = X @ np.ravel(model.coef_) + model.intercept_ - y
    gradient = np.append(X.T @ slopes / 9000 + np.ravel(model.coef_) / 9000, slopes.mean())
    assert np.linalg.norm(gradient) <= 1.01e-3
    assert model.n_iter_ <= 100
