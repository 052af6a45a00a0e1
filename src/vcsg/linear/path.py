"""Solutions along a path of penalty weights, each from the one before: `linear_path`, and what the estimators with
cross-validation are made of.

With an L1 penalty every step of the path begins with the columns that the strong rule keeps, and ends with a pass over
all columns and a duality gap.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vcsg.linear import inputs
from vcsg.linear.classifier import LinearClassifier
from vcsg.linear.duality import duality_gap
from vcsg.linear.kernels.losses import GEMAN_MCCLURE, HUBER, SQUARED, WELSCH
from vcsg.linear.problem import Array, Penalty, Problem
from vcsg.linear.regressor import LinearRegressor
from vcsg.linear.solution import Journal, Solution
from vcsg.linear.solvers import moments, residual_newton, working_set
from vcsg.linear.solvers.automatic import solve
from vcsg.linear.solvers.choice import shape_of

Tick = Callable[[int], None]


def _nothing(fits: int) -> None:
    """Count no fit."""


@dataclass
class LinearPath:
    """The solutions for a falling sequence of penalty weights."""

    alphas: Array
    coefs: Array
    """The coefficients: by weight, output and feature."""
    intercepts: Array
    """The intercepts: by weight and output."""
    solutions: list[Solution] = field(repr=False)

    @property
    def gaps(self) -> Array:
        """The duality gap at every weight: a bound on what f is above its minimum; NaN where there is none."""
        return np.array([solution.gap for solution in self.solutions])

    def plot(self, ax: Any = None, mark: float | None = None, largest: int = 50) -> Any:
        """Draw the coefficients over the weight of the penalty, and return the axes.

        Args:
            ax: The axes of matplotlib to draw into; None for new ones.
            mark: A weight to be marked by a line.
            largest: The most coefficients that are drawn: those with the largest values.
        """
        from matplotlib import pyplot

        if ax is None:
            ax = pyplot.figure(figsize=(7, 4.5), layout="constrained").add_subplot()
        lines = self.coefs.reshape(len(self.alphas), -1)
        size = np.abs(lines).max(axis=0)
        for j in np.argsort(size)[::-1][:largest]:
            if size[j] > 0:
                ax.plot(self.alphas, lines[:, j], linewidth=1.2)
        if mark is not None:
            ax.axvline(mark, color="0.4", linestyle="--", linewidth=1, label=f"alpha = {mark:.3g}")
            ax.legend(frameon=False)
        ax.set(xscale="log", xlabel="alpha, the weight of the penalty", ylabel="coefficient")
        ax.invert_xaxis()
        return ax


@dataclass
class ProgressBar:
    """A bar on the standard error stream that threads may move on together."""

    total: int
    shown: bool
    done: int = 0
    stopped: bool = False
    lock: Any = field(default_factory=threading.Lock, repr=False)

    def tick(self, fits: int) -> None:
        """Count so many more fits, and draw the bar; raise where the work of all threads is to end."""
        if self.stopped:
            raise RuntimeError("another thread was interrupted")
        with self.lock:
            self.done += fits
            if self.shown and fits:
                full = 30 * self.done // self.total
                end = "\n" if self.done == self.total else "\r"
                print(f"[{'█' * full}{'·' * (30 - full)}] {self.done}/{self.total} fits", end=end, file=sys.stderr)

    def stop(self) -> None:
        """Let every thread end when it counts its next fit."""
        self.stopped = True


def without_features(problem: Problem, tol: float) -> Array:
    """The best point with all coefficients 0: intercepts alone."""
    x = np.zeros(problem.shape)
    if problem.bias and problem.loss.code == SQUARED:
        x[0, -1] = float(problem.shares @ problem.y) / problem.bias
    elif problem.bias:
        alone = replace(problem, rows=np.zeros((problem.n, 1)), penalty=Penalty(l2=1.0))
        start = np.zeros(alone.shape)
        if problem.loss.code in (HUBER, GEMAN_MCCLURE, WELSCH):  # they have slopes or curvature near y alone
            start[0, -1] = inputs.weighted_median(problem.y, problem.weight) / problem.bias
        x[:, -1] = solve(alone, start, tol).x[:, -1]
    return x


def grid(problem: Problem, penalty: str, l1_ratio: float, count: int, eps: float, tol: float) -> Array:
    """Weights that fall geometrically.

    With an L1 part they begin where the first coefficient is no longer 0 and end at `eps` of that; for the L2 penalty
    they go from 1e4/n to 1e-4/n, as those of LogisticRegressionCV do.
    """
    share = {"l1": 1.0, "elasticnet": l1_ratio}.get(penalty, 0.0)
    if not share:
        return np.geomspace(1e4, 1e-4, count) / problem.n
    slope = problem.anchor(without_features(problem, tol)).gradient[:, :-1]
    top = float((-slope if problem.penalty.positive else np.abs(slope)).max(initial=0.0)) / share
    return np.geomspace(top, eps * top, count) if top > 0 else np.full(count, np.finfo(float).tiny)


def in_units(tol: float, terms: Penalty) -> float:
    """The bound on ‖∇f‖: `tol` in units of the weight of ‖w‖₁, where that is below 1."""
    return tol * min(1.0, terms.l1 or 1.0)


def solve_path(
    problem: Problem, alphas: Array, penalty: str, l1_ratio: float, tol: float, passes: float, seed: int = 0,
    tick: Tick = _nothing,
) -> list[Solution]:  # fmt: skip
    """The solutions for falling weights of the penalty, each from the one before.

    Least squares of many rows with an L1 penalty or bounds are solved from their second moments (`solvers.moments`),
    and the last solution is measured over all rows. Where that does not reach every solution, the rows themselves are
    taken, and the better of the two paths is returned. With an L1 penalty `tol` is in units of its weight where that is
    below 1: a gradient that is small beside 1 may be large beside the weight, and coefficients would stay 0 that
    should not.
    """
    unit = inputs.penalty(penalty, 1.0, l1_ratio, problem.penalty.positive)
    known = moments.moments(problem) if unit.l1 or unit.positive else None
    if known is None:
        return _from_rows(problem, alphas, penalty, unit, tol, passes, seed, tick)
    found = moments.solve_path(known, alphas, unit, problem.bias, tol / 2, passes, tick)
    last = _checked(problem, found[-1], unit.times(float(alphas[-1])), tol)
    if last.converged and all(solution.converged for solution in found):
        return found
    terms = (unit.times(float(alpha)) for alpha in alphas)
    found = [_checked(problem, *pair, tol) for pair in zip(found, terms, strict=True)]
    if all(solution.converged for solution in found):
        return found
    again = _from_rows(problem, alphas, penalty, unit, tol, passes, seed, lambda _: tick(0))
    return min(again, found, key=_shortfall)


def _checked(problem: Problem, solution: Solution, terms: Penalty, tol: float) -> Solution:
    """A solution from second moments as a pass over all rows finds it."""
    seen = measured(problem, solution, terms)
    if seen.history[-1].gradient_norm <= in_units(tol, terms):
        return replace(seen, converged=True, message="‖∇f‖ ≤ tol")
    rounded = "f falls no further, for rounding"
    return replace(seen, converged=False, message=rounded if solution.converged else solution.message)


def _shortfall(path: list[Solution]) -> tuple[int, float]:
    """How many solutions of a path were not reached, and ‖∇f‖ of the last one."""
    return sum(not solution.converged for solution in path), path[-1].history[-1].gradient_norm


def _from_rows(
    problem: Problem, alphas: Array, penalty: str, unit: Penalty, tol: float, passes: float, seed: int, tick: Tick
) -> list[Solution]:
    """`solve_path` with passes over rows or columns; `unit` is the penalty of the weight 1."""
    x, found, stronger = np.zeros(problem.shape), [], 0.0
    if penalty != "l2":
        x = without_features(problem, tol)
    columns: working_set.Columns | None = None
    part = problem.with_penalty(unit)
    shape = shape_of(part, x, tol)
    hands_over = shape.columns_passes < passes and residual_newton.has_models(part)
    for alpha in map(float, alphas):
        terms = unit.times(alpha)
        part = part.with_penalty(terms)  # and with what the part before has found about the rows
        if shape.lasso:
            columns = columns or working_set.Columns(part)
            journal = Journal(shape.columns_passes if hands_over else passes)
            solution = working_set.solve(part, x, in_units(tol, terms), journal, columns, stronger)
            if hands_over and not solution.converged:
                journal.budget = passes
                solution = residual_newton.minimise_models(part, solution.x, in_units(tol, terms), journal)
            solution.gap, solution.solver = duality_gap(part, solution.x, solution.last), ", then ".join(journal.stages)
            stronger = terms.l1
        else:
            solution = solve(part, x, tol, passes, seed)
        solution.last = None  # it refers to an array of the size of y
        found.append(solution)
        x = ahead(alphas, found) if len(found) < len(alphas) else solution.x
        tick(1)
    return found


def measured(problem: Problem, solution: Solution, terms: Penalty) -> Solution:
    """The solution with a last entry in its history that is measured over all rows."""
    if solution.history[-1].rows == problem.n:
        return solution
    here, last = problem.with_penalty(terms).anchor(solution.x, keep=False), solution.history[-1]
    entry = last._replace(rows=problem.n, objective=here.value, gradient_norm=here.norm, passes=last.passes + 1)
    return replace(solution, history=[*solution.history, entry])


def ahead(alphas: Array, found: list[Solution]) -> Array:
    """A start for the next weight, further on the line through the last two solutions.

    A path of the Lasso consists of straight lines, other ones nearly so. A coefficient that is 0 at one of the two, or
    would change its sign, stays as it is.
    """
    x, k = found[-1].x, len(found)
    if k < 2 or alphas[k - 2] == alphas[k - 1]:
        return x
    before = found[-2].x
    further = x - before
    further *= float((alphas[k] - alphas[k - 1]) / (alphas[k - 1] - alphas[k - 2]))
    further += x
    stays = x * further <= 0
    stays |= before == 0
    np.copyto(further, x, where=stays)
    return further


def joined(alphas: Array, solutions: list[Solution]) -> LinearPath:
    """The path that these solutions make."""
    points = np.stack([solution.x for solution in solutions])
    return LinearPath(np.asarray(alphas), points[:, :, :-1], points[:, :, -1], solutions)


def linear_path(
    X: Any, y: Any, loss: str = "squared", *, penalty: str = "l1", l1_ratio: float = 0.5, alphas: Any = None,
    n_alphas: int = 100, eps: float = 1e-3, fit_intercept: bool = True, positive: bool = False,
    sample_weight: Any = None, tol: float = 1e-4, max_iter: int = 1000, progress: bool = False, **options: Any,
) -> LinearPath:  # fmt: skip
    """Fit a linear model for a falling sequence of penalty weights, each from the solution before.

    Where ‖∇f‖ stays above `tol`, and the duality gap above tol·f, a ConvergenceWarning says so.

    Args:
        X: The rows.
        y: The targets; for "logistic" and "squared-hinge", the classes.
        loss: A loss of `LinearRegressor` or `LinearClassifier`.
        penalty: "l1", "elasticnet" or "l2".
        l1_ratio: The share of the L1 term in "elasticnet".
        alphas: The weights of the penalty; None for `n_alphas` of them, from where all coefficients are 0 down.
        n_alphas: The number of weights.
        eps: The last weight in units of the first.
        fit_intercept: Whether to fit an intercept.
        positive: Whether coefficients are bounded to be 0 or above.
        sample_weight: The weight of each row.
        tol: The bound on ‖∇f‖ at every solution; with an L1 penalty in units of its weight, where that is below 1.
        max_iter: The largest number of passes over the data for each solution.
        progress: Whether to draw a progress bar on the standard error stream.
        options: Other options of `LinearRegressor` or `LinearClassifier`, such as `scale` or `class_weight`.

    Example:
        >>> import numpy as np
        >>> X = np.eye(4)
        >>> path = linear_path(X, np.array([4.0, -2.0, 1.0, -3.0]), n_alphas=5, fit_intercept=False)
        >>> [int((coef != 0).sum()) for coef in path.coefs]
        [0, 4, 4, 4, 4]
    """
    kind: Any = LinearClassifier if loss in LinearClassifier.losses else LinearRegressor
    bounds = {"positive": positive} if kind is LinearRegressor else {}
    model = kind(loss, penalty=penalty, l1_ratio=l1_ratio, fit_intercept=fit_intercept, tol=tol, max_iter=max_iter,
                 **bounds, **options)  # fmt: skip
    problem = model._path_problem(X, y, sample_weight)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            weights = falling(problem, alphas, penalty, l1_ratio, n_alphas, eps, tol)
            bar = ProgressBar(len(weights), progress)
            found = solve_path(problem, weights, penalty, l1_ratio, tol, float(max_iter), tick=bar.tick)
    except FloatingPointError as error:
        inputs.explain_overflow(problem.rows, problem.y, error)
        raise
    close = [part.converged or part.gap <= tol * abs(part.history[-1].objective) for part in found]
    short = [part.message for part, near in zip(found, close, strict=True) if not near]
    if short and tol > 0:
        warnings.warn(
            f"{len(short)} of {len(found)} solutions did not reach tol = {tol:g} ({short[0]}): give a larger tol or "
            "max_iter, scale the features (StandardScaler), or leave the smallest weights out; `solutions` tells which",
            ConvergenceWarning,
            stacklevel=2,
        )
    return joined(weights, found)


def falling(problem: Problem, alphas: Any, penalty: str, l1_ratio: float, count: int, eps: float, tol: float) -> Array:
    """The weights as they were given, from the largest down, or those of `grid`."""
    if penalty not in ("l1", "elasticnet", "l2"):
        raise ValueError(f"penalty = {penalty!r}: a path has 'l1', 'elasticnet' or 'l2'")
    inputs.number("l1_ratio", l1_ratio, 0, 1, closed=True)
    if alphas is None:
        inputs.whole("n_alphas", count, 1)
        inputs.number("eps", eps, 0, 1, closed=True, above=True)
        return grid(problem, penalty, l1_ratio, count, eps, tol)
    weights = np.sort(np.asarray(alphas, np.float64).reshape(-1))[::-1]
    if not weights.size or not np.isfinite(weights).all() or weights[-1] <= 0:
        raise ValueError(f"alphas = {alphas!r}: give numbers above 0")
    return weights
