"""`LinearClassifierCV` and `LinearRegressorCV`: the weight of the penalty by cross-validation, in one call.

Every fold solves one path from the largest weight down; folds share threads. The model is then the solution for all
rows at the weight whose held-out rows have the lowest mean loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import check_cv

from vcsg.linear import inputs
from vcsg.linear.classifier import LinearClassifier
from vcsg.linear.kernels.losses import TWEEDIE
from vcsg.linear.model import LinearModel, _seed
from vcsg.linear.path import LinearPath, ProgressBar, falling, in_units, joined, measured, solve_path
from vcsg.linear.problem import Array, Penalty, Problem
from vcsg.linear.regressor import LinearRegressor
from vcsg.linear.solution import Solution


class PathModel(LinearModel):
    """The search for the weight of the penalty, for classifier and regressor alike."""

    alphas: Any
    n_alphas: int
    eps: float
    cv: Any
    path_: LinearPath
    alpha_: float
    classes_: Any

    def _search(self, problem: Problem, y: Any, classifier: bool) -> Solution:
        """Set `alphas_`, `scores_`, `alpha_` and `path_`, and return the solution at the best weight."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return self._validated(problem, y, classifier)
        except FloatingPointError as error:
            inputs.explain_overflow(problem.rows, problem.y, error)
            raise

    def _validated(self, problem: Problem, y: Any, classifier: bool) -> Solution:
        name, ratio, passes = str(self.penalty), self.l1_ratio, float(self.max_iter)
        self.alphas_ = falling(problem, self.alphas, name, ratio, self.n_alphas, self.eps, self.tol)
        folds = list(check_cv(self.cv, y, classifier=classifier).split(np.zeros((problem.n, 1)), y))
        for k, parts in enumerate(folds):
            if problem.has_unused_rows and not all(problem.weight[rows].any() for rows in parts):
                raise ValueError(
                    f"fold {k} is fitted to, or scored on, rows that all have the weight 0: leave such rows out, or "
                    "give cv a splitter that shuffles (KFold(shuffle=True))"
                )
            train = parts[0]
            if problem.loss.code == TWEEDIE and not problem.y[train][problem.weight[train] > 0].any():
                raise ValueError(
                    f"fold {k} is fitted to rows whose y is 0, for which this loss has no minimum: give cv a splitter "
                    "that shuffles (KFold(shuffle=True)), or fewer folds"
                )
        if classifier:
            for k, (train, _) in enumerate(folds):
                if len(np.unique(y[train])) < len(self.classes_):
                    raise ValueError(
                        f"fold {k} is fitted to rows that lack one of the {len(self.classes_)} classes: give cv a "
                        "splitter that keeps the shares of classes (StratifiedKFold), or fewer folds"
                    )
        bar = ProgressBar(len(self.alphas_) * (len(folds) + 1), bool(self.verbose))
        seed = _seed(self.random_state)

        def path(part: Problem) -> list[Solution]:
            return solve_path(part, self.alphas_, name, ratio, self.tol, passes, seed, bar.tick)

        def score(fold: tuple[Any, Any]) -> Array:
            train, test = (_normalised(problem.subset(rows)) for rows in fold)
            held = replace(test, penalty=Penalty())
            return np.array([held.anchor(solution.x).value for solution in path(replace(train, threads=1))])

        jobs: list[Callable[[], Any]] = [partial(path, problem), *(partial(score, fold) for fold in folds)]
        solutions, *scores = together(jobs, inputs.threads(self.n_jobs), bar.stop)
        self.scores_ = np.column_stack(scores)
        best = int(np.argmin(self.scores_.mean(axis=1)))
        self.alpha_, self.path_ = float(self.alphas_[best]), joined(self.alphas_, solutions)
        return measured(problem, solutions[best], inputs.penalty(name, self.alpha_, ratio, problem.penalty.positive))

    def _unit(self, problem: Problem) -> float:
        """What `tol` is in units of at `alpha_`."""
        if problem.outputs > 1 or not problem.loss.convex:
            return 1.0
        return in_units(1.0, inputs.penalty(str(self.penalty), self.alpha_, self.l1_ratio))

    def plot_path(self, ax: Any = None) -> Any:
        """Draw the coefficients along the path for all rows, with a line at `alpha_`, and return matplotlib's axes."""
        return self.path_.plot(ax, mark=self.alpha_)


def together(jobs: list[Callable[[], Any]], threads: int, stop: Callable[[], None]) -> list[Any]:
    """The results of all jobs, by so many threads; where one fails, or Ctrl-C comes, `stop` is to end the others."""
    if threads == 1:
        return [job() for job in jobs]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _normalised(problem: Problem) -> Problem:
    return replace(problem, weight=inputs.scaled(problem.weight))


class LinearClassifierCV(PathModel, LinearClassifier):
    """`LinearClassifier` with the weight of its penalty chosen by cross-validation.

    Args:
        loss: "logistic" (multinomial for more than two classes), or "squared-hinge" for two classes.
        penalty: "l1", "elasticnet" or "l2", as in `LinearClassifier`.
        l1_ratio: The share of the L1 term in "elasticnet", from 0 to 1.
        alphas: The weights to try; None for `n_alphas` of them, from where all coefficients are 0 down.
        n_alphas: The number of weights to try.
        eps: The smallest weight in units of the largest.
        cv: The number of folds, or a splitter of scikit-learn; None is five folds.
        fit_intercept: Whether to fit an intercept.
        class_weight: As in `LinearClassifier`.
        tol: The bound on ‖∇f‖ at every solution; with an L1 penalty in units of its weight, where that is below 1.
        max_iter: The largest number of passes over the data for each solution.
        random_state: The seed of the order of rows.
        n_jobs: The number of threads that share the folds; −1 is one for every processor, None is one.
        verbose: Draw nothing (0) or a progress bar (1).

    Attributes:
        alpha_: The weight with the lowest mean loss of held-out rows.
        alphas_: All weights, from the largest down.
        scores_: The mean loss of the held-out rows: a line for each weight, a column for each fold.
        path_: The `LinearPath` of all rows.
        coef_: The coefficients at `alpha_`, fitted to all rows, as in `LinearClassifier`.
        intercept_: The intercepts.
        duality_gap_: With an L1 penalty and two classes, f is at most this much above its minimum; else NaN.
    """

    def __init__(
        self,
        loss: str = "logistic",
        *,
        penalty: str = "l1",
        l1_ratio: float = 0.5,
        alphas: Any = None,
        n_alphas: int = 100,
        eps: float = 1e-3,
        cv: Any = None,
        fit_intercept: bool = True,
        class_weight: Any = None,
        tol: float = 1e-4,
        max_iter: int = 1000,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            loss, penalty=penalty, l1_ratio=l1_ratio, fit_intercept=fit_intercept, class_weight=class_weight, tol=tol,
            max_iter=max_iter, random_state=random_state, n_jobs=n_jobs, verbose=verbose,
        )  # fmt: skip
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearClassifierCV:  # type: ignore[override]
        """Choose the weight of the penalty, and fit the model to rows X with classes y."""
        problem = self._path_problem(X, y, sample_weight)
        solution = self._search(problem, problem.y, classifier=True)
        x = solution.x.copy()
        if len(x) > 1:  # the same added to the intercepts of all classes changes nothing: the one about 0
            x[:, -1] -= x[:, -1].mean()
        self.coef_ = np.array(x[:, :-1], problem.rows.dtype)
        self.intercept_ = x[:, -1].astype(problem.rows.dtype)
        self._conclude([solution], self.tol, warn=math.isfinite(self.tol), unit=self._unit(problem))
        return self


class LinearRegressorCV(PathModel, LinearRegressor):
    """`LinearRegressor` with the weight of its penalty chosen by cross-validation.

    Args:
        loss: A loss of `LinearRegressor` other than "quantile".
        scale: As in `LinearRegressor`, for its robust losses.
        power: As in `LinearRegressor`, for "tweedie".
        penalty: "l1", "elasticnet" or "l2", as in `LinearRegressor`.
        l1_ratio: The share of the L1 term in "elasticnet", from 0 to 1.
        alphas: The weights to try; None for `n_alphas` of them, from where all coefficients are 0 down.
        n_alphas: The number of weights to try.
        eps: The smallest weight in units of the largest.
        cv: The number of folds, or a splitter of scikit-learn; None is five folds.
        fit_intercept: Whether to fit an intercept.
        positive: Whether all coefficients are 0 or above.
        tol: The bound on ‖∇f‖ at every solution; with an L1 penalty in units of its weight, where that is below 1.
        max_iter: The largest number of passes over the data for each solution.
        random_state: The seed of the order of rows.
        n_jobs: The number of threads that share the folds; −1 is one for every processor, None is one.
        verbose: Draw nothing (0) or a progress bar (1).

    Attributes:
        alpha_: The weight with the lowest mean loss of held-out rows.
        alphas_: All weights, from the largest down.
        scores_: The mean loss of the held-out rows: a line for each weight, a column for each fold.
        path_: The `LinearPath` of all rows.
        coef_: The coefficients at `alpha_`, fitted to all rows.
        intercept_: The intercept.
        duality_gap_: With an L1 penalty, f is at most this much above its minimum; else NaN.
    """

    losses = tuple(name for name in LinearRegressor.losses if name != "quantile")

    def __init__(
        self,
        loss: str = "squared",
        *,
        scale: float = 1.35,
        power: float = 1.5,
        penalty: str = "l1",
        l1_ratio: float = 0.5,
        alphas: Any = None,
        n_alphas: int = 100,
        eps: float = 1e-3,
        cv: Any = None,
        fit_intercept: bool = True,
        positive: bool = False,
        tol: float = 1e-4,
        max_iter: int = 1000,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            loss, scale=scale, power=power, penalty=penalty, l1_ratio=l1_ratio, fit_intercept=fit_intercept,
            positive=positive, tol=tol, max_iter=max_iter, random_state=random_state, n_jobs=n_jobs, verbose=verbose,
        )  # fmt: skip
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearRegressorCV:  # type: ignore[override]
        """Choose the weight of the penalty, and fit the model to rows X with targets y."""
        problem = self._path_problem(X, y, sample_weight)
        solution = self._search(problem, problem.y, classifier=False)
        self.coef_ = solution.x[0, :-1].astype(problem.rows.dtype)
        self.intercept_ = float(solution.x[0, -1])
        self._conclude([solution], self.tol, warn=math.isfinite(self.tol), unit=self._unit(problem))
        return self
