"""Checks a user's data and options and makes a `Problem` of them, for classifier and regressor alike."""

from __future__ import annotations

import math
import os
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils import compute_class_weight
from sklearn.utils.validation import _check_sample_weight, assert_all_finite

from vcsg.linear.kernels.losses import LOSSES
from vcsg.linear.kernels.rows import has_repeats
from vcsg.linear.problem import Array, Penalty, Problem

KEPT = 1 << 20
"""The most rows whose equal weights are kept for the next fit."""
PENALTIES = ("l2", "l1", "elasticnet", "rational", None)


def penalty(name: str | None, alpha: float, l1_ratio: float, positive: bool = False) -> Penalty:
    """alpha times ‖w‖²/2, ‖w‖₁, a mean of the two weighted by l1_ratio, Σw²/(1 + w²), or nothing."""
    if name not in PENALTIES:
        raise ValueError(f"penalty = {name!r}: choose one of {', '.join(map(repr, PENALTIES))}")
    number("alpha", alpha, 0, math.inf)
    number("l1_ratio", l1_ratio, 0, 1, closed=True)
    if name == "elasticnet":
        return Penalty(l1=alpha * l1_ratio, l2=alpha * (1 - l1_ratio), positive=positive)
    terms = {name: float(alpha)} if name else {}
    return Penalty(**terms, positive=positive)


def number(name: str, value: Any, low: float, high: float, closed: bool = False, above: bool = False) -> None:
    """Raise unless `value` is a number from low to high (`above`: not low itself; `closed`: high itself too)."""
    fits = isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) <= high
    if not fits or (above and value == low) or (not closed and value == high):
        bounds = f"{'above' if above else 'from'} {low:g}" + (f" to {high:g}" if closed else " on, finite")
        raise ValueError(f"{name} = {value!r}: give a number {bounds}")


def whole(name: str, value: Any, low: int) -> None:
    """Raise unless `value` is a whole number, at least `low`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
        raise ValueError(f"{name} = {value!r}: give a whole number, at least {low}")


def flags(**options: Any) -> None:
    """Raise unless every option is true or false: a word such as "False" would count as true."""
    for name, value in options.items():
        if not isinstance(value, bool | np.bool_) and not (isinstance(value, Integral) and value in (0, 1)):
            raise ValueError(f"{name} = {value!r}: give True or False")


def threads(n_jobs: int | None) -> int:
    """The number of threads: 1 for None, all processors this process may use for −1, all but one for −2."""
    if n_jobs is None:
        return 1
    if not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs = {n_jobs!r}: give a number of threads, or −1 for all")
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(n_jobs) if n_jobs > 0 else max(1, available + 1 + int(n_jobs))


def row_weights(sample_weight: Any, X: Any) -> tuple[Array, float]:
    """The rows' weights, scaled to mean 1, so that f is a weighted mean; and their sum before that."""
    if sample_weight is None:
        return equal_weights(X.shape[0]), float(X.shape[0])
    weight = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
    return scaled(weight), sum_of(weight)


def equal_weights(n: int) -> Array:
    """The weight 1 for each of n rows. The last array of moderate size is kept: new memory takes as long as a pass."""
    return _equal_weights(n) if n <= KEPT else np.ones(n)


@lru_cache(maxsize=1)
def _equal_weights(n: int) -> Array:
    weight = np.ones(n)
    weight.flags.writeable = False
    return weight


def row_offsets(offset: Any, exposure: Any, n: int) -> Array | None:
    """What is added to the margin of every row: the offset plus log(exposure); None for neither."""
    total = None
    for name, values in (("offset", offset), ("exposure", exposure)):
        if values is None:
            continue
        array = np.asarray(values, np.float64)
        if array.shape != (n,):
            raise ValueError(f"{name} has the shape {array.shape}: give a number for each of the {n} rows")
        if not np.isfinite(array).all() or (name == "exposure" and not (array > 0).all()):
            raise ValueError(f"{name} has entries that are not finite{' or not above 0' if name == 'exposure' else ''}")
        array = np.log(array) if name == "exposure" else array
        total = array if total is None else total + array
    return total


def counts(y: Array, power: float, weight: Array | None = None) -> None:
    """Raise unless the Tweedie loss of this power takes y: 0 and above, for the gamma distribution above 0."""
    least, words = float(y.min()), "above 0" if power == 2 else "0 or above, and not all 0"
    if not least >= 0 or (power == 2 and least == 0) or not y.any():
        raise ValueError(f"y goes from {least:g} to {y.max():g}: this loss takes numbers {words}")
    if weight is not None and not y[weight > 0].any():
        raise ValueError("y is 0 in all rows of a weight above 0, where this loss has no minimum: give others a weight")


def scaled(weight: Array) -> Array:
    """The weights scaled to mean 1."""
    largest = float(weight.max(initial=0.0))
    if not largest > 0:
        raise ValueError("all rows have the weight 0: give some row, or its class, a weight above 0")
    if not 1e-150 < largest < 1e150:
        weight = weight / largest
    return weight * (weight.size / float(weight.sum()))


def sum_of(weight: Array) -> float:
    """The sum of the weights; refused where it has no number."""
    with np.errstate(over="ignore"):
        total = float(weight.sum())
    if not total < math.inf:
        raise ValueError(f"weights up to {weight.max():g} have a sum that is too large for a number: scale them down")
    return total


def canonical(X: Any) -> Any:
    """X with repeated entries of sparse rows summed; the user's matrix is not changed.

    Sorting the entries of rows takes several times as long as a pass, and is not needed where none is repeated.
    """
    if not sparse.issparse(X) or X.has_canonical_format:
        return X
    if X.has_sorted_indices or has_repeats(X.indices, X.indptr, np.full(X.shape[1], -1, np.int32)):
        X = X.copy()
        X.sum_duplicates()
    return X


def class_numbers(y: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Array:
    """The position of each row's class among the sorted classes."""
    return np.searchsorted(classes, y).astype(np.float64)


def weighted_median(values: Array, weight: Array) -> float:
    """The least value for which those up to it have half of the weight."""
    order = np.argsort(values)
    sums = np.cumsum(weight[order])
    return float(values[order[int(np.searchsorted(sums, sums[-1] / 2))]])


def class_weights(given: Any, classes: npt.NDArray[Any], numbers: npt.NDArray[np.int64], weight: Array) -> Array:
    """The weight of each class, as a dict gives them, or inversely proportional to the weight of its rows."""
    if isinstance(given, str) and given == "balanced":
        sums = np.bincount(numbers, weight, len(classes))
        even = float(weight.sum()) / len(classes)
        return np.divide(even, sums, out=np.zeros(len(classes)), where=sums > 0)
    if not isinstance(given, dict):
        raise ValueError(f"class_weight = {given!r}: give a dict from class to weight, 'balanced' or None")
    for name, value in given.items():
        number(f"class_weight[{name!r}]", value, 0, math.inf)
    return np.asarray(compute_class_weight(given, classes=classes, y=classes[numbers]), np.float64)


def two_classes(y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]] | None:
    """If y has two classes, both in order, and which rows have the second; without sorting, which takes long."""
    first = y == y[0]
    other = y[int(first.argmin())]
    second = y == other
    if other == y[0] or np.count_nonzero(first) + np.count_nonzero(second) < y.size:
        return None
    low, high = sorted((y[0], other))
    return np.array([low, high], y.dtype), second if other == high else first


def explain_overflow(X: Any, y: npt.NDArray[Any], error: FloatingPointError) -> None:
    """Raise a ValueError that says why f is not finite: NaN or infinity in the data, or values that are too large."""
    for name, values in (("X", X), ("y", y)):
        data = values.data if sparse.issparse(values) else values
        if np.asarray(data).dtype.kind == "f":
            assert_all_finite(data, input_name=name)
    raise ValueError(
        f"the data are finite, but too large: {error}; scale the features, as "
        "sklearn.preprocessing.StandardScaler or MaxAbsScaler do"
    ) from error


def check_finite(X: Any, y: Array) -> None:
    """Raise where there is NaN or infinity."""
    assert_all_finite(X.data if sparse.issparse(X) else X, input_name="X")
    assert_all_finite(y, input_name="y")


def make_problem(
    X: Any, y: Array, weight: Array, loss: str, scale: float, outputs: int, intercept: bool, terms: Penalty, jobs: int
) -> Problem:
    """The problem that an estimator's data and options describe."""
    if X.shape[0] >= 2**32:
        raise ValueError(f"{X.shape[0]} rows: the compiled loops number them up to 2³² − 1; fit parts by partial_fit")
    return Problem(X, y, weight, LOSSES[loss], float(scale), outputs, 1.0 if intercept else 0.0, terms, jobs)
