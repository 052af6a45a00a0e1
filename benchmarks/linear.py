"""Linear models: the time of a `fit` to a given ‖∇f‖², beside scikit-learn, cyanure, glum and scipy.

    VCSG_DATA=… python benchmarks/linear.py [--sets "a9a,normal 1e5"] [--json linear.json] [--plot docs/img]

One thread, pinned to one processor. Every solver first runs once for each tolerance of a ladder, which gives its way
down in ‖∇f‖² and the tolerance it needs for each target; then ours and the two best peers of each target are timed in
turn, several times, and medians and their ratio are printed. The second half of the turns goes the other way round, so
that nobody always follows the same other, who leaves caches full of other things: that can double a millisecond. Times
are CPU seconds of the one thread, from data to coefficients: on a machine with other work they say more than the clock.
‖∇f‖² is that of the objective, in numpy.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import lzma
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, sparse
from scipy.special import expit
from sklearn import datasets
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from vcsg.linear import LinearClassifier, precompile
from vcsg.linear.kernels import loops, order

TARGETS = (1e-4, 1e-6, 1e-8, 1e-10)
LIMIT = 30.0
"""Seconds after which a solver is not tried with a smaller tolerance."""
LADDER = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
REPEATS = 7


# --- data


def libsvm(name: str) -> tuple[Any, Any]:
    path = Path(os.environ.get("VCSG_DATA", "")) / "libsvm" / f"{name}.xz"
    rows, labels = load_svmlight_file(BytesIO(lzma.decompress(path.read_bytes())))
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)  # liblinear's only kind
    return rows, np.where(labels > 0.5, 1, -1)


def mnist(positive: Callable[[Any], Any]) -> tuple[Any, Any]:
    folder = Path(os.environ.get("VCSG_DATA", "")) / "mnist"
    pixels = np.frombuffer(gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    digits = np.frombuffer(gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    return pixels.reshape(len(digits), 784) / 255.0, np.where(positive(digits), 1, -1)


def normal(n: int, d: int = 50, correlation: float = 0.0) -> tuple[Any, Any]:
    """Normal rows, neighbouring columns correlated, labels drawn by a logistic model."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, d))
    for j in range(1, d):
        rows[:, j] = correlation * rows[:, j - 1] + math.sqrt(1 - correlation**2) * rows[:, j]
    return rows, labels(rng, rows @ (2 * rng.standard_normal(d) / math.sqrt(d)))


def thin(n: int, d: int, each: int = 50) -> tuple[Any, Any]:
    """Sparse rows of `each` entries, most in the first columns, as words in texts are."""
    rng = np.random.default_rng(0)
    columns = np.minimum((d * rng.random(n * each) ** 3).astype(np.int32), d - 1)
    values = np.full(n * each, each**-0.5)
    rows = sparse.csr_matrix((values, columns, np.arange(0, n * each + 1, each, dtype=np.int32)), shape=(n, d))
    rows.sum_duplicates()
    return rows, labels(rng, rows @ (3 * rng.standard_normal(d)))


def dense(n: int, d: int, seed: int, kind: str = "") -> tuple[Any, Any]:
    """Dense rows of a shape on which solvers differ."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d))
    w = 2 * rng.standard_normal(d) / math.sqrt(d)
    offset = 0.0
    if kind == "badly scaled":
        scales = 10 ** rng.uniform(-2, 2, d)
        rows, w = rows * scales, w / scales
    elif kind == "separable":
        return rows, np.where(rows @ w > 0, 1, -1)
    elif kind == "imbalanced":
        offset = -5.0
    elif kind == "heavy-tailed":  # rows of norms up to a thousand times the usual one
        rows *= np.minimum(1e3, rng.pareto(1.0, n) + 1)[:, None]
    return rows, labels(rng, rows @ w + offset)


def ones(n: int, d: int, each: int, seed: int) -> tuple[Any, Any]:
    """Sparse rows with a 1 in one column of each of `each` groups: categories, one-hot."""
    rng = np.random.default_rng(seed)
    edges = np.linspace(0, d, each + 1).astype(int)
    columns = np.stack(
        [low + ((high - low) * rng.random(n) ** 2).astype(np.int32) for low, high in itertools.pairwise(edges)], axis=1
    )
    starts = np.arange(0, n * each + 1, each, dtype=np.int32)
    rows = sparse.csr_matrix((np.ones(n * each), columns.ravel().astype(np.int32), starts), shape=(n, d))
    return rows, labels(rng, rows @ rng.standard_normal(d))


def scattered(n: int, d: int, each: int, seed: int) -> tuple[Any, Any]:
    """Sparse rows of `each` ones, more of them in the first columns."""
    rng = np.random.default_rng(seed)
    columns = np.minimum((d * rng.random(n * each) ** 2).astype(np.int32), d - 1)
    starts = np.arange(0, n * each + 1, each, dtype=np.int32)
    rows = sparse.csr_matrix((np.ones(n * each), columns, starts), shape=(n, d))
    rows.sum_duplicates()
    return rows, labels(rng, rows @ (2 * rng.standard_normal(d) / math.sqrt(each)))


def scikit_learns(name: str) -> tuple[Any, Any]:
    """A set that comes with scikit-learn, as it is; two classes."""
    rows, target = getattr(datasets, f"load_{name}")(return_X_y=True)
    rows = np.ascontiguousarray(rows, np.float64)
    return rows, np.where(target % 2 == 1, 1, -1)


def labels(rng: Any, margins: Any) -> Any:
    return np.where(rng.random(len(margins)) < expit(margins), 1, -1)


SETS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "a9a": lambda: libsvm("a9a"),
    "phishing": lambda: libsvm("phishing"),
    "mnist even/odd": lambda: mnist(lambda digit: digit % 2 == 0),
    "normal 1e4": lambda: normal(10**4),
    "normal 1e5": lambda: normal(10**5),
    "normal 1e6": lambda: normal(10**6),
    "sparse d=1e5": lambda: thin(10**5, 10**5),
    "mnist 0-4/5-9": lambda: mnist(lambda digit: digit < 5),
    "correlated 2e5": lambda: normal(2 * 10**5, 100, 0.9),
    "sparse d=1e4": lambda: thin(3 * 10**4, 10**4),
}
SHAPES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "correlated 5e4": lambda: normal(5 * 10**4, 100, 0.9),
    "badly scaled": lambda: dense(5 * 10**4, 60, 1, "badly scaled"),
    "mid 1e5": lambda: dense(10**5, 300, 2),
    "tall 1e6": lambda: dense(10**6, 10, 3),
    "one-hot 3e5": lambda: ones(3 * 10**5, 434, 14, 4),
    "separable": lambda: dense(2 * 10**4, 100, 5, "separable"),
    "digits": lambda: scikit_learns("digits"),
    "imbalanced": lambda: dense(2 * 10**5, 30, 6, "imbalanced"),
    "text-like": lambda: thin(2 * 10**4, 2000, 40),
    "ad-like": lambda: ones(5 * 10**4, 300, 12, 7),
    "one-hot 8e3": lambda: ones(8 * 10**3, 112, 21, 8),
    "dense d=1000": lambda: dense(2 * 10**4, 1000, 9),
    "sparse wide": lambda: thin(5 * 10**3, 5 * 10**4, 100),
    "sparse wide 3e3": lambda: scattered(3 * 10**3, 2 * 10**4, 40, 14),
    "n < d": lambda: dense(500, 5000, 10),
    "2000 x 200": lambda: dense(2000, 200, 11),
    "570 x 30 raw": lambda: scikit_learns("breast_cancer"),
    "50 x 3": lambda: dense(50, 3, 12),
    "heavy-tailed": lambda: dense(2 * 10**4, 50, 13, "heavy-tailed"),
}
"""Shapes on which other solvers are at their best, or ours may be at its worst."""
SMALL: dict[str, Callable[[], tuple[Any, Any]]] = {
    f"{n} x {d}": partial(dense, n, d, 15)
    for n, d in (
        (100, 5), (100, 20), (100, 50), (100, 130), (400, 12), (400, 30), (600, 55), (1000, 10), (1000, 20), (1000, 50),
        (2000, 20), (3000, 10), (5000, 5), (5000, 20), (5000, 50),
    )
}  # fmt: skip
"""Small data, on which a fit takes a fraction of a millisecond."""
HELD_OUT = ("mnist 0-4/5-9", "correlated 2e5", "sparse d=1e4")
"""Sets that nothing was tuned on."""


@dataclass
class Task:
    name: str
    X: Any
    y: Any
    lam: float
    rational: bool = False
    seed: int = 0
    """The seed of our solver."""

    def objective(self, w: Any) -> tuple[float, Any]:
        """f and ∇f, fused, in numpy."""
        margins = self.y * (self.X @ w)
        value = np.logaddexp(0, -margins).mean()
        gradient = self.X.T @ (-self.y * expit(-margins)) / len(self.y)
        if self.rational:
            return value + self.lam * (w**2 / (1 + w**2)).sum(), gradient + self.lam * 2 * w / (1 + w**2) ** 2
        return value + self.lam / 2 * w @ w, gradient + self.lam * w

    def norm2(self, w: Any) -> float:
        gradient = self.objective(np.asarray(w, np.float64).ravel())[1]
        return float(gradient @ gradient)


# --- solvers: (task, tolerance) → weights

Solver = Callable[[Task, float], Any]


def ours(task: Task, tol: float) -> Any:
    penalty = "rational" if task.rational else "l2"
    model = LinearClassifier(
        penalty=penalty, alpha=task.lam, fit_intercept=False, tol=tol, max_iter=3000, random_state=task.seed
    )
    return model.fit(task.X, task.y).coef_


def scikit(solver: str, dual: bool = False) -> Solver:
    def fit(task: Task, tol: float) -> Any:
        C = 1 / (len(task.y) * task.lam)
        model = LogisticRegression(C=C, solver=solver, dual=dual, tol=tol, fit_intercept=False, max_iter=20_000)
        return model.fit(task.X, task.y).coef_

    return fit


def cyanure(task: Task, tol: float) -> Any:
    from cyanure.estimators import Classifier

    model = Classifier(
        loss="logistic", penalty="l2", lambda_1=task.lam, fit_intercept=False, tol=tol, max_iter=2000,
        verbose=False, n_threads=1,
    )  # fmt: skip
    return model.fit(task.X, task.y).coef_


def glum(task: Task, tol: float) -> Any:
    from glum import GeneralizedLinearRegressor

    model = GeneralizedLinearRegressor(
        family="binomial", alpha=task.lam, l1_ratio=0, fit_intercept=False, gradient_tol=tol, max_iter=1000
    )
    return model.fit(task.X, (task.y > 0).astype(float)).coef_


class Reached(Exception):
    """The point where ‖∇f‖ ≤ tol is found."""


def lbfgs(task: Task, tol: float) -> Any:
    """Ends as soon as ‖∇f‖ ≤ tol, like ours: its own criterion is on the largest entry."""

    def watched(w: Any) -> tuple[float, Any]:
        value, gradient = task.objective(w)
        if np.linalg.norm(gradient) <= tol:
            raise Reached(w.copy())
        return value, gradient

    options = {"gtol": 0.0, "ftol": 0.0, "maxiter": 20_000, "maxfun": 10**6}
    try:
        start = np.zeros(task.X.shape[1])
        return optimize.minimize(watched, start, jac=True, method="L-BFGS-B", options=options).x
    except Reached as reached:
        return reached.args[0]


PEERS: dict[str, Solver] = {
    "sklearn lbfgs": scikit("lbfgs"),
    "newton-cholesky": scikit("newton-cholesky"),
    "newton-cg": scikit("newton-cg"),
    "sag": scikit("sag"),
    "saga": scikit("saga"),
    "liblinear": scikit("liblinear"),
    "liblinear dual": scikit("liblinear", dual=True),
    "cyanure": cyanure,
    "glum": glum,
    "scipy L-BFGS": lbfgs,
}


def hopeless(solver: str, task: Task) -> bool:
    """What would take the benchmark's night: a Hessian of d = 1e5, sag, saga and liblinear on a million rows, and
    liblinear's dual where there are many rows for each feature.
    """
    n, d = task.X.shape
    if solver == "liblinear dual" and n > 2e4 and n > 20 * d:
        return True
    if solver in ("newton-cholesky", "glum"):
        return bool(d > 5000)
    return solver in ("sag", "saga", "liblinear", "liblinear dual") and bool(n > 5e5)


# --- measuring


def timed(solver: Solver, task: Task, tol: float) -> tuple[float, Any]:
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w = solver(task, tol)
    return time.process_time() - began, w


Way = list[tuple[float, float, float]]
"""(tolerance, seconds, ‖∇f‖²) down the ladder."""


def descend(solver: Solver, task: Task, ladder: tuple[float, ...], limit: float) -> Way:
    way: Way = []
    for tol in ladder:
        seconds, w = timed(solver, task, tol)
        way.append((tol, seconds, task.norm2(w)))
        if seconds > limit or way[-1][2] <= TARGETS[-1]:
            break
    return way


def fastest(way: Way, target: float) -> tuple[float, float] | None:
    """(seconds, tolerance) of the fastest run that reached the target."""
    reached = [(seconds, tol) for tol, seconds, norm2 in way if norm2 <= target]
    return min(reached) if reached else None


def refined(name: str, task: Task, tol: float, target: float) -> float:
    """The largest tolerance between two rungs of the ladder, to a quarter of a decade, that reaches the target."""
    if name == "scipy L-BFGS":  # whose tolerance is the target's own
        return tol
    for looser in (tol * 10**0.75, tol * 10**0.5, tol * 10**0.25):
        if task.norm2(timed(PEERS[name], task, looser)[1]) <= target:
            return looser
    return tol


def compare(
    task: Task, peers: list[str], repeats: int, limit: float, seeds: int = 1
) -> tuple[dict[str, Way], list[dict[str, Any]]]:
    own_ladder = tuple(math.sqrt(t) for t in TARGETS)
    ways = {"ours": descend(ours, task, own_ladder, math.inf)}
    for name in peers:
        if not hopeless(name, task):
            try:
                ladder = own_ladder if name == "scipy L-BFGS" else LADDER
                ways[name] = descend(PEERS[name], task, ladder, limit)
            except ImportError as error:
                print(f"{name} left out: {error}", file=sys.stderr)
    rows = []
    for target, tol in zip(TARGETS, own_ladder, strict=True):
        best = sorted((found, name) for name, way in ways.items() if name != "ours" and (found := fastest(way, target)))
        runs: dict[str, tuple[Solver, float]] = {"ours": (ours, tol)}
        runs |= {name: (PEERS[name], refined(name, task, tolerance, target)) for (_, tolerance), name in best[:2]}
        times: dict[str, list[float]] = {name: [] for name in runs}
        count = max(3, min(repeats, math.ceil(10 / max(1e-9, best[0][0][0])))) if best else 3
        forth = list(runs)
        for turn in range(count):
            task.seed = turn % seeds
            for name in forth if turn < count / 2 else [forth[0], *reversed(forth[1:])]:
                solver, tolerance = runs[name]
                times[name].append(timed(solver, task, tolerance)[0])
        task.seed = 0
        medians = {name: statistics.median(values) for name, values in times.items()}
        own = medians.pop("ours")
        peer = min(medians, key=lambda name: medians[name]) if medians else "none"
        peer_time = medians.get(peer, math.inf)
        rows.append({
            "set": task.name, "lam": task.lam, "target": target, "ours": own, "peer": peer, "peer_time": peer_time,
            "ratio": peer_time / own, "norm2": fastest(ways["ours"], target) is not None,
        })  # fmt: skip
        print(
            f"{task.name:<15} {task.lam:8.1e} {target:8.0e} {1e3 * own:9.2f} ms {1e3 * peer_time:10.2f} ms  "
            f"{peer:<16} {peer_time / own:6.2f} ×{'' if rows[-1]['norm2'] else '  NOT REACHED'}",
            flush=True,
        )
    return ways, rows


def compare_rational(task: Task, limit: float) -> None:
    """The non-convex penalty: the objective stands beside the time, for there may be better and worse minima."""
    way = descend(lbfgs, task, tuple(math.sqrt(t) for t in TARGETS), limit)
    for target in TARGETS[1:]:
        runs = {"ours": (ours, math.sqrt(target))}
        if found := fastest(way, target):
            runs["scipy L-BFGS"] = lbfgs, found[1]
        line = f"{task.name:<15} {task.lam:8.1e} {target:8.0e}"
        for name, (solver, tol) in runs.items():
            results = [timed(solver, task, tol) for _ in range(3)]
            w = np.asarray(results[-1][1]).ravel()
            seconds = statistics.median(seconds for seconds, _ in results)
            line += f"  {name} {1e3 * seconds:8.1f} ms, f = {task.objective(w)[0]:.7f}, ‖∇f‖² = {task.norm2(w):.0e}"
        print(line, flush=True)


def lasso_solvers(task: Task) -> dict[str, Callable[[float], Any]]:
    """L1-logistic regression, ours and its peers: functions from a tolerance to a fitted model."""
    from celer import LogisticRegression as Celer
    from skglm import SparseLogisticRegression

    X, y, lam, C = task.X, task.y, task.lam, 1 / (task.lam * len(task.y))
    columns = X if sparse.issparse(X) else np.asfortranarray(X)
    plain: dict[str, Any] = {"fit_intercept": False}
    return {
        "ours": lambda tol: LinearClassifier(
            penalty="l1", alpha=lam, tol=tol, max_iter=3000, random_state=0, **plain
        ).fit(X, y),
        "liblinear": lambda tol: LogisticRegression(
            C=C, l1_ratio=1.0, solver="liblinear", tol=tol, max_iter=1000, **plain
        ).fit(X, y),
        "celer": lambda tol: Celer(C=C, tol=tol, **plain).fit(columns, y),
        "skglm": lambda tol: SparseLogisticRegression(alpha=lam, tol=tol, **plain).fit(columns, y),
    }


def compare_lasso(name: str, X: Any, y: Any, repeats: int) -> None:
    """The L1 penalty, at a tenth and a hundredth of the weight from which on all coefficients are 0."""
    largest = float(np.abs(X.T @ (y / 2)).max()) / len(y)
    for share, tol in itertools.product((0.1, 0.01), (1e-3, 1e-5)):
        task = Task(name, X, y, share * largest)
        line = f"{name:<15} λ = {share:g}·λ_max  ‖∇f‖ ≤ {tol:.0e}"
        for solver, fit in lasso_solvers(task).items():
            ladder = (tol,) if solver == "ours" else LADDER
            chosen = next((t for t in ladder if lasso_norm(task, timed_model(fit, t)[1]) <= tol), ladder[-1])
            seconds = statistics.median(timed_model(fit, chosen)[0] for _ in range(repeats))
            reached = lasso_norm(task, timed_model(fit, chosen)[1])
            line += f"  {solver} {1e3 * seconds:.1f} ms{'' if reached <= tol else f' (only {reached:.0e})'}"
        print(line, flush=True)


def timed_model(fit: Callable[[float], Any], tol: float) -> tuple[float, Any]:
    return timed(lambda _, t: fit(t), Task("", None, None, 0.0), tol)


def lasso_norm(task: Task, model: Any) -> float:
    """The norm of the subgradient of least norm."""
    w = np.asarray(model.coef_, np.float64).ravel()
    slope = Task(task.name, task.X, task.y, 0.0).objective(w)[1]
    still = np.sign(slope) * np.maximum(np.abs(slope) - task.lam, 0.0)
    return float(np.linalg.norm(np.where(w == 0, still, slope + task.lam * np.sign(w))))


def bandwidth() -> None:
    """The inner loop beside the time to read its rows once."""
    print("\nInner loop in units of one reading of the rows (a sum over them), dense float64, from memory")
    import numba

    @numba.njit(fastmath=True)  # type: ignore[untyped-decorator]
    def read(values: Any) -> float:
        flat, total = values.reshape(-1), 0.0
        for i in range(flat.size):  # by index: a loop over the values themselves is not vectorised, and reads slowly
            total += flat[i]
        return total

    rng = np.random.default_rng(0)
    for n, d in ((10**6, 50), (2 * 10**5, 200), (6 * 10**4, 784)):
        rows, y = rng.standard_normal((n, d)), np.where(rng.random(n) < 0.5, 1.0, -1.0)
        x, kept, pull, weight = np.zeros((1, d + 1)), np.zeros((n, 1)), np.zeros((1, d + 1)), np.ones(n)
        for b in (8, 16, 32, 64):
            line = f"n={n:<8} d={d:<4} b={b:<3}"
            for mix in ("in order", "interleaved"):
                index = order.interleaved(n, b, rng)
                if mix == "in order":
                    index = np.arange(index.size, dtype=np.uint32).reshape(-1, b)
                options = (1e-9, 1.0, -1.0, 0.0, 1e-4, 0.0, np.zeros_like(x), len(index), np.empty_like(x))
                times: dict[str, list[float]] = {"read": [], "inner": []}
                for _ in range(7):
                    began = time.process_time()
                    read(rows)
                    middle = time.process_time()
                    loops.inner((rows,), y, weight, 4, 1.0, 0.0, x, kept, pull, index, *options)
                    times["read"].append(middle - began)
                    times["inner"].append(time.process_time() - middle)
                reading, stepping = (statistics.median(values[1:]) for values in times.values())
                speed = rows.nbytes / reading / 1e9
                line += f"  {mix} {stepping / reading:5.2f} × (read at {speed:.0f} GB/s)"
            print(line, flush=True)


# --- pictures


def plot(task: Task, ways: dict[str, Way], folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, way in ways.items():
        style: dict[str, Any] = {"color": "black", "linewidth": 2.5, "zorder": 3}
        if name != "ours":
            style = {"color": f"C{list(PEERS).index(name)}", "linewidth": 1}  # the same in all pictures
        axes.loglog([s for _, s, _ in way], [g for *_, g in way], "o-", markersize=3, label=name, **style)
    axes.set(xlabel="CPU seconds of fit, one thread", ylabel="‖∇f‖²", ylim=(1e-12, None))
    axes.set_title(f"{task.name}, λ = {task.lam:.0e}")
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    slug = task.name.replace(" ", "-").replace("/", "-").replace("=", "")
    figure.savefig(folder / f"linear-{slug}.png", dpi=90)
    plt.close(figure)


def penalty_weight(text: str, n: int) -> float:
    """λ from "1e-4", or from "c/n" with the number of rows."""
    return float(text[:-2]) / n if text.endswith("/n") else float(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sets", default=",".join(SETS), help='which sets, by comma; "shapes", "small" for all of these'
    )
    parser.add_argument("--lambdas", default="1e-4,1/n", help="weights of the penalty, by comma; c/n for c over n")
    parser.add_argument("--peers", default=",".join(PEERS), help="which peers, by comma")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--seeds", type=int, default=1, help="seeds of our solver that repeats go through in turn")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds beyond which a peer is not pressed further")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    parser.add_argument("--plot", type=Path, help="the folder for pictures")
    parser.add_argument("--skip-penalty", action="store_true", help="leave the non-convex penalty out")
    parser.add_argument("--skip-bandwidth", action="store_true", help="leave the inner loop's bandwidth out")
    parser.add_argument("--l1", action="store_true", help="the L1 penalty alone, beside liblinear, celer and skglm")
    options = parser.parse_args()
    with threadpool_limits(1):
        measure(options)


def measure(options: argparse.Namespace) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"compiling took {precompile():.1f} s (kept on disk; not in the times below)")
    print(f"{'set':<15} {'λ':>8} {'‖∇f‖² ≤':>8} {'ours':>12} {'best peer':>13}")
    figures = []
    groups, known = {"shapes": list(SHAPES), "small": list(SMALL)}, SETS | SHAPES | SMALL
    names = groups.get(options.sets) or options.sets.split(",")
    if options.l1:
        for name in names:
            compare_lasso(name, *known[name](), options.repeats)
        return
    for name in names:
        X, y = known[name]()
        for lam in (penalty_weight(text, len(y)) for text in options.lambdas.split(",")):
            task = Task(name, X, y, lam)
            for target in TARGETS:  # what this kind of data still has to compile or to load
                timed(ours, task, math.sqrt(target))
            ways, rows = compare(task, options.peers.split(","), options.repeats, options.limit, options.seeds)
            figures.append({"ways": ways, "rows": rows})
            if options.json:
                options.json.write_text(json.dumps(figures, indent=1))
            if options.plot and lam == 1e-4:
                plot(task, ways, options.plot)
    if not options.skip_penalty:
        print("\nNon-convex penalty λΣw²/(1 + w²)")
        for name in names:
            X, y = known[name]()
            compare_rational(Task(name, X, y, 1e-4, rational=True), options.limit)
    if not options.skip_bandwidth:
        bandwidth()


if __name__ == "__main__":
    main()
