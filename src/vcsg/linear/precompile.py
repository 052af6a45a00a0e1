"""Compiles the loops ahead of time; otherwise the first fit of each kind of data does, once per installation.

python -m vcsg.linear.precompile
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from scipy import sparse

from vcsg.linear.kernels.losses import LOSSES
from vcsg.linear.path import solve_path
from vcsg.linear.problem import Penalty, Problem
from vcsg.linear.solvers.automatic import solve
from vcsg.linear.solvers.choice import SOLVERS
from vcsg.linear.solvers.family import run
from vcsg.method import GrowingAnchor, make


def precompile(dtype: type[np.floating] = np.float64) -> float:
    """Compile the loops for dense and sparse rows of this dtype, keep them on disk, and return the seconds it took."""
    began = time.perf_counter()
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((64, 40)).astype(dtype)
    for rows in (dense, sparse.csr_matrix(dense * (rng.random(dense.shape) < 0.02))):
        y = np.sign(rng.standard_normal(64))
        problem = Problem(rows, y, np.ones(64), LOSSES["logistic"], penalty=Penalty(l2=0.1))
        start = np.zeros(problem.shape)
        for solver in SOLVERS:
            if solver != "interior-point" and (solver != "dual" or problem.sparse):
                terms = Penalty(l1=0.1) if solver == "working-set" else problem.penalty
                given = replace(problem, penalty=terms)
                solve(given, start, tol=0.0, passes=3, solver=solver, schedule=GrowingAnchor(16))
        solve_path(replace(problem, loss=LOSSES["squared"]), np.ones(2), "l1", 1.0, tol=1.0, passes=3)
        for name in ("svrg", "vcsg", "saga"):
            run(problem, start, make(name), tol=0.0, passes=3, seed=0)
    return time.perf_counter() - began


def main() -> None:
    """Compile for float64 and float32 rows, and tell the seconds."""
    for dtype in (np.float64, np.float32):
        print(f"{np.dtype(dtype).name}: {precompile(dtype):.1f} s")


if __name__ == "__main__":
    main()
