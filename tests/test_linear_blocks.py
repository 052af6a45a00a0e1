"""Rows that are read by blocks: the solution in memory, few reads, every kind of source, and workers that die."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from linear_data import make_problem
from scipy import sparse

from vcsg.linear import LinearClassifier, LinearRegressor, Penalty, blocks, out_of_core, sampled_newton, solve
from vcsg.linear.curvature import row_curvatures
from vcsg.linear.duality import dual_sums, duality_gap, summed_gap
from vcsg.linear.row_sample import RowSample


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 8))
    return X, X @ rng.normal(size=8) + rng.logistic(size=6000) > 0.5


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of 1000 rows, and memory maps that count as large."""
    monkeypatch.setattr(out_of_core, "SAMPLE", 1000 * 64)
    monkeypatch.setattr(blocks, "LARGE", 0)
    monkeypatch.setattr(blocks, "BLOCK", 700 * 64)


def cut(X: Any, *others: Any, size: int = 500) -> Any:
    """A function that yields the rows by blocks."""

    def yielded() -> Iterator[tuple[Any, ...]]:
        for first in range(0, X.shape[0], size):
            yield tuple(array[first : first + size] for array in (X, *others))

    return yielded


@pytest.mark.parametrize("form", ["dense", "sparse", "float32"])
def test_blocks_give_the_solution_in_memory(form: str, data: tuple[Any, Any]) -> None:
    X, y = data
    rows = {"dense": X, "sparse": sparse.csr_matrix(X), "float32": X.astype(np.float32)}[form]
    weight = np.random.default_rng(1).random(6000)
    expected = LinearClassifier(alpha=1e-3, tol=1e-9).fit(X, y, weight)
    model = LinearClassifier(alpha=1e-3, tol=1e-7, random_state=0).fit(cut(rows, y, weight), None)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=1e-5)
    assert model.history_[-1].gradient_norm <= 1e-7
    assert model.reads_ == model.history_[-1].passes == model.n_iter_
    assert model.reads_ <= 12
    assert model.history_[0].stage == "sample"
    assert model.history_[0].rows == {"dense": 1000, "sparse": 666, "float32": 2000}[form]
    assert model.solver_.endswith("then sampled-newton on all rows")


SPARSE_MODELS = [
    ("logistic", "l1"), ("logistic", "elasticnet"), ("squared", "l1"), ("squared", "elasticnet"), ("huber", "l1"),
    ("squared-hinge", "elasticnet"), ("poisson", "l1"), ("gamma", "elasticnet"), ("tweedie", "l1"),
]  # fmt: skip


def targets(X: Any, loss: str) -> Any:
    z = X[:, :3] @ np.array([1.0, -1.0, 0.5]) + np.random.default_rng(2).normal(size=len(X))
    if loss in LinearClassifier.losses:
        return z > 0.3
    return z if loss in ("squared", "huber") else np.exp(z / 4)


@pytest.mark.parametrize(("loss", "penalty"), SPARSE_MODELS)
@pytest.mark.parametrize("form", ["dense", "sparse", "float32", "no intercept"])
def test_an_l1_penalty_by_blocks(loss: str, penalty: str, form: str, data: tuple[Any, Any]) -> None:
    """The solution in memory, its zeros, and a gap that bounds what f is above the minimum."""
    X, _ = data
    kind: Any = LinearClassifier if loss in LinearClassifier.losses else LinearRegressor
    rows = {"sparse": sparse.csr_matrix(X), "float32": X.astype(np.float32)}.get(form, X)
    y, weight = targets(X, loss), np.random.default_rng(1).random(6000)
    options = {"penalty": penalty, "alpha": 0.02, "l1_ratio": 0.5, "fit_intercept": form != "no intercept"}
    expected = kind(loss, tol=1e-9, **options).fit(rows.astype(float), y, weight)
    model = kind(loss, tol=1e-7, random_state=0, **options).fit(cut(rows, y, weight), None)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=2e-6)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=2e-6)
    assert 0 < (model.coef_ == 0).sum() == (expected.coef_ == 0).sum()
    assert model.history_[-1].gradient_norm <= 1e-7
    assert model.reads_ == model.history_[-1].passes <= 10
    above = model.history_[-1].objective - expected.history_[-1].objective
    assert above <= model.duality_gap_ + 1e-12
    assert model.duality_gap_ < 1e-6


@pytest.mark.parametrize("loss", ["squared", "huber", "logistic", "squared-hinge", "tweedie"])
@pytest.mark.parametrize("terms", [Penalty(l1=0.05), Penalty(l1=0.03, l2=0.02), Penalty(l1=0.05, positive=True)])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_the_gap_from_sums_bounds_what_f_is_above_its_minimum(loss: str, terms: Penalty, bias: float) -> None:
    """Sums over two blocks; it is at least as large as the gap from the slopes of all rows, and vanishes with it."""
    problem = make_problem(loss, n=60, d=5, bias=bias, penalty=terms, weighted=True)
    best = solve(problem, np.zeros(problem.shape), 1e-9).x
    least, rng = problem.anchor(best).value, np.random.default_rng(0)
    for size in (0.0, 1e-3, 0.1, 1.0):
        x = best + size * rng.normal(size=best.shape)
        x[:, :-1] = np.maximum(x[:, :-1], 0) if terms.positive else x[:, :-1]
        x[:, -1] *= bias
        sums = []
        for index in (np.arange(20), np.arange(20, 60)):
            part = replace(problem.subset(index), penalty=Penalty())
            share = len(index) / problem.n
            sums.append([each.times(share) for each in dual_sums(part, x, part.anchor(x))])
        above, below = (one.plus(other) for one, other in zip(*sums, strict=True))
        gap = summed_gap(problem.anchor(x).value, terms, bias, above, below)
        assert problem.anchor(x).value - least <= gap + 1e-9
        assert gap >= duality_gap(problem, x) - 1e-9
        assert gap < 1e-6 or size


def test_bounds_and_many_columns_by_blocks(data: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Working sets where there are more unknowns than a factor takes; conjugate gradients where there are no kinks."""
    monkeypatch.setattr(sampled_newton, "WIDEST", 6)
    X, _ = data
    y = targets(X, "squared")
    for options in ({"positive": True}, {"penalty": "l1", "alpha": 0.02}, {"alpha": 1e-3}, {"penalty": None}):
        model = LinearRegressor(tol=1e-7, random_state=0, **options).fit(cut(X, y), None)
        expected = LinearRegressor(tol=1e-9, **options).fit(X, y)
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
        assert model.reads_ <= 10


def test_the_corrected_hessian_is_that_of_the_formula(data: tuple[Any, Any]) -> None:
    """BFGS updates one after the other, of the sample's Hessian with the diagonal of all rows, as dense matrices."""
    problem = make_problem("multinomial", n=400, d=4, bias=1.0, penalty=Penalty(l1=0.1, l2=0.2))
    sample, rng = problem.subset(np.arange(150)), np.random.default_rng(0)
    at = 0.1 * rng.normal(size=problem.shape)
    whole = sampled_newton.hessian_diagonal(problem, row_curvatures(problem, at))
    base = sampled_newton.SampleHessian(sample, at, whole, shrinkage=0.0)
    units = np.eye(at.size).reshape(-1, *at.shape)
    B = np.stack([base.times(unit).ravel() for unit in units])
    np.testing.assert_allclose(B, base.block(np.arange(at.size)), atol=1e-12)
    ridge = np.column_stack([np.full((3, 4), 0.2), np.zeros(3)])
    np.testing.assert_allclose(np.diagonal(B), (whole + ridge).ravel(), rtol=1e-9)
    rows = np.column_stack([sample.rows, np.ones(150)])
    chances = np.exp(rows @ at.T) / np.exp(rows @ at.T).sum(axis=1, keepdims=True)
    own = (rows.T * (chances[:, 0] * (1 - chances[:, 0]))) @ rows / 150
    scale = np.sqrt(whole[0] / np.diagonal(own))
    np.testing.assert_allclose(B[:5, :5] - np.diag(ridge[0]), own * np.outer(scale, scale), atol=1e-12)
    corrected = sampled_newton.CorrectedHessian(base, damping=0.5)
    for _ in range(3):
        step = rng.normal(size=at.shape)
        change = base.times(step) + 0.1 * step
        corrected.add(step, change)
        s, y = step.ravel(), change.ravel()
        B = B - np.outer(B @ s, B @ s) / (s @ B @ s) + np.outer(y, y) / (s @ y)
    B += 0.5 * np.diag(base.diagonal.ravel())
    np.testing.assert_allclose(corrected.block(np.arange(at.size)), B, atol=1e-9)
    np.testing.assert_allclose(corrected.times(units[3]).ravel(), B[3], atol=1e-9)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("penalty", ["l2", "l1"])
@pytest.mark.parametrize("shape", ["few rows for each column", "heavy tails", "rare columns"])
def test_a_sample_that_is_unlike_all_rows(loss: str, penalty: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample that is separable, that lacks the rows of extreme norm, or columns altogether."""
    rng = np.random.default_rng(0)
    X: Any = rng.normal(size=(6000, 150)) if shape.startswith("few") else rng.standard_t(1.5, size=(6000, 20))
    if shape == "rare columns":
        X = sparse.csr_matrix(rng.normal(size=(6000, 60)) * (rng.random((6000, 60)) < 0.5 ** np.arange(2, 62) ** 0.7))
    monkeypatch.setattr(out_of_core, "SAMPLE", 200 * 8 * X.shape[1])
    z = X @ rng.normal(size=X.shape[1])
    z /= np.quantile(np.abs(z), 0.7)
    y = z + rng.logistic(size=6000)
    kind: Any = LinearClassifier if loss == "logistic" else LinearRegressor
    y = y > 0 if loss == "logistic" else y
    options = {"penalty": penalty, "alpha": 1e-3}
    model = kind(loss, tol=1e-5, max_iter=80, random_state=0, **options).fit(cut(X, y), None)
    expected = kind(loss, tol=1e-7, **options).fit(X, y)
    assert model.history_[-1].gradient_norm <= 1e-5
    assert model.history_[-1].objective <= expected.history_[-1].objective + 1e-6


def test_names_of_columns_are_kept(data: tuple[Any, Any]) -> None:
    pyarrow, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    X, y = data
    table = pyarrow.table({"label": y.astype(int), **{f"x{j}": X[:, j] for j in range(8)}})
    model = LinearClassifier(random_state=0).fit(table, "label")
    assert list(model.feature_names_in_) == [f"x{j}" for j in range(8)]
    frame = pandas.DataFrame(X, columns=[f"x{j}" for j in range(8)])
    model.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])
    model.fit(cut(X, y), None)
    assert not hasattr(model, "feature_names_in_")


def test_what_fits_the_sample_is_read_once(data: tuple[Any, Any]) -> None:
    X, y = data
    model = LinearClassifier(tol=1e-8).fit(cut(X[:900], y[:900], size=100), None)
    np.testing.assert_allclose(model.coef_, LinearClassifier(tol=1e-8).fit(X[:900], y[:900]).coef_, atol=1e-8)
    assert model.reads_ == 1


def test_no_more_reads_than_asked(data: tuple[Any, Any]) -> None:
    X, y = data
    with pytest.warns(UserWarning, match="4 reads are used up"):
        model = LinearClassifier(tol=1e-12, max_iter=4).fit(cut(X, y), None)
    assert model.reads_ == 4


def test_several_classes_and_regressions_by_blocks(data: tuple[Any, Any]) -> None:
    X, _ = data
    z = X @ np.linspace(-1, 1, 8) + np.random.default_rng(2).normal(size=6000)
    names = np.array(["low", "mid", "high"])[np.digitize(z, [-1, 1])]
    model = LinearClassifier(alpha=1e-2, tol=1e-7).fit(cut(X, names), None)
    expected = LinearClassifier(alpha=1e-2, tol=1e-9).fit(X, names)
    assert list(model.classes_) == list(expected.classes_)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    for loss, y in (("squared", z), ("poisson", np.exp(z / 4))):
        ours = LinearRegressor(loss, tol=1e-8).fit(cut(X, y), None)
        np.testing.assert_allclose(ours.coef_, LinearRegressor(loss, tol=1e-9).fit(X, y).coef_, atol=1e-6)


def test_a_memory_map(data: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = data
    np.save(tmp_path / "rows.npy", X)
    model = LinearClassifier(tol=1e-6, random_state=0).fit(np.load(tmp_path / "rows.npy", mmap_mode="r"), y)
    np.testing.assert_allclose(model.coef_, LinearClassifier(tol=1e-8).fit(X, y).coef_, atol=1e-4)
    assert model.reads_ <= 10


def test_a_parquet_file(data: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(blocks, "BATCH", 512)
    X, y = data
    table = pyarrow.table({**{f"x{j}": X[:, j] for j in range(8)}, "label": y.astype(int), "w": np.ones(6000)})
    parquet.write_table(table, tmp_path / "rows.parquet")
    expected = LinearClassifier(tol=1e-8).fit(X, y)
    for source in (tmp_path / "rows.parquet", table):
        model = LinearClassifier(tol=1e-6, random_state=0).fit(source, "label", sample_weight="w")
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-4)
    with pytest.raises(ValueError, match="'target' is not among"):
        LinearClassifier().fit(table, "target")


def test_every_row_has_the_same_chance_in_a_sample() -> None:
    """Blocks of unlike sizes, each offering the rows of its smallest keys: those below the limit are all there."""
    rng, sample, keys = np.random.default_rng(0), RowSample(size=40 * 8), []
    for n in (5, 400, 60, 3, 200):
        key, offered = rng.random(n), min(n, 80)
        kept = np.argsort(key)[:offered]
        sample.add(key[kept], np.ones((offered, 1)), np.arange(offered), np.ones(offered), complete=offered == n)
        keys.append(key)
    found = sample.cut()[0]
    everything = np.concatenate(keys)
    np.testing.assert_array_equal(np.sort(found), np.sort(everything[everything <= sample.limit]))
    assert 20 <= len(found) <= 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_dask_with_a_worker_that_dies(penalty: str, data: tuple[Any, Any]) -> None:
    array = pytest.importorskip("dask.array")
    distributed = pytest.importorskip("distributed")
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    X, y = data
    options = {"penalty": penalty, "alpha": 1e-2}
    expected = LinearClassifier(tol=1e-8, **options).fit(X, y)
    rows, labels = array.from_array(X, chunks=(1000, 4)), array.from_array(y, chunks=1500)
    with (
        warnings.catch_warnings(),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        killed: list[int] = []

        def kill(entry: Any) -> None:
            if entry.stage == "sampled-newton" and not killed:
                process = next(iter(cluster.workers.values())).process
                killed.append(process.pid)
                process.kill()

        model = LinearClassifier(tol=1e-6, random_state=0, verbose=1, **options)
        model._print = kill  # type: ignore[method-assign]
        model.fit(rows, labels)
        assert killed
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-4)
        assert client.scheduler_info()
        frame = pandas.DataFrame(X, columns=[f"x{j}" for j in range(8)]).assign(label=y)
        parts = frames.from_pandas(frame, npartitions=5)
        other = LinearClassifier(tol=1e-6, random_state=0, **options).fit(parts, "label")
        np.testing.assert_allclose(other.coef_, expected.coef_, atol=1e-4)
        assert list(other.feature_names_in_) == [f"x{j}" for j in range(8)]
        with pytest.raises(ValueError, match="the column 'w' is not among"):
            LinearClassifier().fit(parts, "label", sample_weight="w")
        plain = LinearClassifier(tol=1e-6, random_state=0, **options).fit(rows, y)
        np.testing.assert_allclose(plain.coef_, expected.coef_, atol=1e-4)
        with pytest.raises(ValueError, match="y is None beside 6000 rows"):
            LinearClassifier().fit(rows, None)


@pytest.mark.parametrize(
    ("options", "block", "text"),
    [
        ({"penalty": "rational"}, None, "penalty='l2', 'l1', 'elasticnet' or None"),
        ({"max_iter": 1}, None, "max_iter = 1 reads of the rows: give at least 2"),
        ({}, [(np.array([[np.nan]]), np.ones(1))], "block 0 has rows with NaN or infinity"),
        ({}, [(np.ones((2, 1)), np.array([1.0, np.inf]))], "block 0 has targets with NaN or infinity"),
        ({}, [(np.ones((2, 1)), np.arange(2), -np.ones(2))], "block 0 has the weight -1"),
        ({}, [(np.ones((2, 1)), np.arange(2), np.ones(3))], "weights of shape \\(3,\\): one for each row"),
        ({"solver": "newton"}, None, "leave solver"),
        ({"class_weight": "balanced"}, None, "give weights with the blocks"),
        ({}, [(np.ones((3, 2)), np.ones(2))], "block 0 has rows of shape"),
        ({}, [np.ones((3, 2))], "yield \\(rows, y\\)"),
        ({}, [(np.ones((3, 2)), np.arange(3)), (np.ones((3, 3)), np.arange(3))], "the same number"),
        ({}, [(np.ones((3, 2)), np.ones(3))], "at least two classes"),
        ({}, [], "there are no rows"),
    ],
)
def test_blocks_that_cannot_be_fitted_are_refused(
    options: dict[str, Any], block: Any, text: str, data: tuple[Any, Any]
) -> None:
    source = cut(*data) if block is None else lambda: iter(block)
    with pytest.raises(ValueError, match=text):
        LinearClassifier(**options).fit(source, None)


def test_blocks_that_are_there_once_alone_are_seen(data: tuple[Any, Any]) -> None:
    """A function that returns the same iterator each time would have no rows in the second read."""
    once = cut(*data)()
    with pytest.raises(ValueError, match="6000 rows in the first read and 0 in read 2"):
        LinearClassifier().fit(lambda: once, None)


def test_targets_that_a_loss_does_not_take(data: tuple[Any, Any]) -> None:
    X, _ = data
    for loss, y, text in (
        ("poisson", -np.ones(6000), "from -1 to -1: .* 0 or above"),
        ("gamma", np.zeros(6000), "above 0"),
    ):
        with pytest.raises(ValueError, match=text):
            LinearRegressor(loss).fit(cut(X, y), None)
    with pytest.raises(ValueError, match="finite, but too large"):
        LinearRegressor().fit(cut(X * 1e200, X[:, 0]), None)
