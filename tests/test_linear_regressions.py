"""Regressions beyond least squares: counts, quantiles, bounds, offsets and several targets, beside scikit-learn's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    GammaRegressor,
    Lasso,
    LinearRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    TweedieRegressor,
)
from sklearn.utils.estimator_checks import estimator_checks_generator

from vcsg.linear import LOSSES, LinearClassifier, LinearRegressor, Penalty, Problem
from vcsg.linear.solvers import interior_point
from vcsg.linear.solvers.automatic import solve
from vcsg.linear.solvers.interior_point import lumped, residuals

COUNTS = {
    "poisson": lambda alpha: PoissonRegressor(alpha=alpha, solver="newton-cholesky", tol=1e-12),
    "gamma": lambda alpha: GammaRegressor(alpha=alpha, solver="newton-cholesky", tol=1e-12),
    "tweedie": lambda alpha: TweedieRegressor(power=1.5, alpha=alpha, solver="newton-cholesky", tol=1e-12),
}


def counted(n: int, d: int = 4) -> tuple[Any, Any, Any]:
    """Rows, targets above 0 with a mean of exp(aᵀw + 1), and weights."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d))
    return X, rng.gamma(2.0, np.exp(X @ rng.normal(size=d) * 0.4 + 1) / 2), rng.random(n) + 0.5


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize(("n", "form"), [(200, "dense"), (5000, "dense"), (200, "sparse")])
def test_counts_as_scikit_learn_has_them(name: str, n: int, form: str) -> None:
    X, y, weight = counted(n, d=20 if n == 5000 else 4)  # 5000 × 21² is beyond Newton's method: L-BFGS
    rows = sparse.csr_matrix(X) if form == "sparse" else X
    ours = LinearRegressor(name, alpha=0.01, tol=1e-9, random_state=0).fit(rows, y, sample_weight=weight)
    peer = COUNTS[name](0.01).fit(X, y, sample_weight=weight)
    assert ours.solver_ == ("newton" if n == 200 else "l-bfgs")
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-7)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-7)
    np.testing.assert_allclose(ours.predict(rows), peer.predict(X), rtol=1e-6)


@pytest.mark.parametrize("name", COUNTS)
def test_exposure_is_a_factor_of_the_mean(name: str) -> None:
    """The gradient with the mean exposure·exp(z), written out: 0 at the solution; and an offset is its logarithm."""
    X, y, weight = counted(200)
    exposure, power = np.random.default_rng(1).random(200) + 0.2, {"poisson": 1.0, "gamma": 2.0, "tweedie": 1.5}[name]
    model = LinearRegressor(name, alpha=0.02, tol=1e-10).fit(X, y, sample_weight=weight, exposure=exposure)
    mean = model.predict(X, exposure=exposure)
    slope = weight / weight.mean() * (mean ** (2 - power) - y * mean ** (1 - power)) / 200
    np.testing.assert_allclose(X.T @ slope + 0.02 * model.coef_, 0, atol=1e-9)
    assert slope.sum() == pytest.approx(0, abs=1e-9)
    other = LinearRegressor(name, alpha=0.02, tol=1e-10).fit(X, y, sample_weight=weight, offset=np.log(exposure))
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-12)


def test_an_offset_moves_the_targets_of_residuals() -> None:
    X, y, _ = counted(100)
    offset = np.arange(100.0)
    shifted = LinearRegressor(tol=1e-10).fit(X, y + offset, offset=offset)
    np.testing.assert_allclose(shifted.coef_, LinearRegressor(tol=1e-10).fit(X, y).coef_, atol=1e-8)
    np.testing.assert_allclose(shifted.predict(X, offset=offset), shifted.predict(X) + offset)


@pytest.mark.parametrize("level", [0.1, 0.5])
@pytest.mark.parametrize("alpha", [0.0, 0.05])
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_quantiles_as_linear_programming_finds_them(level: float, alpha: float, form: str) -> None:
    X, y, weight = counted(151)
    peer = QuantileRegressor(quantile=level, alpha=alpha).fit(X, y, sample_weight=weight)
    rows = sparse.csr_matrix(X) if form == "sparse" else X
    ours = LinearRegressor("quantile", quantile=level, penalty="l1", alpha=alpha).fit(rows, y, sample_weight=weight)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, peer.intercept_, atol=1e-6)
    assert ours.solver_ == "interior-point"
    assert ours.certificate_ is None
    assert ours.history_[-1].gradient_norm <= 1e-8


def test_the_duality_gap_of_a_quantile_bounds_the_objective() -> None:
    """With an L2 penalty: no other point is lower than f minus the gap, at any stage."""
    X, y, _ = counted(60)
    model = LinearRegressor("quantile", quantile=0.7, alpha=0.1, tol=1e-12).fit(X, y)
    least = model.history_[-1].objective
    for entry in model.history_:
        assert entry.objective - least <= entry.gradient_norm * (1 + 1e-9) + 1e-12
    r = y - model.predict(X)
    value = np.where(r > 0, 0.7 * r, -0.3 * r).mean() + 0.05 * (model.coef_**2).sum()
    assert least == pytest.approx(value, rel=1e-12)


def quantile_problem(n: int, kind: str = "noisy") -> Problem:
    """More rows of four features than are solved to the end, some of weight 0."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 4)) * (rng.random((n, 4)) < 0.5 if kind == "sparse" else 1)
    y = X @ rng.normal(size=4) + (1 + np.abs(X[:, 0])) * rng.standard_t(3, size=n) + 1
    weight = rng.integers(0, 3, n).astype(float)
    if kind == "sorted":
        order = np.argsort(y)
        X, y, weight = X[order], y[order], weight[order]
    rows = sparse.csr_matrix(X) if kind == "sparse" else X
    return Problem(rows, y, weight / weight.mean(), LOSSES["quantile"], 0.3, penalty=Penalty(l1=0.01))


@pytest.mark.parametrize("kind", ["noisy", "sorted", "sparse"])
def test_a_coarse_tolerance_of_a_quantile_ends_sooner_with_a_true_bound(kind: str) -> None:
    """f is compared to the least value that linear programming finds."""
    problem = quantile_problem(6000, kind)
    dense = problem.rows.toarray() if kind == "sparse" else problem.rows
    peer = QuantileRegressor(quantile=0.3, alpha=0.01).fit(dense, problem.y, sample_weight=problem.weight)
    least = problem.anchor(np.append(peer.coef_, peer.intercept_)[None, :]).value
    passes = []
    for tol in (1e-3, 1e-6, 1e-10):
        found = solve(problem, np.zeros(problem.shape), tol, seed=0)
        value = problem.anchor(found.x).value
        assert found.converged
        assert value - least - 1e-13 <= found.gap <= tol
        assert found.history[0].rows < problem.n
        passes.append(found.history[-1].passes)
    assert passes[0] < passes[1] < passes[2]


@pytest.mark.parametrize("scale", [1.0, 1e-5])
def test_the_bound_of_a_quantile_is_small_beside_f_whatever_the_units(scale: float) -> None:
    """A tolerance far above f does not end the search where it begins."""
    problem = replace(quantile_problem(6000), y=scale * quantile_problem(6000).y, penalty=Penalty())
    found = solve(problem, np.zeros(problem.shape), tol=1.0)
    assert found.converged
    assert 0 < found.gap <= 0.01 * problem.anchor(found.x).value


def test_means_in_place_of_rows_bound_the_quantile_loss_from_below() -> None:
    """Everywhere, and with the value itself where all residuals of each mean have its sign."""
    problem, rng = quantile_problem(500), np.random.default_rng(0)
    kept = rng.random(500) < 0.1
    for _ in range(50):
        x = rng.normal(size=problem.shape)
        r = residuals(problem, x)
        np.testing.assert_allclose(r, problem.y - problem.rows @ x[0, :-1] - x[0, -1])
        same = lumped(problem, kept, r > 0)
        assert same.n == kept.sum() + 2
        assert same.anchor(x).value == pytest.approx(problem.anchor(x).value, rel=1e-12)
        other = lumped(problem, kept, rng.random(500) < 0.5)
        assert other.anchor(x).value < problem.anchor(x).value


@pytest.mark.parametrize("part", [0.03, 0.2])
def test_a_quantile_is_found_where_a_part_of_the_rows_misleads(part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a part of 27 rows most signs are wrong at first; all rows at every step give the same f."""
    problem = replace(quantile_problem(6000), penalty=Penalty(l2=1e-3))
    monkeypatch.setattr(interior_point, "PART", part)
    found = solve(problem, np.zeros(problem.shape), 1e-9)
    monkeypatch.setattr(interior_point, "FEWEST", np.inf)
    whole = solve(problem, np.zeros(problem.shape), 1e-9)
    assert found.converged
    assert whole.converged
    assert found.history[0].rows < problem.n == whole.history[0].rows
    assert sum(entry.rows == problem.n for entry in found.history) > 1
    assert abs(problem.anchor(found.x).value - problem.anchor(whole.x).value) <= 1e-9


@pytest.mark.parametrize(("n", "d"), [(100, 3), (6000, 4)])
def test_a_quantile_that_rounding_ends_keeps_its_best_point(n: int, d: int) -> None:
    """At the end of the path p and q round to 0, and the next step has no factor."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    model = LinearRegressor("quantile", tol=1e-300, alpha=0.1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="for rounding"):
        model.fit(X, X @ np.ones(d) + rng.standard_t(2, size=n))
    assert 0 < model.duality_gap_ < 1e-12
    assert model.history_[-1].gradient_norm == model.duality_gap_


@pytest.mark.parametrize(("seed", "level"), [(12, 0.99), (13, 0.01)])
def test_a_duality_gap_that_rises_at_first_does_not_end_the_search(seed: int, level: float) -> None:
    """An extreme level, and columns far from centred: the gap rises more than fourfold in the second step."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1000, 8)) @ rng.normal(size=(8, 8)) + 20
    y = X @ rng.normal(size=8) + rng.standard_t(2, size=1000)
    model = LinearRegressor("quantile", quantile=level, penalty="l1", alpha=1e-3, tol=1e-6).fit(X, y)
    first, second = (entry.gradient_norm for entry in model.history_[:2])
    assert second > 4 * first
    assert model.duality_gap_ <= 1e-6


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_bounds_as_scikit_learn_has_them(form: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 12)) * (rng.random((80, 12)) < 0.5)
    y, rows = X @ rng.normal(size=12) + rng.normal(size=80), sparse.csr_matrix(X) if form == "sparse" else X
    pairs = [
        (Lasso(alpha=0.05, positive=True, tol=1e-12), {"penalty": "l1", "alpha": 0.05}),
        (LinearRegression(positive=True), {"penalty": None}),
        (Ridge(alpha=4.0, positive=True, solver="lbfgs", tol=1e-12), {"alpha": 0.05}),
    ]
    for peer, options in pairs:
        ours = LinearRegressor(positive=True, tol=1e-9, **options).fit(rows, y)
        np.testing.assert_allclose(ours.coef_, peer.fit(X, y).coef_, atol=1e-6)
        assert (ours.coef_ == 0).any()
        assert ours.solver_ == "working-set"


def test_positive_counts_meet_the_optimality_conditions() -> None:
    X, y, _ = counted(300)
    model = LinearRegressor("poisson", positive=True, alpha=0.01, tol=1e-8).fit(X, y)
    slope = X.T @ (model.predict(X) - y) / 300 + 0.01 * model.coef_
    assert (model.coef_ == 0).any()
    assert np.abs(slope[model.coef_ > 0]).max() <= 1e-7
    assert slope[model.coef_ == 0].min() >= -1e-7


def test_several_targets_are_fitted_by_themselves() -> None:
    X, y, weight = counted(120)
    both = np.column_stack([y, np.log(y)])
    model = LinearRegressor(tol=1e-10).fit(X, both, sample_weight=weight)
    for k in range(2):
        alone = LinearRegressor(tol=1e-10).fit(X, both[:, k], sample_weight=weight)
        np.testing.assert_allclose(model.coef_[k], alone.coef_, rtol=1e-12)
        np.testing.assert_allclose(model.predict(X)[:, k], alone.predict(X), rtol=1e-12)


@pytest.mark.parametrize("kind", [LinearClassifier, LinearRegressor])
def test_early_stopping_takes_the_point_that_suits_held_out_rows(kind: Any) -> None:
    """Many features of noise and hardly a penalty: the held-out loss rises long before the minimum."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 120))
    y = X[:, 0] + rng.normal(size=300)
    y = y > 0 if kind is LinearClassifier else y
    model = kind(alpha=1e-9, tol=1e-8, early_stopping=True, validation_fraction=0.3, random_state=0).fit(X, y)
    losses = model.validation_losses_
    assert int(np.argmin(losses)) == len(losses) - 6
    assert model.certificate_ is None
    full = kind(alpha=1e-9, tol=1e-8).fit(X, y)
    fresh = rng.normal(size=(2000, 120))
    truth = fresh[:, 0] > 0 if kind is LinearClassifier else fresh[:, 0]
    assert np.linalg.norm(model.coef_) < np.linalg.norm(full.coef_)
    assert model.score(fresh, truth) > full.score(fresh, truth)


@pytest.mark.parametrize("loss", ["poisson", "quantile"])
def test_scikit_learns_checks_of_losses(loss: str) -> None:
    for estimator, check in estimator_checks_generator(LinearRegressor(loss)):
        check(estimator)


@pytest.mark.parametrize(
    ("options", "fit", "text"),
    [
        ({"loss": "poisson"}, {"y": -1.0}, "y goes from -1"),
        ({"loss": "gamma"}, {"y": 0.0}, "above 0"),
        ({"loss": "tweedie", "power": 3.0}, {}, "power = 3.0: give a number from 1 to 2"),
        ({"loss": "quantile", "quantile": 1.0}, {}, "give a level below 1"),
        ({"loss": "quantile", "solver": "newton"}, {}, "choose 'auto'"),
        ({"loss": "poisson", "solver": "growing-svrg"}, {}, "bound on its curvature"),
        ({"loss": "poisson", "method": "svrg"}, {}, "no bound on its curvature"),
        ({"positive": True, "solver": "newton"}, {}, "positive=True needs"),
        ({"positive": True, "loss": "welsch"}, {}, "positive=True needs"),
        ({}, {"exposure": np.ones(50)}, "give offset"),
        ({"loss": "poisson"}, {"exposure": np.zeros(50)}, "not above 0"),
        ({}, {"offset": np.ones(3)}, "a number for each of the 50 rows"),
        ({"early_stopping": True, "validation_fraction": 0.001}, {}, "leaves rows on both sides"),
        ({"early_stopping": True, "solver": "newton"}, {}, "needs solver='auto'"),
        ({"early_stopping": True, "loss": "quantile"}, {}, "needs a loss other than"),
    ],
)
def test_what_cannot_be_fitted_is_refused(options: dict[str, Any], fit: dict[str, Any], text: str) -> None:
    X, y, _ = counted(50)
    y[0] = fit.pop("y", y[0])
    with pytest.raises(ValueError, match=text):
        LinearRegressor(**options).fit(X, y, **fit)


def weighted_quantiles(n: int, weight: Any, shift: float = 0.0, **options: Any) -> tuple[LinearRegressor, Any, Any]:
    """A fit of the 0.3-quantile without a penalty, its problem's rows with the intercept, and its targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    y = X @ rng.normal(size=4) + rng.standard_t(3, size=n) * (1 + np.abs(X[:, 0])) + shift
    return LinearRegressor("quantile", quantile=0.3, penalty=None, **options).fit(X, y, weight), X, y


def pinball(model: Any, X: Any, y: Any, weight: Any) -> float:
    r = y - model.predict(X)
    return float(weight @ np.maximum(0.3 * r, -0.7 * r) / weight.sum())


@pytest.mark.parametrize("n", [200, 12_000])
@pytest.mark.parametrize("kind", ["skewed", "nearly none", "few"])
def test_quantiles_of_rows_with_weights_of_many_sizes(n: int, kind: str) -> None:
    """Beside scikit-learn's linear programming, on the rows that weigh."""
    weight = {
        "skewed": np.random.default_rng(1).exponential(size=n) ** 8,
        "nearly none": np.where(np.arange(n) % 2, 1.0, 1e-30),
        "few": (np.arange(n) < 40) * 1.0,
    }[kind]
    model, X, y = weighted_quantiles(n, weight)
    heavy = weight > 1e-9 * weight.max()
    peer = QuantileRegressor(quantile=0.3, alpha=0).fit(X[heavy], y[heavy], sample_weight=weight[heavy])
    least = pinball(peer, X, y, weight)
    assert 0 <= model.duality_gap_ <= 1e-4
    assert pinball(model, X, y, weight) <= least + model.duality_gap_ + 1e-9


def test_the_bound_of_a_quantile_is_no_smaller_than_rounding() -> None:
    """Where targets are far from 0 the difference of two values of f may even be negative."""
    model, _, _ = weighted_quantiles(12_000, None, shift=1e8, tol=1e-6)
    assert np.finfo(float).eps * 1e7 < model.duality_gap_ <= 1e-6
    with pytest.warns(ConvergenceWarning, match="for rounding"):
        weighted_quantiles(12_000, None, shift=1e8, tol=1e-10)
