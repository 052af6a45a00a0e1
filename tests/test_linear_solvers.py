"""The solvers of linear models: the choice between them, each beside scipy's minimum, and problems that are hard."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from linear_data import make_problem
from scipy import optimize, sparse
from scipy.special import expit, softmax
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning

from vcsg.linear import LOSSES, LinearClassifier, LinearRegressor, Penalty, Problem, solve
from vcsg.linear.curvature import column_scales, heavy_rows, hessian_factors, scatters
from vcsg.linear.kernels import dual_steps, hessian
from vcsg.linear.solution import Journal
from vcsg.linear.solvers import growing, lbfgs, newton, quasi_newton
from vcsg.linear.solvers.choice import SOLVERS, Shape, choose

CONVEX = ["squared", "huber", "logistic", "squared-hinge", "multinomial"]


# --- the choice

SHAPES: list[tuple[Shape, str]] = [
    (Shape(50, 3, 150), "newton"),
    (Shape(569, 30, 569 * 30), "newton"),
    (Shape(150, 4, 600, outputs=3), "growing-svrg"),
    (Shape(500, 10, 5000, outputs=3), "growing-svrg"),
    (Shape(100, 130, 13_000), "l-bfgs"),
    (Shape(100, 130, 13_000, quadratic=True), "newton"),
    (Shape(100, 130, 13_000, outputs=3), "l-bfgs"),
    (Shape(5000, 2000, 100_000, outputs=4), "l-bfgs"),
    (Shape(30_000, 500, 300_000, outputs=3), "l-bfgs"),
    (Shape(100_000, 200, 1_000_000, outputs=5), "growing-svrg"),
    (Shape(2000, 200, 400_000), "l-bfgs"),
    (Shape(500, 5000, 2_500_000), "l-bfgs"),
    (Shape(20_000, 1000, 20_000_000), "l-bfgs"),
    (Shape(5000, 50_000, 500_000), "l-bfgs"),
    (Shape(5000, 50_000, 500_000, dual=True, square=1.1, l2=0.1 / 5000, tol=1e-5), "dual"),
    (Shape(5000, 50_000, 500_000, dual=True, square=1.1, l2=3 / 5000, tol=1e-4), "dual"),
    (Shape(5000, 50_000, 500_000, dual=True, square=1.1, l2=10 / 5000, tol=1e-5), "l-bfgs"),
    (Shape(5000, 50_000, 500_000, dual=True, square=1.1, l2=0.1 / 5000, tol=1e-2), "l-bfgs"),
    (Shape(20_000, 2000, 800_000, dual=True, l2=0.1 / 20_000, tol=1e-5), "growing-svrg"),
    (Shape(100_000, 300, 30_000_000), "growing-svrg"),
    (Shape(1_000_000, 10, 10_000_000), "growing-svrg"),
    (Shape(100_000, 100_000, 5_000_000), "growing-svrg"),
    (Shape(50, 3, 150, smooth=False), "growing-svrg"),
    (Shape(5000, 50_000, 500_000, smooth=False, lasso=True), "working-set"),
    (Shape(500, 5000, 2_500_000, smooth=False, lasso=True), "working-set"),
    (Shape(20_000, 1000, 20_000_000, smooth=False, lasso=True), "growing-svrg"),
    (Shape(8000, 112, 168_000, smooth=False, lasso=True), "growing-svrg"),
    (Shape(1797, 64, 1797 * 64, smooth=False, lasso=True), "working-set"),
    (Shape(50_000, 100, 5_000_000, smooth=False, lasso=True, quadratic=True), "working-set"),
    (Shape(1797, 64, 1797 * 64, outputs=10), "growing-svrg"),
]


@pytest.mark.parametrize(("shape", "solver"), SHAPES, ids=str)
def test_the_shape_chooses_the_solver(shape: Shape, solver: str) -> None:
    assert choose(shape) == solver


SMOOTH = ("growing-svrg", "l-bfgs", "newton", "dual")
# The dual solver takes sparse rows and the logistic loss.
FORMS = [(solver, form) for solver in SMOOTH for form in ("dense", "sparse") if solver != "dual" or form == "sparse"]


@pytest.mark.parametrize(("solver", "kind"), [*FORMS, ("newton", "float32"), ("l-bfgs", "float32")])
def test_a_solver_that_is_asked_for_runs_and_is_named(solver: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 8))
    y = X @ rng.normal(size=8) + rng.logistic(size=500) > 0
    rows: Any = {"dense": X, "sparse": sparse.csr_matrix(X), "float32": X.astype(np.float32)}[kind]
    fits = [LinearClassifier(alpha=0.01, tol=1e-6, solver=s, random_state=0).fit(rows, y) for s in ("auto", solver)]
    assert fits[1].solver_.startswith(solver)
    assert fits[1].history_[-1].gradient_norm <= 1e-6
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-4)


def test_what_is_refused() -> None:
    X, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50) % 2
    with pytest.raises(ValueError, match=r"solver = 'simplex': choose one of 'auto', 'growing-svrg'"):
        LinearClassifier(solver="simplex").fit(X, y)
    with pytest.raises(ValueError, match=r"'newton' needs a convex loss and no penalty but 'l2'"):
        LinearClassifier(solver="newton", penalty="l1").fit(X, y)
    with pytest.raises(ValueError, match=r"leave one of them as it is"):
        LinearClassifier(solver="newton", method="svrg").fit(X, y)
    with pytest.raises(ValueError, match=r"'working-set' needs penalty='l1' or 'elasticnet'"):
        LinearClassifier(solver="working-set").fit(X, y)
    for options in ({"loss": "squared-hinge"}, {"alpha": 0.0}):
        with pytest.raises(ValueError, match=r"'dual' needs sparse rows, loss='logistic'"):
            LinearClassifier(solver="dual", **options).fit(sparse.csr_matrix(X), y)
    problem = make_problem("logistic", n=20, d=2, bias=1.0)
    with pytest.raises(ValueError, match=r"solver = 'simplex': choose 'auto' or one of"):
        solve(problem, np.zeros(problem.shape), 1e-4, solver="simplex")


# --- every solver, every convex loss: scipy's minimum


@pytest.mark.parametrize(
    ("solver", "form", "name"),
    [(*form, name) for form in FORMS for name in CONVEX if form[0] != "dual" or name == "logistic"],
)
def test_solvers_end_at_the_minimum_that_scipy_finds(solver: str, name: str, form: str) -> None:
    problem = make_problem(name, n=300, d=6, bias=1.0, penalty=Penalty(l2=0.05), form=form, weighted=True)
    found = solve(problem, np.full(problem.shape, float(solver != "dual")), tol=1e-7, solver=solver)
    value, gradient = problem.objective(found.x)
    assert found.converged
    assert np.linalg.norm(gradient) <= 1e-7
    expected = optimize.minimize(
        lambda w: problem.objective(w.reshape(found.x.shape))[0], found.x.ravel() * 0.9, method="BFGS"
    )
    assert value <= expected.fun + 1e-11
    assert found.history[-1].objective == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("solver", SMOOTH[:-1])
def test_solvers_keep_to_their_budget_and_say_so(solver: str) -> None:
    problem = make_problem("logistic", n=3000, d=6, bias=1.0, penalty=Penalty(l2=1e-6))
    found = solve(problem, np.full(problem.shape, 3.0), tol=1e-12, passes=3, solver=solver)
    assert not found.converged
    assert found.message == "3 passes are used up"
    assert found.history[-1].passes <= 4


# --- Newton


@pytest.mark.parametrize("width", [3, 8, 17, 40])
def test_gram_matrix_factor_and_substitution(width: int) -> None:
    rng = np.random.default_rng(0)
    scaled, gram, v = rng.normal(size=(60, width)), np.empty((width, width)), rng.normal(size=width)
    hessian.gram(scaled, gram)
    expected, solution = scaled.T @ scaled, np.linalg.solve(scaled.T @ scaled, v)
    np.testing.assert_allclose(np.tril(gram), np.tril(expected), atol=1e-11)
    assert hessian.factor(gram)
    np.testing.assert_allclose(np.tril(gram), np.linalg.cholesky(expected), atol=1e-11)
    hessian.substitute(gram, v)
    np.testing.assert_allclose(v, solution, rtol=1e-9)


def test_a_singular_matrix_has_no_factor() -> None:
    rows = np.random.default_rng(0).normal(size=(10, 4))
    rows[:, 3] = rows[:, 0] + rows[:, 1]
    gram = np.empty((4, 4))
    hessian.gram(rows, gram)
    assert not hessian.factor(gram)


def test_newton_where_the_hessian_is_singular() -> None:
    """A repeated column without a penalty: any split between the two is a minimum."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X = np.column_stack([X, X[:, 0]])
    y = X[:, 0] + rng.normal(size=200)
    ours = LinearRegressor(penalty=None, tol=1e-9).fit(X, y)
    assert ours.solver_ == "newton"
    wide = np.column_stack([X, np.ones(200)])
    np.testing.assert_allclose(ours.predict(X), wide @ np.linalg.lstsq(wide, y, rcond=None)[0], atol=1e-8)


@pytest.mark.parametrize(
    ("name", "size"),
    [("tweedie", 1.0), *((name, size) for name in ("logistic", "squared-hinge") for size in (1.0, 30.0))],
)
def test_newton_goes_on_to_rounding(name: str, size: float) -> None:
    """Steps with a factor that is kept end where those with a new Hessian each, in NumPy, do; every one leads down."""
    problem = make_problem(name, n=300, d=6, bias=1.0, penalty=Penalty(l2=0.05), weighted=True)
    problem = replace(problem, rows=size * problem.rows)
    found = newton.solve(problem, np.zeros(problem.shape), 1e-3, Journal(100.0))
    assert found.converged
    assert found.history[-1].gradient_norm < 1e-13 * max(1.0, found.history[0].gradient_norm)
    values = [entry.objective for entry in found.history]
    assert all(after <= before + 1e-12 * abs(before) for before, after in pairwise(values))
    exact, _ = newton.descend(problem, np.zeros(problem.shape), 1e-12, Journal(1000.0))
    np.testing.assert_allclose(found.x, exact, atol=1e-11)


def test_newton_ends_at_the_tolerance_where_there_are_many_numbers() -> None:
    problem = make_problem("logistic", n=4000, d=6, bias=1.0, penalty=Penalty(l2=0.05))
    norms = []
    for tol in (1e-2, 1e-5):
        found = newton.solve(problem, np.zeros(problem.shape), tol, Journal(100.0))
        norms = [entry.gradient_norm for entry in found.history]
        assert norms[-1] <= tol < norms[-2]
    again = newton.solve(problem, found.x, 1e-4, Journal(100.0))
    assert [entry.gradient_norm for entry in again.history] == norms[-1:]


def test_newton_keeps_to_its_budget() -> None:
    problem = make_problem("logistic", n=300, d=6, bias=1.0, penalty=Penalty(l2=1e-6))
    for passes in range(1, 8):
        found = newton.solve(problem, np.zeros(problem.shape), 0.0, Journal(float(passes)))
        assert found.history[-1].passes <= passes


def test_unscaled_features_as_they_come() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = LinearClassifier(alpha=1 / len(y), tol=1e-5).fit(X, y)
    assert model.solver_ == "newton"
    signs = 2.0 * y - 1
    slopes = -signs * expit(-signs * model.decision_function(X))
    gradient = np.append(X.T @ slopes / len(y) + model.coef_[0] / len(y), slopes.mean())
    assert np.linalg.norm(gradient) <= 1e-5


# --- the dual


def wide(n: int = 400, d: int = 2000) -> tuple[sparse.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = sparse.random(n, d, 0.01, "csr", random_state=0)
    return rows, (rows @ rng.normal(size=d) + 0.1 > 0).astype(int)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("share", [0.03, 1.0])
def test_the_dual_solver_finds_the_minimum(intercept: bool, share: float) -> None:
    """Beside L-BFGS, and its gradient in numpy; weights of rows included."""
    X, y = wide()
    weight = np.random.default_rng(1).random(len(y)) + 0.5
    model = LinearClassifier(alpha=share / len(y), fit_intercept=intercept, tol=1e-8, solver="dual", random_state=0)
    model.fit(X, y, weight)
    assert model.solver_ == "dual"
    signs, w = 2.0 * y - 1, weight / weight.mean()
    slopes = -w * signs * expit(-signs * model.decision_function(X)) / len(y)
    gradient = X.T @ slopes + share / len(y) * model.coef_[0]
    assert np.linalg.norm(np.append(gradient, slopes.sum() if intercept else 0.0)) <= 1.001e-8
    other = LinearClassifier(alpha=share / len(y), fit_intercept=intercept, tol=1e-8, solver="l-bfgs")
    np.testing.assert_allclose(model.coef_, other.fit(X, y, weight).coef_, atol=1e-4)


def test_lbfgs_goes_on_where_changes_of_f_drown_in_rounding() -> None:
    """f is about 5e7, of which rounding takes 1e-9; each coefficient has two rows, whose mean is its solution."""
    rng, d = np.random.default_rng(0), 2400
    scale, solution, noise = 10.0 ** rng.uniform(-0.7, 0.7, d), rng.normal(size=d), 1e4 * rng.normal(size=d)
    rows = sparse.vstack([sparse.diags(scale)] * 2).tocsr()
    y = np.concatenate([scale * solution + noise, scale * solution - noise])
    problem = Problem(rows, y, np.ones(2 * d), LOSSES["squared"], bias=0.0, penalty=Penalty())
    found = solve(problem, np.zeros(problem.shape), tol=1e-9, passes=400, solver="l-bfgs")
    assert found.converged
    # Each component of ∇f is scale²/d times the error of its coefficient: tol bounds the error by 1e-9·d·10^1.4.
    np.testing.assert_allclose(found.x[0, :-1], solution, atol=1e-9 * d * 10**1.4)


@pytest.mark.parametrize("seed", [3, 9])
def test_lbfgs_does_not_run_off_where_f_is_flat(seed: int) -> None:
    """60 directions of 200 features and no penalty: in the others slopes are rounding, and so are changes of f. What
    they leave in the coefficients is a few units at most; without an end to such steps it was 1e9.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1400, 60)) @ rng.normal(size=(60, 200))
    y = (X @ rng.normal(size=200) / 100 + rng.logistic(size=1400) > 0).astype(int)
    weight = rng.random(1400) * (rng.random(1400) < 0.7)
    model = LinearClassifier("squared-hinge", penalty=None, tol=1e-10, random_state=0, max_iter=600).fit(X, y, weight)
    assert model.history_[-1].gradient_norm <= 1e-10
    assert np.abs(model.coef_).max() < 100


def test_separable_rows_get_a_hessian() -> None:
    """Few of them have a loss that is curved at the solution: its diagonal took 116 to 298 passes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 100))
    model = LinearClassifier("squared-hinge", penalty=None, tol=1e-6, random_state=0)
    assert model.fit(X, X @ rng.normal(size=100) > 0).n_iter_ < 50


@pytest.mark.parametrize("loss", ["logistic", "squared-hinge"])
def test_separable_rows_that_look_independent_get_the_rows_of_a_hessian(loss: str) -> None:
    """Few rows are copied where a model of the Hessian is to be made; flat losses refuse it, and more are copied."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 150))
    y = X @ rng.normal(size=150) > 0
    model = LinearClassifier(loss, alpha=1e-4, tol=1e-6, fit_intercept=False, random_state=0).fit(X, y)
    margins, signs = X @ model.coef_[0], np.where(y, 1.0, -1.0)
    slopes = -signs * (expit(-signs * margins) if loss == "logistic" else np.maximum(1 - signs * margins, 0.0))
    assert np.linalg.norm(X.T @ slopes / len(y) + 1e-4 * model.coef_[0]) <= 1.001e-6
    problem = Problem(X, signs, np.ones(len(y)), LOSSES[loss], bias=0.0)
    few, whole = growing.copied_rows(problem, hessian=False), growing.copied_rows(problem)
    assert few < whole == growing.HESSIAN * 151
    anchors = [entry.rows for entry in model.history_ if entry.stage == "growing"]
    assert anchors.count(anchors[0]) == 2, "they grow from their first size again"


def test_fewer_rows_are_copied_where_newtons_steps_follow() -> None:
    rows = np.broadcast_to(1.0, (10**6, 10))
    one = np.broadcast_to(1.0, 10**6)
    problem = Problem(rows, one, one, LOSSES["logistic"])
    assert growing.copied_rows(problem) == 10**6 // growing.SHARE
    assert growing.copied_rows(replace(problem, rows=rows[: 10**5])) == growing.ENOUGH
    others = replace(problem, penalty=Penalty(l1=0.1)), replace(problem, loss=LOSSES["multinomial"], outputs=3)
    assert min(map(growing.copied_rows, others)) > 2 * growing.copied_rows(problem)


def test_lbfgs_ends_where_rounding_leaves_nothing_to_find() -> None:
    """A tolerance of 0 is out of reach: it ends long before the passes do."""
    X, y = wide()
    problem = Problem(X, 2.0 * y - 1, np.ones(len(y)), LOSSES["logistic"], penalty=Penalty(l2=1e-2))
    found = solve(problem, np.zeros(problem.shape), tol=0.0, passes=1000, solver="l-bfgs")
    assert not found.converged
    assert found.history[-1].passes < 250
    assert found.history[-1].gradient_norm < 1e-13


def test_the_dual_solver_leaves_what_is_slow_to_lbfgs() -> None:
    """Many rows for each feature and hardly a penalty: coordinate ascent crawls."""
    problem = make_problem("logistic", n=300, d=6, bias=1.0, penalty=Penalty(l2=1e-6), form="sparse")
    found = solve(problem, np.zeros(problem.shape), tol=1e-8, solver="dual")
    assert found.solver == "dual, then l-bfgs"
    assert found.converged
    assert found.history[-1].passes < 100


def test_a_margin_agrees_with_its_dual_variable() -> None:
    rng = np.random.default_rng(0)

    def gap(s: float, t: float, q: float, weight: float, alpha: float) -> float:
        return float(s - t - q * (weight * expit(-s) - alpha))

    rows = [(rng.normal() * 10, 10 ** rng.uniform(-3, 4), rng.random() * 3, rng.random()) for _ in range(500)]
    rows += [(t, 400.0, 1.0, 0.0) for t in np.linspace(-7, 7, 561)]  # plain Newton steps go to and fro for −2.7
    for t, q, weight, share in rows:
        row = t, q, weight, share * weight
        root = optimize.brentq(gap, t - 4 * q - 1, t + 4 * q + 1, args=row)
        before, after = dual_steps.agreed_sigma(*row)
        assert before == pytest.approx(expit(-t), rel=1e-12)
        step = expit(-root) * weight - row[3]
        assert after * weight - row[3] == pytest.approx(step, rel=2 * dual_steps.CLOSE, abs=1e-9)


# --- what is tested elsewhere


def test_every_solver_is_tested_here() -> None:
    assert {*SMOOTH, "working-set", "interior-point"} == set(SOLVERS)  # in test_linear_lasso, test_linear_regressions


# --- a new Hessian where the old one has become too poor


def heavy_tailed(kind: str, n: int = 20_000, d: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Rows of wildly different norms; labels by their directions."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, d))
    w = 2 * rng.standard_normal(d) / math.sqrt(d)
    y = np.where(rng.random(n) < expit(rows @ w), 1, -1)
    norms = np.exp(2 * rng.standard_normal(n)) if kind == "log-normal" else np.where(rng.random(n) < 1e-3, 1e3, 1.0)
    return rows * norms[:, None], y


@pytest.mark.parametrize("kind", ["log-normal", "rare"])
@pytest.mark.parametrize("share", [0.1, 10.0])
def test_rows_of_wildly_different_norms(kind: str, share: float) -> None:
    """The largest rows set L_max and fill a sampled Hessian; L-BFGS alone gave up at ‖∇f‖ of 1.5e-5 and 2e-5."""
    X, y = heavy_tailed(kind)
    lam = share / len(y)
    model = LinearClassifier(alpha=lam, fit_intercept=False, tol=1e-5, max_iter=300, random_state=0).fit(X, y)
    gradient = X.T @ (-y * expit(-y * (X @ model.coef_[0]))) / len(y) + lam * model.coef_[0]
    assert np.linalg.norm(gradient) <= 1e-5


def test_few_heavy_rows_are_met_in_a_quarter_of_all_rows_first() -> None:
    """Their passes count as what they are, and all rows are read where they end."""
    X, y = heavy_tailed("log-normal")
    model = LinearClassifier(alpha=1e-4, tol=1e-3, random_state=0).fit(X, y)
    rows, passes = zip(*((entry.rows, entry.passes) for entry in model.history_), strict=True)
    assert rows == (5000, *[20_000] * (len(rows) - 1))
    assert 1.25 < passes[1] <= 1 + (1 + growing.ATTEMPTS) / 4
    assert model.history_[1].gradient_norm < model.history_[0].gradient_norm
    assert model.solver_ == "l-bfgs"


@pytest.mark.parametrize("middle", ["identity", "diagonal"])
def test_a_slow_search_gets_a_hessian(middle: Any) -> None:
    """Correlated columns: without a Hessian the search takes ten times as many passes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 30))
    X = np.cumsum(X, axis=1)
    y = np.where(rng.random(3000) < expit(X[:, 0]), 1.0, -1.0)
    problem = Problem(X, y, np.ones(3000), LOSSES["logistic"], penalty=Penalty(l2=1e-6))
    journal = Journal(1000.0)
    found = lbfgs.solve(problem, np.zeros(problem.shape), 1e-8, journal, middle)
    assert found.converged
    assert journal.passes <= 40


def test_the_cost_of_a_hessian() -> None:
    """It grows with d, and there is none where it would not fit or not help."""
    costs = [quasi_newton.renewal_cost(make_problem("logistic", 200, d, 1.0)) for d in (5, 20)]
    assert 0 < costs[0] < costs[1] < math.inf
    assert quasi_newton.renewal_cost(make_problem("logistic", 20, quasi_newton.WIDEST, 1.0)) == math.inf
    assert quasi_newton.renewal_cost(make_problem("logistic", 20, 3, 1.0, Penalty(l1=0.1))) == math.inf


def test_an_exact_hessian_is_exact() -> None:
    problem = make_problem("logistic", n=200, d=5, bias=1.0, penalty=Penalty(l2=0.1), weighted=True)
    x = np.random.default_rng(1).normal(size=problem.shape)
    lower = np.tril(hessian_factors(problem, x, exact=True)[0])
    np.testing.assert_allclose(lower @ lower.T, newton.hessian(problem, x), rtol=1e-12)


def unsorted(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """The same matrix, the entries of each row in the reverse order."""
    order = np.concatenate([np.arange(low, high)[::-1] for low, high in pairwise(rows.indptr)])
    return sparse.csr_matrix((rows.data[order], rows.indices[order], rows.indptr), rows.shape)


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_the_hessian_of_sparse_rows_is_that_of_dense_ones(bias: float) -> None:
    rng = np.random.default_rng(0)
    rows = sparse.csr_matrix(rng.normal(size=(300, 80)) * (rng.random((300, 80)) < 0.03))
    y = np.where(rng.random(300) < 0.5, 1.0, -1.0)
    problem = Problem(rows, y, rng.random(300) * 2, LOSSES["logistic"], bias=bias, penalty=Penalty(l2=0.1))
    assert scatters(problem)
    assert not scatters(replace(problem, rows=rows.toarray()))
    assert not scatters(replace(problem, rows=sparse.csr_matrix(rng.normal(size=(300, 80)))))
    x = rng.normal(size=problem.shape)
    lower = np.tril(hessian_factors(problem, x, exact=True)[0])
    size = 81 if bias else 80
    np.testing.assert_allclose((lower @ lower.T)[:size, :size], newton.hessian(problem, x)[:size, :size], atol=1e-12)
    mixed = hessian_factors(replace(problem, rows=unsorted(rows)), x, exact=True)
    np.testing.assert_allclose(np.tril(mixed[0]), lower, atol=1e-13)


def test_the_rows_with_the_largest_part_in_a_hessian() -> None:
    """Drawn often enough their Hessian is exact; few of them are far nearer than as many rows of a plain sample."""
    X, y = heavy_tailed("log-normal", n=4000, d=10)
    weight = np.random.default_rng(1).random(4000) * 2
    problem = Problem(X, y.astype(float), weight, LOSSES["logistic"], penalty=Penalty(l2=1e-3))
    x = 1e-3 * np.random.default_rng(2).normal(size=problem.shape)
    exact = newton.hessian(problem, x)

    def error(part: Problem) -> float:
        ratio = np.linalg.solve(exact, newton.hessian(part, x))
        return float(np.abs(np.linalg.eigvals(ratio) - 1).max())

    assert error(heavy_rows(problem, x, 10**6)) <= 1e-2
    few = heavy_rows(problem, x, 400)
    assert few.n <= 400
    plain = [error(problem.subset(np.random.default_rng(k).permutation(4000)[:400])) for k in range(20)]
    assert error(few) <= np.median(plain) / 2


@pytest.mark.parametrize("middle", ["identity", "sample"])
def test_classes_keep_a_mean_of_zero(middle: Any) -> None:
    """The mean over classes is curved by λ alone: a search that strays there takes long to come back."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 10))
    y = (X @ rng.normal(size=(10, 5)) + rng.gumbel(size=(2000, 5))).argmax(axis=1).astype(float)
    problem = Problem(X, y, np.ones(2000), LOSSES["multinomial"], outputs=5, penalty=Penalty(l2=1e-5))
    start, journal = rng.normal(size=problem.shape) + 3, Journal(1000.0)
    found = lbfgs.solve(problem, start, 1e-7, journal, problem if middle == "sample" else middle)
    assert found.converged
    assert problem.anchor(found.x).norm <= 1e-7
    assert np.abs(found.x.mean(axis=0)).max() <= 1e-9
    exact, _ = newton.descend(problem, np.zeros(problem.shape), 1e-10, Journal(1000.0))
    np.testing.assert_allclose(found.x[:, :-1], exact[:, :-1], atol=1e-3)
    assert journal.passes <= 40


@pytest.mark.parametrize("passes", range(3, 12))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_last_entry_of_a_history_is_that_of_the_solution(passes: int) -> None:
    """The last step that L-BFGS tried before its passes were used up may not be the best."""
    rng = np.random.default_rng(39)
    X = rng.normal(size=(200, 30)) * np.exp(2 * rng.normal(size=30))
    y = np.where(X @ rng.normal(size=30) > 0, 1.0, -1.0)
    model = LinearClassifier("squared-hinge", solver="l-bfgs", alpha=1e-4, max_iter=passes, tol=1e-9).fit(X, y)
    w, c = model.coef_[0], model.intercept_[0]
    short = np.maximum(1 - y * (X @ w + c), 0)
    gradient = np.append(-X.T @ (y * short) / 200 + 1e-4 * w, -(y * short).mean())
    assert model.history_[-1].gradient_norm == pytest.approx(np.linalg.norm(gradient), rel=1e-9)
    assert model.history_[-1].objective == pytest.approx((short**2).mean() / 2 + 1e-4 / 2 * (w @ w), rel=1e-9)
    assert model.n_iter_ == passes


@pytest.mark.parametrize("repeated", [False, True])
def test_entries_in_any_order_are_read_as_they_are_and_repeated_ones_are_summed(repeated: bool) -> None:
    rng = np.random.default_rng(0)
    rows = sparse.csr_matrix(rng.normal(size=(5000, 60)) * (rng.random((5000, 60)) < 0.1))
    y = rows @ rng.normal(size=60) > 0
    given = unsorted(rows)
    if repeated:  # each entry in two halves
        twice = np.repeat(given.indices, 2), 2 * given.indptr
        given = sparse.csr_matrix((np.repeat(given.data / 2, 2), *twice), rows.shape)
    before = given.indices.copy()
    found = LinearClassifier(tol=1e-9, random_state=0).fit(given, y)
    assert (given.indices == before).all(), "the user's matrix is not changed"
    expected = LinearClassifier(tol=1e-9, random_state=0).fit(rows, y)
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-5)


def test_a_start_that_is_good_enough_costs_one_pass_for_sparse_rows() -> None:
    """‖∇f(0)‖ = 0.012, and 0.02 for the 500 rows that are looked at: of that, their noise is more than half."""
    rng = np.random.default_rng(0)
    n, d = 8000, 2000
    rows = sparse.random(n, d, 0.01, "csr", random_state=1)
    rows = sparse.csr_matrix(sparse.diags(1 / np.sqrt(np.maximum(1e-12, rows.multiply(rows).sum(1).A1))) @ rows)
    y = rng.random(n) < 0.5
    at_zero = float(np.linalg.norm(rows.T @ (0.5 - y) / n))
    good = LinearClassifier(tol=1.1 * at_zero, fit_intercept=False, random_state=0).fit(rows, y)
    assert (good.n_iter_, len(good.history_)) == (1, 1)
    assert good.history_[0].gradient_norm == pytest.approx(at_zero)
    assert not good.coef_.any()
    close = LinearClassifier(tol=0.3 * at_zero, fit_intercept=False, random_state=0).fit(rows, y)
    assert close.history_[0].stage != "start"


def test_growing_anchors_end_where_their_rows_tell_that_all_have_a_small_gradient() -> None:
    """Then all rows come next, and not an epoch on those that told so."""
    rng = np.random.default_rng(0)
    columns = (300 * rng.random((100_000, 8)) ** 2).astype(np.int32)
    starts = np.arange(0, 8 * len(columns) + 1, 8, dtype=np.int32)
    rows = sparse.csr_matrix((np.ones(columns.size), columns.ravel(), starts), shape=(len(columns), 300))
    rows.sum_duplicates()
    y = rng.random(len(columns)) < expit(rows @ rng.normal(size=300))
    coarse = LinearClassifier(tol=3e-2, fit_intercept=False, random_state=0).fit(rows, y).history_
    fine = LinearClassifier(tol=1e-3, fit_intercept=False, random_state=0).fit(rows, y).history_
    growing = [[entry for entry in history if entry.stage == "growing"] for history in (coarse, fine)]
    assert coarse[-1].stage == "full"
    assert coarse[-1].gradient_norm <= 3e-2
    before = growing[0][-1]
    assert coarse[-1].passes == pytest.approx(before.passes + 1), "no epoch between the last anchor and all rows"
    assert fine[len(growing[1])].passes > growing[1][-1].passes + 1


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_scales_of_columns_are_the_curvatures_of_classes_at_zero(form: str) -> None:
    problem = make_problem("multinomial", n=80, d=4, bias=2.0, penalty=Penalty(l2=0.1), form=form)
    x, step = np.zeros(problem.shape), 1e-4
    expected = np.empty(problem.shape)
    for place in np.ndindex(*problem.shape):
        values = []
        for t in (-step, 0.0, step):
            x[place] = t
            values.append(problem.anchor(x).value)
        x[place] = 0.0
        expected[place] = (values[0] - 2 * values[1] + values[2]) / step**2
    np.testing.assert_allclose(column_scales(problem) ** -2, expected, rtol=1e-5)


def test_newtons_method_takes_over_for_classes_that_other_steps_are_slow_for() -> None:
    """Without a penalty, rows whose classes can nearly be told apart have a solution far away, and f is flat there."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4)).cumsum(axis=1)
    y = (2 * X @ rng.normal(size=(4, 8)) + rng.gumbel(size=(100, 8))).argmax(axis=1)
    model = LinearClassifier(alpha=0.0, tol=1e-8, random_state=0).fit(X, y)
    assert model.solver_.endswith("then newton")
    wide = np.column_stack([X, np.ones(100)])
    slopes = softmax(wide @ np.column_stack([model.coef_, model.intercept_]).T, axis=1)
    slopes -= y[:, None] == model.classes_
    assert np.linalg.norm(slopes.T @ wide / 100) <= 1e-8


def test_the_better_solution_is_kept_where_newtons_method_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4)).cumsum(axis=1)
    y = (2 * X @ rng.normal(size=(4, 8)) + rng.gumbel(size=(100, 8))).argmax(axis=1)
    monkeypatch.setattr(newton, "STEPS", 1)
    with pytest.warns(ConvergenceWarning):
        model = LinearClassifier(alpha=0.0, tol=1e-8, random_state=0).fit(X, y)
    wide = np.column_stack([X, np.ones(100)])
    slopes = softmax(wide @ np.column_stack([model.coef_, model.intercept_]).T, axis=1)
    slopes -= y[:, None] == model.classes_
    last = model.history_[-1].gradient_norm
    assert np.linalg.norm(slopes.T @ wide / 100) == pytest.approx(last, rel=1e-6)
    assert last < min(entry.gradient_norm for entry in model.history_ if entry.stage == "newton")


@pytest.mark.parametrize("terms", [Penalty(rational=0.3), Penalty(l2=0.2), Penalty(l2=0.01, rational=0.3), Penalty()])
def test_levelled_points_have_the_same_loss_and_the_least_penalty(terms: Penalty) -> None:
    """Beside SciPy's search of the same amount for all classes, feature by feature, over the way that was gone."""
    problem, rng = make_problem("multinomial", n=50, d=6, bias=1.0, penalty=terms), np.random.default_rng(0)
    for size in (0.1, 1.0, 3.0):
        x = size * rng.normal(size=problem.shape) + rng.normal(size=problem.shape[1])
        level = quasi_newton.levelled(problem, x)
        shift = level - x
        np.testing.assert_allclose(shift, shift[:1] * np.ones((problem.outputs, 1)), atol=1e-12)
        plain = replace(problem, penalty=Penalty())
        assert plain.anchor(level).value == pytest.approx(plain.anchor(x).value, rel=1e-12)
        assert abs(level[:, -1].mean()) < 1e-14
        for j in range(problem.d if terms != Penalty() else 0):

            def cost(t: float, w: Any = x[:, j]) -> float:
                square = (w + t) ** 2
                return float((terms.l2 / 2 * square + terms.rational * square / (1 + square)).sum())

            bounds = (min(0.0, shift[0, j]) - 0.05, max(0.0, shift[0, j]) + 0.05)
            least = optimize.minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-12}).fun
            assert cost(shift[0, j]) <= least + 1e-12


@pytest.mark.parametrize("alpha", [1e-4, 1e-6])
def test_a_weak_rational_penalty_of_several_classes_is_solved(alpha: float) -> None:
    """It alone tells the mean of all classes; steps along that were so short that 1000 passes did not end."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 10))
    y = (X @ rng.normal(size=(10, 3)) + rng.gumbel(size=(500, 3))).argmax(axis=1)
    model = LinearClassifier(penalty="rational", alpha=alpha, tol=1e-8, max_iter=60, random_state=0).fit(X, y)
    assert model.history_[-1].gradient_norm <= 1e-8
    z = X @ model.coef_.T + model.intercept_
    slope = softmax(z, axis=1) - np.eye(3)[y]
    w = model.coef_
    np.testing.assert_allclose(slope.T @ X / 500 + 2 * alpha * w / (1 + w * w) ** 2, 0, atol=1e-8)


def test_a_rational_penalty_without_a_minimum_says_so() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 10))
    y = (X @ rng.normal(size=(10, 3))).argmax(axis=1)
    model = LinearClassifier(penalty="rational", alpha=1e-4, tol=1e-8, max_iter=200, random_state=0)
    with pytest.warns(ConvergenceWarning, match="may have no minimum where the classes can be told apart"):
        model.fit(X, y)


@pytest.mark.parametrize("weight", [None, (1.0, 0.0, 0.0)])
def test_a_single_row_of_many_features_is_met_by_the_intercept(weight: tuple[float, ...] | None) -> None:
    """All features are 0 about their means then, and no direction among them leads down."""
    rows = 1 if weight is None else 3
    X = np.random.default_rng(0).normal(size=(rows, 1500))
    y = np.array([5.0, 1.0, 2.0])[:rows]
    model = LinearRegressor(penalty="l2", alpha=1e-3).fit(X, y, weight if weight is None else np.array(weight))
    assert model.intercept_ == pytest.approx(5.0, rel=1e-12)
    assert np.abs(model.coef_).max() <= 1e-12
