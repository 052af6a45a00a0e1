"""The estimators: scikit-learn's own checks, its tools, its solutions, and bad input."""

from __future__ import annotations

import doctest
import inspect
import pickle
import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from linear_data import make_problem
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, HuberRegressor, Lasso, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
    parametrize_with_checks,
)

import vcsg
from vcsg.linear import LinearClassifier, LinearRegressor, Penalty, classifier
from vcsg.linear.inputs import PENALTIES
from vcsg.linear.model import _default_schedule
from vcsg.method import Constant, GrowingAnchor, Weights


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([LinearClassifier(), LinearRegressor()])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


WEIGHTED: list[tuple[Any, dict[str, Any]]] = [
    *((kind, {"penalty": p}) for kind in (LinearClassifier, LinearRegressor) for p in PENALTIES),
    *((LinearRegressor, {"loss": loss}) for loss in LinearRegressor.losses),
    *((LinearClassifier, {"loss": loss}) for loss in LinearClassifier.losses),
    *(
        (LinearClassifier, {"method": name})
        for name, m in vcsg.methods().items()
        if name != "snvrg" and m.drawn != "never"
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "options"), WEIGHTED, ids=str)
def test_weights_are_repetitions(kind: Any, options: dict[str, Any]) -> None:
    """scikit-learn's check of it, for every penalty, loss and method."""
    model = kind(random_state=0, **options)
    check_sample_weight_equivalence_on_dense_data(kind.__name__, model)
    check_sample_weight_equivalence_on_sparse_data(kind.__name__, model)


@pytest.mark.parametrize("form", ["dense", "sparse", "float32"])
def test_merged_rows_have_the_same_objective(form: str) -> None:
    problem = make_problem("multinomial", n=40, d=3, bias=1.0, penalty=Penalty(l2=0.1), form=form, weighted=True)
    twice = problem.subset(np.repeat(np.arange(40), 2))
    twice.weight[::7] = 0.0
    twice.weight[:] *= len(twice.weight) / twice.weight.sum()
    merged = twice.merged()
    assert merged.n < 41
    assert type(merged.rows) is type(twice.rows)
    x = np.random.default_rng(1).normal(size=problem.shape)
    for ours, expected in zip(merged.objective(x), twice.objective(x), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-14)


def test_merged_rows_do_not_depend_on_how_they_are_told_apart() -> None:
    """Rows once with weights 2, which the first column tells apart, and each of them twice, which it does not."""
    problem = make_problem("squared", n=30, d=3, bias=1.0, penalty=Penalty(l2=0.1))
    problem.rows[:, 0] = np.random.default_rng(1).normal(size=30)
    order = np.random.default_rng(2).permutation(np.repeat(np.arange(30), 2))
    once, twice = problem.merged(), problem.subset(order).merged()
    for name in ("rows", "y", "weight"):
        np.testing.assert_array_equal(getattr(once, name), getattr(twice, name))
    assert (np.diff(once.rows[:, 0]) > 0).all()


def test_another_penalty_leaves_the_rest_of_a_problem() -> None:
    problem = make_problem("squared", n=30, d=3, bias=1.0, penalty=Penalty(l2=0.1))
    assert problem.smooth
    for terms in (Penalty(l1=0.2), Penalty(l1=0.1, l2=0.3, positive=True), Penalty(l2=2.0)):
        ours, expected = problem.with_penalty(terms), replace(problem, penalty=terms)
        assert ours.smooth == expected.smooth
        x = np.random.default_rng(1).normal(size=problem.shape)
        assert ours.anchor(x)[:2] == expected.anchor(x)[:2]


def data(n: int = 300, d: int = 6, classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, classes)) + rng.normal(size=(n, classes)) * 2
    return X, scores.argmax(1)


def mean_log_loss(model: Any, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> float:
    p = model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    return float(np.average(-np.log(p), weights=weight))


# --- the solutions of others


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["dense", "sparse", "float32"])
@pytest.mark.parametrize("intercept", [True, False])
def test_logistic_regression(classes: int, kind: str, intercept: bool) -> None:
    X, y = data(classes=classes)
    rows = {"dense": X, "sparse": sparse.csr_matrix(X), "float32": X.astype(np.float32)}[kind]
    ours = LinearClassifier(alpha=0.01, fit_intercept=intercept, tol=1e-7).fit(rows, y)
    peer = LogisticRegression(C=1 / (0.01 * len(y)), fit_intercept=intercept, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(ours.decision_function(X), peer.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("by_class", [None, "balanced", {0: 3.0, 1: 0.5}])
def test_weights_of_rows_and_classes(by_class: Any) -> None:
    X, y = data()
    weight = np.random.default_rng(1).random(len(y)) * 3
    ours = LinearClassifier(alpha=0.01, class_weight=by_class, tol=1e-8).fit(X, y, weight)
    by_row = np.ones(2) if by_class is None else np.array([3.0, 0.5])
    if by_class == "balanced":
        by_row = weight.sum() / (2 * np.bincount(y, weight))
    total = float((weight * by_row[y]).sum())
    C = 1 / (0.01 * total)
    peer = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(X, y, weight * by_row[y])
    np.testing.assert_allclose(ours.coef_, peer.coef_, rtol=1e-4)


@pytest.mark.parametrize(
    ("by_class", "weighted"), [(None, False), (None, True), ("balanced", False), ({0: 3.0, 1: 0.5}, True)], ids=str
)
def test_C_is_that_of_logistic_regression(by_class: Any, weighted: bool) -> None:
    X, y = data()
    weight = np.random.default_rng(1).random(len(y)) * 3 if weighted else None
    ours = LinearClassifier(C=0.3, class_weight=by_class, tol=1e-8).fit(X, y, weight)
    peer = LogisticRegression(C=0.3, class_weight=by_class, tol=1e-10, max_iter=10_000).fit(X, y, weight)
    np.testing.assert_allclose(ours.coef_, peer.coef_, rtol=1e-4)
    with pytest.raises(ValueError, match=r"alpha = 0.1 beside C = 0.3: give one of them"):
        LinearClassifier(C=0.3, alpha=0.1).fit(X, y)
    with pytest.raises(ValueError, match=r"C = 0: give a number above 0"):
        LinearClassifier(C=0).fit(X, y)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("classes", [2, 3])
def test_single_precision_in_is_single_precision_out(kind: str, classes: int) -> None:
    X, y = data(n=2000, classes=classes)
    rows: Any = X.astype(np.float32) if kind == "dense" else sparse.csr_matrix(X.astype(np.float32))
    single, double = LinearClassifier(tol=1e-6).fit(rows, y), LinearClassifier(tol=1e-6).fit(rows.astype(float), y)
    assert single.coef_.dtype == single.intercept_.dtype == single.predict_proba(rows).dtype == np.float32
    assert double.coef_.dtype == double.predict_proba(rows.astype(float)).dtype == np.float64
    np.testing.assert_allclose(single.coef_, double.coef_, atol=1e-5)
    regressor = LinearRegressor(tol=1e-6).fit(rows, y)
    assert regressor.coef_.dtype == regressor.predict(rows).dtype == np.float32


def test_squared_hinge() -> None:
    X, y = data()
    ours = LinearClassifier("squared-hinge", alpha=0.01, fit_intercept=False, tol=1e-8).fit(X, y)
    # Its objective is ‖w‖²/2 + CΣmax(0, 1 − yz)², ours half the mean of the latter.
    peer = LinearSVC(C=1 / (2 * 0.01 * len(y)), fit_intercept=False, tol=1e-10, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, peer.coef_, rtol=1e-4)
    assert not hasattr(ours, "predict_proba")


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float64", "str"])
@pytest.mark.parametrize("names", [[0, 1], [1, 0], [2, 2, 1], [0], [0, 2, 1], [1, 2, 0]])
def test_classes_are_sorted_and_numbered(dtype: str, names: list[int]) -> None:
    """Whichever comes first, and where the third comes late."""
    y = np.array(names[:2] * 20 + names).astype(dtype)
    classes, numbers = classifier._encoded(y)
    expected, inverse = np.unique(y, return_inverse=True)
    np.testing.assert_array_equal(classes, expected, strict=True)
    np.testing.assert_array_equal(numbers, inverse)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # scikit-learn's, on its way to the error
@pytest.mark.parametrize("values", [[0.5, 1.0], [0.0, np.inf], [0.0, np.nan]])
def test_numbers_that_are_no_classes_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"Unknown label type|contains"):
        classifier._encoded(np.array(values * 20))


def test_squared_hinge_for_several_classes_is_one_against_the_rest() -> None:
    X, y = data(classes=3)
    ours = LinearClassifier("squared-hinge", alpha=0.01, tol=1e-8).fit(X, y)
    each = OneVsRestClassifier(LinearClassifier("squared-hinge", alpha=0.01, tol=1e-8)).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), each.decision_function(X), atol=1e-5)
    assert (ours.predict(X) == each.predict(X)).all()


@pytest.mark.parametrize("shape", [(300, 6), (30, 60), (3000, 4)])
def test_ridge(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape)
    y = X @ rng.normal(size=shape[1]) + rng.normal(size=shape[0]) + 5
    ours = LinearRegressor(alpha=0.1, tol=1e-9).fit(X, y)
    peer = Ridge(alpha=0.1 * len(y)).fit(X, y)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(peer.intercept_, abs=1e-6)


@pytest.mark.parametrize("ratio", [1.0, 0.4])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_lasso_and_elastic_net(ratio: float, kind: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 20))
    y = X[:, :3] @ np.array([3.0, -2, 1]) + rng.normal(size=400)
    rows = sparse.csr_matrix(X) if kind == "sparse" else X
    ours = LinearRegressor(penalty="elasticnet", l1_ratio=ratio, alpha=0.2, tol=1e-7).fit(rows, y)
    peer = ElasticNet(alpha=0.2, l1_ratio=ratio, tol=1e-12, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-5)
    assert ((ours.coef_ == 0) == (peer.coef_ == 0)).all()


def test_l1_is_the_lasso() -> None:
    X, y = data()
    ours = LinearRegressor(penalty="l1", alpha=0.05, tol=1e-7).fit(X, y)
    np.testing.assert_allclose(ours.coef_, Lasso(alpha=0.05, tol=1e-12).fit(X, y).coef_, atol=1e-5)


def test_huber() -> None:
    """HuberRegressor finds a scale too; at that scale the coefficients agree."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    y = X @ np.array([1.0, 2, 3, 4]) + rng.standard_t(1.5, size=500)
    peer = HuberRegressor(alpha=0.0, tol=1e-10, max_iter=1000).fit(X, y)
    ours = LinearRegressor("huber", scale=1.35 * peer.scale_, penalty=None, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-3)


@pytest.mark.parametrize("loss", ["geman-mcclure", "welsch"])
def test_bounded_losses_shrug_off_outliers(loss: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = X @ np.array([1.0, -1, 0.5])
    y[:100] += 1000
    ours = LinearRegressor(loss, scale=3.0, penalty=None, tol=1e-6).fit(X, y)
    np.testing.assert_allclose(ours.coef_, [1, -1, 0.5], atol=1e-2)


def test_non_convex_penalty_is_stationary() -> None:
    X, y = data()
    ours = LinearClassifier(penalty="rational", alpha=0.01, tol=1e-8).fit(X, y)
    margins = np.where(y == 1, 1.0, -1.0) * ours.decision_function(X)
    slope = X.T @ (np.where(y == 1, -1.0, 1.0) / (1 + np.exp(margins))) / len(y)
    w = ours.coef_[0]
    np.testing.assert_allclose(slope + 0.01 * 2 * w / (1 + w**2) ** 2, 0, atol=2e-8)


def test_non_convex_penalty_on_sparse_rows_is_left_to_lbfgs() -> None:
    """Its inner steps would wait for coordinates that take theirs one by one."""
    rng = np.random.default_rng(0)
    rows = sparse.random(3000, 5000, 2e-3, "csr", random_state=0)
    y = (rows @ rng.normal(size=5000) > 0).astype(int)
    ours = LinearClassifier(penalty="rational", alpha=1e-3, tol=1e-6, random_state=0).fit(rows, y)
    assert ours.solver_ == "growing-svrg, then l-bfgs"
    assert ours.history_[0].rows == 3000
    assert ours.history_[-1].gradient_norm <= 1e-6


# --- stopping


@pytest.mark.parametrize("n", [100, 5_000, 60_000])
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
def test_tol_is_on_the_gradient(n: int, tol: float) -> None:
    X, y = data(n=n, d=20)
    ours = LinearClassifier(alpha=1e-3, tol=tol, random_state=0).fit(X, y)
    slope = -np.where(y == 1, 1.0, -1.0) / (1 + np.exp(np.where(y == 1, 1.0, -1.0) * ours.decision_function(X)))
    gradient = np.append(X.T @ slope / n + 1e-3 * ours.coef_[0], slope.mean())
    assert np.linalg.norm(gradient) <= tol * (1 + 1e-6)
    assert ours.history_[-1].gradient_norm == pytest.approx(np.linalg.norm(gradient), rel=1e-4, abs=1e-12)
    assert ours.n_iter_ >= 1


def test_sorted_rows_do_no_harm() -> None:
    X, y = data(n=40_000, d=30)
    by_label = np.lexsort((X[:, 0], y))
    fits = [LinearClassifier(alpha=1e-3, tol=1e-5, random_state=0).fit(X[i], y[i]) for i in (slice(None), by_label)]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-3)
    assert fits[1].n_iter_ <= 3 * fits[0].n_iter_


def test_unscaled_features_are_handed_over() -> None:
    X, y = data(n=5_000, d=10)
    scales = 10.0 ** np.arange(-4, 6)
    plain = LinearClassifier(penalty=None, tol=1e-9).fit(X, y)
    ours = LinearClassifier(penalty=None, tol=1e-6).fit(X * scales, y)
    assert ours.history_[-1].stage in ("newton", "l-bfgs")
    assert mean_log_loss(ours, X * scales, y) == pytest.approx(mean_log_loss(plain, X, y), abs=1e-6)


def test_a_step_too_long_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data(n=10_000, d=10)
    y = X @ np.ones(10) + y
    monkeypatch.setattr("vcsg.linear.solvers.growing.STEP", 1e3)
    ours = LinearRegressor(alpha=1e-3, tol=1e-6, random_state=0).fit(X, y)
    assert ours.history_[-1].gradient_norm <= 1e-6
    sparse_ours = LinearRegressor(penalty="l1", alpha=1e-3, tol=1e-5, random_state=0).fit(X, y)
    assert sparse_ours.history_[-1].gradient_norm <= 1e-5


def test_a_fit_that_does_not_get_there_says_what_to_do() -> None:
    X, y = data(n=3000)
    with pytest.warns(ConvergenceWarning, match=r"give a larger tol or max_iter, scale the features"):
        LinearClassifier(tol=1e-9, max_iter=1).fit(X, y)


def test_verbose_prints_every_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = data(n=3000)
    ours = LinearClassifier(verbose=1).fit(X, y)
    assert capsys.readouterr().out.count("[LinearClassifier]") == len(ours.history_)


# --- the tools of scikit-learn


def test_pipeline_grid_search_and_cross_validation() -> None:
    X, y = data()
    pipeline = make_pipeline(StandardScaler(), LinearClassifier())
    search = GridSearchCV(pipeline, {"linearclassifier__alpha": [1e-3, 1e-1]}, n_jobs=2, cv=3).fit(X, y)
    assert search.best_score_ > 0.6
    assert cross_val_score(LinearRegressor(), X, y, cv=3).shape == (3,)


def test_clone_and_pickle() -> None:
    X, y = data()
    ours = LinearClassifier(alpha=0.1, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(ours))
    assert (again.decision_function(X) == ours.decision_function(X)).all()
    assert clone(ours).fit(X, y).coef_.tolist() == ours.coef_.tolist()


@pytest.mark.parametrize(("n", "d"), [(100, 5), (3000, 200), (20_000, 20)])
@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_warm_start_at_the_solution_takes_one_pass(n: int, d: int, penalty: str) -> None:
    X, y = data(n=n, d=d)
    ours = LinearClassifier(penalty=penalty, alpha=1e-2, tol=1e-5, warm_start=True, random_state=0).fit(X, y)
    coef = ours.coef_.copy()
    ours.fit(X, y)
    assert ours.n_iter_ == len(ours.history_) == 1
    assert ours.solver_ == "none: solved at the start"
    np.testing.assert_array_equal(ours.coef_, coef)
    assert (penalty == "l1") == (0 <= ours.duality_gap_ < 1e-3)


def test_warm_start_near_the_solution_takes_few_passes() -> None:
    X, y = data(n=20_000, d=20)
    ours = LinearClassifier(alpha=1e-3, tol=1e-6, warm_start=True, random_state=0).fit(X, y)
    cold = LinearClassifier(alpha=1.01e-3, tol=1e-6, random_state=0).fit(X, y).n_iter_
    assert ours.set_params(alpha=1.01e-3).fit(X, y).n_iter_ < cold
    assert ours.history_[-1].gradient_norm <= 1e-6


def test_warm_start_begins_where_it_was() -> None:
    X, y = data(n=20_000, d=20)
    ours = LinearClassifier(alpha=1e-3, tol=1e-6, warm_start=True, random_state=0).fit(X, y)
    first = ours.history_[0].objective
    ours.fit(X, y)
    assert ours.history_[0].objective < first
    with pytest.raises(ValueError, match="warm start"):
        LinearRegressor(warm_start=True).fit(X, y).fit(X[:, :3], y)


def test_partial_fit_gets_there_chunk_by_chunk() -> None:
    X, y = data(n=8_000, d=5)
    ours = LinearClassifier(alpha=1e-3, random_state=0)
    for _ in range(5):
        for part in np.array_split(np.arange(len(y)), 4):
            ours.partial_fit(X[part], y[part], classes=[0, 1])
    full = LinearClassifier(alpha=1e-3).fit(X, y)
    assert mean_log_loss(ours, X, y) < mean_log_loss(full, X, y) + 1e-3


@pytest.mark.parametrize("method", ["svrg", "vcsg", "batching-svrg", "spider"])
def test_other_methods_of_the_family(method: str) -> None:
    X, y = data(n=200, d=3)
    ours = LinearClassifier(alpha=0.1, method=method, tol=1e-3, max_iter=5000, random_state=0).fit(X, y)
    best = LinearClassifier(alpha=0.1, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.coef_, best.coef_, atol=0.2)
    assert ours.solver_ == method


def test_threads() -> None:
    X, y = data(n=30_000, d=10)
    one, two = (LinearClassifier(tol=1e-6, n_jobs=j, random_state=0).fit(X, y) for j in (1, 2))
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-6)


# --- bad input


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("n", [50, 20_000])
def test_entries_that_are_not_finite(bad: float, kind: str, n: int) -> None:
    X, y = data(n=n)
    X[n // 3, 2] = bad
    rows = sparse.csr_matrix(X) if kind == "sparse" else X
    for model in (LinearClassifier(), LinearRegressor()):
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            model.fit(rows, y)


def test_values_too_large_for_squares() -> None:
    X, y = data()
    with pytest.raises(ValueError, match="scale the features"):
        LinearRegressor().fit(X * 1e200, y)


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"alpha": -1.0}, "alpha = -1.0: give a number from 0 on"),
    ({"tol": -1.0}, "tol = -1.0"),
    ({"max_iter": 0}, "max_iter = 0: give a whole number, at least 1"),
    ({"loss": "hinge"}, "loss = 'hinge': choose one of"),
    ({"penalty": "l3"}, "penalty = 'l3': choose one of"),
    ({"l1_ratio": 2.0, "penalty": "elasticnet"}, "l1_ratio = 2.0: give a number from 0 to 1"),
    ({"n_jobs": 0}, "n_jobs = 0: give a number of threads"),
    ({"method": "svrgg"}, "did you mean 'svrg'"),
    ({"method": "snvrg"}, "nested anchors"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=str)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    X, y = data(n=40)
    with pytest.raises(ValueError, match=message):
        LinearClassifier(**options).fit(X, y)


def test_one_class_and_weights_of_zero() -> None:
    X, y = data(n=20)
    with pytest.raises(ValueError, match="at least two classes"):
        LinearClassifier().fit(X, np.zeros(20))
    with pytest.raises(ValueError, match="at least one non-zero"):
        LinearClassifier().fit(X, y, np.zeros(20))
    with pytest.raises(ValueError, match="not among the classes"):
        LinearClassifier().partial_fit(X, y + 5, classes=[0, 1])
    with pytest.raises(ValueError, match="sample"):
        LinearClassifier().fit(np.empty((0, 3)), np.empty(0))


def test_one_row_and_one_column_and_constant_columns() -> None:
    one = LinearRegressor(penalty=None).fit([[2.0]], [3.0])
    assert one.predict([[2.0]])[0] == pytest.approx(3.0, abs=1e-3)
    X, y = data(n=100)
    X[:, 1], X[:, 2] = 0.0, 7.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = LinearClassifier(alpha=0.01, tol=1e-8).fit(X, y)
    peer = LogisticRegression(C=1 / (0.01 * 100), tol=1e-12, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), atol=1e-5)
    assert ours.coef_[0, 1] == pytest.approx(0, abs=1e-12)


def test_64_bit_indices() -> None:
    """Matrices of more than 2^31 non-zeros have them; a small one stands for these."""
    X, y = data()
    rows = sparse.csr_matrix(X)
    wide = rows.copy()
    wide.indices, wide.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    a, b = (LinearClassifier(tol=1e-8).fit(m, y).coef_ for m in (rows, wide))
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_repeated_entries_are_summed_and_the_matrix_stays_as_it_is() -> None:
    X, y = data(n=50)
    columns = np.tile([0, 1, 1], 50)
    twice = sparse.csr_matrix((np.repeat(X[:, 0], 3), columns, np.arange(0, 151, 3)), shape=(50, 6))
    before = twice.nnz
    a = LinearClassifier(tol=1e-8).fit(twice, y).coef_
    assert twice.nnz == before
    np.testing.assert_allclose(a, LinearClassifier(tol=1e-8).fit(twice.toarray(), y).coef_, atol=1e-6)


def test_only_growing_svrg_itself_goes_to_the_default_solver() -> None:
    """A method that has its schedule and differs elsewhere runs as what it says."""
    plain = vcsg.make("growing-svrg", B=256, growth=3.0, b=4)
    assert _default_schedule(plain) == GrowingAnchor(256, 3.0, 4)
    assert _default_schedule(vcsg.make("svrg")) is None
    weights = {"": Constant(Weights(0.5, -0.5, 0.5))}
    for change in ({"gamma": 0.5}, {"name": "mine"}, {"length": "geometric"}, {"weights": weights}):
        assert _default_schedule(replace(plain, **change)) is None
    X, y = data(n=2000)
    mine = LinearClassifier(alpha=0.1, tol=1e-3, method=replace(plain, name="mine", weights=weights)).fit(X, y)
    assert mine.solver_ == "mine"
    assert {entry.stage for entry in mine.history_} == {"mine"}


@pytest.mark.parametrize("kind", [LinearClassifier, LinearRegressor])
def test_every_option_is_explained_and_the_example_runs(kind: Any) -> None:
    text = inspect.getdoc(kind) or ""
    args = text.split("Args:")[1].split("Attributes:")[0]
    for option in inspect.signature(kind).parameters:
        assert re.search(rf"^ +{option}: [A-Z]\S* ", args, re.MULTILINE), option
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    examples = [case for case in finder.find(kind, globs={kind.__name__: kind}) if case.examples]
    assert examples
    assert runner.run(examples[0]).failed == 0
