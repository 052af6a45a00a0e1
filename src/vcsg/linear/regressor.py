"""`LinearRegressor`: least squares, robust, quantile and generalised linear regression, as scikit-learn has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d

from vcsg.linear import inputs
from vcsg.linear.blocks import BlockSource, blocks_of
from vcsg.linear.model import ALPHA, PARTIAL, LinearModel
from vcsg.linear.problem import Array, Penalty, Problem
from vcsg.method import Method

POWERS = {"poisson": 1.0, "gamma": 2.0, "tweedie": None}
"""The losses with a mean of exp(aᵀw + c), and the power of that mean which is their variance; None for `power`."""

ROBUST = ("huber", "geman-mcclure", "welsch")
"""The losses that resist outliers."""


class LinearRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """A linear regression with scikit-learn's interface, fast for many rows, with losses that resist outliers.

    It minimises f(w, c) = (1/n)Σ w_i φ(a_iᵀw + c, y_i) + alpha·P(w) over coefficients w and an intercept c, where a_i
    is a row, w_i its weight (scaled to mean 1), φ the loss and P the penalty. Ridge(alpha=A) is the same model as
    LinearRegressor(alpha=A/n), Lasso(alpha=A) the same as LinearRegressor(penalty="l1", alpha=A), PoissonRegressor the
    same as LinearRegressor("poisson"), and QuantileRegressor as LinearRegressor("quantile", penalty="l1").

    Args:
        loss: The loss φ: "squared"; "huber", which grows linearly for large residuals; or "geman-mcclure" or "welsch",
            which are bounded and not convex, so that far outliers have no influence; "quantile", for a quantile of y in
            place of its mean; or half the deviance of "poisson", "gamma" or "tweedie", for targets of 0 and above with
            the mean exp(aᵀw + c), whose variance is that mean to the power 1, 2 or `power`.
        scale: The size σ of a residual above which "huber", "geman-mcclure" and "welsch" treat it as large.
        penalty: The penalty P: "l2" is ‖w‖²/2; "l1" is ‖w‖₁; "elasticnet" is l1_ratio·‖w‖₁ + (1 − l1_ratio)·‖w‖²/2;
            "rational" is the non-convex Σw²/(1 + w²); None is no penalty. The intercept is never penalised.
        alpha: The weight of the penalty; larger values keep the coefficients smaller.
        l1_ratio: The share of the L1 term in "elasticnet", from 0 to 1.
        fit_intercept: Whether to fit an intercept c.
        power: The power of "tweedie", from 1 to 2.
        quantile: The level of "quantile", between 0 and 1: 0.5 is the median.
        positive: Whether all coefficients are 0 or above; the intercept may have either sign.
        tol: The fit ends at the first point where ‖∇f‖ ≤ tol, measured over all rows; for "quantile", where f is at
            most tol above its minimum (the duality gap), and at most a thousandth of f; small data go on further.
        max_iter: The largest number of passes over the data. Where they do not suffice, a ConvergenceWarning says so.
        solver: How f is minimised: "newton" takes steps with the Hessian of all rows; "l-bfgs" begins with the gradient
            of all rows; "growing-svrg" begins with stochastic steps on a growing part of the rows and lets L-BFGS
            finish where that is faster; "working-set" solves for few columns at a time, for the L1 penalty and for
            `positive`; "interior-point" is for "quantile". "auto" takes what is fastest for data of this shape.
        method: The name of any other method of `vcsg.methods()`, or a `vcsg.Method`, runs that method in place of a
            solver; "vcsg" and "scsg" take tol² as their target ε. "growing-svrg" leaves the choice to `solver`.
        warm_start: Whether a fit begins at the solution of the fit before.
        early_stopping: Whether to hold rows out and end when their loss falls no further, before `tol` is reached.
        validation_fraction: The share of the rows that `early_stopping` holds out.
        random_state: The seed of the order in which rows are taken: a number gives the same result every time.
        n_jobs: The number of threads that share each pass over all rows; −1 is one for every processor, None is one.
            The steps between passes use one thread.
        verbose: Print nothing (0) or a line for every entry of `history_` (1).

    Attributes:
        coef_: The coefficients, in the floating-point type of X; for a y of several columns, a line for each.
        intercept_: The intercept, or those of all columns of y.
        n_features_in_: The number of features.
        n_iter_: The number of passes over the data that the fit took, rounded up.
        history_: A `HistoryEntry` for every evaluation: stage, rows, objective, gradient norm, passes, seconds.
        reads_: For rows that are read by blocks, how often all of them were read.
        solver_: What ran: a solver, several in order, or the method.
        certificate_: The ‖∇f‖² of the solution, measured over all rows (`vcsg.Certificate`); None where the fit ended
            above tol, or by another measure than ‖∇f‖ (`early_stopping`, quantiles).
        duality_gap_: With an L1 penalty (and for quantiles), f is at most this much above its minimum; else NaN.
        validation_losses_: With `early_stopping`, the mean loss of the held-out rows at every point in turn.

    Example:
        >>> import numpy as np
        >>> X = np.arange(20.0)[:, None]
        >>> y = 3 * X[:, 0] + 1
        >>> y[4] = 1000.0
        >>> LinearRegressor("welsch", penalty=None, tol=1e-8).fit(X, y).coef_.round(3).tolist()
        [3.0]
    """

    losses: tuple[str, ...] = ("squared", "huber", "geman-mcclure", "welsch", "quantile", "poisson", "gamma", "tweedie")

    def __init__(
        self,
        loss: str = "squared",
        *,
        scale: float = 1.35,
        penalty: str | None = "l2",
        alpha: float = ALPHA,
        l1_ratio: float = 0.15,
        fit_intercept: bool = True,
        power: float = 1.5,
        quantile: float = 0.5,
        positive: bool = False,
        tol: float = 1e-4,
        max_iter: int = 1000,
        solver: str = "auto",
        method: str | Method = "growing-svrg",
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
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
        self.power = power
        self.quantile = quantile
        self.positive = positive
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.method = method
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss in POWERS
        # scikit-learn's check of several targets takes any numbers, which these losses refuse.
        tags.target_tags.multi_output = self.loss not in POWERS
        return tags

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, exposure: Any = None
    ) -> LinearRegressor:
        """Fit the model to rows X with targets y.

        Args:
            X: The rows: an array, a CSR matrix, a dataframe; or rows that are read by blocks (docs/linear.md): a large
                memory map, a Parquet or Arrow dataset, a function that yields (rows, y) blocks, a dask array or
                dataframe.
            y: The targets: a number for each row, or a line of several, each of which is fitted by itself; for a
                dataset or dask dataframe the name of a column, None for a function.
            sample_weight: The weight of each row; for a dataset the name of its column.
            offset: A number for each row that is added to its aᵀw + c.
            exposure: How much time, area or people stand behind each row's count, for "poisson", "gamma" and
                "tweedie": the mean is exposure·exp(aᵀw + c), which is offset = log(exposure).
        """
        source = blocks_of(X, y, sample_weight)
        if source is not None:
            return self._fit_blocks(source, offset, exposure)
        return self._fit(X, y, sample_weight, offset, exposure, True, self.warm_start, float(self.max_iter), self.tol)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearRegressor:
        """Fit these rows with a few passes from the current model, and average the solutions of all calls."""
        first = not hasattr(self, "coef_")
        before = None if first else (self.coef_, self.intercept_)
        self._fit(X, y, sample_weight, None, None, first, True, PARTIAL, 0.0)
        self._blend(before, X.shape[0] if hasattr(X, "shape") else len(X))
        return self

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, offset: Any, exposure: Any, reset: bool, warm: bool, passes: float,
        tol: float,
    ) -> LinearRegressor:  # fmt: skip
        self._check_options()
        terms = inputs.penalty(self.penalty, self.alpha, self.l1_ratio, bool(self.positive))
        scale = self._scale(exposure)
        X, y = self._validate(X, y, reset=reset)
        if self.loss in POWERS and y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)  # as scikit-learn asks of estimators without the tag of several targets
        targets = np.ascontiguousarray(np.atleast_2d(np.asarray(y, np.float64).T))
        weight, _ = inputs.row_weights(sample_weight, X)
        shift = inputs.row_offsets(offset, exposure, X.shape[0])
        start, jobs = self._start((len(targets), X.shape[1] + 1), warm), inputs.threads(self.n_jobs)
        solutions = []
        for k, target in enumerate(targets):
            part, share = self._shifted(target, weight, shift)
            first = start[k : k + 1]
            if not first.any():
                first = self._level(first, part, share)
            if terms.positive:
                first[:, :-1] = np.maximum(first[:, :-1], 0.0)
            problem = inputs.make_problem(X, part, share, self._engine, scale, 1, self.fit_intercept, terms, jobs)
            solutions.append(self._solve(problem, first, passes, tol))
        x = np.concatenate([solution.x for solution in solutions])
        self.coef_ = x[:, :-1].astype(X.dtype) if y.ndim == 2 else x[0, :-1].astype(X.dtype)
        self.intercept_ = x[:, -1].astype(X.dtype) if y.ndim == 2 else float(x[0, -1])
        self._conclude(solutions, tol, warn=tol > 0)
        return self

    def _fit_blocks(self, source: BlockSource, offset: Any, exposure: Any) -> LinearRegressor:
        self._check_options()
        if offset is not None or exposure is not None:
            raise ValueError("offset and exposure are for rows in memory: give rates and weights with the blocks")
        terms = inputs.penalty(self.penalty, self.alpha, self.l1_ratio, bool(self.positive))
        solution, _ = self._solve_blocks(source, self._engine, self._scale(None), terms)
        self.coef_, self.intercept_ = solution.x[0, :-1].copy(), float(solution.x[0, -1])
        self._conclude([solution], self.tol, warn=self.tol > 0)
        return self

    def _path_problem(self, X: Any, y: Any, sample_weight: Any) -> Problem:
        """The problem whose penalty a path varies."""
        self._check_options()
        if self.loss == "quantile":
            raise ValueError("loss = 'quantile': its solutions are not found along a path; fit one weight at a time")
        scale = self._scale(None)
        X, y = self._validate(X, y, reset=True)
        target = np.ascontiguousarray(y if y.ndim == 1 else column_or_1d(y, warn=True), np.float64)
        inputs.check_finite(X, target)
        weight, _ = inputs.row_weights(sample_weight, X)
        target, weight = self._shifted(target, weight, None)
        terms, jobs = Penalty(positive=bool(self.positive)), inputs.threads(self.n_jobs)
        return inputs.make_problem(X, target, weight, self._engine, scale, 1, self.fit_intercept, terms, jobs)

    @property
    def _engine(self) -> str:
        """The loss as the compiled loops name it."""
        return "tweedie" if self.loss in POWERS else self.loss

    def _scale(self, exposure: Any) -> float:
        """The number that the loss depends on: σ, the level of a quantile, or the power of a variance."""
        if self.penalty == "rational" and (self.loss in POWERS or self.loss == "quantile"):
            raise ValueError(
                f"penalty = 'rational' beside loss = {self.loss!r}: choose 'l2', 'l1', 'elasticnet' or None"
            )
        inputs.number("scale", self.scale, 0, math.inf, above=True)
        inputs.number("quantile", self.quantile, 0, 1, closed=True, above=True)
        inputs.number("power", self.power, 1, 2, closed=True)
        if self.quantile == 1:
            raise ValueError("quantile = 1: give a level below 1")
        if exposure is not None and self.loss not in POWERS:
            raise ValueError(
                f"exposure beside loss = {self.loss!r}: it is for {', '.join(map(repr, POWERS))}; give offset"
            )
        if self.loss == "quantile":
            return float(self.quantile)
        return float((POWERS[self.loss] or self.power) if self.loss in POWERS else self.scale)

    def _shifted(self, target: Array, weight: Array, shift: Array | None) -> tuple[Array, Array]:
        """Targets and weights for which aᵀw + c alone gives the loss that aᵀw + c + offset has.

        A residual is that of y − offset. With a mean of exp(z + o) a Tweedie loss of the power p is e^{(2−p)o} times
        that of y/e^o, whose mean is exp(z): rates in place of counts.
        """
        if self.loss in POWERS:
            inputs.counts(target, POWERS[self.loss] or self.power, weight)
        if shift is None:
            return target, weight
        if self.loss not in POWERS:
            return target - shift, weight
        power = POWERS[self.loss] or self.power
        return target * np.exp(-shift), weight * np.exp((2 - power) * shift)

    def _level(self, start: Array, target: Array, weight: Array) -> Array:
        """The start with an intercept at which the loss is curved: the mean of y, or its median for robust losses.

        Far from y Huber's loss is a line and the bounded ones are flat, so that nothing would lead there.
        """
        start = start.copy()
        if not self.fit_intercept:
            return start
        if self.loss in POWERS:
            start[0, -1] = math.log(float(weight @ target) / float(weight.sum()))
        elif self.loss in ROBUST:
            start[0, -1] = inputs.weighted_median(target, weight)
        return start

    def predict(self, X: Any, offset: Any = None, exposure: Any = None) -> npt.NDArray[Any]:
        """The predicted target of every row: its mean, or its quantile; with what `fit` says of offset and exposure."""
        margins = self._margins(X)
        shift = inputs.row_offsets(offset, exposure, len(margins))
        if shift is not None:
            margins = margins + (shift if margins.ndim == 1 else shift[:, None])
        return np.asarray(np.exp(margins)) if self.loss in POWERS else margins
