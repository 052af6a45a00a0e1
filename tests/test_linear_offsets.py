"""Offsets of a classifier's margins: f with the offset written out, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import optimize, sparse

from vcsg.linear import LinearClassifier


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("loss", ["logistic", "squared-hinge"])
@pytest.mark.parametrize(("n", "penalty"), [(300, "l2"), (300, None), (3000, "l2")])
def test_a_classifier_with_offsets(form: str, loss: str, n: int, penalty: str | None) -> None:
    """f with the offset written out has its minimum where scipy finds it; 3000 rows begin with a Hessian."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)) * (rng.random((n, 6)) < 0.5)
    offset, weight = rng.normal(size=n), rng.random(n)
    signs = np.where(X @ rng.normal(size=6) + offset + rng.logistic(size=n) > 0.3, 1, -1)
    share = weight / weight.sum()

    def objective(x: np.ndarray) -> float:
        z = signs * (X @ x[:6] + x[6] + offset)
        losses = np.logaddexp(0, -z) if loss == "logistic" else np.maximum(0, 1 - z) ** 2 / 2
        return float(share @ losses + (0.05 * (x[:6] @ x[:6]) if penalty else 0.0))

    model = LinearClassifier(loss, penalty=penalty, alpha=0.1, tol=1e-8)
    model.fit(sparse.csr_matrix(X) if form == "sparse" else X, signs, weight, offset=offset)
    assert "l-bfgs" in model.solver_
    found = np.append(model.coef_[0], model.intercept_)
    best = optimize.minimize(objective, np.zeros(7), method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose(found, best.x, atol=1e-4)
    assert objective(found) <= best.fun + 1e-12
    np.testing.assert_allclose(model.decision_function(X, offset), model.decision_function(X) + offset)
    if loss == "logistic":
        wanted = 1 / (1 + np.exp(-model.decision_function(X, offset)))
        np.testing.assert_allclose(model.predict_proba(X, offset)[:, 1], wanted, atol=1e-12)
    assert (model.predict(X, offset) == np.where(model.decision_function(X, offset) > 0, 1, -1)).all()


def test_an_offset_that_rows_explain_is_subtracted() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X @ [1.0, -1.0, 0.5] + rng.logistic(size=200) > 0
    plain = LinearClassifier(penalty=None, tol=1e-9).fit(X, y)
    w = np.array([2.0, 0.0, 1.0])
    shifted = LinearClassifier(penalty=None, tol=1e-9, warm_start=True).fit(X, y, offset=X @ w)
    np.testing.assert_allclose(shifted.coef_ + w, plain.coef_, atol=1e-6)
    again = shifted.fit(X, y, offset=X @ w)
    assert again.n_iter_ == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"penalty": "l1"}, "offset needs penalty='l2'"),
        ({"solver": "newton"}, "offset needs penalty='l2'"),
        ({"early_stopping": True}, "offset needs early_stopping=False"),
        ({"method": "svrg"}, "method as it is by default"),
    ],
)
def test_offsets_that_are_refused(options: dict[str, Any], text: str) -> None:
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    with pytest.raises(ValueError, match=text):
        LinearClassifier(**options).fit(X, y, offset=np.ones(40))
    with pytest.raises(ValueError, match="it is for two"):
        LinearClassifier().fit(X, np.arange(40) % 3, offset=np.ones(40))
    with pytest.raises(ValueError, match="give a number for each of the 40 rows"):
        LinearClassifier().fit(X, y, offset=np.ones(39))
