"""The solver file for benchopt, run by benchopt on a benchmark with the interface of its logistic regression."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("benchopt", reason="benchopt is not installed: pip install benchopt")

ROOT = Path(__file__).parent.parent
SAMPLES, FEATURES, PENALTY = 300, 8, 0.7
OBJECTIVE = f"""
import numpy as np
from benchopt import BaseObjective


class Objective(BaseObjective):
    name = "L2 Logistic Regression"
    parameters = {{"lmbd": [{PENALTY}], "fit_intercept": [False, True]}}

    def set_data(self, X, y):
        self.X, self.y = X, y

    def get_objective(self):
        return dict(X=self.X, y=self.y, lmbd=self.lmbd, fit_intercept=self.fit_intercept)

    def get_one_result(self):
        return dict(beta=np.zeros(self.X.shape[1] + self.fit_intercept))

    def evaluate_result(self, beta):
        beta, intercept = (beta[:-1], beta[-1]) if self.fit_intercept else (beta, 0.0)
        losses = np.logaddexp(0, -self.y * (self.X @ beta + intercept))
        return dict(value=losses.sum() + self.lmbd / 2 * beta @ beta)
"""
DATASET = f"""
import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "Normal"

    def get_data(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=({SAMPLES}, {FEATURES}))
        return dict(X=X, y=np.where(X[:, 0] + rng.normal(size={SAMPLES}) > 0.5, 1.0, -1.0))
"""


def minimum(intercept: bool) -> float:
    """The least value of the objective, by Newton's method written out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(SAMPLES, FEATURES))
    y = np.where(X[:, 0] + rng.normal(size=SAMPLES) > 0.5, 1.0, -1.0)
    rows = np.c_[X, np.ones(SAMPLES)] if intercept else X
    penalty = np.diag([PENALTY] * FEATURES + [0.0] * intercept)
    beta = np.zeros(rows.shape[1])
    for _ in range(20):
        p = 1 / (1 + np.exp(y * (rows @ beta)))
        gradient = -rows.T @ (y * p) + penalty @ beta
        beta -= np.linalg.solve(rows.T @ (rows * (p * (1 - p))[:, None]) + penalty, gradient)
    return float(np.logaddexp(0, -y * (rows @ beta)).sum() + beta @ penalty @ beta / 2)


def test_the_solver_reaches_the_minimum(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for folder, name, text in (("", "objective", OBJECTIVE), ("datasets", "normal", DATASET)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.py").write_text(text)
    (tmp_path / "solvers").mkdir()
    shutil.copy(ROOT / "examples" / "benchopt" / "solver.py", tmp_path / "solvers" / "vcsg.py")
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    options = ["-s", "vcsg", "-n", "20", "--no-plot", "--no-html", "--no-cache", "--output", "found"]
    done = subprocess.run(
        [sys.executable, "-m", "benchopt", "run", str(tmp_path), *options],
        cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    table = pandas.read_parquet(next((tmp_path / "outputs").glob("found*.parquet")))
    for intercept in (False, True):
        values = table[table["p_obj_fit_intercept"] == intercept].sort_values("stop_val", ascending=False)
        least = minimum(intercept)
        assert values["objective_value"].iloc[-1] == pytest.approx(least, rel=1e-10)
        assert (values["objective_value"] >= least * (1 - 1e-12)).all()
