"""The objective of a linear model: f(x) = (1/n)Σ w_i φ(a_iᵀx, y_i) + P(x), from rows, targets, weights, loss, penalty.

A `Problem` refers to the arrays it was given and does not copy them; `subset` copies rows.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from vcsg.linear.kernels import loops
from vcsg.linear.kernels.losses import Loss
from vcsg.linear.kernels.rows import NEAR, square_norms

Array = npt.NDArray[np.float64]

DENSE_FROM = 0.08
"""The share of non-zeros from which copied sparse rows are stored densely: a dense entry takes about a tenth of the
time of a sparse one."""
PER_THREAD = 4096
"""The smallest number of rows for which a thread of its own pays."""


@dataclass(frozen=True)
class Penalty:
    """l1·Σ|w| + l2·Σw²/2 + rational·Σw²/(1 + w²), over all weights but the intercepts; and whether these may be < 0."""

    l1: float = 0.0
    l2: float = 0.0
    rational: float = 0.0
    positive: bool = False
    """Whether all weights but the intercepts are bounded to be 0 or above."""

    def add_to(self, gradient: Array, x: Array) -> float:
        """Return the value at x, and add the gradient of the smooth part to `gradient`."""
        return float(loops.add_penalty(gradient, x, *self.terms))

    def gradient(self, x: Array) -> Array:
        """The gradient of the smooth part at x; the L1 term is left out."""
        gradient = np.zeros(x.shape)
        self.add_to(gradient, x)
        return gradient

    @property
    def terms(self) -> tuple[float, float, float]:
        """l1, l2 and rational, as the compiled loops take them."""
        return self.l1, self.l2, self.rational

    def times(self, factor: float) -> Penalty:
        """The penalty with every weight multiplied by a factor."""
        return Penalty(factor * self.l1, factor * self.l2, factor * self.rational, self.positive)

    @property
    def curvature(self) -> float:
        """A bound on the second derivative of the smooth part in each coordinate."""
        return self.l2 + 2 * self.rational


class PassResult(NamedTuple):
    """f, its gradient and the slope of every row at one point, from one pass over some or all rows."""

    value: float
    """f, as the mean over these rows plus the penalty."""
    norm: float
    """‖∇f‖ for these rows; with an L1 penalty the norm of the subgradient of least norm."""
    smooth: Array
    """The gradient of f's smooth part."""
    gradient: Array
    """The gradient of the mean loss, without the penalty."""
    kept: Array
    """w_i φ'_i for every row; empty where a pass has not kept them."""

    def level_with(self, other: PassResult) -> bool:
        """Whether the values of f agree up to what rounding may do to them."""
        return abs(self.value - other.value) <= 1e-12 * abs(other.value)

    def below(self, other: PassResult, change: float = 0.0) -> bool:
        """Whether f ≤ other's f + `change`; where the two values agree up to rounding, whether ‖∇f‖ is smaller."""
        return self.norm < other.norm if self.level_with(other) else self.value <= other.value + change


@dataclass(frozen=True)
class Problem:
    """A linear model's objective over given rows."""

    rows: Any
    """A C-ordered array, or a CSR matrix."""
    y: Array
    weight: Array
    """The weight of each row; their mean is 1."""
    loss: Loss
    scale: float = 1.0
    """The scale σ of the losses that have one."""
    outputs: int = 1
    bias: float = 1.0
    """The value of the intercept's feature; 0 for no intercept."""
    penalty: Penalty = field(default_factory=Penalty)
    threads: int = 1
    fixed: bool = False
    """Whether the last feature is an offset of the margins: its coefficient stays 1, and is not penalised."""

    @cached_property
    def n(self) -> int:
        return int(self.rows.shape[0])

    @cached_property
    def d(self) -> int:
        return int(self.rows.shape[1])

    @cached_property
    def sparse(self) -> bool:
        return bool(sparse.issparse(self.rows))

    @cached_property
    def smooth(self) -> bool:
        """Whether f is convex and has a Hessian almost everywhere: no L1 penalty, bound, bounded loss or penalty."""
        rough = self.penalty.l1 or self.penalty.rational or self.penalty.positive
        return self.loss.convex and not self.loss.kinked and not rough

    @cached_property
    def shape(self) -> tuple[int, int]:
        """The shape of a point: a line per output; a column per feature, and a last one for the intercept."""
        return self.outputs, self.d + 1

    @cached_property
    def parts(self) -> tuple[Any, ...]:
        """The rows as the compiled loops take them."""
        if not self.sparse:
            return (readable(self.rows),)
        starts = self.rows.indptr.astype(np.int64, copy=False)
        found = map(np.ascontiguousarray, (self.rows.data, self.rows.indices, starts))  # loops go by addresses
        return tuple(map(readable, found))

    @cached_property
    def model(self) -> tuple[Any, ...]:
        """The first arguments of every compiled loop."""
        return self.parts, readable(self.y), readable(self.weight), self.loss.code, self.scale, self.bias

    @cached_property
    def far(self) -> bool:
        """Whether rows are dense and too many for a cache, so that each of them is read beside x."""
        return not self.sparse and int(self.rows.nbytes) > NEAR

    @cached_property
    def shares(self) -> Array:
        """The weight of each row in the mean, w_i/n."""
        return self.weight / self.n

    @cached_property
    def has_unused_rows(self) -> bool:
        """Whether some row has the weight 0."""
        return not self.weight.all()

    def anchor(
        self, x: Array, lo: int = 0, hi: int | None = None, keep: bool = True, parts: int = 1
    ) -> PassResult:  # fmt: skip
        """Evaluate f at x in one pass over the rows lo to hi (all of them by default), with up to `threads` threads.

        With several `parts`, these are the rows lo to hi of each of so many equal parts of all rows, and `rows_in` says
        how many. The slopes of rows are left out unless they are to be kept: new memory for them can take half as long
        as a pass.
        """
        hi, x = self.n // parts if hi is None else hi, np.ascontiguousarray(x, np.float64)  # loops go by addresses
        x = aligned(x) if self.far else x
        kept = np.empty((self.n if keep else 0, self.outputs))
        smooth, gradient = np.empty(self.shape), np.empty(self.shape)
        workers, terms = min(self.threads, parts * (hi - lo) // PER_THREAD), self.penalty.terms
        evaluate = loops.evaluate if self.outputs == 1 else loops.evaluate_classes
        if workers <= 1:
            value, norm = evaluate(*self.model, x, lo, hi, parts, kept, gradient, smooth, *terms)
            return self._bounded(PassResult(value, norm, smooth, gradient, kept), x)
        gradients, ends = np.empty((workers, *self.shape)), [lo + (hi - lo) * i // workers for i in range(workers + 1)]

        def part(i: int) -> float:
            low, high = ends[i], ends[i + 1]
            room = np.empty(self.shape)
            value, _ = evaluate(*self.model, x, low, high, parts, kept, gradients[i], room, 0.0, 0.0, 0.0)
            share = self.rows_in(low, high, parts) / self.rows_in(lo, hi, parts)
            gradients[i] *= share
            return float(value) * share

        with ThreadPoolExecutor(workers) as pool:
            loss = sum(pool.map(part, range(workers)))
        gradients.sum(0, out=gradient)
        value, norm = loops.join_parts(loss, x, gradient, smooth, *terms)
        return self._bounded(PassResult(value, norm, smooth, gradient, kept), x)

    def rows_in(self, lo: int, hi: int, parts: int) -> int:
        """How many the rows lo to hi of each of so many equal parts are; what is left of all rows joins the last."""
        length = self.n // parts
        return parts * (hi - lo) + (self.n - parts * length if hi == length else 0)

    def _bounded(self, found: PassResult, x: Array) -> PassResult:
        """The result with ‖∇f‖ for weights that are bounded or fixed, where they are."""
        if self.fixed:
            return self._without_last(found, x)
        if not self.penalty.positive:
            return found
        slope = violation(found.smooth[:, :-1], x[:, :-1], self.penalty.l1, positive=True)
        return found._replace(norm=float(np.sqrt((slope**2).sum() + (found.smooth[:, -1] ** 2).sum())))

    def _without_last(self, found: PassResult, x: Array) -> PassResult:
        """The result for all coefficients but that of the last feature: its slope is 0, so that nothing moves it."""
        found.smooth[:, -2] = 0.0
        value = found.value - self.penalty.l2 / 2 * float((x[:, -2] ** 2).sum())
        return found._replace(value=value, norm=float(np.linalg.norm(found.smooth)))

    def objective(self, x: Array) -> tuple[float, Array]:
        """Return f and the gradient of its smooth part."""
        found = self.anchor(x)
        return found.value, found.smooth

    @cached_property
    def norms(self) -> Array:
        """‖a_i‖² + bias² for every row."""
        sums = np.empty(self.n)
        square_norms(self.parts, self.n, self.d, self.bias, sums)
        return sums

    def L(self) -> float:
        """A smoothness constant that holds for every f_i: κ·max_i w_i(‖a_i‖² + bias²) plus the penalty's."""
        if not self.loss.bounded:
            raise ValueError(
                "this loss has no bound on its curvature, so there is no step size that suits every row: choose "
                "solver='auto' and leave method as it is"
            )
        return self.loss.curvature * float((self.weight * self.norms).max()) + self.penalty.curvature

    def merged(self) -> Problem:
        """The same f with every row once, in sorted order: equal rows of equal target become one of their joint weight.

        Rows of weight 0 are left out. So weights and repeated rows give one and the same problem, whatever solves it.
        """
        dense = self.rows.toarray() if self.sparse else self.rows
        table, weight = np.column_stack([dense, self.y]), self.weight
        if self.has_unused_rows:
            table, weight = table[weight > 0], weight[weight > 0]
        table, weight = distinct(table, weight)
        rows, y = np.ascontiguousarray(table[:, :-1], dense.dtype), np.ascontiguousarray(table[:, -1], np.float64)
        weight *= len(y) / self.n
        return replace(self, rows=sparse.csr_matrix(rows) if self.sparse else rows, y=y, weight=weight)

    def with_penalty(self, penalty: Penalty) -> Problem:
        """The same problem with another penalty; what has been found about the rows is kept."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, penalty=penalty)
        other.__dict__.pop("smooth", None)  # the one thing that depends on the penalty
        return other

    def with_offset(self, offset: Array) -> Problem:
        """The problem whose margins have an offset, as a last feature (a copy of the rows)."""
        column = offset[:, None].astype(self.rows.dtype)
        rows = sparse.hstack([self.rows, column], format="csr") if self.sparse else np.hstack([self.rows, column])
        return replace(self, rows=rows, fixed=True)

    def subset(self, index: npt.NDArray[Any]) -> Problem:
        """The same problem for some of its rows, copied; sparse rows become dense where that is faster."""
        taken = not self.sparse and isinstance(index, np.ndarray)
        rows = self.rows.take(index, axis=0) if taken else self.rows[index]
        if self.sparse and rows.nnz >= DENSE_FROM * rows.shape[0] * rows.shape[1]:
            rows = rows.toarray()
        return replace(self, rows=rows, y=self.y[index], weight=self.weight[index])

    def first_rows(self, size: int) -> Problem:
        """The same problem for its first rows, which are not copied."""
        rows = self.rows[:size] if not self.sparse else self._first_sparse_rows(size)
        return replace(self, rows=rows, y=self.y[:size], weight=self.weight[:size])

    def _first_sparse_rows(self, size: int) -> Any:
        whole = self.rows
        end, ordered = whole.indptr[size], whole.has_sorted_indices
        rows = sparse.csr_matrix((whole.data[:end], whole.indices[:end], whole.indptr[: size + 1]), (size, self.d))
        rows.has_sorted_indices = ordered
        return rows


def distinct(table: Array, weight: Array) -> tuple[Array, Array]:
    """The lines of a table in sorted order, each once, and the sums of the weights of equal lines."""
    order = np.argsort(table[:, 0])
    if (np.diff(table[order, 0]) > 0).all():  # the first column tells all lines apart
        return table[order], weight[order]
    lines, place = np.unique(table, axis=0, return_inverse=True)
    return lines, np.asarray(np.bincount(place.reshape(-1), weight, len(lines)), np.float64)


def violation(slope: Array, w: Array, l1: float, positive: bool = False) -> Array:
    """The subgradient of least norm of a smooth function with this slope plus l1·|w|; with `positive`, for w ≥ 0."""
    if positive:
        return np.where(w == 0, np.minimum(slope + l1, 0.0), slope + l1)
    still = np.sign(slope) * np.maximum(np.abs(slope) - l1, 0.0)
    return np.where(w == 0, still, slope + l1 * np.sign(w))


def aligned(x: Array) -> Array:
    """A copy of x that begins with a line of the cache, so that eight numbers do not lie in two of them."""
    room = np.empty(x.size + 7)
    first = -room.__array_interface__["data"][0] // 8 % 8
    copy: Array = room[first : first + x.size].reshape(x.shape)
    copy[...] = x
    return copy


def readable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array itself, or where it may not be written to a view that says it may: loops that only read are compiled
    once for both.
    """
    if array.flags.writeable:
        return array
    return np.asarray(_ReadableView(array))


class _ReadableView:
    """The memory of an array, described as writeable."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array  # alive as long as the view is
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def variance(anchor: PassResult, norms: Array, n: int) -> float:
    """An unbiased estimate of the variance S* of single gradients, from an anchor of B of n rows; NaN for B = 1.

    It is exact for B = n. As ∇f_i = φ'_i·a_i, it takes only the slopes and the norms of the rows.
    """
    B = len(norms)
    if B < 2:
        return float("nan")
    with np.errstate(over="ignore", invalid="ignore"):  # far from the minimum, which the norm tells
        squares = np.einsum("ik,ik->i", anchor.kept[:B], anchor.kept[:B])
        spread = float(squares @ norms) / B - float((anchor.gradient**2).sum())
    return max(0.0, spread) * B / (B - 1) * (n - 1) / n
