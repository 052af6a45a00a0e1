"""What users of scikit-learn bring along: weights, classes, odd data and options, none of which is silently ignored."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import (
    check_estimators_nan_inf,
    check_fit2d_1sample,
    check_sample_weight_equivalence_on_dense_data,
)

from vcsg.linear import LinearClassifier, LinearClassifierCV, LinearRegressor, LinearRegressorCV, linear_path


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    return X, X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.2]) + rng.normal(size=300)


# --- weights


def test_balanced_classes_are_balanced_by_weight(data: tuple[Any, Any]) -> None:
    """As LogisticRegression does it; a row of weight 2 counts twice."""
    X, y = data
    labels, weight = y > 0.5, np.random.default_rng(1).integers(0, 4, size=300)
    ours = LinearClassifier(C=0.3, class_weight="balanced", tol=1e-9).fit(X, labels, weight)
    peer = LogisticRegression(C=0.3, class_weight="balanced", tol=1e-10, max_iter=10_000).fit(X, labels, weight)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-6)
    twice = np.repeat(np.arange(300), weight)
    repeated = LinearClassifier(C=0.3, class_weight="balanced", tol=1e-9).fit(X[twice], labels[twice])
    np.testing.assert_allclose(ours.coef_, repeated.coef_, atol=1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("solver", ["newton", "l-bfgs", "growing-svrg"])
def test_weights_are_repetitions_with_every_solver(solver: str) -> None:
    for model in (LinearClassifier(solver=solver, random_state=0), LinearRegressor(solver=solver, random_state=0)):
        check_sample_weight_equivalence_on_dense_data(type(model).__name__, model)


def test_weights_are_repetitions_where_no_newton_step_is_taken() -> None:
    """A small problem of many columns, which L-BFGS solves to tol alone."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(60, 200)), rng.integers(1, 4, size=60)
    y = X[:, 0] > 0
    twice = np.repeat(np.arange(60), weight)
    one, other = (LinearClassifier(random_state=0).fit(*rows) for rows in ((X, y, weight), (X[twice], y[twice])))
    assert one.solver_ == "l-bfgs"
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-12)


@pytest.mark.parametrize("size", [1e308, 1e300, 1e-300, 5e-324])
def test_weights_of_any_size(size: float, data: tuple[Any, Any]) -> None:
    X, y = data
    expected = LinearRegressor(tol=1e-9).fit(X, y)
    if size == 1e308:
        with pytest.raises(ValueError, match="scale them down"):
            LinearRegressor(tol=1e-9).fit(X, y, np.full(300, size))
    else:
        model = LinearRegressor(tol=1e-9).fit(X, y, np.full(300, size))
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-8)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({0: -1.0, 1: 5.0}, r"class_weight\[0\] = -1.0: give a number from 0 on"),
        ({0: np.nan, 1: 5.0}, r"class_weight\[0\] = nan"),
        ("even", "give a dict from class to weight, 'balanced' or None"),
    ],
)
def test_bad_class_weights(given: Any, text: str, data: tuple[Any, Any]) -> None:
    X, y = data
    with pytest.raises(ValueError, match=text):
        LinearClassifier(class_weight=given).fit(X, (y > 0).astype(int))


def test_balanced_classes_of_some_rows_at_a_time_are_refused(data: tuple[Any, Any]) -> None:
    X, y = data
    with pytest.raises(ValueError, match="give a dict of weights"):
        LinearClassifier(class_weight="balanced").partial_fit(X, y > 0, classes=[False, True])


def test_an_infinite_C_is_no_penalty(data: tuple[Any, Any]) -> None:
    X, y = data
    ours = LinearClassifier(C=np.inf, tol=1e-9).fit(X, y > 0)
    np.testing.assert_allclose(ours.coef_, LinearClassifier(penalty=None, tol=1e-9).fit(X, y > 0).coef_, atol=1e-9)


# --- options that do not go together


@pytest.mark.parametrize("loss", ["quantile", "poisson", "gamma", "tweedie"])
def test_the_rational_penalty_is_refused_where_nothing_solves_it(loss: str, data: tuple[Any, Any]) -> None:
    X, y = data
    with pytest.raises(ValueError, match=f"penalty = 'rational' beside loss = '{loss}': choose 'l2'"):
        LinearRegressor(loss, penalty="rational").fit(X, np.abs(y) + 1)


def test_bounds_are_refused_where_a_method_would_ignore_them(data: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match="positive=True beside method = 'svrg'"):
        LinearRegressor(positive=True, method="svrg").fit(*data)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", ["saga", "sgd", "svrg", "scsg", "vcsg"])
def test_what_a_method_tells_is_of_the_coefficients(method: str, data: tuple[Any, Any]) -> None:
    """Methods without anchors are measured now and then, and a fit may end between."""
    X, y = data
    model = LinearClassifier(method=method, alpha=0.1, tol=1e-9, max_iter=7, random_state=0).fit(X, y > 0)
    p = 1 / (1 + np.exp(-model.decision_function(X))) - (y > 0)
    slope = np.append(X.T @ p / len(X) + 0.1 * model.coef_[0], p.mean())
    assert model.history_[-1].gradient_norm == pytest.approx(np.linalg.norm(slope), rel=1e-6)
    assert model.history_[-1].rows == len(X)


# --- data


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [LinearClassifier, LinearRegressor])
def test_early_stopping_looks_for_nan_and_for_single_rows(kind: Any) -> None:
    model = kind(early_stopping=True, random_state=0)
    check_estimators_nan_inf(kind.__name__, model)
    check_fit2d_1sample(kind.__name__, model)


def test_a_path_says_where_the_nan_is(data: tuple[Any, Any]) -> None:
    X, y = data
    holes = np.where(X > 2, np.nan, X)
    for fit in (LinearRegressorCV(cv=2).fit, LinearClassifierCV(cv=2).fit, linear_path):
        with pytest.raises(ValueError, match="X contains NaN"):
            fit(holes, (y > 0).astype(int))
    with pytest.raises(ValueError, match="y contains infinity"):
        linear_path(X, np.where(y > 2, np.inf, y))


@pytest.mark.parametrize("penalty", ["l2", "l1", None, "rational"])
@pytest.mark.parametrize("n", [300, 30_000])
def test_sparse_rows_without_any_entry(penalty: str | None, n: int) -> None:
    y = np.arange(n) % 3 == 0
    model = LinearClassifier(penalty=penalty, random_state=0).fit(sparse.csr_matrix((n, 4)), y)
    np.testing.assert_allclose(model.predict_proba(np.zeros((1, 4))), [[2 / 3, 1 / 3]], atol=1e-3)


def test_log_probabilities_do_not_vanish(data: tuple[Any, Any]) -> None:
    X, y = data
    model = LinearClassifier().fit(X, y > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        far = model.predict_log_proba(1e5 * X)
    np.testing.assert_allclose(far.min(axis=1), -np.abs(model.decision_function(1e5 * X)))
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)))


def test_a_warm_start_with_bounds_keeps_the_intercept(data: tuple[Any, Any]) -> None:
    X, y = data
    model = LinearRegressor(positive=True, warm_start=True).fit(X, y - 5)
    assert model.intercept_ < -4
    assert model.fit(X, y - 5).n_iter_ == 1


# --- robust losses far from their targets


def huber_minimum(X: Any, y: Any) -> float:
    """The least mean of Huber's loss with σ = 1.35, by scipy."""
    rows = np.column_stack([X, np.ones(len(X))])

    def objective(w: Any) -> tuple[float, Any]:
        r = rows @ w - y
        inside = np.clip(r, -1.35, 1.35)
        return float((inside * (r - inside / 2)).mean()), rows.T @ inside / len(y)

    start = np.linalg.lstsq(rows, y, rcond=None)[0]
    return float(optimize.minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-9}).fun)


@pytest.mark.parametrize("shift", [0.0, 1000.0, 1e6])
@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize("penalty", [None, "l2", "l1"])
@pytest.mark.parametrize("copies", [1, 100])
def test_huber_regression_far_from_the_targets(
    shift: float, spread: float, penalty: str | None, copies: int, data: tuple[Any, Any]
) -> None:
    """Where nearly all rows are in the linear part of the loss at 0, and no Newton step leads anywhere."""
    X, y = data
    rows, targets = np.tile(X, (copies, 1)), np.tile(spread * y + shift, copies)
    model = LinearRegressor("huber", penalty=penalty, alpha=1e-12, tol=1e-5, random_state=0).fit(rows, targets)
    assert model.certificate_ is not None
    assert model.history_[-1].objective == pytest.approx(huber_minimum(X, spread * y + shift), rel=1e-4)
    passes = [entry.passes for entry in model.history_]
    assert passes == sorted(passes)


@pytest.mark.parametrize("loss", ["welsch", "geman-mcclure"])
def test_bounded_losses_begin_at_the_median(loss: str, data: tuple[Any, Any]) -> None:
    """At 0 they are flat for targets of 1000, and ‖∇f‖ is 0 there."""
    X, y = data
    here = LinearRegressor(loss, scale=2.0, tol=1e-6, random_state=0).fit(X, y)
    there = LinearRegressor(loss, scale=2.0, tol=1e-6, random_state=0).fit(X, y + 1000)
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-3)
    assert there.intercept_ == pytest.approx(here.intercept_ + 1000, abs=1e-3)


@pytest.mark.parametrize("n", [50, 3000])
@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
def test_units_for_which_tol_is_coarse_are_told(penalty: str, n: int) -> None:
    """Targets of 1e-9: every ‖∇f‖ is within the default tolerance, and coefficients of 0 would be no solution."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 12))
    y = 1e-9 * (X @ np.linspace(1, 2, 12))
    with pytest.warns(ConvergenceWarning, match=r"all coefficients are 0, for ‖∇f‖ = .* is within tol = 0.0001"):
        LinearRegressor(penalty=penalty, alpha=1e-12).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact = LinearRegressor(penalty=penalty, alpha=1e-12, tol=1e-13).fit(X, y)
        LinearRegressor(penalty="l1", alpha=1.0).fit(X - X.mean(0), y - y.mean())  # 0 is the solution
        LinearRegressor("poisson").fit(np.zeros_like(X), np.ones(n))
        LinearRegressor("poisson").fit(X + 3, np.full(n, 1e6))  # so is the mean alone, whose ‖∇f‖ is rounding
        LinearRegressor(penalty=penalty, alpha=1e-4).fit(X + 3, np.full(n, 1234567.891))
    np.testing.assert_allclose(exact.coef_ * 1e9, np.linspace(1, 2, 12), rtol=0.01)


def test_a_coarse_tol_is_told_of_beside_held_out_rows_too() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = X @ [1.0, 2.0, 0.0, 0.0] + 0.1 * rng.normal(size=60)
    with pytest.warns(ConvergenceWarning, match="all coefficients are 0, for"):
        LinearRegressor(early_stopping=True, random_state=0).fit(X, 1e-6 * y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LinearRegressor(early_stopping=True, random_state=0).fit(X, y).coef_.any()


@pytest.mark.parametrize("most", [1, 2, 3])
def test_second_moments_are_left_out_where_there_are_too_few_passes_for_them(most: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 60))
    y = X @ rng.normal(size=60) + rng.normal(size=6000)
    with pytest.warns(ConvergenceWarning, match=f"{most} passes are used up"):
        model = LinearRegressor(penalty="l1", alpha=1e-4, max_iter=most).fit(X, y)
    assert {entry.rows for entry in model.history_} == {6000}
    assert model.n_iter_ <= most + 2  # a model of f is measured before its minimum is, and after it
    assert LinearRegressor(penalty="l1", alpha=1e-4, max_iter=6).fit(X, y).n_iter_ <= 6


def test_a_fold_of_zeros_is_named_where_counts_are_fitted() -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 4)), np.zeros(60)
    y[:12] = 2
    with pytest.raises(ValueError, match="fold 0 is fitted to rows whose y is 0, for which this loss has no minimum"):
        LinearRegressorCV("poisson", cv=5).fit(X, y)
    LinearRegressorCV("poisson", cv=5, n_alphas=3).fit(X, np.roll(y, 6) + (np.arange(60) % 7 == 0))


def test_counts_whose_weight_is_all_on_zeros_are_refused() -> None:
    X, y = np.arange(6.0)[:, None], np.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="y is 0 in all rows of a weight above 0"):
        LinearRegressor("poisson").fit(X, y, sample_weight=[1, 1, 1, 0, 0, 0])


def test_a_fold_without_weight_is_named() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    with pytest.raises(ValueError, match="fold 1 is fitted to, or scored on, rows that all have the weight 0"):
        LinearRegressorCV(n_alphas=3).fit(X, y, sample_weight=(np.arange(50) // 10 != 1).astype(float))
    LinearRegressorCV(n_alphas=3).fit(X, y, sample_weight=(np.arange(50) % 2).astype(float))


def test_a_class_that_is_not_a_number_is_refused_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="Input y contains NaN"):
            LinearClassifier().fit(np.eye(4), [0.0, 1.0, np.nan, 1.0])


@pytest.mark.parametrize("name", ["fit_intercept", "warm_start", "early_stopping", "positive"])
@pytest.mark.parametrize("kind", [LinearRegressor, LinearRegressorCV, LinearClassifier, LinearClassifierCV])
def test_words_for_true_and_false_are_refused(kind: Any, name: str) -> None:
    """ "False" would count as true."""
    if name not in kind().get_params():
        pytest.skip("it has no such option")
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    with pytest.raises(ValueError, match=f"{name} = 'False': give True or False"):
        kind(**{name: "False"}).fit(X, y)
    kind(**{name: np.bool_(False)}).fit(X, y)
