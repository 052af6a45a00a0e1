"""Least squares with an L1 penalty by Newton's method for the residuals, and when it takes over."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet

from vcsg.linear import LOSSES, LinearRegressor, Penalty, Problem, linear_path
from vcsg.linear.duality import duality_gap
from vcsg.linear.solution import Journal
from vcsg.linear.solvers import residual_newton

TERMS = [
    Penalty(l1=0.01), Penalty(l1=0.01, l2=0.02), Penalty(l1=0.01, positive=True),
    Penalty(l1=0.01, l2=0.1, positive=True),
]  # fmt: skip


def with_a_factor(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Columns that one factor runs through, and targets of all of them."""
    rng = np.random.default_rng(seed)
    X = 0.5 * rng.normal(size=(n, d)) + 0.9 * rng.normal(size=(n, 1))
    return X, X @ rng.normal(size=d) + rng.normal(size=n)


@pytest.mark.parametrize(("n", "d"), [(40, 70), (60, 30)])
@pytest.mark.parametrize("bias", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_the_solution_is_that_of_scikit_learn(terms: Penalty, bias: float, n: int, d: int) -> None:
    """With weights, one of them 0, and a column that is constant; from 0 and from a point far away."""
    X, y = with_a_factor(n, d)
    X[:, 3] = 2.0
    weight = np.random.default_rng(1).uniform(0.2, 2, size=n)
    weight[5] = 0.0
    problem = Problem(X, y, weight / weight.mean(), LOSSES["squared"], bias=bias, penalty=terms)
    whole = terms.l1 + terms.l2
    peer = ElasticNet(
        alpha=whole, l1_ratio=terms.l1 / whole, fit_intercept=bias > 0, positive=terms.positive, tol=1e-13,
        max_iter=10**6,
    ).fit(X, y, weight)  # fmt: skip
    expected = np.append(peer.coef_, peer.intercept_ / bias if bias else 0.0)[None, :]
    for start in (np.zeros(problem.shape), np.full(problem.shape, 3.0)):
        found = residual_newton.minimise(problem, start, 1e-9, Journal(1e4))
        here = problem.anchor(found)
        assert here.norm <= 1e-9
        assert here.value <= problem.anchor(expected).value + 1e-10
        assert duality_gap(problem, found, here) <= 1e-6
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert not terms.positive or (found[0, :-1] >= 0).all()


@pytest.mark.parametrize("k", [0, 3, 7, 8, 20])
def test_a_newton_step_solves_its_equations(k: int) -> None:
    rng = np.random.default_rng(0)
    lines, slope, s = rng.normal(size=(k, 8)), rng.normal(size=8), 30.0
    hessian = np.eye(8) + s * lines.T @ lines
    step = residual_newton.newton_step(lines, s, slope)
    np.testing.assert_allclose(step, np.linalg.solve(hessian, -slope), atol=1e-10)


@pytest.mark.parametrize("kink", [1e-6, 0.1, 0.5, 0.99])
def test_a_step_ends_where_the_slope_on_it_is_nearly_0(kink: float) -> None:
    """A slope that is almost level up to a kink, and steep behind it."""

    def rise(t: float) -> float:
        return -1.0 + 0.1 * t + 1e4 * max(t - kink, 0.0)

    assert abs(rise(residual_newton.lowest(rise))) <= residual_newton.FALL
    assert residual_newton.lowest(lambda t: -1.0 + 0.9 * t) == 1.0


def test_rows_are_taken_about_their_means() -> None:
    X, y = with_a_factor(20, 6)
    X[:, 2] = 1e8 / 3
    weight = np.random.default_rng(1).uniform(0.2, 2, size=20)
    problem = Problem(X, y, weight / weight.mean(), LOSSES["squared"], penalty=TERMS[0])
    rows, share = residual_newton.centred(problem), weight / weight.sum()
    centre = share @ X
    np.testing.assert_allclose(rows.centre, centre)
    assert not rows.lines[2].any()
    others = np.arange(6) != 2
    covariance = (X - centre).T @ ((X - centre) * share[:, None])
    np.testing.assert_allclose((rows.lines @ rows.lines.T)[others][:, others], covariance[others][:, others])
    np.testing.assert_allclose((rows.lines @ rows.b)[others], ((X - centre).T @ (share * y))[others])


@pytest.mark.parametrize("ratio", [1.0, 0.9])
def test_it_takes_over_where_rows_are_few_and_columns_have_a_factor(
    ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coordinate descent alone is not at the solution after a thousand passes."""
    X, y = with_a_factor(100, 200)
    model = LinearRegressor(penalty="elasticnet", l1_ratio=ratio, alpha=1e-3, tol=1e-6).fit(X, y)
    assert model.history_[-1].gradient_norm <= 1e-6
    assert model.history_[-1].passes < 1000
    l1, l2 = 1e-3 * ratio, 1e-3 * (1 - ratio)
    problem = Problem(X, y, np.ones(100), LOSSES["squared"], penalty=Penalty(l1=l1, l2=l2))
    x = np.append(model.coef_, model.intercept_)[None, :]
    assert problem.anchor(x).norm <= 1e-6
    assert duality_gap(problem, x) == pytest.approx(model.duality_gap_, abs=1e-12)
    assert model.duality_gap_ <= 1e-4 * problem.anchor(x).value
    path = linear_path(X, y, penalty="elasticnet", l1_ratio=ratio, alphas=[1e-2, 1e-3], tol=1e-4)
    assert all(solution.converged for solution in path.solutions)
    monkeypatch.setattr(residual_newton, "WIDEST", 0)
    with pytest.warns(ConvergenceWarning):
        LinearRegressor(penalty="elasticnet", l1_ratio=ratio, alpha=1e-3, tol=1e-6).fit(X, y)


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_a_model_has_the_slopes_and_curvatures_of_the_loss(power: float, bias: float) -> None:
    """The second-order expansion of f, by differences of its gradient; power 0 stands for logistic regression."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(12, 5)), rng.uniform(0.2, 2, size=12)
    y = rng.uniform(0.5, 2, size=12) if power else np.where(rng.random(12) < 0.5, 1.0, -1.0)
    loss = LOSSES["tweedie" if power else "logistic"]
    problem = Problem(X, y, weight / weight.mean(), loss, power or 1.0, bias=bias, penalty=Penalty(l2=0.1))
    x, step = 0.3 * rng.normal(size=(1, 6)), 1e-5 * rng.normal(size=(1, 6))
    here = problem.anchor(x)
    part = residual_newton.model(problem, x, here.kept[:, 0])
    np.testing.assert_allclose(part.anchor(x).smooth, here.smooth, atol=1e-12)
    change = part.anchor(x + step).smooth - part.anchor(x - step).smooth
    expected = problem.anchor(x + step).smooth - problem.anchor(x - step).smooth
    np.testing.assert_allclose(change, expected, atol=1e-12)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_models_take_over_from_coordinate_descent(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The solution is one by its duality gap, within passes that working sets and L-BFGS do not do with."""
    X, y = with_a_factor(100, 200)
    mean = np.exp(y / y.std() / 2)
    y = np.round(3 * mean) if loss == "poisson" else mean
    model = LinearRegressor(loss, penalty="l1", alpha=1e-3, tol=1e-6, max_iter=600).fit(X, y)
    assert model.solver_ == "working-set, then residual-newton"
    assert model.history_[-1].gradient_norm <= 1e-6
    assert 0 <= model.duality_gap_ <= 1e-5
    monkeypatch.setattr(residual_newton, "WIDEST", 0)
    with pytest.warns(ConvergenceWarning):
        LinearRegressor(loss, penalty="l1", alpha=1e-3, tol=1e-6, max_iter=600).fit(X, y)


@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("terms", [Penalty(l1=0.003), Penalty(l1=0.003, l2=0.01)], ids=str)
def test_models_end_at_the_solution_of_logistic_regression(terms: Penalty, bias: float) -> None:
    X, y = with_a_factor(60, 90)
    weight = np.random.default_rng(1).uniform(0.2, 2, size=60)
    signs = np.where(y > np.median(y), 1.0, -1.0)
    problem = Problem(X, signs, weight / weight.mean(), LOSSES["logistic"], bias=bias, penalty=terms)
    assert residual_newton.has_models(problem)
    found = residual_newton.minimise_models(problem, np.zeros(problem.shape), 1e-8, Journal(1e4))
    assert found.converged
    assert problem.anchor(found.x).norm <= 1e-8
    assert duality_gap(problem, found.x) <= 1e-7
    short = residual_newton.minimise_models(problem, np.zeros(problem.shape), 1e-8, Journal(10.0))
    assert not short.converged
    assert short.history[-1].passes <= 11


def test_it_leaves_other_problems_alone() -> None:
    X, y = with_a_factor(30, 40)
    problem = Problem(X, y, np.ones(30), LOSSES["squared"], penalty=TERMS[0])
    assert residual_newton.taken(problem)
    assert not residual_newton.taken(Problem(X, y, np.ones(30), LOSSES["huber"], penalty=TERMS[0]))
    assert not residual_newton.taken(Problem(sparse.csr_matrix(X), y, np.ones(30), LOSSES["squared"]))
    assert not residual_newton.taken(Problem(np.empty((2001, 2001)), np.empty(2001), np.ones(2001), LOSSES["squared"]))
    thin = LinearRegressor(penalty="l1", alpha=1.0, tol=1e-9).fit(X, y)
    assert thin.history_[-1].passes < 250


def test_it_keeps_to_its_budget() -> None:
    X, y = with_a_factor(60, 120)
    problem = Problem(X, y, np.ones(60), LOSSES["squared"], penalty=Penalty(l1=1e-4))
    for budget in (1.0, 3.0, 10.0):
        journal = Journal(budget)
        found = residual_newton.minimise(problem, np.zeros(problem.shape), 1e-12, journal)
        assert journal.passes <= max(budget, 1.0)
        assert math.isfinite(problem.anchor(found).value)
