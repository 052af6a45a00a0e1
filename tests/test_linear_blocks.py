"""Rows that are read by blocks: the solution in memory, few reads, every kind of source, and workers that die."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from vcsg.linear import LinearClassifier, LinearRegressor, blocks, out_of_core
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
    assert model.solver_.endswith("then l-bfgs on all rows")


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
def test_dask_with_a_worker_that_dies(data: tuple[Any, Any]) -> None:
    array = pytest.importorskip("dask.array")
    distributed = pytest.importorskip("distributed")
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    X, y = data
    expected = LinearClassifier(tol=1e-8).fit(X, y)
    rows, labels = array.from_array(X, chunks=(1000, 4)), array.from_array(y, chunks=1500)
    with (
        warnings.catch_warnings(),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        killed: list[int] = []

        def kill(entry: Any) -> None:
            if entry.stage == "l-bfgs" and not killed:
                process = next(iter(cluster.workers.values())).process
                killed.append(process.pid)
                process.kill()

        model = LinearClassifier(tol=1e-6, random_state=0, verbose=1)
        model._print = kill  # type: ignore[method-assign]
        model.fit(rows, labels)
        assert killed
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-4)
        assert client.scheduler_info()
        frame = pandas.DataFrame(X, columns=[f"x{j}" for j in range(8)]).assign(label=y)
        other = LinearClassifier(tol=1e-6, random_state=0).fit(frames.from_pandas(frame, npartitions=5), "label")
        np.testing.assert_allclose(other.coef_, expected.coef_, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "block", "text"),
    [
        ({"penalty": "l1"}, None, "penalty='l2' or None"),
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
