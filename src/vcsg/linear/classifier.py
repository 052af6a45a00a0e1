"""`LinearClassifier`: logistic regression and the like, with scikit-learn's conventions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.extmath import softmax
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from vcsg.linear import inputs
from vcsg.linear.blocks import BlockSource, blocks_of
from vcsg.linear.model import ALPHA, PARTIAL, LinearModel
from vcsg.linear.problem import Array, Penalty, Problem
from vcsg.method import Method


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
        class_weight: A dict from class to weight, or "balanced" for weights inversely proportional to the weight that
            the rows of each class have together; None weighs all classes alike.
        C: The inverse strength of the penalty as LogisticRegression has it, in place of alpha: alpha = 1/(C·n);
            infinity is no penalty.
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
        early_stopping: Whether to hold rows out and end when their loss falls no further, before `tol` is reached.
        validation_fraction: The share of the rows that `early_stopping` holds out.
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
        reads_: For rows that are read by blocks, how often all of them were read.
        solver_: What ran: a solver, several in order, or the method.
        certificate_: The ‖∇f‖² of the solution, measured over all rows (`vcsg.Certificate`); None where the fit ended
            above tol, or by another measure than ‖∇f‖ (`early_stopping`, quantiles).
        duality_gap_: With an L1 penalty (and for quantiles), f is at most this much above its minimum; else NaN.
        validation_losses_: With `early_stopping`, the mean loss of the held-out rows at every point in turn.

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
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
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
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> LinearClassifier:
        """Fit the model to rows X with classes y.

        Args:
            X: The rows: an array, a CSR matrix, a dataframe; or rows that are read by blocks (docs/linear.md): a large
                memory map, a Parquet or Arrow dataset, a function that yields (rows, y) blocks, a dask array or
                dataframe.
            y: The class of each row; for a dataset or dask dataframe the name of its column, None for a function.
            sample_weight: The weight of each row; for a dataset the name of its column.
            offset: A number for each row that is added to its aᵀw + c: for two classes, penalty="l2" or None, and
                rows in memory.
        """
        self._check_options()
        source = blocks_of(X, y, sample_weight)
        if source is not None:
            if offset is not None:
                raise ValueError("offset is for rows in memory: leave it out beside rows that are read by blocks")
            return self._fit_blocks(source)
        X, y = self._validate(X, y, reset=True)
        classes, codes = _encoded(y)
        if len(classes) < 2:
            raise ValueError(f"y has one class alone ({classes[0]!r}): a classifier needs at least two classes")
        weight, total = inputs.row_weights(sample_weight, X)
        warm = self.warm_start and hasattr(self, "classes_") and np.array_equal(classes, self.classes_)
        shift = inputs.row_offsets(offset, None, X.shape[0])
        if shift is not None and len(classes) > 2:
            raise ValueError(f"offset with {len(classes)} classes: it is for two")
        return self._fit(X, codes, classes, weight, total, warm, float(self.max_iter), self.tol, shift)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> LinearClassifier:
        """Fit these rows with a few passes from the current model, and average the solutions of all calls.

        Args:
            X: The rows.
            y: The class of each row.
            classes: All classes that any call will see; needed in the first call.
            sample_weight: The weight of each row.
        """
        self._check_options()
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight = 'balanced' in partial_fit, which sees some rows at a time: give a dict of weights, or "
                "sample_weight"
            )
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
        self, X: Any, codes: npt.NDArray[Any], classes: Any, weight: Array, total: float, warm: bool, passes: float,
        tol: float, shift: Array | None = None,
    ) -> LinearClassifier:  # fmt: skip
        jobs = inputs.threads(self.n_jobs)
        weight, total = self._weighted(codes, classes, weight, total)
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
            first = start[k * outputs : (k + 1) * outputs]
            if shift is None:
                solutions.append(self._solve(problem, first, passes, tol))
            else:
                solutions.append(self._solve_shifted(problem, shift, first, passes, tol))
        x = np.concatenate([solution.x for solution in solutions])
        if names == "multinomial":  # the same added to all classes changes nothing: of all solutions, the one about 0
            free = slice(None) if terms == Penalty() else slice(-1, None)
            x[:, free] -= x[:, free].mean(axis=0)
        self.classes_ = classes
        self.coef_ = np.array(x[:, :-1], X.dtype, order="C")
        self.intercept_ = x[:, -1].astype(X.dtype)
        self._conclude(solutions, tol, warn=tol > 0)
        return self

    def _fit_blocks(self, source: BlockSource) -> LinearClassifier:
        if self.class_weight is not None or self.C is not None:
            raise ValueError("class_weight and C are for rows in memory: give weights with the blocks, and alpha")
        terms = inputs.penalty(self.penalty, self.alpha, self.l1_ratio)
        solution, self.classes_ = self._solve_blocks(source, self.loss, 1.0, terms)
        x = solution.x
        if len(x) > 1:
            free = slice(None) if terms == Penalty() else slice(-1, None)
            x[:, free] -= x[:, free].mean(axis=0)
        self.coef_, self.intercept_ = np.ascontiguousarray(x[:, :-1]), x[:, -1].copy()
        self._conclude([solution], self.tol, warn=self.tol > 0)
        return self

    def _weighted(self, codes: npt.NDArray[Any], classes: Any, weight: Array, total: float) -> tuple[Array, float]:
        """The rows' weights times those of their classes, scaled to mean 1; and their sum before that."""
        if self.class_weight is None:
            return weight, total
        numbers = codes.astype(np.int64)
        weight = weight * inputs.class_weights(self.class_weight, classes, numbers, weight)[numbers]
        return inputs.scaled(weight), total * float(weight.mean())

    def _path_problem(self, X: Any, y: Any, sample_weight: Any) -> Problem:
        """The problem whose penalty a path varies; sets `classes_`."""
        self._check_options()
        X, y = self._validate(X, y, reset=True)
        self.classes_, codes = _encoded(y)
        inputs.check_finite(X, codes)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(f"y has one class alone ({self.classes_[0]!r}): a classifier needs at least two classes")
        if count > 2 and self.loss != "logistic":
            raise ValueError(f"loss = {self.loss!r} with {count} classes: a path of several has 'logistic' alone")
        weight, _ = self._weighted(codes, self.classes_, *inputs.row_weights(sample_weight, X))
        jobs = inputs.threads(self.n_jobs)
        if count > 2:
            return inputs.make_problem(X, codes, weight, "multinomial", 1.0, count, self.fit_intercept, Penalty(), jobs)
        return inputs.make_problem(X, _signs(codes), weight, self.loss, 1.0, 1, self.fit_intercept, Penalty(), jobs)

    def _alpha(self, total: float) -> float:
        """The weight of the penalty for a mean loss, where the sum of all weights is `total`."""
        if self.C is None:
            return self.alpha
        inputs.number("C", self.C, 0, math.inf, above=True, closed=True)
        if self.alpha != ALPHA:
            raise ValueError(f"alpha = {self.alpha!r} beside C = {self.C!r}: give one of them")
        return 1 / (self.C * total)

    def decision_function(self, X: Any, offset: Any = None) -> npt.NDArray[Any]:
        """The margins a_iᵀw + c + offset: one per row for two classes, one per row and class for more."""
        margins = self._margins(X)
        shift = inputs.row_offsets(offset, None, len(margins))
        if margins.shape[1] > 1:
            if shift is not None:
                raise ValueError(f"offset with {margins.shape[1]} classes: it is for two")
            return margins
        return margins[:, 0] if shift is None else margins[:, 0] + shift

    def predict(self, X: Any, offset: Any = None) -> npt.NDArray[Any]:
        """The most likely class of every row."""
        margins = self.decision_function(X, offset)
        chosen = (margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def _has_probabilities(self) -> bool:
        return self.loss == "logistic"

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, offset: Any = None) -> npt.NDArray[Any]:
        """The probability of every class, for each row; only with the logistic loss."""
        margins = self.decision_function(X, offset)
        both = np.column_stack([np.zeros_like(margins), margins]) if margins.ndim == 1 else margins
        return np.asarray(softmax(both, copy=True))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any, offset: Any = None) -> npt.NDArray[Any]:
        """The logarithm of `predict_proba`."""
        margins = self.decision_function(X, offset)
        both = np.column_stack([np.zeros_like(margins), margins]) if margins.ndim == 1 else margins
        return np.asarray(log_softmax(both, axis=1))


def _signs(positive: npt.NDArray[Any]) -> Array:
    """1 for 1 or True, −1 for 0 or False."""
    signs: Array = positive * 2.0
    signs -= 1.0
    return signs


def _encoded(y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The sorted classes, and the position of each row's class among them, as numbers or truth values.

    Two whole numbers are classes without a closer look, which takes long for many rows, and as long as a small fit.
    """
    if y.dtype.kind in "iubf" and y.ndim == 1 and y.size:
        found = inputs.two_classes(y)
        if found is not None and np.isfinite(found[0]).all() and (found[0] == np.floor(found[0])).all():
            return found
    if y.dtype.kind not in "iub" or y.ndim != 1:
        y = column_or_1d(y, warn=True)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
    classes = np.unique(y)
    return classes, inputs.class_numbers(y, classes)
