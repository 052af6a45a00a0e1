"""Whatever the data, the objective is as low as that of scikit-learn's solution, to 1e-6."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge

from vcsg.linear import LOSSES, LinearClassifier, LinearRegressor, Penalty, Problem

SETTINGS = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # a smaller case is seldom simpler here, and takes minutes to find
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Case:
    """Data of any shape: wide or tall, of one row or column, unscaled, with constant, repeated and empty columns."""

    n: int
    d: int
    classes: int
    spread: float
    """The features' scales are 10^±spread."""
    odd: str
    sparse: bool
    weighted: bool
    intercept: bool
    alpha: float
    seed: int

    def data(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        rng = np.random.default_rng(self.seed)
        X = rng.normal(size=(self.n, self.d)) * 10 ** rng.uniform(-self.spread, self.spread, self.d)
        if self.odd == "constant":
            X[:, 0] = 3.0
        elif self.odd == "empty":
            X[:, 0] = 0.0
        elif self.odd == "repeated":
            X[:, -1] = X[:, 0]
        elif self.odd == "sparse":
            X *= rng.random(X.shape) < 0.1
        y = np.arange(self.n) % self.classes
        rng.shuffle(y)
        return X, y, rng.integers(4, size=self.n) + 0.5 if self.weighted else None

    def rows(self, X: np.ndarray) -> Any:
        return sparse.csr_matrix(X) if self.sparse else X


CASES = st.builds(
    Case,
    n=st.integers(2, 3000),
    d=st.integers(1, 40),
    classes=st.integers(2, 4),
    spread=st.sampled_from([0.0, 0.5, 2.0]),
    odd=st.sampled_from(["", "constant", "empty", "repeated", "sparse"]),
    sparse=st.booleans(),
    weighted=st.booleans(),
    intercept=st.booleans(),
    alpha=st.sampled_from([1e-4, 1e-2, 1.0]),
    seed=st.integers(0, 10**6),
)


def objective(case: Case, loss: str, y: np.ndarray, weight: Any, coef: Any, intercept: Any, terms: Penalty) -> float:
    """f at a solution, in float64."""
    X, _, _ = case.data()
    w = np.ones(case.n) if weight is None else weight / weight.mean()
    coef = np.atleast_2d(coef)
    problem = Problem(X, y.astype(float), w, LOSSES[loss], 1.0, len(coef), 1.0, terms)
    return problem.objective(np.column_stack([coef, np.broadcast_to(intercept, len(coef))]))[0]


@SETTINGS
@given(CASES)
def test_logistic_regression(case: Case) -> None:
    X, y, weight = case.data()
    if len(np.unique(y)) < 2:
        return
    classes = len(np.unique(y))
    ours = LinearClassifier(alpha=case.alpha, fit_intercept=case.intercept, tol=1e-7, max_iter=5000)
    ours.fit(case.rows(X), y, weight)
    total = case.n if weight is None else weight.sum()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = LogisticRegression(
            C=1 / (case.alpha * total), fit_intercept=case.intercept, solver="newton-cholesky", tol=1e-9, max_iter=500
        ).fit(X, y, weight)
    loss, targets = ("multinomial", y) if classes > 2 else ("logistic", 2 * y - 1)
    values = [
        objective(case, loss, targets, weight, m.coef_, m.intercept_, Penalty(l2=case.alpha)) for m in (ours, peer)
    ]
    assert values[0] <= values[1] + 1e-6 * max(1.0, abs(values[1]))


@SETTINGS
@given(CASES)
def test_ridge(case: Case) -> None:
    X, y, weight = case.data()
    ours = LinearRegressor(alpha=case.alpha, fit_intercept=case.intercept, tol=1e-7, max_iter=5000)
    ours.fit(case.rows(X), y, weight)
    total = case.n if weight is None else weight.sum()
    peer = Ridge(alpha=case.alpha * total, fit_intercept=case.intercept, solver="svd").fit(X, y, weight)
    values = [
        objective(case, "squared", y, weight, m.coef_, m.intercept_, Penalty(l2=case.alpha)) for m in (ours, peer)
    ]
    assert values[0] <= values[1] + 1e-6 * max(1.0, abs(values[1]))


@SETTINGS
@given(CASES, st.sampled_from([0.2, 1.0]))
def test_elastic_net(case: Case, ratio: float) -> None:
    X, y, weight = case.data()
    ours = LinearRegressor(
        penalty="elasticnet", alpha=case.alpha, l1_ratio=ratio, fit_intercept=case.intercept, tol=1e-6, max_iter=20_000
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours.fit(case.rows(X), y, weight)
        peer = ElasticNet(
            alpha=case.alpha, l1_ratio=ratio, fit_intercept=case.intercept, tol=1e-10, max_iter=50_000
        ).fit(X, y, weight)
    terms = Penalty(l1=case.alpha * ratio, l2=case.alpha * (1 - ratio))
    values = [objective(case, "squared", y, weight, m.coef_, m.intercept_, terms) for m in (ours, peer)]
    assert values[0] <= values[1] + 1e-6 * max(1.0, abs(values[1]))


@pytest.mark.parametrize("seed", [8, 11, 24])
def test_elastic_net_where_a_line_search_fails(seed: int) -> None:
    """A constant column beside the intercept: from here a single run of scipy's L-BFGS-B gave up at ‖∇f‖ > 4e-4."""
    case = Case(327, 5, 2, 0.5, "constant", False, True, True, 1e-4, 4096)
    X, y, weight = case.data()
    ours = LinearRegressor(penalty="elasticnet", alpha=1e-4, l1_ratio=0.2, tol=1e-6, max_iter=20_000, random_state=seed)
    assert ours.fit(X, y, weight).history_[-1].gradient_norm <= 1e-6


@SETTINGS
@given(CASES, st.sampled_from(["huber", "squared-hinge", "geman-mcclure", "welsch"]))
def test_the_other_losses_end_at_a_stationary_point(case: Case, loss: str) -> None:
    X, y, weight = case.data()
    y = y % 2
    if len(np.unique(y)) < 2:
        return
    model: Any = LinearClassifier if loss == "squared-hinge" else LinearRegressor
    ours = model(loss, alpha=case.alpha, fit_intercept=case.intercept, tol=1e-5, max_iter=20_000)
    ours.fit(case.rows(X), y, weight)
    assert ours.history_[-1].gradient_norm <= 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_wide_data_without_a_penalty_are_fitted_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(20, 50)), rng.normal(size=20)
    ours = LinearRegressor(penalty=None, tol=1e-8, max_iter=5000).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), y, atol=1e-5)
