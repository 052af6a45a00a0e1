"""The common part of the linear estimators: checks of the input, the call of a solver, and what a fit tells."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from vcsg.linear import early_stopping, inputs
from vcsg.linear.blocks import BlockSource
from vcsg.linear.falling_scale import solve_falling
from vcsg.linear.kernels.losses import HUBER, LOSSES
from vcsg.linear.out_of_core import solve_blocks, survey
from vcsg.linear.problem import Array, Penalty, Problem, violation
from vcsg.linear.solution import HistoryEntry, Journal, Solution
from vcsg.linear.solvers import newton
from vcsg.linear.solvers.automatic import solve
from vcsg.linear.solvers.choice import SOLVERS, choose, shape_of
from vcsg.linear.solvers.family import run
from vcsg.method import Facts, GrowingAnchor, Method, make
from vcsg.method.catalogue import growing_svrg
from vcsg.run.certificate import Certificate

ALPHA = 1e-4
"""The weight of the penalty unless given."""
PARTIAL = 4.0
"""The number of passes that one call of `partial_fit` makes over its rows."""


BLUR = (1e-10, 1e-12)
"""The ‖∇f‖ that is taken for rounding: in units of `tol`, and of the mean of |y|·‖a‖ over the rows."""


class LinearModel(BaseEstimator):  # type: ignore[misc]
    """The common part of classifier and regressor: checks of the input, the call of a solver, and its result."""

    loss: str
    losses: tuple[str, ...]
    penalty: str | None
    alpha: float
    l1_ratio: float
    fit_intercept: bool
    tol: float
    max_iter: int
    solver: str
    method: str | Method
    positive: bool
    warm_start: bool
    early_stopping: bool
    validation_fraction: float
    random_state: Any
    n_jobs: int | None
    verbose: int
    coef_: npt.NDArray[Any]
    intercept_: Any
    feature_names_in_: npt.NDArray[Any]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_options(self) -> None:
        if self.loss not in self.losses:
            raise ValueError(f"loss = {self.loss!r}: choose one of {', '.join(map(repr, self.losses))}")
        bounds = {"positive": self.positive} if hasattr(self, "positive") else {}
        inputs.flags(
            fit_intercept=self.fit_intercept, warm_start=self.warm_start, early_stopping=self.early_stopping, **bounds
        )
        inputs.number("tol", self.tol, 0, math.inf)
        inputs.whole("max_iter", self.max_iter, 1)
        inputs.number("validation_fraction", self.validation_fraction, 0, 1, closed=True)
        if self.solver not in ("auto", *SOLVERS):
            raise ValueError(f"solver = {self.solver!r}: choose one of {', '.join(map(repr, ('auto', *SOLVERS)))}")
        if self.solver != "auto" and self.method != "growing-svrg":
            raise ValueError(f"solver = {self.solver!r} beside method = {self.method!r}: leave one of them as it is")

    def _validate(self, X: Any, y: Any, reset: bool) -> tuple[Any, npt.NDArray[Any]]:
        """X and y as arrays. NaN and infinity show in f at no cost: `_solve` looks for them when f is not finite."""
        if reset and _plain(X, y):  # what scikit-learn's checks would take longer to find out than a small fit takes
            self.n_features_in_ = X.shape[1]
            self._named_features(None)
            return X, y
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", reset=reset,
            ensure_all_finite=False, y_numeric=False, multi_output=isinstance(self, RegressorMixin),
        )  # fmt: skip
        return inputs.canonical(X), y

    def _solve(self, problem: Problem, start: Array, passes: float, tol: float) -> Solution:
        """The solution; with early stopping the one that suits held-out rows best."""
        seed = _seed(self.random_state)
        if not self.early_stopping or tol == 0:
            solution = self._solution(problem, start, passes, tol, seed)
            if isinstance(self, RegressorMixin):  # targets have units
                _warn_of_zeros(problem, start, solution, tol)
            return solution
        if self.solver not in ("auto", "l-bfgs") or self.method != "growing-svrg":
            raise ValueError("early_stopping=True needs solver='auto' or 'l-bfgs', and method as it is by default")
        journal = Journal(passes, self._print if self.verbose else lambda _: None)
        with self._overflow_explained(problem):
            solution, self.validation_losses_ = early_stopping.solve(
                problem, start, tol, journal, self.validation_fraction, seed
            )
        if isinstance(self, RegressorMixin) and solution.message != early_stopping.HELD_OUT:
            _warn_of_zeros(problem, start, solution, tol)
        return solution

    @contextmanager
    def _overflow_explained(self, problem: Problem) -> Iterator[None]:
        """Say in words why f is not finite, where a solver finds that it is not."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                yield
        except FloatingPointError as error:
            inputs.explain_overflow(problem.rows, problem.y, error)
            raise

    def _solve_shifted(self, problem: Problem, shift: Array, start: Array, passes: float, tol: float) -> Solution:
        """The solution for margins with an offset: a last feature whose coefficient stays 1."""
        if self.early_stopping or _default_schedule(self._method(tol)) is None:
            raise ValueError("offset needs early_stopping=False, and method as it is by default")
        solution = self._solve(problem.with_offset(shift), np.insert(start, -1, 1.0, axis=1), passes, tol)
        solution.x, solution.last = np.delete(solution.x, -2, axis=1), None
        return solution

    def _solution(self, problem: Problem, start: Array, passes: float, tol: float, seed: int) -> Solution:
        given, method = problem.n, self._method(tol)
        schedule = _default_schedule(method)
        if schedule is None and problem.penalty.positive:
            raise ValueError(
                f"positive=True beside method = {method.name!r}, whose steps know no bounds: leave one out"
            )
        if problem.n * problem.d <= newton.EXACT and not (schedule and self._exact(problem, start, tol)):
            problem = _merged(problem, method)

        def told(entry: HistoryEntry) -> HistoryEntry:
            return entry._replace(rows=given) if entry.rows == problem.n else entry  # all, though merged

        def report(entry: HistoryEntry) -> None:
            if self.verbose:
                self._print(told(entry))

        def solved(part: Problem, x: Array, target: float, budget: float) -> Solution:
            if schedule:
                return solve(part, x, target, budget, seed, self.solver, schedule, report)
            found = run(part, x, method, target, budget, seed, report=report)
            found.solver = method.name
            return found

        with self._overflow_explained(problem):
            if schedule and problem.loss.code == HUBER:
                solution = solve_falling(problem, start, tol, passes, solved)
            else:
                solution = solved(problem, start, tol, passes)
        solution.history = [told(entry) for entry in solution.history]
        return solution

    def _exact(self, problem: Problem, start: Array, tol: float) -> bool:
        """Whether the one minimum of small data is found up to rounding, by Newton's method."""
        if not (problem.smooth and problem.penalty.l2):
            return False
        return self.solver == "newton" or (self.solver == "auto" and choose(shape_of(problem, start, tol)) == "newton")

    def _solve_blocks(self, source: BlockSource, loss: str, scale: float, terms: Penalty) -> tuple[Solution, Any]:
        """The solution for rows that are read by blocks, and the classes."""
        if not (self.solver == "auto" and self.method == "growing-svrg") or self.early_stopping or self.warm_start:
            raise ValueError(
                "rows that are read by blocks are solved in one way: leave solver, method, early_stopping and "
                "warm_start as they are by default"
            )
        if terms.rational or not LOSSES[loss].convex or LOSSES[loss].kinked:
            raise ValueError(
                f"penalty = {self.penalty!r} and loss = {self.loss!r} for rows that are read by blocks: they take a "
                "convex loss other than 'quantile', and penalty='l2', 'l1', 'elasticnet' or None"
            )
        if self.max_iter < 2:
            raise ValueError(f"max_iter = {self.max_iter} reads of the rows: give at least 2, one of them for a sample")
        seed, jobs = _seed(self.random_state), inputs.threads(self.n_jobs)
        journal = Journal(float(self.max_iter), self._print if self.verbose else lambda _: None)
        whole, sample = survey(source, loss, scale, self.fit_intercept, terms, jobs, seed)
        with self._overflow_explained(sample):
            solution = solve_blocks(whole, sample, self.tol, journal, seed)
        self._named_features(source.names)
        self.n_features_in_, self.reads_ = whole.d, source.reads
        return solution, whole.classes

    def _named_features(self, names: list[str] | None) -> None:
        """Keep the names of the columns, as scikit-learn does, where they have any; forget those of an earlier fit."""
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.array(names, dtype=object)

    def _method(self, tol: float) -> Method:
        """The method; one named "vcsg" or "scsg" gets tol² as its target ε for ‖∇f‖²."""
        if isinstance(self.method, Method):
            return self.method
        if self.method in ("vcsg", "scsg") and tol > 0:
            return make(self.method, eps=tol**2)
        return _named(self.method)

    def _print(self, epoch: HistoryEntry) -> None:
        print(f"[{type(self).__name__}] {epoch}")

    def _conclude(self, solutions: list[Solution], tol: float, warn: bool, unit: float = 1.0) -> None:
        """Set the attributes that describe the fit, and warn where ‖∇f‖ is still above tol·unit."""
        self.history_ = [epoch for solution in solutions for epoch in solution.history]
        self.n_iter_ = max(1, *(math.ceil(s.history[-1].passes) for s in solutions))
        self.solver_ = "; ".join(dict.fromkeys(solution.solver for solution in solutions))
        last = [solution.history[-1] for solution in solutions]
        norm2 = sum(entry.gradient_norm**2 for entry in last)
        measured = all(solution.converged and solution.measured for solution in solutions)
        self.certificate_ = Certificate(norm2, norm2, 1.0, last[0].rows) if measured else None
        self.duality_gap_ = max((s.gap for s in solutions), key=lambda gap: math.inf if math.isnan(gap) else gap)
        for solution in solutions:
            if warn and not solution.converged:
                norm = solution.history[-1].gradient_norm
                bound = f"tol = {tol:g}" + (f" times {unit:.3g}, the weight of ‖w‖₁" if unit < 1 else "")
                warnings.warn(
                    f"‖∇f‖ = {norm:.3g} is above {bound} ({solution.message}): give a larger tol or max_iter, "
                    "scale the features (StandardScaler), or raise alpha",
                    ConvergenceWarning,
                    stacklevel=3,
                )

    def _start(self, shape: tuple[int, int], warm: bool) -> Array:
        if not (warm and hasattr(self, "coef_")):
            return np.zeros(shape)
        coef, intercept = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        if coef.shape != (shape[0], shape[1] - 1):
            raise ValueError(
                f"warm start from coef_ of shape {coef.shape}, and the data ask for {(shape[0], shape[1] - 1)}: "
                "fit a new estimator, or set warm_start=False"
            )
        start = np.zeros(shape)
        start[:, :-1] = coef
        if self.fit_intercept:
            start[:, -1] = intercept
        return start

    def _blend(self, before: Any, rows: int) -> None:
        """Average the solutions of all calls of `partial_fit`, weighted by their rows: the mean is less noisy."""
        seen = 0 if before is None else getattr(self, "rows_seen_", 0)
        self.rows_seen_ = seen + rows
        if seen:
            share = rows / self.rows_seen_
            self.coef_ = before[0] + share * (self.coef_ - before[0])
            self.intercept_ = before[1] + share * (self.intercept_ - before[1])

    def _margins(self, X: Any) -> npt.NDArray[Any]:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return np.asarray(safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_)


def _warn_of_zeros(problem: Problem, start: Array, solution: Solution, tol: float) -> None:
    """Warn where all coefficients are 0 for no other reason than that `tol` is coarse for the units of the targets."""
    w, terms = solution.x[:, :-1], problem.penalty
    if tol == 0 or start[:, :-1].any() or w.any() or not solution.converged or problem.loss.kinked:
        return
    slope = problem.anchor(solution.x, keep=False).smooth[:, :-1]
    norm = float(np.linalg.norm(violation(slope, w, terms.l1, terms.positive)))
    size = float((problem.weight * np.abs(problem.y) * np.sqrt(problem.norms)).mean())
    if max(BLUR[0] * tol, BLUR[1] * size) < norm <= tol:
        warnings.warn(
            f"all coefficients are 0, for ‖∇f‖ = {norm:.3g} is within tol = {tol:g} there: give a smaller tol, or "
            "scale y and the features",
            ConvergenceWarning,
            stacklevel=5,
        )


@cache
def _named(method: str) -> Method:
    return make(method)


def _default_schedule(method: Method) -> GrowingAnchor | None:
    """The schedule of `method` if it is "growing-svrg" with any options, for the default solver; else None."""
    schedule = method.schedule
    if not isinstance(schedule, GrowingAnchor):
        return None
    if method is _named("growing-svrg"):  # to make a method for comparison takes as long as a thousand rows
        return schedule
    default = growing_svrg(schedule.first_B, schedule.growth, schedule.b)
    return schedule if method == default else None


def _merged(problem: Problem, method: Method) -> Problem:
    """The problem with equal rows merged; as it is where the blocks of a method with a table would not fit any more."""
    merged = problem.merged()
    b = method.schedule(Facts(1, problem.n, math.nan, math.nan)).b if method.table else 1
    return merged if merged.n % b == 0 else problem


def _seed(random_state: Any) -> int:
    """The seed: a number itself, as setting up scikit-learn's generator takes as long as ten thousand rows."""
    if isinstance(random_state, Integral) and 0 <= int(random_state) < 2**31:
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _plain(X: Any, y: Any) -> bool:
    """Whether the compiled loops can take X and y without conversion."""
    if type(X) is not np.ndarray or type(y) is not np.ndarray or X.dtype not in (np.float64, np.float32):
        return False
    return X.ndim == 2 and y.ndim == 1 and X.flags.c_contiguous and X.size > 0 and len(X) == len(y) and _number(y)


def _number(y: npt.NDArray[Any]) -> bool:
    return y.dtype.kind in "iubf"
