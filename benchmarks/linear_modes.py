"""Linear models beside the time of one fit: compilation, threads, reads of a file, paths, and many classes.

    python benchmarks/linear_modes.py compile                    CPU seconds of a first fit, with an empty cache
    python benchmarks/linear_modes.py cores --threads 1,2,4,8 [--json cores.json]    wall time by number of threads
    python benchmarks/linear_modes.py reads                      reads of a file to a given ‖∇f‖, beside other solvers
    python benchmarks/linear_modes.py path                       a path of 50 L1 penalties, beside three peers
    python benchmarks/linear_modes.py lasso                      single L1 regressions, beside three peers
    python benchmarks/linear_modes.py in-use                     L1 regressions with most columns in use, beside Lasso
    python benchmarks/linear_modes.py poisson                    small Poisson regressions, beside scikit-learn
    python benchmarks/linear_modes.py quantile                   quantiles, beside steps that all take all rows
    python benchmarks/linear_modes.py ridge                      least squares with an L2 penalty, beside Ridge
    python benchmarks/linear_modes.py blocks                     Newton steps block by block, beside L-BFGS
    python benchmarks/linear_modes.py cross-validation           the L1 penalty by five folds, beside scikit-learn
    python benchmarks/linear_modes.py classes                    ten classes, beside scikit-learn's lbfgs
    python benchmarks/linear_modes.py class-shapes               three to thirty classes, beside three solvers of it

Ratios are of runs that take turns. `cores` measures wall time and wants a quiet machine; the others CPU time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import (
    Lasso,
    LassoCV,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    SGDClassifier,
    lasso_path,
)
from threadpoolctl import threadpool_limits

from vcsg.linear import (
    LOSSES,
    LinearClassifier,
    LinearClassifierCV,
    LinearRegressor,
    LinearRegressorCV,
    Penalty,
    Problem,
    blocks,
    linear_path,
    out_of_core,
)
from vcsg.linear.duality import duality_gap
from vcsg.linear.solvers import incremental, interior_point

FIRST_FIT = """
import resource, sys
import numpy as np
from vcsg.linear import LinearClassifier
from scipy import sparse
rng = np.random.default_rng(0)
n, d, kind = {n}, 20, "{kind}"
X = rng.normal(size=(n, d)) + rng.normal(size=(n, 1))
y = (X @ rng.normal(size=d) + rng.logistic(size=n) > 0).astype(int)
X = sparse.csr_matrix(X * (rng.random(X.shape) < 0.2)) if kind == "sparse" else X
before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
model = LinearClassifier(random_state=0).fit(X, y)
print(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before, model.solver_, sep="|")
"""


def compilation() -> None:
    """The user CPU seconds of a first fit with an empty cache, and of the same fit with that cache."""
    for n, kind in ((10_000, "dense"), (1000, "dense"), (10_000, "sparse")):
        with tempfile.TemporaryDirectory() as folder:
            found = []
            for _ in range(2):
                command = [sys.executable, "-c", FIRST_FIT.format(n=n, kind=kind)]
                environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
                done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
                found.append(done.stdout.strip().split("|"))
        print(f"{kind} {n} × 20, {found[0][1]}: {float(found[0][0]):.1f} s, from the cache {float(found[1][0]):.2f} s")


# --- threads


def wall(run: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def cores(threads: list[int], repeats: int, n: int, out: Path | None) -> None:
    """Passes in GB/s beside plain reading by as many threads, and fits, by number of threads."""
    rng, d = np.random.default_rng(0), 50
    figures: dict[str, Any] = {"rows": n, "processors": os.cpu_count(), "read": {}, "pass": {}, "fits": {}}
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + rng.logistic(size=n) > 0
    signs, ones = np.where(y, 1.0, -1.0), np.ones(n)
    x = np.zeros((1, d + 1))
    print(f"dense {n} × {d}, {X.nbytes / 1e9:.1f} GB")
    for count in threads:
        problem = Problem(X, signs, ones, LOSSES["logistic"], penalty=Penalty(l2=1e-4), threads=count)
        problem.anchor(x)
        parts = np.array_split(X, count)
        with ThreadPoolExecutor(count) as pool:
            reading = wall(lambda pool=pool, parts=parts: list(pool.map(np.sum, parts)), repeats)  # type: ignore[misc]
        passing = wall(lambda problem=problem: problem.anchor(x), repeats)  # type: ignore[misc]
        figures["read"][count] = round(X.nbytes / reading / 1e9, 2)
        figures["pass"][count] = round(X.nbytes / passing / 1e9, 2)
        print(
            f"{count:3} threads: read {X.nbytes / reading / 1e9:6.1f} GB/s, pass {X.nbytes / passing / 1e9:6.1f} GB/s"
        )
    small = rng.standard_normal((20_000, 1000))
    few = small[:, :30] @ rng.standard_normal(30) + rng.logistic(size=20_000) > 0
    fits: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
        f"growing-svrg {n:.0e} × 50": (LinearClassifier, X, y, {"tol": 1e-5}),
        f"l-bfgs {n:.0e} × 50": (LinearClassifier, X, y, {"tol": 1e-5, "solver": "l-bfgs"}),
        "l-bfgs 20,000 × 1000": (LinearClassifier, small, few, {"tol": 1e-4, "solver": "l-bfgs"}),
        f"newton {n:.0e} × 50": (LinearClassifier, X, y, {"tol": 1e-5, "solver": "newton"}),
        "working-set 20,000 × 1000, L1": (
            LinearClassifier, small, few, {"penalty": "l1", "alpha": 1e-2, "tol": 1e-4, "solver": "working-set"},
        ),
        "five folds, 20 weights": (LinearClassifierCV, small[:4000], few[:4000], {"n_alphas": 20, "eps": 0.02}),
    }  # fmt: skip
    for name, (kind, rows, labels, options) in fits.items():
        times = {}
        for count in threads:
            model = kind(random_state=0, n_jobs=count, **options)
            with warnings.catch_warnings(), threadpool_limits(count):
                warnings.simplefilter("ignore")
                times[count] = wall(lambda model=model, a=rows, b=labels: model.fit(a, b), repeats)  # type: ignore[misc]
        first = times[threads[0]]
        figures["fits"][name] = {count: round(seconds, 4) for count, seconds in times.items()}
        print(
            f"{name:<32}" + "  ".join(f"{c}: {1e3 * t:.0f} ms ({first / t:.2f} ×)" for c, t in times.items()),
            flush=True,
        )
        if out is not None:
            out.write_text(json.dumps(figures, indent=1))


# --- reads of a file


def reads(n: int, d: int) -> None:
    """How often each solver reads a file of rows until ‖∇f‖ is at most 1e-2, 1e-3, 1e-4 and 1e-5; L2, then L1."""
    rng, lam = np.random.default_rng(0), 1e-4
    with tempfile.TemporaryDirectory() as folder:
        X = np.lib.format.open_memmap(Path(folder) / "rows.npy", mode="w+", dtype=np.float64, shape=(n, d))
        coef, y = rng.standard_normal(d), np.empty(n, bool)
        for first in range(0, n, 100_000):
            part = rng.standard_normal((min(100_000, n - first), d))
            part[:, 1:] += 0.7 * part[:, :-1]
            X[first : first + len(part)] = part
            y[first : first + len(part)] = part @ coef + rng.logistic(size=len(part)) > 0
        X.flush()
        rows = np.load(Path(folder) / "rows.npy", mmap_mode="r")
        signs, ones = np.where(y, 1.0, -1.0), np.ones(n)
        problem = Problem(rows, signs, ones, LOSSES["logistic"], penalty=Penalty(l2=lam))
        ours, _ = _our_reads(rows, y, alpha=lam)
        found = {
            "ours, by blocks": ours,
            "SGDClassifier.partial_fit": _partial_fit_reads(rows, y, lam, problem),
            "L-BFGS from the first read": _full_batch_reads(problem),
        }
        _print_reads(f"{n} × {d}, L2", found)
        for weight in (1e-2, 1e-3):
            problem = Problem(rows, signs, ones, LOSSES["logistic"], penalty=Penalty(l1=weight))
            ours, model = _our_reads(rows, y, alpha=weight, penalty="l1")
            found = {
                "ours, by blocks": ours,
                "FISTA from the first read": _fista_reads(problem),
                "L-BFGS-B with w = p − q": _split_reads(problem),
            }
            used = np.count_nonzero(model.coef_)
            _print_reads(f"{n} × {d}, L1 of {weight:g}, {used} columns in use, gap {model.duality_gap_:.0e}", found)


def _print_reads(title: str, found: dict[str, list[tuple[int, float]]]) -> None:
    targets = (1e-2, 1e-3, 1e-4, 1e-5)
    print(f"{title}: reads of the file to ‖∇f‖ ≤ " + ", ".join(f"{t:.0e}" for t in targets))
    for name, norms in found.items():
        counts = [next((str(k) for k, norm in norms if norm <= t), f"> {norms[-1][0]}") for t in targets]
        print(f"{name:<28}" + "  ".join(f"{count:>6}" for count in counts), flush=True)


def _our_reads(rows: Any, y: Any, **options: Any) -> tuple[list[tuple[int, float]], LinearClassifier]:
    blocks.LARGE, before = 0, blocks.LARGE
    # The share of the rows that fits the memory for a sample is that of a far larger file.
    out_of_core.SAMPLE = min(out_of_core.SAMPLE, rows.nbytes // 20)  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LinearClassifier(tol=1e-5, random_state=0, **options).fit(rows, y)
    blocks.LARGE = before
    return [(int(entry.passes), entry.gradient_norm) for entry in model.history_ if entry.rows == len(y)], model


def _fista_reads(problem: Problem, most: int = 300) -> list[tuple[int, float]]:
    """FISTA on all rows (Beck and Teboulle 2009), a read an iteration; restarted by the gradient (O'Donoghue, Candès).

    L is that of a twentieth of the rows, a twentieth larger, which costs no read.
    """
    part = np.column_stack([problem.rows[: problem.n // 20], np.ones(problem.n // 20)])
    L = 1.05 * problem.loss.curvature * float(np.linalg.norm(part.T @ part / len(part), 2))
    x = y = np.zeros(problem.shape)
    t, l1, found = 1.0, problem.penalty.l1, list[tuple[int, float]]()
    while len(found) < most and not (found and found[-1][1] <= 1e-5):
        here = problem.anchor(y)
        found.append((len(found) + 1, here.norm))
        free = y - here.smooth / L
        step = np.sign(free) * np.maximum(np.abs(free) - l1 / L, 0.0)
        step[:, -1] = free[:, -1]
        t = 1.0 if float(((y - step) * (step - x)).sum()) > 0 else t
        faster = (1 + np.sqrt(1 + 4 * t * t)) / 2
        y, x, t = step + (t - 1) / faster * (step - x), step, faster
    return found


def _split_reads(problem: Problem, most: int = 300) -> list[tuple[int, float]]:
    """scipy's L-BFGS-B on all rows with w = p − q, p, q ≥ 0: the L1 penalty is then linear."""
    found: list[tuple[int, float]] = []
    d, l1 = problem.d, problem.penalty.l1

    def objective(v: Any) -> tuple[float, Any]:
        x = np.append(v[:d] - v[d : 2 * d], v[-1])[None, :]
        here = problem.anchor(x)
        found.append((len(found) + 1, here.norm))
        slope = here.gradient[0]
        loss = here.value - l1 * float(np.abs(x[0, :-1]).sum())
        return loss + l1 * float(v[:-1].sum()), np.concatenate([slope[:-1] + l1, l1 - slope[:-1], slope[-1:]])

    bounds = [(0.0, None)] * (2 * d) + [(None, None)]
    options = {"gtol": 1e-8, "ftol": 0.0, "maxfun": most, "maxiter": most}
    optimize.minimize(objective, np.zeros(2 * d + 1), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found


def _partial_fit_reads(rows: Any, y: Any, lam: float, problem: Problem) -> list[tuple[int, float]]:
    model = SGDClassifier(loss="log_loss", alpha=lam, random_state=0, average=True)
    found = []
    for k in range(1, 31):
        for first in range(0, len(y), 50_000):
            model.partial_fit(rows[first : first + 50_000], y[first : first + 50_000], classes=[False, True])
        x = np.append(model.coef_[0], model.intercept_)[None, :]
        found.append((k, problem.anchor(x).norm))
    return found


def _full_batch_reads(problem: Problem) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []

    def objective(v: Any) -> tuple[float, Any]:
        here = problem.anchor(v[None, :])
        found.append((len(found) + 1, here.norm))
        return here.value, here.smooth[0]

    options = {"gtol": 1e-7, "ftol": 0.0, "maxiter": 300}
    optimize.minimize(objective, np.zeros(problem.d + 1), jac=True, method="L-BFGS-B", options=options)
    return found


# --- paths

GAP = 1e-6
"""The largest duality gap of a path's solutions, in units of f at 0."""


def path(repeats: int) -> None:
    """Fifty weights down to a hundredth of the first; every solver with the largest tolerance that keeps all gaps."""
    rng = np.random.default_rng(0)
    coef = np.where(rng.random(5000) < 0.01, rng.standard_normal(5000), 0.0)
    dense = rng.standard_normal((300, 3000))
    columns = np.minimum((5000 * rng.random(2000 * 30) ** 2).astype(np.int32), 4999)
    thin = sparse.csr_matrix((rng.random(60_000), columns, np.arange(0, 60_001, 30)), shape=(2000, 5000))
    thin.sum_duplicates()
    sets: list[tuple[str, Any, Any]] = [
        ("dense 300 × 3000", dense, dense @ coef[:3000] + rng.standard_normal(300)),
        ("sparse 2000 × 5000", thin, thin @ coef + 0.3 * rng.standard_normal(2000)),
    ]
    for n, d in ((1000, 50), (400, 10), (100, 5), (150, 8), (60, 20), (800, 30), (100, 60), (4000, 500)):
        small = rng.standard_normal((n, d))
        sets.append((f"dense {n} × {d}", small, small @ rng.standard_normal(d) + rng.standard_normal(n)))
    for name, X, y in sets:
        alphas = linear_path(X, y, n_alphas=50, eps=1e-2, tol=1e-1, fit_intercept=False).alphas
        runs = {}
        for key, run in _path_solvers(X, y, alphas).items():
            tol = next((t for t in 10.0 ** -np.arange(3, 11) if largest_gap(X, y, alphas, run(t)) <= GAP), None)
            if tol is None:
                print(f"{key} does not get there", file=sys.stderr)
            else:
                runs[key] = run, tol
        _print_medians(name, in_turn({key: partial(run, tol) for key, (run, tol) in runs.items()}, repeats))


def in_turn(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median CPU seconds of runs that take turns."""
    times: dict[str, list[float]] = {key: [] for key in runs}
    for _ in range(repeats):
        for key, run in runs.items():
            began = time.process_time()
            run()
            times[key].append(time.process_time() - began)
    return {key: statistics.median(values) for key, values in times.items()}


def _print_medians(name: str, medians: dict[str, float]) -> None:
    line = (f"{key} {1e3 * t:.2f} ms ({t / medians['ours']:.2f} ×)" for key, t in medians.items())
    print(f"{name}: {', '.join(line)}", flush=True)


def largest_gap(X: Any, y: Any, alphas: Any, coefs: Any) -> float:
    """The largest duality gap along a path, in units of f at 0."""
    found = []
    for alpha, coef in zip(alphas, coefs, strict=True):
        problem = Problem(X, y, np.ones(len(y)), LOSSES["squared"], bias=0.0, penalty=Penalty(l1=float(alpha)))
        found.append(duality_gap(problem, np.append(coef, 0.0)[None, :]))
    return max(found) / float(y @ y / 2 / len(y))


def _path_solvers(X: Any, y: Any, alphas: Any) -> dict[str, Callable[[float], Any]]:
    """By name, what gives the coefficients along a path for a tolerance, a line for each weight."""
    columns = sparse.csc_matrix(X) if sparse.issparse(X) else np.asfortranarray(X)
    found: dict[str, Callable[[float], Any]] = {
        "ours": lambda tol: linear_path(X, y, alphas=alphas, tol=tol, fit_intercept=False).coefs[:, 0],
        "scikit-learn": lambda tol: lasso_path(columns, y, alphas=alphas, tol=tol, max_iter=10**5)[1].T,
    }
    try:
        from celer import celer_path

        found["celer"] = lambda tol: celer_path(columns, y, "lasso", alphas=alphas, tol=tol)[1].T
    except ImportError as error:
        print(f"celer left out: {error}", file=sys.stderr)
    try:
        from skglm.datafits import Quadratic
        from skglm.penalties import L1
        from skglm.solvers import AndersonCD

        def skglm(tol: float) -> Any:
            solver = AndersonCD(tol=tol, fit_intercept=False, warm_start=True)
            return solver.path(columns, y, Quadratic(), L1(1.0), alphas=alphas)[1].T

        found["skglm"] = skglm
    except ImportError as error:
        print(f"skglm left out: {error}", file=sys.stderr)
    return found


# --- single L1 regressions


def lasso(repeats: int) -> None:
    """Single weights, a tenth and a hundredth of the first; every solver with the largest tolerance that suffices."""
    rng = np.random.default_rng(1)

    def thin(n: int, d: int, each: int) -> Any:
        columns = np.minimum((d * rng.random(n * each) ** 2).astype(np.int32), d - 1)
        rows = sparse.csr_matrix((rng.random(n * each), columns, np.arange(0, n * each + 1, each)), shape=(n, d))
        rows.sum_duplicates()
        return rows

    for X in (
        rng.standard_normal((500, 5000)), rng.standard_normal((2000, 500)), rng.standard_normal((50_000, 100)),
        rng.standard_normal((200, 20)), thin(3000, 30_000, 100), thin(20_000, 20_000, 20), thin(100_000, 1000, 10),
    ):  # fmt: skip
        n, d = X.shape
        y = X @ np.where(rng.random(d) < 0.02, rng.standard_normal(d), 0.0) + 0.3 * rng.standard_normal(n)
        for share in (0.1, 0.01):
            alphas, times = np.array([share * np.abs(X.T @ y).max() / n]), {}
            for key, run in _single_solvers(X, y, float(alphas[0])).items():
                tol = next((t for t in 10.0 ** -np.arange(1, 9) if largest_gap(X, y, alphas, [run(t)]) <= GAP), None)
                times[key] = run, tol, list[float]()
            for _ in range(repeats):
                for run, tol, seconds in times.values():
                    began = time.process_time()
                    run(tol or 1e-8)
                    seconds.append(time.process_time() - began)
            own = statistics.median(times["ours"][2])
            line = []
            for key, (_, tol, seconds) in times.items():
                median, note = statistics.median(seconds), "" if tol else ", not reached"
                line.append(f"{key} {1e3 * median:.1f} ms ({median / own:.2f} ×{note})")
            print(f"{'sparse' if sparse.issparse(X) else 'dense'} {n} × {d}, {share}: {', '.join(line)}", flush=True)


def _single_solvers(X: Any, y: Any, alpha: float) -> dict[str, Callable[[float], Any]]:
    """By name, what gives the coefficients for a tolerance; ours is in units of the weight. All get the same arrays."""
    plain: dict[str, Any] = {"alpha": alpha, "fit_intercept": False, "max_iter": 20_000}
    found: dict[str, Callable[[float], Any]] = {
        "ours": lambda tol: LinearRegressor(penalty="l1", tol=tol * alpha, **plain).fit(X, y).coef_,
        "scikit-learn": lambda tol: Lasso(tol=tol, **plain).fit(X, y).coef_,
    }
    for name in ("celer", "skglm"):
        try:
            kind = __import__(name).Lasso
        except ImportError as error:
            print(f"{name} left out: {error}", file=sys.stderr)
            continue
        found[name] = lambda tol, kind=kind: kind(alpha=alpha, tol=tol, fit_intercept=False).fit(X, y).coef_  # type: ignore[misc]
    return found


DENSE = (
    (2000, 500, 0.0), (20_000, 500, 0.0), (2000, 1500, 0.0), (1000, 1000, 0.0), (40_000, 200, 0.0), (400, 300, 0.0),
    (8000, 800, 0.5), (5000, 300, 0.9), (600, 900, 0.0), (2500, 250, 0.3), (10_000, 400, 0.7), (1800, 1200, 0.0),
    (30_000, 256, 0.0), (1500, 1500, 0.3), (700, 500, 0.8), (900, 350, 0.5),
)  # fmt: skip
"""Rows, features, and the correlation of neighbours."""


def in_use(repeats: int) -> None:
    """Small weights, with which most columns are in use, to ‖∇f‖ ≤ 1e-3 and 1e-6, beside scikit-learn's `Lasso`."""
    for n, d, correlation in DENSE:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d))
        for j in range(1, d):
            X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
        y = X @ rng.standard_normal(d) + rng.standard_normal(n)
        for share, tol in itertools.product((0.01, 0.003), (1e-3, 1e-6)):
            alpha = share * float(np.abs((y - y.mean()) @ X).max()) / n
            problem = Problem(X, y, np.ones(n), LOSSES["squared"], 1.0, penalty=Penalty(l1=alpha))

            def fit(kind: Any, limit: float, X: Any = X, y: Any = y, alpha: float = alpha) -> Any:
                return kind(alpha=alpha, tol=limit, max_iter=50_000).fit(X, y)

            def reached(model: Any, problem: Problem = problem, tol: float = tol) -> bool:
                return problem.anchor(np.append(model.coef_, model.intercept_)[None, :]).norm <= tol

            ours = partial(LinearRegressor, penalty="l1")
            model = fit(ours, tol)
            assert reached(model)
            limit = next((t for t in 10.0 ** -np.arange(1, 13) if reached(fit(Lasso, t))), 1e-12)
            runs: dict[str, Callable[[], Any]] = {
                "ours": partial(fit, ours, tol), "scikit-learn": partial(fit, Lasso, limit),
            }  # fmt: skip
            used = np.count_nonzero(model.coef_)
            _print_medians(
                f"{n} × {d}, {correlation:g}, {share}, ‖∇f‖ ≤ {tol:.0e}, {used} used", in_turn(runs, repeats)
            )


# --- Poisson regression, and weights by cross-validation


def poisson(repeats: int) -> None:
    """Poisson regressions of small data to ‖∇f‖ ≤ 1e-2 and 1e-4, beside scikit-learn's two solvers."""
    for n, d in (
        (100, 5),
        (400, 12),
        (1000, 20),
        (2000, 20),
        (2000, 50),
        (3000, 10),
        (5000, 5),
        (20, 30),
        (100, 130),
        (200, 1500),
    ):
        for size, tol in itertools.product((0.5, 1.0), (1e-2, 1e-4)):
            rng = np.random.default_rng(0)
            X = rng.standard_normal((n, d))
            y = rng.poisson(np.exp(X @ (size * rng.standard_normal(d) / np.sqrt(d)))).astype(float)
            medians = in_turn(_poisson_solvers(X, y, 1 / n, tol), repeats)
            _print_medians(f"{n} × {d}, deviation {size:g}, ‖∇f‖ ≤ {tol:.0e}", medians)


def _poisson_solvers(X: Any, y: Any, lam: float, tol: float) -> dict[str, Callable[[], Any]]:
    """By name, fits that reach the tolerance: the peers with the largest of a ladder of quarter decades that does."""
    problem = Problem(X, y, np.ones(len(y)), LOSSES["tweedie"], 1.0, penalty=Penalty(l2=lam))

    def ours() -> Any:
        return LinearRegressor("poisson", alpha=lam, tol=tol, random_state=0).fit(X, y)

    def peer(solver: str, limit: float) -> Any:
        return PoissonRegressor(alpha=lam, solver=solver, tol=limit, max_iter=5000).fit(X, y)

    def reached(model: Any) -> bool:
        return problem.anchor(np.append(model.coef_, model.intercept_)[None, :]).norm <= 1.001 * tol

    assert reached(ours())
    found: dict[str, Callable[[], Any]] = {"ours": ours}
    for solver in ("lbfgs", "newton-cholesky"):
        limit = next((t for t in 10.0 ** -np.arange(0, 10, 0.25) if reached(peer(solver, t))), None)
        if limit is not None:
            found[solver] = partial(peer, solver, limit)
    return found


QUANTILES = (
    (400, 5, 0.5, "normal"), (20_000, 12, 0.5, "normal"), (60_000, 30, 0.3, "uneven"), (100_000, 20, 0.5, "counts"),
    (300_000, 10, 0.9, "uneven"), (400_000, 50, 0.7, "normal"),
)  # fmt: skip
"""Rows, features, level, and their kind: normal noise, noise of heavy tails that is uneven, or counts with ties."""


def quantile(repeats: int) -> None:
    """Quantile regression to duality gaps of 1e-2, 1e-4 and 1e-8, beside all rows in every step."""
    for n, d, level, kind in QUANTILES:
        rng = np.random.default_rng(0)
        X = rng.poisson(1.0, (n, d)).astype(float) if kind == "counts" else rng.standard_normal((n, d))
        y, noise = X @ rng.standard_normal(d), rng.standard_normal(n)
        if kind == "uneven":
            noise = (1 + np.abs(X[:, 0])) * rng.standard_t(3, n)
        y = np.round(y + 2 * noise) if kind == "counts" else y + noise
        usual = interior_point.FEWEST
        for tol in (1e-2, 1e-4, 1e-8):
            model = LinearRegressor("quantile", quantile=level, tol=tol, random_state=0)

            def fit(fewest: float, model: Any = model, X: Any = X, y: Any = y, tol: float = tol) -> None:
                interior_point.FEWEST = fewest
                assert model.fit(X, y).duality_gap_ <= tol

            runs: dict[str, Callable[[], Any]] = {"ours": partial(fit, usual), "all rows": partial(fit, np.inf)}
            _print_medians(f"{n} × {d}, {kind}, level {level:g}, gap ≤ {tol:.0e}", in_turn(runs, repeats))
        interior_point.FEWEST = usual


RIDGES = (
    (50, 3, "normal"), (570, 30, "scaled"), (52, 554, "normal"), (52, 554, "scaled"), (200, 2000, "normal"),
    (200, 2000, "correlated"), (500, 5000, "normal"), (500, 5000, "scaled"), (2000, 200, "normal"),
    (2000, 200, "correlated"), (1000, 1000, "correlated"), (3000, 500, "correlated"), (20_000, 50, "normal"),
    (20_000, 1000, "normal"), (100_000, 100, "correlated"), (1_000_000, 10, "normal"),
)  # fmt: skip
"""Rows, features, and their kind: independent, of scales that are magnitudes apart, or mixed by a random matrix."""


def ridge(repeats: int) -> None:
    """Least squares with an L2 penalty of 1/n to ‖∇f‖ ≤ 1e-4 and 1e-6, beside the solvers of scikit-learn's Ridge."""
    for n, d, kind in RIDGES:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d))
        if kind == "scaled":
            X *= np.exp(2 * rng.standard_normal(d))
        elif kind == "correlated":
            X = X @ (rng.standard_normal((d, d)) / np.sqrt(d))
        y = X @ rng.standard_normal(d) / np.sqrt((X**2).sum(1).mean()) + 0.1 * rng.standard_normal(n)
        for tol in (1e-4, 1e-6):
            medians = in_turn(_ridge_solvers(X, y, tol), repeats if n * d > 1e6 else 5 * repeats)
            _print_medians(f"{n} × {d} {kind}, ‖∇f‖ ≤ {tol:.0e}", medians)


def _ridge_solvers(X: Any, y: Any, tol: float) -> dict[str, Callable[[], Any]]:
    """By name, fits that reach the tolerance: iterative peers with the largest of a ladder of decades that does."""
    n, d = X.shape
    problem = Problem(X, y, np.ones(n), LOSSES["squared"], 1.0, penalty=Penalty(l2=1 / n))

    def ours() -> Any:
        return LinearRegressor(alpha=1 / n, tol=tol, random_state=0).fit(X, y)

    def peer(solver: str, limit: float) -> Any:
        return Ridge(alpha=1.0, solver=solver, tol=limit).fit(X, y)

    def reached(model: Any) -> bool:
        return problem.anchor(np.append(model.coef_, model.intercept_)[None, :]).norm <= 1.001 * tol

    assert reached(ours())
    found: dict[str, Callable[[], Any]] = {"ours": ours}
    for solver in ("cholesky", "lsqr", "sparse_cg", *(("svd",) if n * d <= 2e5 else ())):
        limit = next((t for t in 10.0 ** -np.arange(1, 13) if reached(peer(solver, t))), None)
        if limit is not None:
            found[solver] = partial(peer, solver, limit)
    return found


BLOCKWISE = (
    (200_000, 100, 0.9), (200_000, 100, 0.5), (200_000, 100, 0.0), (100_000, 300, 0.0), (1_000_000, 50, 0.0),
    (200_000, 60, 0.5),
)  # fmt: skip
"""Rows, features, and the correlation of neighbours."""


def blocks_in_turn(repeats: int) -> None:
    """Logistic regression on many rows, ended by L-BFGS and by Newton steps block by block: times and passes."""
    for n, d, correlation in BLOCKWISE:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d))
        for j in range(1, d):
            X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
        y = X @ rng.standard_normal(d) * 2 / np.sqrt(d) + rng.logistic(size=n) > 0
        for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
            model = LinearClassifier(alpha=1 / n, tol=tol, random_state=0)

            def fit(least: float, model: Any = model, X: Any = X, y: Any = y) -> float:
                incremental.WORK = least
                return float(model.fit(X, y).history_[-1].passes)

            usual = incremental.WORK
            runs: dict[str, Callable[[], Any]] = {"ours": partial(fit, usual), "L-BFGS": partial(fit, np.inf)}
            passes = {name: run() for name, run in runs.items()}
            medians = in_turn(runs, repeats)
            told = ", ".join(f"{name} {passes[name]:.1f}" for name in runs)
            _print_medians(f"{n} × {d}, {correlation:g}, ‖∇f‖ ≤ {tol:.0e}, passes: {told}; time", medians)
            incremental.WORK = usual


def cross_validation(repeats: int) -> None:
    """The weight of an L1 penalty by five folds and fifty weights, both at their default tolerance, 1e-4."""
    for n, d in ((100, 5), (400, 10), (1000, 50), (50_000, 100)):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d))
        y = X @ rng.standard_normal(d) + rng.standard_normal(n)
        runs: dict[str, Callable[[], Any]] = {
            "ours": lambda X=X, y=y: LinearRegressorCV(n_alphas=50, eps=1e-2).fit(X, y),  # type: ignore[misc]
            "scikit-learn": lambda X=X, y=y: LassoCV(alphas=50, eps=1e-2).fit(X, y),  # type: ignore[misc]
        }
        own, other = (run() for run in runs.values())
        _print_medians(
            f"{n} × {d}, coefficients within {np.abs(own.coef_ - other.coef_).max():.0e}", in_turn(runs, repeats)
        )


# --- ten classes


def classes(repeats: int) -> None:
    """Multinomial regression of ten classes to ‖∇f‖ ≤ 1e-4, beside scikit-learn's lbfgs at the tolerance it needs."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50_000, 50))
    labels = (X @ rng.standard_normal((50, 10)) + rng.gumbel(size=(50_000, 10))).argmax(axis=1)
    digits = load_digits(return_X_y=True)
    for name, rows, y in (("digits 1797 × 64", digits[0] / 16, digits[1]), ("normal 50,000 × 50", X, labels)):
        lam = 1e-4
        problem = Problem(
            rows, y.astype(float), np.ones(len(y)), LOSSES["multinomial"], outputs=10, penalty=Penalty(l2=lam)
        )

        def peer(tol: float, rows: Any = rows, y: Any = y, lam: float = lam) -> Any:
            return LogisticRegression(C=1 / (lam * len(y)), tol=tol, max_iter=5000).fit(rows, y)

        def norm(model: Any, problem: Problem = problem) -> float:
            return problem.anchor(np.column_stack([model.coef_, model.intercept_])).norm

        tol = next(t for t in 10.0 ** -np.arange(2, 9) if norm(peer(t)) <= 1e-4)
        times: dict[str, list[float]] = {"ours": [], "lbfgs": []}
        for turn in range(repeats + 1):
            for key in times:
                began = time.process_time()
                found = (
                    LinearClassifier(alpha=lam, tol=1e-4, random_state=0).fit(rows, y) if key == "ours" else peer(tol)
                )
                if turn:
                    times[key].append(time.process_time() - began)
                assert norm(found) <= 2e-4
        own, other = (statistics.median(times[key]) for key in ("ours", "lbfgs"))
        print(
            f"{name}: ours {1e3 * own:.1f} ms, scikit-learn's lbfgs {1e3 * other:.1f} ms, {other / own:.2f} ×",
            flush=True,
        )


CLASS_SHAPES = (
    (500, 10, 3, 1.0), (3000, 20, 30, 1.0), (20_000, 60, 5, 1.0), (700, 25, 4, 1.0), (10_000, 200, 3, 1.0),
    (250, 60, 12, 1.0), (6000, 12, 20, 1.0), (1200, 400, 3, 1.0), (60, 300, 3, 1.0), (5000, 2000, 4, 0.01),
    (20_000, 3000, 5, 0.005), (30_000, 500, 3, 0.02), (1500, 800, 7, 0.03), (40_000, 400, 6, 0.02),
    (60_000, 120, 4, 0.08), (700, 60, 20, 0.1), (20_000, 2000, 12, 0.01),
)  # fmt: skip
"""Rows, features, classes, and the share of entries that are not 0."""


def class_shapes(repeats: int) -> None:
    """Multinomial regression with C = 1 to ‖∇f‖ ≤ 1e-3 and 1e-5, beside scikit-learn at the tolerances it needs."""
    for n, d, K, share in CLASS_SHAPES:
        rng = np.random.default_rng(0)
        X: Any = rng.standard_normal((n, d))
        if share < 1:
            X = sparse.random(n, d, share, format="csr", random_state=0, data_rvs=rng.standard_normal)
        y = (X @ rng.standard_normal((d, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)
        y = np.unique(y, return_inverse=True)[1]
        present, penalty = int(y.max()) + 1, Penalty(l2=1 / n)
        problem = Problem(X, y.astype(float), np.ones(n), LOSSES["multinomial"], outputs=present, penalty=penalty)
        for tol in (1e-3, 1e-5):

            def fit(solver: str, own: float, X: Any = X, y: Any = y) -> Any:
                return LogisticRegression(solver=solver, tol=own, max_iter=10_000).fit(X, y)

            def reaches(model: Any, problem: Problem = problem, tol: float = tol) -> bool:
                return problem.anchor(np.column_stack([model.coef_, model.intercept_])).norm <= tol

            def ours(X: Any = X, y: Any = y, tol: float = tol) -> Any:
                return LinearClassifier(C=1.0, tol=tol, random_state=0).fit(X, y)

            runs: dict[str, Callable[[], Any]] = {"ours": ours}
            for peer in ("newton-cg", "lbfgs", "newton-cholesky"):
                if peer == "newton-cholesky" and n * (present * d) ** 2 > 1e9:
                    continue
                needed = next(t for t in tol * 10.0 ** np.arange(1, -3.1, -0.5) if reaches(fit(peer, t)))
                runs[peer] = partial(fit, peer, needed)
            assert reaches(ours())
            _print_medians(f"{n} × {d}, {K} classes, {share:.1%} to {tol:g}", in_turn(runs, repeats))


MODES: dict[str, Callable[[int], None]] = {
    "path": path,
    "lasso": lasso,
    "in-use": in_use,
    "poisson": poisson,
    "quantile": quantile,
    "ridge": ridge,
    "blocks": blocks_in_turn,
    "cross-validation": cross_validation,
    "classes": classes,
    "class-shapes": class_shapes,
}
"""What takes the number of repeats alone."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("compile", "cores", "reads", *MODES))
    parser.add_argument("--threads", default="1,2", help="numbers of threads, by comma")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, help="rows of the file that `reads` makes (500,000), or of `cores` (2e6)")
    parser.add_argument("--json", type=Path, help="where `cores` writes its figures")
    options = parser.parse_args()
    options.rows = options.rows or (2_000_000 if options.what == "cores" else 500_000)
    if options.what == "compile":
        compilation()
    elif options.what == "cores":
        cores([int(count) for count in options.threads.split(",")], options.repeats, options.rows, options.json)
    else:
        warnings.simplefilter("ignore")
        with threadpool_limits(1):
            if options.what == "reads":
                reads(options.rows, 40)
            else:
                MODES[options.what](options.repeats)


if __name__ == "__main__":
    main()
