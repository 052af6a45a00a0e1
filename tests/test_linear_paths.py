"""Paths over the weight of the penalty, cross-validation along them, and the duality gap, beside scikit-learn's."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from linear_data import make_problem
from scipy import optimize, sparse
from sklearn.linear_model import ElasticNetCV, LassoCV, LogisticRegressionCV, lasso_path
from sklearn.model_selection import KFold
from sklearn.utils.estimator_checks import estimator_checks_generator

from vcsg.linear import (
    LOSSES,
    LinearClassifier,
    LinearClassifierCV,
    LinearRegressor,
    LinearRegressorCV,
    Penalty,
    Problem,
    linear_path,
    solve,
)
from vcsg.linear.cross_validation import together
from vcsg.linear.duality import conjugates, duality_gap
from vcsg.linear.path import ProgressBar


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 15))
    return X, X[:, :4] @ np.array([2.0, -1.0, 0.5, 1.0]) + rng.normal(size=90)


@pytest.mark.parametrize("name", ["squared", "huber", "logistic", "squared-hinge", "tweedie"])
def test_conjugates_by_search(name: str) -> None:
    """φ*(s) = sup_z sz − φ(z, y), by a search over z, at slopes that φ takes."""
    problem = make_problem(name, n=12, d=1, bias=1.0)
    powers = (1.0, 1.3, 2.0) if name == "tweedie" else (1.3,)
    for scale in powers:
        for i, y in enumerate(problem.y):
            one = type(problem)(np.array([[1.0]]), np.array([y]), np.ones(1), LOSSES[name], scale, bias=0.0)
            slope = one.anchor(np.array([[0.3 - 0.1 * i, 0.0]])).kept[0] * 0.9

            def fall(z: float, one: Any = one, slope: Any = slope) -> float:
                return float(one.anchor(np.array([[z, 0.0]])).value - slope[0] * z)

            least = optimize.minimize_scalar(fall, bounds=(-30, 30), method="bounded", options={"xatol": 1e-10})
            np.testing.assert_allclose(conjugates(LOSSES[name], scale, slope, np.array([y])), -least.fun, atol=1e-7)


@pytest.mark.parametrize("name", ["squared", "huber", "logistic", "squared-hinge", "tweedie"])
@pytest.mark.parametrize("terms", [Penalty(l1=0.05), Penalty(l1=0.03, l2=0.02), Penalty(l2=0.1)])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_the_gap_bounds_what_f_is_above_its_minimum(name: str, terms: Penalty, bias: float) -> None:
    problem = make_problem(name, n=60, d=5, bias=bias, penalty=terms, weighted=True)
    best = solve(problem, np.zeros(problem.shape), 1e-9)
    least = problem.anchor(best.x).value
    assert duality_gap(problem, best.x) <= 1e-6
    rng = np.random.default_rng(0)
    for size in (1e-3, 0.1, 1.0):
        x = best.x + size * rng.normal(size=best.x.shape)
        x[:, -1] *= bias
        assert problem.anchor(x).value - least <= duality_gap(problem, x) + 1e-9


def test_there_is_no_gap_without_convexity_or_penalty() -> None:
    for name, terms in (("welsch", Penalty(l1=1.0)), ("squared", Penalty()), ("multinomial", Penalty(l1=1.0))):
        problem = make_problem(name, n=20, d=3, bias=1.0, penalty=terms)
        assert np.isnan(duality_gap(problem, np.zeros(problem.shape)))


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_path_is_that_of_scikit_learn(form: str, data: tuple[Any, Any]) -> None:
    X, y = data
    rows = sparse.csr_matrix(X) if form == "sparse" else X
    alphas, coefs, _ = lasso_path(X - X.mean(0), y - y.mean(), alphas=20, tol=1e-12)
    path = linear_path(rows, y, n_alphas=20, tol=1e-9)
    np.testing.assert_allclose(path.alphas, alphas, rtol=1e-9)
    np.testing.assert_allclose(path.coefs[:, 0], coefs.T, atol=1e-7)
    assert not path.coefs[0].any()
    assert path.gaps.max() < 1e-7


@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
def test_cross_validation_as_scikit_learn_has_it(penalty: str, data: tuple[Any, Any]) -> None:
    X, y = data
    options: dict[str, Any] = {"cv": 3, "alphas": 15, "tol": 1e-11, "max_iter": 10**5}
    peer = LassoCV(**options) if penalty == "l1" else ElasticNetCV(l1_ratio=0.4, **options)
    peer.fit(X, y)
    ours = LinearRegressorCV(penalty=penalty, l1_ratio=0.4, cv=3, n_alphas=15, tol=1e-9, n_jobs=2).fit(X, y)
    np.testing.assert_allclose(ours.alphas_, peer.alphas_, rtol=1e-9)
    np.testing.assert_allclose(2 * ours.scores_, peer.mse_path_, rtol=1e-6)
    assert ours.alpha_ == pytest.approx(peer.alpha_)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-6)
    assert ours.duality_gap_ < 1e-7
    alone = LinearRegressor(penalty=penalty, l1_ratio=0.4, alpha=ours.alpha_, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(ours.coef_, alone.coef_, atol=1e-6)


def test_classes_by_cross_validation_as_scikit_learn_has_them(data: tuple[Any, Any]) -> None:
    X, y = data
    labels, Cs = y > 0, np.array([0.01, 0.1, 1.0, 10.0])
    folds = 3
    peer = LogisticRegressionCV(
        Cs=Cs, cv=folds, scoring="neg_log_loss", tol=1e-10, max_iter=10**4, l1_ratios=(0,), use_legacy_attributes=False
    ).fit(X, labels)
    # C counts the rows of a fold, alpha does not; so one of them is compared for the same alpha in all folds.
    ours = LinearClassifierCV(penalty="l2", alphas=1 / (Cs * 60), cv=folds, tol=1e-9).fit(X, labels)
    np.testing.assert_allclose(ours.scores_.mean(axis=1), -np.ravel(peer.scores_.mean(axis=0))[: len(Cs)], rtol=1e-6)
    assert ours.score(X, labels) > 0.8


def test_several_classes_and_a_strong_penalty(data: tuple[Any, Any]) -> None:
    X, y = data
    classes = np.digitize(y, [-1.5, 1.5])
    model = LinearClassifierCV(cv=3, n_alphas=4, eps=0.05, tol=1e-5).fit(X, classes)
    assert model.path_.coefs.shape == (4, 3, 15)
    assert np.abs(model.path_.coefs[0]).max() < 1e-4
    assert model.score(X, classes) > 0.7
    alone = LinearClassifier(penalty="l1", alpha=model.alpha_, tol=1e-5).fit(X, classes)
    np.testing.assert_allclose(model.coef_, alone.coef_, atol=1e-3)


def test_the_bar_and_the_picture(data: tuple[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    X, y = data
    model = LinearRegressorCV(cv=2, n_alphas=3, verbose=1).fit(X, y)
    assert "9/9 fits" in capsys.readouterr().err
    axes = model.plot_path()
    assert axes.get_xscale() == "log"
    marked = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
    assert marked[0].get_xdata()[0] == model.alpha_


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", [LinearClassifierCV(n_alphas=2, cv=2), LinearRegressorCV(n_alphas=2, cv=2)], ids=str)
def test_scikit_learns_checks_along_paths(model: Any) -> None:
    for estimator, check in estimator_checks_generator(model):
        if "sample_weight_equivalence" not in check.func.__name__:  # folds see repeated rows, and weights not
            check(estimator)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"penalty": None}, "a path has 'l1', 'elasticnet' or 'l2'"),
        ({"alphas": [1.0, -1.0]}, "give numbers above 0"),
        ({"eps": 0.0}, "eps = 0.0: give a number above 0"),
        ({"loss": "quantile"}, "one weight at a time"),
    ],
)
def test_what_has_no_path_is_refused(options: dict[str, Any], text: str, data: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match=text):
        linear_path(*data, **options)


def test_the_chosen_solution_is_measured_over_all_rows() -> None:
    """Least squares are solved from second moments, without a row; the certificate is that of all rows."""
    X, y = np.random.default_rng(0).normal(size=(200, 5)), np.random.default_rng(1).normal(size=200)
    model = LinearRegressorCV(n_alphas=3, cv=2).fit(X, y)
    assert {entry.rows for entry in model.history_} == {0, 200}
    assert model.history_[-1].rows == 200
    problem = Problem(X, y, np.ones(200), LOSSES["squared"], penalty=Penalty(l1=model.alpha_))
    found = problem.anchor(np.append(model.coef_, model.intercept_)[None, :])
    assert model.certificate_ is not None
    assert found.norm == pytest.approx(model.history_[-1].gradient_norm, abs=1e-12)


def test_folds_without_a_class_are_refused(data: tuple[Any, Any]) -> None:
    X, _ = data
    with pytest.raises(ValueError, match="fold 0 is fitted to rows that lack one of the 2 classes"):
        LinearClassifierCV(cv=KFold(2)).fit(X, np.arange(90) < 45)


@pytest.mark.parametrize("loss", ["huber", "welsch", "geman-mcclure"])
def test_robust_losses_along_a_path_far_from_0(loss: str, data: tuple[Any, Any]) -> None:
    X, y = data
    near, far = (LinearRegressorCV(loss, cv=3, n_alphas=5, eps=0.05, tol=1e-7).fit(X, y + c) for c in (0.0, 1000.0))
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-4)
    assert far.intercept_ == pytest.approx(near.intercept_ + 1000, abs=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_interruption_ends_all_threads(threads: int) -> None:
    """The others count their fits until they are told to stop; without that this would not end."""
    bar, begun = ProgressBar(10**9, shown=False), threading.Event()

    def fits() -> None:
        begun.set()
        while True:
            bar.tick()
            time.sleep(1e-3)

    def interrupted() -> None:
        assert threads == 1 or begun.wait(60)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        together([interrupted, fits, fits, fits], threads, bar.stop)
    assert begun.is_set() == (threads > 1)


def test_one_thread_is_the_calling_one() -> None:
    assert together([threading.get_ident] * 3, 1, lambda: None) == [threading.get_ident()] * 3
    assert threading.get_ident() not in together([threading.get_ident] * 3, 2, lambda: None)


def test_a_path_of_counts_with_one_factor_in_all_columns_is_solved() -> None:
    """Coordinate descent would use up its passes for the weak penalties; single fits, to a finer tolerance, agree."""
    rng = np.random.default_rng(0)
    X = np.sqrt(0.9) * rng.normal(size=(80, 1)) + np.sqrt(0.1) * rng.normal(size=(80, 600))
    y = np.round(np.exp(np.clip(X[:, :10] @ (2 * rng.normal(size=10)) / 3, -3, 3)))
    path = linear_path(X, y, loss="poisson", n_alphas=8, tol=1e-6)
    assert all(solution.converged for solution in path.solutions)
    assert "residual-newton" in path.solutions[-1].solver
    for k in (0, 4, 7):
        single = LinearRegressor("poisson", penalty="l1", alpha=path.alphas[k], tol=1e-8).fit(X, y)
        assert path.solutions[k].history[-1].objective == pytest.approx(single.history_[-1].objective, rel=1e-7)
