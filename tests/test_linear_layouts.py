"""Linear models on arrays and processors of every kind: strided parts, processors without FMA, blocks without rows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import vcsg
from vcsg.linear import LinearRegressor, blocks, out_of_core, row_sample


def rows_and_targets(n: int, d: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, d))
    return rows, rows @ rng.normal(size=d) + 1 + rng.normal(size=n)


@pytest.mark.parametrize("part", ["data", "indices", "indptr"])
def test_a_csr_matrix_with_a_strided_part(part: str) -> None:
    """scipy keeps such parts as they are; the compiled loops go by addresses."""
    plain = sparse.random(4000, 60, 0.3, "csr", random_state=0)
    y = plain @ np.linspace(-1, 1, 60) + np.random.default_rng(1).normal(size=4000)
    parts = {name: getattr(plain, name) for name in ("data", "indices", "indptr")}
    spread = np.full(2 * len(parts[part]), 1, parts[part].dtype)
    spread[::2] = parts[part]
    parts[part] = spread[::2]
    strided = sparse.csr_matrix(tuple(parts.values()), shape=plain.shape)
    for solver in ("auto", "l-bfgs"):
        expected, found = (LinearRegressor(tol=1e-8, solver=solver).fit(X, y).coef_ for X in (plain, strided))
        np.testing.assert_allclose(found, expected, atol=1e-7)


PROGRAM = """
import numpy as np
from scipy.special import expit
from vcsg.linear import LinearClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 3))
y = X[:, 0] + rng.normal(size=300) > 0
model = LinearClassifier(alpha=1e-2, tol=1e-9).fit(X, y)
residual = expit(X @ model.coef_[0] + model.intercept_[0]) - y
print(np.abs(np.r_[X.T @ residual / 300 + 1e-2 * model.coef_[0], residual.mean()]).max())
"""


def test_a_processor_without_fma_gives_the_same(tmp_path: Path) -> None:
    """The gradient of logistic regression at the solution, by NumPy, where the loops are compiled for any processor."""
    source = str(Path(vcsg.__file__).parent.parent)
    others = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **others, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-8


def test_blocks_without_rows_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (out_of_core, row_sample):
        monkeypatch.setattr(module, "SAMPLE", 20_000)
    X, y = rows_and_targets(4000, 60)

    def parts() -> Iterator[Any]:
        for first in range(0, 4000, 500):
            yield X[:0], y[:0]
            yield X[first : first + 500], y[first : first + 500]

    found = LinearRegressor(tol=1e-6).fit(parts, None)
    assert found.reads_ > 1
    np.testing.assert_allclose(found.coef_, LinearRegressor(tol=1e-8).fit(X, y).coef_, atol=1e-5)


def test_what_stands_beside_a_memory_map_has_its_length(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(blocks, "LARGE", 1000)
    X, y = rows_and_targets(4000, 10)
    mapped = np.memmap(tmp_path / "rows", np.float64, "w+", shape=X.shape)
    mapped[:] = X
    with pytest.raises(ValueError, match=r"y has the shape \(8000,\), X 4000 rows: give a number for each row"):
        LinearRegressor().fit(mapped, np.r_[y, y])
    with pytest.raises(ValueError, match=r"sample_weight has the shape \(12000,\), X 4000 rows"):
        LinearRegressor().fit(mapped, y, sample_weight=np.ones(12_000))
    with pytest.raises(ValueError, match=r"y goes from 0 to 0: this loss takes numbers 0 or above, and not all 0"):
        LinearRegressor("poisson").fit(mapped, np.zeros(4000))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("passes", [1, 5, 12])
def test_a_falling_scale_keeps_to_the_passes(passes: int) -> None:
    X, y = rows_and_targets(300, 5)
    model = LinearRegressor("huber", scale=1e-4, max_iter=passes, tol=1e-12).fit(X, 100 * y)
    assert model.n_iter_ <= passes + 1
