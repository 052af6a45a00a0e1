"""The compiled loops: the trajectories of `FiniteSumOptimizer`, gradients by autograd, lazy and dense steps alike."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from linear_data import TORCH_LOSSES, autograd, make_problem
from scipy import optimize, sparse, special

import vcsg
from vcsg.linear import LOSSES, Penalty, Problem, inner_steps, precompile, run
from vcsg.linear.curvature import PlainSample, curvature_along, hessian_factors, row_curvatures, smoothness
from vcsg.linear.independent import Curvature, IndependentFeatures, alike, curved, uncorrelated
from vcsg.linear.inner_steps import constant_steps, lazy
from vcsg.linear.kernels import order
from vcsg.linear.kernels.classes import TURNED
from vcsg.linear.kernels.recursion import next_direction
from vcsg.linear.kernels.rows import NEAR
from vcsg.linear.problem import Array, PassResult, variance
from vcsg.linear.solvers import family, lbfgs, quasi_newton
from vcsg.linear.solvers.automatic import solve
from vcsg.method.weights import Weights

LEFT_OUT = ("snvrg", "vcsg")
"""Nested anchors are refused, and VCSG has cases of its own."""
CASES: list[tuple[str, dict[str, Any]]] = [
    *(
        (name, {})
        for name, method in sorted(vcsg.methods().items())
        if method.drawn != "never" and name not in LEFT_OUT
    ),
    *(("vcsg", {"comparison": c, "eps": 0.05, "B_min": 8}) for c in ("norm", "lemma", "elementwise", "never")),
    ("saga", {"b": 5}),
    ("growing-svrg", {"B": 10, "b": 4}),
    ("batching-svrg", {"B": 20, "b": 3}),
]


def torch_run(problem: Problem, method: vcsg.Method, epochs: int, decay: float) -> list[np.ndarray]:
    """x after each epoch of the torch optimizer."""
    p = torch.nn.Parameter(torch.zeros(problem.d, dtype=torch.float64))
    optimizer = vcsg.FiniteSumOptimizer(
        [p], problem.n, method, L=problem.L(), weight_decay=decay, variance="exact", seed=3
    )
    ends: dict[int, np.ndarray] = {}
    data = torch.from_numpy(problem.rows), torch.from_numpy(problem.y)
    for rows, y in optimizer.batches(data, passes=10_000):

        def closure(rows: torch.Tensor = rows, y: torch.Tensor = y) -> torch.Tensor:
            p.grad = None
            loss = torch.nn.functional.softplus(-y * (rows @ p)).mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        ends.setdefault(optimizer.epoch, p.detach().numpy().copy())
        if optimizer.epoch > epochs:
            break
    return [ends[j] for j in range(2, epochs + 2)]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda v: str(v))
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_the_trajectory_is_that_of_the_optimizer(name: str, options: dict[str, Any], form: str) -> None:
    decay = 0.0 if name == "saga" else 0.05  # SAGA's table here has no stale penalty in it
    dense = make_problem("logistic", n=60, d=4, bias=0.0, penalty=Penalty(l2=decay))
    method = vcsg.make(name, **options)
    epochs = 6 if name == "gd" else 4
    expected = torch_run(dense, method, epochs, decay)
    problem = dense if form == "dense" else make_problem("logistic", 60, 4, 0.0, Penalty(l2=decay), form)
    executor = family.LinearExecutor(problem, np.zeros(problem.shape), method, seed=3)
    for x in expected:
        executor.look()
        executor.move()
        np.testing.assert_allclose(executor.point.x[0, :-1], x, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("form", ["dense", "sparse", "float32"])
def test_loss_and_gradient_by_autograd(name: str, form: str) -> None:
    problem = make_problem(name, n=70, d=5, bias=1.0, penalty=Penalty(l2=0.1, rational=0.2), form=form, weighted=True)
    x = np.random.default_rng(1).normal(size=problem.shape)
    value, gradient = problem.objective(x)
    expected, slopes = autograd(problem, name, x)
    np.testing.assert_allclose(value, expected, rtol=1e-6 if form == "float32" else 1e-12)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-5 if form == "float32" else 1e-9, atol=1e-12)


def test_points_in_any_order_of_memory() -> None:
    problem = make_problem("multinomial", n=70, d=5, bias=1.0, penalty=Penalty(l2=0.1))
    x = np.random.default_rng(1).normal(size=problem.shape)
    for a, b in zip(problem.anchor(x), problem.anchor(np.asfortranarray(x)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_every_loss_has_its_torch_form() -> None:
    assert set(TORCH_LOSSES) == set(LOSSES)


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if not loss.bounded])
def test_a_loss_without_a_bound_has_no_step_size(name: str) -> None:
    with pytest.raises(ValueError, match="no bound on its curvature"):
        make_problem(name, n=20, d=3, bias=1.0).L()


@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.bounded])
def test_L_bounds_the_curvature_of_every_row(name: str) -> None:
    """Secants of ∇f_i along the row itself, where the curvature is."""
    problem = make_problem(name, n=20, d=3, bias=1.0, penalty=Penalty(l2=0.3, rational=0.1))
    rng, L = np.random.default_rng(0), problem.L()
    for _ in range(200):
        one = problem.subset(np.array([rng.integers(20)]))
        x = rng.normal(size=problem.shape) * 2
        y = x + rng.normal(size=(problem.outputs, 1)) * np.append(one.rows[0], 1.0) * rng.choice([1e-3, 1.0])
        change = one.objective(x)[1] - one.objective(y)[1]
        assert np.linalg.norm(change) <= L * np.linalg.norm(x - y) * (1 + 1e-6)


@pytest.mark.parametrize("terms", [Penalty(), Penalty(l1=0.1, l2=0.2)])
def test_threads_see_the_same(terms: Penalty) -> None:
    rng = np.random.default_rng(0)
    rows, y = rng.normal(size=(20_000, 3)), rng.normal(size=20_000)
    one, three = (Problem(rows, y, np.ones(20_000), LOSSES["squared"], penalty=terms, threads=t) for t in (1, 3))
    x = rng.normal(size=one.shape)
    for a, b in zip(one.anchor(x), three.anchor(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


@pytest.mark.parametrize("name", ["squared", "multinomial"])
def test_norm_is_that_of_the_least_subgradient(name: str) -> None:
    problem = make_problem(name, n=40, d=5, bias=1.0, penalty=Penalty(l1=0.2, l2=0.1))
    x = np.random.default_rng(1).normal(size=problem.shape)
    x[:, :3] = 0.0
    seen, square = problem.anchor(x), 0.0
    for w, slope in zip(x[:, :-1].ravel(), seen.smooth[:, :-1].ravel(), strict=True):
        signs = np.linspace(-1, 1, 20_001) if w == 0 else np.sign([w])
        square += ((slope + 0.2 * signs) ** 2).min()
    square += (seen.smooth[:, -1] ** 2).sum()
    assert seen.norm == pytest.approx(math.sqrt(square), rel=1e-6)


def test_variance_is_that_of_single_gradients() -> None:
    problem = make_problem("multinomial", n=40, d=3, bias=1.0)
    x = np.random.default_rng(1).normal(size=problem.shape)
    singles = np.stack([problem.subset(np.array([i])).anchor(x).gradient.ravel() for i in range(40)])
    expected = ((singles - singles.mean(0)) ** 2).sum(1).mean()
    assert variance(problem.anchor(x), problem.norms, 40) == pytest.approx(expected)


PENALTIES = [Penalty(), Penalty(l2=0.3), Penalty(l1=0.02), Penalty(l1=0.02, l2=0.3), Penalty(rational=0.3, l2=0.1)]


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("name", ["logistic", "multinomial"])
def test_lazy_steps_are_the_dense_ones(penalty: Penalty, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_steps, "SNAPSHOTS", (64, 64))
    rng = np.random.default_rng(0)
    n, d, b = 200, 300, 4
    rows = sparse.random(n, d, 0.01, "csr", random_state=0)
    y = rng.integers(3, size=n).astype(float) if name == "multinomial" else np.sign(rng.normal(size=n))
    outputs = 3 if name == "multinomial" else 1
    thin = Problem(rows, y, rng.random(n) + 0.5, LOSSES[name], outputs=outputs, penalty=penalty)
    full = Problem(rows.toarray(), y, thin.weight, LOSSES[name], outputs=outputs, penalty=penalty)
    assert lazy(thin, b)
    assert not lazy(full, b)
    start = rng.normal(size=thin.shape) * (rng.random(thin.shape) < 0.5)
    anchor = full.anchor(start)
    index = order.sequential(n, b, rng)
    for average in (False, True):
        ends = [
            constant_steps(p, start.copy(), anchor.kept, anchor.gradient, index, 0.3, Weights(1, -1, 1), average)
            for p in (thin, full)
        ]
        # The lazy mean is over every so many of the steps: here all of them are taken.
        np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("rows", "expected"), [(100, 8), (3000, 20), (100_000, 32)])
def test_the_mean_of_a_lazy_loop_has_more_points_where_coordinates_are_visited_often(rows: int, expected: int) -> None:
    """Ten entries in each row and 1000 columns: 3000 rows visit each coordinate 30 times."""
    thin = sparse.random(500, 1000, 0.01, "csr", random_state=0)
    problem = Problem(thin, np.ones(500), np.ones(500), LOSSES["logistic"])
    assert inner_steps.snapshots(problem, rows) == expected


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_lazy_steps_on_rows_that_come_from_memory(dtype: Any) -> None:
    """More entries than are taken to be in a cache, in rows of 0 to 500: the steps of a plain loop in numpy."""
    rng, n, d, b, step = np.random.default_rng(0), 9000, 10_000, 8, 0.2
    counts = rng.integers(0, 500, n)
    columns = np.concatenate([np.sort(rng.choice(d, count, replace=False)) for count in counts]).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    rows = sparse.csr_matrix((rng.normal(size=len(columns)).astype(dtype) / 10, columns, starts), shape=(n, d))
    assert rows.data.nbytes > NEAR
    y, weight = np.sign(rng.normal(size=n)), rng.random(n) + 0.5
    problem = Problem(rows, y, weight, LOSSES["logistic"], penalty=Penalty(l2=0.1))
    x = rng.normal(size=problem.shape)
    anchor, index = problem.anchor(x), order.interleaved(n, b, rng)[:60]
    index[-2:] = [[n - 1] * b, [0] * b]
    assert lazy(problem, b)
    found = constant_steps(problem, x.copy(), anchor.kept, anchor.gradient, index, step, Weights(1, -1, 1), False)
    whole = sparse.hstack([rows, np.ones((n, 1))], "csr").astype(np.float64)
    for batch in index:
        margins = whole[batch] @ x[0]
        slopes = weight[batch] * -y[batch] / (1 + np.exp(y[batch] * margins))
        change = whole[batch].T @ (slopes - anchor.kept[batch, 0]) / b
        x = x - step * (change + anchor.gradient[0] + 0.1 * np.append(x[0, :-1], 0.0))
    np.testing.assert_allclose(found, x, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("mix", [order.sequential, order.interleaved])
@pytest.mark.parametrize(("n", "b"), [(100, 8), (101, 16), (7, 8), (64, 32), (1, 8), (1000, 48)])
def test_orders_take_each_row_at_most_once_and_nearly_all(mix: Any, n: int, b: int) -> None:
    index = mix(n, b, np.random.default_rng(0))
    assert index.shape[1] == min(b, n)
    assert len(np.unique(index)) == index.size > n - 2 * min(b, n)
    assert index.max() < n


def test_draws_are_splitmix64_from_a_mixed_seed() -> None:
    def mixed(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    golden = 0x9E3779B97F4A7C15
    assert mixed((1234567 + golden) % 2**64) == 6457827717110365317  # the published first number of this state
    for seed in (0, 7, 2**31 - 1):
        start, draws = mixed((seed + golden) % 2**64), order.Draws(seed)
        expected = [(mixed((start + i * golden) % 2**64) >> 11) / 2**53 for i in range(1, 11)]
        assert [*draws.random(3), *draws.random(7)] == expected


def test_interleaved_batches_come_from_everywhere() -> None:
    index = order.interleaved(1600, 16, np.random.default_rng(0))
    assert (index // 400 == np.repeat(np.arange(4), 4)).all()


def test_a_sample_has_no_row_twice() -> None:
    for size in (1, 10, 99, 100):
        rows = order.sample(100, size, np.random.default_rng(0))
        assert len(set(rows.tolist())) == size


def test_a_sample_takes_one_row_from_each_part_in_mixed_order() -> None:
    rows = order.sample(1000, 250, np.random.default_rng(0))
    assert (np.sort(rows // 4) == np.arange(250)).all()
    assert abs(np.corrcoef(rows, np.arange(250))[0, 1]) < 0.33  # 5σ: fails for one correct order in a million
    many = np.concatenate([order.sample(8, 4, np.random.default_rng(seed)) for seed in range(30)])
    assert set(many.tolist()) == set(range(8))  # fails for 8·2⁻³⁰ of all seeds


def test_penalties_by_their_formula_and_by_differences() -> None:
    rng = np.random.default_rng(0)
    x, terms = rng.normal(size=(2, 4)), Penalty(l1=0.3, l2=0.5, rational=0.7)
    w = x[:, :-1]
    gradient = np.ones(x.shape)
    value = 0.3 * np.abs(w).sum() + 0.25 * (w**2).sum() + 0.7 * (w**2 / (1 + w**2)).sum()
    assert terms.add_to(gradient, x) == pytest.approx(value)
    smooth = Penalty(l2=0.5, rational=0.7)
    slopes = optimize.approx_fprime(x.ravel(), lambda v: smooth.add_to(np.zeros(x.shape), v.reshape(x.shape)), 1e-7)
    np.testing.assert_allclose(gradient - 1, slopes.reshape(x.shape), atol=1e-6)
    np.testing.assert_array_equal(terms.gradient(x)[:, -1], 0)


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_the_smoothness_is_the_largest_eigenvalue(bias: float) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100, 7))
    rows[:, 0] *= 9  # far apart from the others: the iteration is there at once
    weight = rng.random(100) + 0.5
    wide = np.column_stack([rows, np.full(100, bias)])
    expected = 0.25 * np.linalg.eigvalsh((wide * weight[:, None]).T @ wide / 100)[-1]
    for form in (rows, sparse.csr_matrix(rows)):
        problem = Problem(form, np.sign(rng.normal(size=100)), weight, LOSSES["logistic"], bias=bias)
        mean, single = smoothness(problem, problem.norms)
        assert mean == pytest.approx(expected, rel=1e-6)
        assert single == pytest.approx(0.25 * (weight * (wide**2).sum(1)).max())


@pytest.mark.parametrize(("d", "anchors"), [(10, [1024, 1024]), (60, [1024, 1952]), (400, [1024])])
def test_two_epochs_on_the_pilot_where_it_has_rows_enough_for_the_hessian(d: int, anchors: list[int]) -> None:
    """32 rows for each unknown where that Hessian takes no longer than two passes, else 1024 or n/8 of 6000."""
    problem = make_problem("logistic", n=6000, d=d, bias=1.0, penalty=Penalty(l2=0.01))
    found = solve(problem, np.zeros(problem.shape), tol=1e-7, solver="growing-svrg")
    assert found.converged
    assert [entry.rows for entry in found.history if entry.stage == "growing"] == anchors


@pytest.mark.parametrize("missing", ["numba", "scipy", "sklearn"])
def test_a_missing_extra_is_named(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import vcsg; import vcsg.linear"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"vcsg.linear needs {missing}: pip install 'vcsg[linear]'" in done.stderr


def test_the_library_itself_needs_none_of_them() -> None:
    code = "import sys; sys.modules.update(numba=None, scipy=None, sklearn=None); import vcsg"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_precompiling_tells_its_time() -> None:
    assert precompile() >= 0


def test_what_the_engine_refuses() -> None:
    problem = make_problem("logistic", n=10, d=2, bias=0.0)
    start = np.zeros(problem.shape)
    with pytest.raises(ValueError, match="nested anchors"):
        run(problem, start, vcsg.make("snvrg"))
    for name in ("momentum", "adam", "auto"):
        with pytest.raises(ValueError, match="plain steps from anchors"):
            run(problem, start, vcsg.make(name))
    with pytest.raises(ValueError, match="divides n"):
        run(problem, start, vcsg.make("saga", b=3))
    with pytest.raises(ValueError, match="choose 'random' or 'interleaved'"):
        run(problem, start, vcsg.make("svrg"), order="sorted")


@pytest.mark.parametrize("name", ["svrg", "spider", "saga", "batching-svrg", "gd"])
def test_methods_reach_the_tolerance(name: str) -> None:
    problem = make_problem("logistic", n=60, d=4, bias=1.0, penalty=Penalty(l2=0.1))
    found = run(problem, np.zeros(problem.shape), vcsg.make(name), tol=1e-6, passes=5000)
    assert found.converged
    assert np.linalg.norm(problem.objective(found.x)[1]) <= 1e-6


@pytest.mark.parametrize("b", [3, 8, 20])
def test_steps_on_rows_too_many_for_the_cache(b: int) -> None:
    """Rows from anywhere in 8 MB, an odd number of steps: read in another way than few rows are."""
    rng = np.random.default_rng(0)
    n, d, step = 20_000, 50, 1e-3
    rows, y = rng.normal(size=(n, d)), rng.normal(size=n)
    problem = Problem(rows, y, rng.random(n) * 2, LOSSES["squared"], penalty=Penalty(l2=0.1))
    x, kept, pull = rng.normal(size=problem.shape), rng.normal(size=(n, 1)), rng.normal(size=problem.shape)
    index = order.shuffled(n, b, rng)[:41]
    expected = x.copy()
    wide = np.column_stack([rows, np.ones(n)])
    for batch in index:
        slopes = problem.weight[batch] * (wide[batch] @ expected[0] - y[batch]) - kept[batch, 0]
        decay = 0.1 * expected * np.append(np.ones(d), 0.0)
        expected -= step * (slopes @ wide[batch] / b + decay + pull)
    found = constant_steps(problem, x, kept, pull, index, step, Weights(1, -1, 1), average=False)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["squared", "huber", "logistic", "squared-hinge", "multinomial"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_factors_are_those_of_the_hessian(name: str, form: str, bias: float) -> None:
    problem = make_problem(name, n=70, d=5, bias=bias, penalty=Penalty(l2=0.1), form=form, weighted=True)
    x, width = np.random.default_rng(1).normal(size=problem.shape), 6 if bias else 5
    for k, factor in enumerate(hessian_factors(problem, x)):
        lower, step = np.tril(factor), np.zeros(problem.shape)
        for j in range(width):
            step[:], step[k, j] = 0.0, 1e-5
            column = (problem.objective(x + step)[1] - problem.objective(x - step)[1])[k] / 2e-5
            np.testing.assert_allclose((lower @ lower.T)[:width, j], column[:width], rtol=1e-4, atol=1e-5)


def condition(factor: Array, covariance: Array) -> float:
    """The ratio of the largest and the least curvature that a factor leaves, with the best intercept for each point."""
    hessian, d = np.tril(factor) @ np.tril(factor).T, len(covariance)
    if len(hessian) > d:
        hessian = hessian[:d, :d] - np.outer(hessian[d, :d], hessian[d, :d]) / hessian[d, d]
    half = np.linalg.solve(np.linalg.cholesky(hessian), np.linalg.cholesky(covariance))
    values = np.linalg.svd(half, compute_uv=False) ** 2
    return float(values[0] / values[-1])


@pytest.mark.parametrize("kind", ["neighbours", "groups", "scaled", "none"])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_correlations_of_a_small_sample_are_brought_nearer_to_0(kind: str, bias: float) -> None:
    """The sample's Hessian is then at most 1.3 times as far from the covariance as with the best share there is."""
    rng, d, m = np.random.default_rng(0), 120, 360
    gap = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    covariance = np.eye(d) if kind == "none" else 0.5**gap
    if kind == "groups":
        covariance = 0.6 * np.kron(np.eye(d // 10), np.ones((10, 10))) + 0.4 * np.eye(d)
    if kind == "scaled":
        scales = 10 ** rng.uniform(-2, 2, d)
        covariance = covariance * np.outer(scales, scales)
    rows = rng.normal(size=(m, d)) @ np.linalg.cholesky(covariance).T
    rows += 3 * bias * rng.normal(size=d) * np.diagonal(covariance) ** 0.5
    problem = Problem(rows, rng.normal(size=m), np.ones(m), LOSSES["squared"], bias=bias)
    x = np.zeros(problem.shape)
    found, plain = hessian_factors(PlainSample(problem), x)[0], hessian_factors(problem, x)[0]
    gram = np.cov(rows, rowvar=False) if bias else rows.T @ rows / m
    shrunk = [np.linalg.cholesky((1 - s) * gram + s * np.diag(np.diagonal(gram))) for s in np.linspace(0.0, 1.0, 21)]
    best = min(condition(factor, covariance) for factor in shrunk)
    assert condition(found, covariance) <= 1.3 * best
    assert condition(found, covariance) <= 0.6 * condition(plain, covariance)


@pytest.mark.parametrize("kind", ["low rank", "constant", "many rows"])
def test_a_sample_keeps_its_flat_directions(kind: str) -> None:
    """Features that are combinations of eight, and a little noise, have directions in which f is hardly curved."""
    rng, d, m = np.random.default_rng(0), 60, 180
    rows = rng.normal(size=(m, 8)) @ rng.normal(size=(8, d)) + 0.05 * rng.normal(size=(m, d))
    if kind == "constant":
        rows[:, 3] = 0.0
    if kind == "many rows":
        rows = rng.normal(size=(30_000, d)) @ np.linalg.cholesky(0.5 * np.ones((d, d)) + 0.5 * np.eye(d)).T
    problem = Problem(rows, np.ones(len(rows)), np.ones(len(rows)), LOSSES["logistic"], bias=0.0)
    x = np.zeros(problem.shape)
    expected = np.tril(hessian_factors(problem, x)[0])
    np.testing.assert_array_equal(np.tril(hessian_factors(PlainSample(problem), x)[0]), expected)


@pytest.mark.parametrize("form", ["dense", "float32"])
@pytest.mark.parametrize("name", ["logistic", "tweedie"])
def test_passes_take_any_number_of_rows(name: str, form: str) -> None:
    """Rows are taken by sixteens, then by eights, then one by one: f and its gradient are autograd's for each n."""
    whole = make_problem(name, n=41, d=11, bias=1.0, penalty=Penalty(l2=0.1), form=form, weighted=True)
    x = np.random.default_rng(2).normal(size=whole.shape) / 4
    for n in range(1, 42):
        problem = whole.first_rows(n)
        found = problem.anchor(x)
        value, gradient = autograd(problem, name, x)
        assert found.value == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(found.smooth, gradient, rtol=1e-10, atol=1e-13)
        part = whole.anchor(x, 41 - n, 41)
        np.testing.assert_allclose(part.kept[41 - n :], whole.anchor(x).kept[41 - n :], rtol=1e-12)


def rows_of(kind: str, n: int = 200, d: int = 120) -> Any:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(n, d))
    if kind == "scaled":
        rows *= 10.0 ** rng.uniform(-3, 3, d)
    elif kind == "neighbours":
        for j in range(1, d):
            rows[:, j] = (rows[:, j - 1] + math.sqrt(3) * rows[:, j]) / 2
    elif kind == "a pair":
        rows[:, 7] = rows[:, 3] + 0.3 * rows[:, 7]
    elif kind == "a common factor":
        rows += rng.normal(size=(n, 1))
    elif kind == "not centred":
        rows += 1.0
    elif kind == "constant":
        rows[:, :5] = 0.0
    return rows


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("normal", True), ("scaled", True), ("constant", True), ("neighbours", False), ("a pair", False),
     ("a common factor", False), ("not centred", False)],
)  # fmt: skip
def test_independent_features_are_told_from_others(kind: str, expected: bool) -> None:
    """The mean square of eigenvalues of 128 rows has a standard error of 0.016 about 1, and the limit is 1.06; one of
    7140 correlations above 0.5, which are off by 0.09, has a chance below one in ten thousand.
    """
    rows = rows_of(kind)
    problem = Problem(rows, np.ones(len(rows)), np.ones(len(rows)), LOSSES["logistic"], bias=0.0)
    assert uncorrelated(problem) is expected
    assert curved(problem, np.zeros(problem.shape))
    assert not curved(problem, np.full(problem.shape, 1e3)), "losses are straight lines there"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("normal", True), ("scaled", False), ("constant", False), ("neighbours", False), ("a pair", False),
     ("a common factor", False), ("not centred", False)],
)  # fmt: skip
def test_few_independent_features_of_one_scale_go_to_lbfgs_at_once(kind: str, expected: bool) -> None:
    rows = rows_of(kind, n=6000, d=60)
    y = np.where(np.random.default_rng(0).random(6000) < 1 / (1 + np.exp(-rows[:, 20])), 1.0, -1.0)
    problem = Problem(rows, y, np.ones(6000), LOSSES["logistic"], penalty=Penalty(l2=1e-3))
    assert alike(problem) is expected
    assert alike(replace(problem, rows=rows[np.argsort(rows[:, 0])])) is expected, "rows may be sorted"
    start = np.zeros(problem.shape)
    assert (solve(problem, start, 1e-4).solver == "l-bfgs") is expected
    assert solve(problem, start, 1e-4, solver="growing-svrg").solver != "l-bfgs", "who asks for a solver gets it"


def hessian_of(problem: Problem, x: Array) -> Array:
    """The Hessian of a logistic problem with one output, from changes of the gradient."""
    eye, h = np.eye(x.size)[:, None], 1e-5
    columns = [autograd(problem, "logistic", x + h * e)[1] - autograd(problem, "logistic", x - h * e)[1] for e in eye]
    return np.concatenate(columns) / (2 * h)


def updated(model: Curvature) -> Array:
    """The matrix that BFGS makes of a diagonal and some pairs, as in textbooks."""
    B = np.diag(model.diagonal)
    for s, y in model.pairs:
        B = B - np.outer(B @ s, B @ s) / (s @ B @ s) + np.outer(y, y) / (y @ s)
    return B


@pytest.mark.parametrize("bias", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("moved", [False, True])
def test_the_model_for_independent_features_is_curved_as_the_rows_are(bias: float, moved: bool) -> None:
    """On the span of the coefficients and the intercept it is the Hessian; its diagonal is that of the Hessian at the
    start, and in proportion to the mean curvature elsewhere.
    """
    problem = make_problem("logistic", n=700, d=5, bias=bias, penalty=Penalty(l2=0.1), weighted=True)
    start = np.random.default_rng(1).normal(size=problem.shape)
    x = start + (np.random.default_rng(2).normal(size=problem.shape) if moved else 0.0)
    model, H = IndependentFeatures(problem, start).at(x), hessian_of(problem, x)
    weight = [row_curvatures(problem, point).sum() for point in (start, x)]
    squares = np.diagonal(hessian_of(problem, start))[:-1] - 0.1
    np.testing.assert_allclose(model.diagonal[:-1] - 0.1, squares * weight[1] / weight[0], rtol=1e-6)
    assert model.diagonal[-1] == pytest.approx(H[-1, -1] if bias else 1.0, rel=1e-6)
    span = np.zeros((6, 2 if bias else 1))
    span[:-1, 0] = x[0, :-1]
    span[-1, -1] += bool(bias)
    B = updated(model)
    np.testing.assert_allclose(span.T @ B @ span, span.T @ H @ span, rtol=1e-6)
    assert np.linalg.eigvalsh(B).min() > 0
    rest = B - np.diag(model.diagonal)
    assert np.linalg.matrix_rank(rest, tol=1e-10) <= span.shape[1]
    np.testing.assert_allclose(rest, rest.T, atol=1e-15)


def test_the_model_is_nearer_to_the_hessian_than_a_diagonal_or_a_sample() -> None:
    """40,000 normal rows of 50: the largest eigenvalue of the difference is 2√(50/40,000) = 0.07 of the Hessian's, and
    some more for squares from 2000 rows. The curvature along x is about half of that across it.
    """
    rng, n, d = np.random.default_rng(5), 40_000, 50
    rows, x = rng.normal(size=(n, d)) * np.linspace(0.5, 2, d), rng.normal(size=(1, d + 1)) / np.linspace(0.5, 2, d + 1)
    x *= 2 / np.linalg.norm(x[0, :-1] * np.linspace(0.5, 2, d))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    problem = Problem(rows, y, np.ones(n), LOSSES["logistic"], penalty=Penalty(l2=1e-4))
    sample, H = problem.first_rows(2000), hessian_of(problem, x)
    model = IndependentFeatures(sample, x).at(x)

    def distance(B: Array) -> float:
        lower = np.linalg.inv(np.linalg.cholesky(H))
        return float(np.abs(np.linalg.eigvalsh(lower @ B @ lower.T) - 1).max())

    assert distance(updated(model)) < 0.2
    assert distance(np.diag(model.diagonal)) > 0.5
    assert distance(hessian_of(sample, x)) > 0.25


@pytest.mark.parametrize("name", ["squared", "huber", "logistic", "squared-hinge"])
@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("begin", ["at zero", "elsewhere"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_lbfgs_with_the_model_ends_at_the_minimum(name: str, bias: float, begin: str, dtype: Any) -> None:
    problem = make_problem(name, n=900, d=6, bias=bias, penalty=Penalty(l2=0.05), weighted=True)
    problem = replace(problem, rows=problem.rows.astype(dtype), threads=2)
    start = np.zeros(problem.shape)
    start[0, :-1] = 0.0 if begin == "at zero" else 1.0
    model = IndependentFeatures(problem.first_rows(300), start)
    x, best, _ = lbfgs.minimise(problem, model, start, problem.anchor(start), 1e-9, 200, lambda stage, seen: None)
    assert best.norm <= 1e-9
    assert np.linalg.norm(autograd(problem, name, x)[1]) <= 1.01e-9


def test_a_model_that_is_much_flatter_or_has_other_pairs_is_not_adopted() -> None:
    problem = make_problem("logistic", n=900, d=6, bias=1.0, penalty=Penalty(l2=0.05))
    start = np.ones(problem.shape)
    known, source = problem.anchor(start), IndependentFeatures(problem, start)
    f = quasi_newton.CountedObjective(problem, 0.0, 9, lambda stage, seen: None, start, known)
    search, first = quasi_newton.Search(f, start, known, source), source.at(start)
    for model, adopted in (
        (first, True),
        (first._replace(diagonal=0.05 * first.diagonal), False),
        (first._replace(diagonal=2 * first.diagonal, pairs=first.pairs[:1]), False),
        (first._replace(diagonal=0.5 * first.diagonal), True),
    ):
        search.inverse.adopt(model)
        assert (search.inverse.diagonal[0] == 1 / model.diagonal).all() == adopted
        assert search.inverse.kept == 2


def test_the_model_saves_passes() -> None:
    """The same search from the same point, with the Hessian of as many rows in place of the model."""
    rows, rng = rows_of("normal", 20_000, 100), np.random.default_rng(4)
    w = rng.normal(size=100) / 5
    y = np.where(rng.random(20_000) < 1 / (1 + np.exp(-rows @ w)), 1.0, -1.0)
    problem = Problem(rows, y, np.ones(20_000), LOSSES["logistic"], penalty=Penalty(l2=1e-5))
    start = np.append(1.2 * w, 0.1)[None]
    sample, passes = problem.first_rows(2000), []
    seen: list[PassResult] = []
    for middle in (IndependentFeatures(sample, start), sample):
        before = len(seen)
        _, best, _ = lbfgs.minimise(
            problem, middle, start, problem.anchor(start), 1e-8, 50, lambda _, one: seen.append(one)
        )
        assert best.norm <= 1e-8
        passes.append(len(seen) - before)
    assert passes[0] <= 0.7 * passes[1], passes


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_the_curvature_along_a_direction_is_the_change_of_the_gradient(form: str) -> None:
    problem = make_problem("logistic", n=70, d=5, bias=1.0, penalty=Penalty(l2=0.1), form=form, weighted=True)
    x, v = np.random.default_rng(1).normal(size=(2, *problem.shape))
    ahead, behind = (autograd(problem, "logistic", x + h * v)[1] for h in (1e-5, -1e-5))
    assert curvature_along(problem, x, v) == pytest.approx(np.vdot(v, ahead - behind) / 2e-5, rel=1e-6)


def test_the_first_step_of_lbfgs_goes_far_where_rows_are_hardly_curved() -> None:
    """Rows of norm 1 with few entries. A quadratic model along −∇f takes most of what there is to gain on that line; a
    step of length 1 takes little.
    """
    rows = sparse.random(2000, 1000, 0.01, "csr", random_state=0)
    rows = sparse.csr_matrix(rows.multiply(1 / np.sqrt(rows.multiply(rows).sum(axis=1) + 1e-12)))
    y = np.where(rows @ np.random.default_rng(0).normal(size=1000) > 0, 1.0, -1.0)
    problem = Problem(rows, y, np.ones(2000), LOSSES["logistic"], bias=0.0, penalty=Penalty(l2=1e-4))
    start, points = np.zeros(problem.shape), []
    known = problem.anchor(start)
    lbfgs.minimise(problem, "identity", start, known, 0.0, 1, lambda _, seen: points.append(seen.value))

    def gain(length: float) -> float:
        return known.value - problem.anchor(start - length / known.norm * known.smooth).value

    most = gain(optimize.minimize_scalar(lambda length: -gain(length), bounds=(0, 1000), method="bounded").x)
    assert known.value - points[0] > 0.8 * most
    assert gain(1.0) < 0.2 * most


@pytest.mark.parametrize("kind", ["scaled", "neighbours"])
def test_features_that_are_independent_or_not_end_at_the_tolerance(kind: str) -> None:
    """Growing SVRG hands over to L-BFGS, which ends at the tolerance whatever it begins with."""
    rows, rng = rows_of(kind, 6000, 60), np.random.default_rng(4)
    y = np.where(rng.random(6000) < 1 / (1 + np.exp(-rows[:, 0] / rows[:, 0].std())), 1.0, -1.0)
    problem = Problem(rows, y, np.ones(6000), LOSSES["logistic"], penalty=Penalty(l2=1e-4))
    found = solve(problem, np.zeros(problem.shape), tol=1e-7, solver="growing-svrg")
    assert found.converged
    assert found.solver == "growing-svrg, then l-bfgs"
    assert np.linalg.norm(autograd(problem, "logistic", found.x)[1]) <= 1.001e-7


@pytest.mark.parametrize("name", ["squared", "huber", "logistic", "squared-hinge", "multinomial"])
@pytest.mark.parametrize("factored", [True, False])
def test_lbfgs_ends_at_the_minimum_that_scipy_finds(name: str, factored: bool) -> None:
    problem = make_problem(name, n=300, d=6, bias=1.0, penalty=Penalty(l2=0.05), weighted=True)
    start, passes = np.ones(problem.shape), []
    sample = problem.subset(np.arange(100)) if factored else "diagonal"
    x, best, _ = lbfgs.minimise(
        problem, sample, start, problem.anchor(start), 1e-9, 500, lambda _, seen: passes.append((seen.value, seen.norm))
    )
    f, gradient = problem.objective(x)
    assert best.norm == pytest.approx(np.linalg.norm(gradient), abs=1e-15)
    assert best.norm <= 1e-9
    expected = optimize.minimize(lambda w: problem.objective(w.reshape(start.shape))[0], x.ravel() * 0.9, method="BFGS")
    assert f <= expected.fun + 1e-12
    assert passes[-1] == (f, best.norm)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("factored", [True, False])
def test_directions_are_those_of_the_dense_formula(outputs: int, factored: bool) -> None:
    """B⁻¹ ← (1 − syᵀ/sᵀy)·B⁻¹·(1 − ysᵀ/sᵀy) + ssᵀ/sᵀy, over the last pairs; one without curvature is left out."""
    rng = np.random.default_rng(0)
    D, memory = 5, 3
    size = outputs * D
    factors, diagonal = np.empty((0, 0, 0)), rng.random((outputs, D)) + 0.5
    if factored:
        factors = np.stack([np.linalg.cholesky(a.T @ a + np.eye(D)) for a in rng.normal(size=(outputs, D, D))])
        start = np.zeros((size, size))
        for k, factor in enumerate(factors):
            start[k * D : (k + 1) * D, k * D : (k + 1) * D] = np.linalg.inv(factor @ factor.T)
    else:
        start = np.diag(diagonal.ravel() / 2)
    steps, changes, products, shares = (np.empty(shape) for shape in ((memory + 1, size),) * 2 + (memory + 1,) * 2)
    kept, pairs = 0, []
    last, before = rng.normal(size=(2, outputs, D))
    for turn in range(7):
        s = np.zeros((outputs, D)) if turn == 0 else rng.normal(size=(outputs, D))
        y = -s if turn == 5 else 2 * s + 0.1 * rng.normal(size=s.shape) * (turn > 0)
        x, gradient, direction, trial = last + s, before + y, np.empty((outputs, D)), np.empty((outputs, D))
        slope, kept = next_direction(
            last, before, x, gradient, steps, changes, products, kept, factors, diagonal, 0.5, direction, trial, shares
        )
        if turn not in (0, 5):
            pairs.append((s.ravel(), y.ravel()))
        assert kept == len(pairs)
        dense = start
        for a, b in pairs[-memory:]:
            left = np.eye(size) - np.outer(a, b) / (a @ b)
            dense = left @ dense @ left.T + np.outer(a, a) / (a @ b)
        np.testing.assert_allclose(direction.ravel(), -dense @ gradient.ravel(), rtol=1e-9, atol=1e-11)
        assert slope == pytest.approx(gradient.ravel() @ direction.ravel())
        np.testing.assert_array_equal(trial, x + direction)
        last, before = x, gradient


def test_lbfgs_keeps_to_its_budget() -> None:
    problem = make_problem("logistic", n=300, d=6, bias=1.0, penalty=Penalty(l2=1e-6))
    start, passes = np.ones(problem.shape), []
    lbfgs.minimise(problem, "identity", start, problem.anchor(start), 0.0, 3, lambda _, seen: passes.append(seen))
    assert len(passes) == 3


@pytest.mark.parametrize("form", ["dense", "sparse", "wide"])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "classes"), [(1, 2), (7, 3), (256, 8), (259, 9), (600, 21)])
def test_passes_with_several_classes_are_the_formulas(form: str, kind: type, n: int, classes: int) -> None:
    """f, its gradient and the slopes of rows by SciPy's log-sum-exp, for blocks and vectors that are not full; margins
    of a thousand too. Rows with few entries for each column are read one class after the other."""
    rng = np.random.default_rng(n)
    d = 300 if form == "wide" else 11
    dense = rng.normal(size=(n, d)) * (rng.random((n, d)) < {"dense": 1.0, "sparse": 0.2, "wide": 2 / n}[form])
    dense = dense.astype(kind)
    rows = dense if form == "dense" else sparse.csr_matrix(dense)
    y, weight = rng.integers(classes, size=n), rng.integers(3, size=n).astype(float)
    problem = Problem(rows, y.astype(float), weight, LOSSES["multinomial"], outputs=classes, bias=2.0)
    if form != "dense":
        assert (rows.nnz >= TURNED * d) == (form == "sparse" and n > 40)
    whole, own = np.hstack([dense.astype(float), np.full((n, 1), 2.0)]), (np.arange(n), y)
    for size in (0.3, 100.0):
        x = size * rng.normal(size=problem.shape)
        z = whole @ x.T
        slopes = np.exp(z - special.logsumexp(z, axis=1, keepdims=True))
        slopes[own] -= 1
        slopes *= weight[:, None]
        found = problem.anchor(x)
        value = float(weight @ (special.logsumexp(z, axis=1) - z[own])) / n
        assert found.value == pytest.approx(value, rel=1e-12, abs=1e-12)
        np.testing.assert_allclose(found.kept, slopes, atol=1e-11)
        np.testing.assert_allclose(found.gradient, slopes.T @ whole / n, atol=1e-11)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_passes_with_several_classes_tell_of_numbers_that_are_not_finite(bad: float) -> None:
    rows = np.ones((20, 2))
    rows[3, 0] = bad
    for form in (rows, sparse.csr_matrix(rows)):
        problem = Problem(form, np.zeros(20), np.ones(20), LOSSES["multinomial"], outputs=3)
        assert not math.isfinite(problem.anchor(np.ones(problem.shape)).value)
