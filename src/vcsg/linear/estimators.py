"""`LinearClassifier` and `LinearRegressor`: linear models with scikit-learn's conventions."""

from __future__ import annotations

import math
import warnings
from functools import cache
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils.extmath import safe_sparse_dot, softmax
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from vcsg.linear import inputs
from vcsg.linear.problem import Array, Penalty, Problem
from vcsg.linear.solution import HistoryEntry, Solution
from vcsg.linear.solvers.automatic import solve
from vcsg.linear.solvers.choice import SOLVERS
from vcsg.linear.solvers.family import run
from vcsg.method import Facts, GrowingAnchor, Method, make
from vcsg.method.catalogue import growing_svrg
from vcsg.run.certificate import Certificate

ALPHA = 1e-4
"""The weight of the penalty unless given."""
PARTIAL = 4.0
"""The number of passes that one call of `partial_fit` makes over its rows."""

MERGED = 20_000
"""The largest n·d for which equal rows are merged, where the solver does not find the exact minimum."""


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
    warm_start: bool
    random_state: Any
    n_jobs: int | None
    verbose: int
    coef_: npt.NDArray[Any]
    intercept_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_options(self) -> None:
        if self.loss not in self.losses:
            raise ValueError(f"loss = {self.loss!r}: choose one of {', '.join(map(repr, self.losses))}")
        inputs.number("tol", self.tol, 0, math.inf)
        inputs.whole("max_iter", self.max_iter, 1)
        if self.solver not in ("auto", *SOLVERS):
            raise ValueError(f"solver = {self.solver!r}: choose one of {', '.join(map(repr, ('auto', *SOLVERS)))}")
        if self.solver != "auto" and self.method != "growing-svrg":
            raise ValueError(f"solver = {self.solver!r} beside method = {self.method!r}: leave one of them as it is")

    def _validate(self, X: Any, y: Any, reset: bool) -> tuple[Any, npt.NDArray[Any]]:
        """X and y as arrays. NaN and infinity show in f at no cost: `_solve` looks for them when f is not finite."""
        if reset and _plain(X, y):  # what scikit-learn's checks would take longer to find out than a small fit takes
            self.n_features_in_ = X.shape[1]
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            return X, y
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", reset=reset,
            ensure_all_finite=False, y_numeric=False, multi_output=False,
        )  # fmt: skip
        return inputs.canonical(X), y

    def _solve(self, problem: Problem, start: Array, passes: float, tol: float) -> Solution:
        seed = _seed(self.random_state)
        report = self._print if self.verbose else lambda _: None
        method = self._method(tol)
        schedule = _default_schedule(method)
        if problem.n * problem.d <= MERGED and not (schedule and problem.smooth and problem.penalty.l2):
            problem = _merged(problem, method)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                if schedule:
                    return solve(problem, start, tol, passes, seed, self.solver, schedule, report)
                solution = run(problem, start, method, tol, passes, seed, report=report)
                solution.solver = method.name
                return solution
        except FloatingPointError as error:
            inputs.explain_overflow(problem.rows, problem.y, error)
            raise

    def _method(self, tol: float) -> Method:
        """The method; one named "vcsg" or "scsg" gets tol² as its target ε for ‖∇f‖²."""
        if isinstance(self.method, Method):
            return self.method
        if self.method in ("vcsg", "scsg") and tol > 0:
            return make(self.method, eps=tol**2)
        return _named(self.method)

    def _print(self, epoch: HistoryEntry) -> None:
        print(f"[{type(self).__name__}] {epoch}")

    def _conclude(self, solutions: list[Solution], tol: float, warn: bool) -> None:
        """Set the attributes that describe the fit, and warn where ‖∇f‖ is still above tol."""
        self.history_ = [epoch for solution in solutions for epoch in solution.history]
        self.n_iter_ = max(1, *(math.ceil(s.history[-1].passes) for s in solutions))
        self.solver_ = "; ".join(dict.fromkeys(solution.solver for solution in solutions))
        last = [solution.history[-1] for solution in solutions]
        norm2 = sum(entry.gradient_norm**2 for entry in last)
        measured = all(solution.converged for solution in solutions)
        self.certificate_ = Certificate(norm2, norm2, 1.0, last[0].rows) if measured else None
        for solution in solutions:
            if warn and not solution.converged:
                norm = solution.history[-1].gradient_norm
                warnings.warn(
                    f"‖∇f‖ = {norm:.3g} is above tol = {tol:g} ({solution.message}): give a larger tol or max_iter, "
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


class LinearClassifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """A linear classifier with scikit-learn's interface, fast for many rows.

    It minimises f(w, c) = (1/n)Σ w_i φ(a_iᵀw + c, y_i) + alpha·P(w) over coefficients w and an intercept c, where a_i
    is a row, w_i its weight (scaled to mean 1), φ the loss and P the penalty. LogisticRegression(C=C) is the same model
    as LinearClassifier(C=C), which is alpha=1/(C·n), with the number of rows n or the sum of all weights.

    Args:
        loss: The loss φ: "logistic" (multinomial for more than two classes), or "squared-hinge" (for more than two
            classes, one classifier for each class against the rest).
        penalty: The penalty P: "l2" is ‖w‖²/2; "l1" is ‖w‖₁; "elasticnet" is l1_ratio·‖w‖₁ + (1 − l1_ratio)·‖w‖²/2;
            "rational" is the non-convex Σw²/(1 + w²); None is no penalty. The intercept is never penalised.
        alpha: The weight of the penalty; larger values keep the coefficients smaller.
        l1_ratio: The share of the L1 term in "elasticnet", from 0 to 1.
        fit_intercept: Whether to fit an intercept c.
        class_weight: A dict from class to weight, or "balanced" for weights inversely proportional to how often each
            class occurs; None weighs all classes alike.
        C: The inverse strength of the penalty as LogisticRegression has it, in place of alpha: alpha = 1/(C·n).
        tol: The fit ends at the first point where ‖∇f‖ ≤ tol, measured over all rows.
        max_iter: The largest number of passes over the data. Where they do not suffice, a ConvergenceWarning says so.
        solver: How f is minimised: "newton" takes steps with the Hessian of all rows; "l-bfgs" begins with the gradient
            of all rows; "growing-svrg" begins with stochastic steps on a growing part of the rows and lets L-BFGS
            finish where that is faster; "dual" is coordinate ascent in the dual, for sparse L2-logistic regression;
            "working-set" solves for few columns at a time, for the L1 penalty. "auto" takes the one that is fastest
            for data of this shape.
        method: The name of any other method of `vcsg.methods()`, or a `vcsg.Method`, runs that method in place of a
            solver; "vcsg" and "scsg" take tol² as their target ε. "growing-svrg" leaves the choice to `solver`.
        warm_start: Whether a fit begins at the solution of the fit before.
        random_state: The seed of the order in which rows are taken: a number gives the same result every time.
        n_jobs: The number of threads that share each pass over all rows; −1 is one for every processor, None is one.
            The steps between passes use one thread.
        verbose: Print nothing (0) or a line for every entry of `history_` (1).

    Attributes:
        coef_: The coefficients in the floating-point type of X: one line for two classes, one per class for more.
        intercept_: The intercepts, one for each line of `coef_`.
        classes_: The sorted class labels.
        n_features_in_: The number of features.
        n_iter_: The number of passes over the data that the fit took, rounded up.
        history_: A `HistoryEntry` for every evaluation: stage, rows, objective, gradient norm, passes, seconds.
        solver_: What ran: a solver, several in order, or the method.
        certificate_: The ‖∇f‖² of the solution, measured over all rows (`vcsg.Certificate`); None where the fit ended
            above tol.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> bool(LinearClassifier(alpha=1e-3).fit(X, y).score(X, y) > 0.95)
        True
    """

    losses = ("logistic", "squared-hinge")

    def __init__(
        self,
        loss: str = "logistic",
        *,
        penalty: str | None = "l2",
        alpha: float = ALPHA,
        l1_ratio: float = 0.15,
        fit_intercept: bool = True,
        class_weight: Any = None,
        C: float | None = None,
        tol: float = 1e-4,
        max_iter: int = 1000,
        solver: str = "auto",
        method: str | Method = "growing-svrg",
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.C = C
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.method = method
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearClassifier:
        """Fit the model to rows X with classes y."""
        self._check_options()
        X, y = self._validate(X, y, reset=True)
        classes, codes = _encoded(y)
        if len(classes) < 2:
            raise ValueError(f"y has one class alone ({classes[0]!r}): a classifier needs at least two classes")
        weight, total = inputs.row_weights(sample_weight, X)
        warm = self.warm_start and hasattr(self, "classes_") and np.array_equal(classes, self.classes_)
        return self._fit(X, codes, classes, weight, total, warm, float(self.max_iter), self.tol)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> LinearClassifier:
        """Fit these rows with a few passes from the current model, and average the solutions of all calls.

        Args:
            X: The rows.
            y: The class of each row.
            classes: All classes that any call will see; needed in the first call.
            sample_weight: The weight of each row.
        """
        self._check_options()
        first = not hasattr(self, "classes_")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit")
        X, y = self._validate(X, y, reset=first)
        known = np.unique(classes) if first else self.classes_
        if classes is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(f"classes = {classes!r} differ from those of the first call, {known!r}")
        strange = np.setdiff1d(y, known)
        if strange.size:
            raise ValueError(f"y has the class {strange[0]!r}, which is not among the classes {known!r}")
        weight, total = inputs.row_weights(sample_weight, X)
        before = None if first else (self.coef_, self.intercept_)
        self._fit(X, inputs.class_numbers(y, known), known, weight, total, not first, PARTIAL, 0.0)
        self._blend(before, X.shape[0])
        return self

    def _fit(
        self, X: Any, codes: Array, classes: Any, weight: Array, total: float, warm: bool, passes: float, tol: float
    ) -> LinearClassifier:
        jobs = inputs.threads(self.n_jobs)
        if self.class_weight is not None:
            numbers = codes.astype(np.int64)
            by_class = compute_class_weight(self.class_weight, classes=classes, y=classes[numbers])
            weight = weight * by_class[numbers]
            total *= float(weight.mean())
            weight = inputs.scaled(weight)
        terms = inputs.penalty(self.penalty, self._alpha(total), self.l1_ratio)
        several = len(classes) > 2
        start = self._start((len(classes) if several else 1, X.shape[1] + 1), warm)
        if several and self.loss == "logistic":
            targets, names = [codes], "multinomial"
        else:
            names = self.loss
            targets = [_signs(codes == k) for k in range(len(classes))] if several else [_signs(codes)]
        outputs = len(start) // len(targets)
        solutions = []
        for k, target in enumerate(targets):
            problem = inputs.make_problem(X, target, weight, names, 1.0, outputs, self.fit_intercept, terms, jobs)
            solutions.append(self._solve(problem, start[k * outputs : (k + 1) * outputs], passes, tol))
        x = np.concatenate([solution.x for solution in solutions])
        if names == "multinomial":  # the same added to all classes changes nothing: of all solutions, the one about 0
            free = slice(None) if terms == Penalty() else slice(-1, None)
            x[:, free] -= x[:, free].mean(axis=0)
        self.classes_ = classes
        self.coef_ = np.array(x[:, :-1], X.dtype, order="C")
        self.intercept_ = x[:, -1].astype(X.dtype)
        self._conclude(solutions, tol, warn=tol > 0)
        return self

    def _alpha(self, total: float) -> float:
        """The weight of the penalty for a mean loss, where the sum of all weights is `total`."""
        if self.C is None:
            return self.alpha
        inputs.number("C", self.C, 0, math.inf, above=True)
        if self.alpha != ALPHA:
            raise ValueError(f"alpha = {self.alpha!r} beside C = {self.C!r}: give one of them")
        return 1 / (self.C * total)

    def decision_function(self, X: Any) -> npt.NDArray[Any]:
        """The margins a_iᵀw + c: one per row for two classes, one per row and class for more."""
        margins = self._margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of every row."""
        margins = self.decision_function(X)
        chosen = (margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def _has_probabilities(self) -> bool:
        return self.loss == "logistic"

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """The probability of every class, for each row; only with the logistic loss."""
        margins = self.decision_function(X)
        both = np.column_stack([np.zeros_like(margins), margins]) if margins.ndim == 1 else margins
        return np.asarray(softmax(both, copy=True))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> npt.NDArray[Any]:
        """The logarithm of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))


class LinearRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """A linear regression with scikit-learn's interface, fast for many rows, with losses that resist outliers.

    It minimises f(w, c) = (1/n)Σ w_i φ(a_iᵀw + c − y_i) + alpha·P(w) over coefficients w and an intercept c, where a_i
    is a row, w_i its weight (scaled to mean 1), φ the loss and P the penalty. Ridge(alpha=A) is the same model as
    LinearRegressor(alpha=A/n), and Lasso(alpha=A) the same as LinearRegressor(penalty="l1", alpha=A).

    Args:
        loss: The loss φ: "squared"; "huber", which grows linearly for large residuals; or "geman-mcclure" or "welsch",
            which are bounded and not convex, so that far outliers have no influence.
        scale: The size σ of a residual above which "huber", "geman-mcclure" and "welsch" treat it as large.
        penalty: The penalty P: "l2" is ‖w‖²/2; "l1" is ‖w‖₁; "elasticnet" is l1_ratio·‖w‖₁ + (1 − l1_ratio)·‖w‖²/2;
            "rational" is the non-convex Σw²/(1 + w²); None is no penalty. The intercept is never penalised.
        alpha: The weight of the penalty; larger values keep the coefficients smaller.
        l1_ratio: The share of the L1 term in "elasticnet", from 0 to 1.
        fit_intercept: Whether to fit an intercept c.
        tol: The fit ends at the first point where ‖∇f‖ ≤ tol, measured over all rows.
        max_iter: The largest number of passes over the data. Where they do not suffice, a ConvergenceWarning says so.
        solver: How f is minimised: "newton" takes steps with the Hessian of all rows; "l-bfgs" begins with the gradient
            of all rows; "growing-svrg" begins with stochastic steps on a growing part of the rows and lets L-BFGS
            finish where that is faster; "working-set" solves for few columns at a time, for the L1 penalty. "auto"
            takes the one that is fastest for data of this shape.
        method: The name of any other method of `vcsg.methods()`, or a `vcsg.Method`, runs that method in place of a
            solver; "vcsg" and "scsg" take tol² as their target ε. "growing-svrg" leaves the choice to `solver`.
        warm_start: Whether a fit begins at the solution of the fit before.
        random_state: The seed of the order in which rows are taken: a number gives the same result every time.
        n_jobs: The number of threads that share each pass over all rows; −1 is one for every processor, None is one.
            The steps between passes use one thread.
        verbose: Print nothing (0) or a line for every entry of `history_` (1).

    Attributes:
        coef_: The coefficients, in the floating-point type of X.
        intercept_: The intercept.
        n_features_in_: The number of features.
        n_iter_: The number of passes over the data that the fit took, rounded up.
        history_: A `HistoryEntry` for every evaluation: stage, rows, objective, gradient norm, passes, seconds.
        solver_: What ran: a solver, several in order, or the method.
        certificate_: The ‖∇f‖² of the solution, measured over all rows (`vcsg.Certificate`); None where the fit ended
            above tol.

    Example:
        >>> import numpy as np
        >>> X = np.arange(20.0)[:, None]
        >>> y = 3 * X[:, 0] + 1
        >>> y[4] = 1000.0
        >>> LinearRegressor("welsch", penalty=None, tol=1e-8).fit(X, y).coef_.round(3).tolist()
        [3.0]
    """

    losses = ("squared", "huber", "geman-mcclure", "welsch")

    def __init__(
        self,
        loss: str = "squared",
        *,
        scale: float = 1.35,
        penalty: str | None = "l2",
        alpha: float = ALPHA,
        l1_ratio: float = 0.15,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 1000,
        solver: str = "auto",
        method: str | Method = "growing-svrg",
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.scale = scale
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.method = method
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearRegressor:
        """Fit the model to rows X with targets y."""
        return self._fit(X, y, sample_weight, True, self.warm_start, float(self.max_iter), self.tol)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearRegressor:
        """Fit these rows with a few passes from the current model, and average the solutions of all calls."""
        first = not hasattr(self, "coef_")
        before = None if first else (self.coef_, self.intercept_)
        self._fit(X, y, sample_weight, first, True, PARTIAL, 0.0)
        self._blend(before, X.shape[0] if hasattr(X, "shape") else len(X))
        return self

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, reset: bool, warm: bool, passes: float, tol: float
    ) -> LinearRegressor:
        self._check_options()
        inputs.number("scale", self.scale, 0, math.inf, above=True)
        terms = inputs.penalty(self.penalty, self.alpha, self.l1_ratio)
        X, y = self._validate(X, y, reset=reset)
        target = np.ascontiguousarray(y, np.float64)
        weight, _ = inputs.row_weights(sample_weight, X)
        jobs = inputs.threads(self.n_jobs)
        problem = inputs.make_problem(X, target, weight, self.loss, self.scale, 1, self.fit_intercept, terms, jobs)
        solution = self._solve(problem, self._start(problem.shape, warm), passes, tol)
        self.coef_ = solution.x[0, :-1].astype(X.dtype)
        self.intercept_ = float(solution.x[0, -1])
        self._conclude([solution], tol, warn=tol > 0)
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The predicted target of every row."""
        return self._margins(X)


@cache
def _named(method: str) -> Method:
    return make(method)


def _default_schedule(method: Method) -> GrowingAnchor | None:
    """The schedule of `method` if it is "growing-svrg" with any options, for the default solver; else None."""
    schedule = method.schedule
    if not isinstance(schedule, GrowingAnchor):
        return None
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


def _signs(positive: npt.NDArray[Any]) -> Array:
    """1 for 1 or True, −1 for 0 or False."""
    signs: Array = positive * 2.0
    signs -= 1.0
    return signs


def _encoded(y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Array]:
    """The sorted classes, and the position of each row's class among them.

    Whole numbers are classes without a closer look, which takes long for many rows.
    """
    if y.dtype.kind not in "iub" or y.ndim != 1:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
    elif y.size:
        codes = np.empty(y.size)
        low, high = inputs.two_classes(y, codes)
        if low != high:
            return y[[low, high]], codes
    classes = np.unique(y)
    return classes, inputs.class_numbers(y, classes)
