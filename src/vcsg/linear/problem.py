"""The problem that is solved: rows, targets, weights, a loss and a penalty; f(x) = (1/n)Σ w_i φ(a_iᵀx, y_i) + P(x).

Data stay where they are: a `Problem` refers to the arrays it was given. `subset` copies rows.
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
from vcsg.linear.kernels.rows import square_norms

Array = npt.NDArray[np.float64]

DENSE_FROM = 0.08
"""Sparse rows that are copied become dense from this share of non-zeros on: a dense entry takes about a tenth of the
time of a sparse one."""
PER_THREAD = 4096
"""The fewest rows that are worth a thread."""


@dataclass(frozen=True)
class Penalty:
    """l1·Σ|w| + l2·Σw²/2 + rational·Σw²/(1 + w²), over all weights but the intercepts."""

    l1: float = 0.0
    l2: float = 0.0
    rational: float = 0.0

    def add_to(self, gradient: Array, x: Array) -> float:
        """The value at x; the gradient of the smooth part is added to `gradient`."""
        return float(loops.add_penalty(gradient, x, *self.terms))

    def gradient(self, x: Array) -> Array:
        """Of the smooth part."""
        gradient = np.zeros(x.shape)
        self.add_to(gradient, x)
        return gradient

    @property
    def terms(self) -> tuple[float, float, float]:
        return self.l1, self.l2, self.rational

    @property
    def curvature(self) -> float:
        return self.l2 + 2 * self.rational


class PassResult(NamedTuple):
    """What a pass over rows tells at a point."""

    value: float
    """f over these rows."""
    norm: float
    """‖∇f‖ over them; with an L1 part that of the subgradient of least norm."""
    smooth: Array
    """The gradient of f's smooth part."""
    gradient: Array
    """Of the mean loss, without the penalty."""
    kept: Array
    """w_i φ'_i of every row."""

    def below(self, other: PassResult, change: float) -> bool:
        """Whether f is lower by its share, a `change` ≤ 0, or where rounding hides that, ‖∇f‖."""
        if abs(self.value - other.value) <= 1e-12 * abs(other.value):
            return self.norm < other.norm
        return self.value <= other.value + change


@dataclass(frozen=True)
class Problem:
    rows: Any
    """A C-ordered array, or a CSR matrix."""
    y: Array
    weight: Array
    """Of mean 1."""
    loss: Loss
    scale: float = 1.0
    """σ of the losses that have one."""
    outputs: int = 1
    bias: float = 1.0
    """The feature of the intercept; 0 for none."""
    penalty: Penalty = field(default_factory=Penalty)
    threads: int = 1

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
    def shape(self) -> tuple[int, int]:
        """Of a point: a line per output, a column per feature and one for the intercept."""
        return self.outputs, self.d + 1

    @cached_property
    def parts(self) -> tuple[Any, ...]:
        """The rows as the compiled loops take them."""
        if not self.sparse:
            return (self.rows,)
        return self.rows.data, self.rows.indices, self.rows.indptr.astype(np.int64, copy=False)

    @cached_property
    def model(self) -> tuple[Any, ...]:
        """The first arguments of every compiled loop."""
        return self.parts, self.y, self.weight, self.loss.code, self.scale, self.bias

    def anchor(self, x: Array, lo: int = 0, hi: int | None = None) -> PassResult:
        """One pass over the rows lo to hi (all of them by default), by as many threads as asked for."""
        hi = self.n if hi is None else hi
        kept, smooth, gradient = np.empty((self.n, self.outputs)), np.empty(self.shape), np.empty(self.shape)
        workers, terms = min(self.threads, (hi - lo) // PER_THREAD), self.penalty.terms
        if workers <= 1:
            value, norm = loops.evaluate(*self.model, x, lo, hi, kept, gradient, smooth, *terms)
            return PassResult(value, norm, smooth, gradient, kept)
        gradients = np.zeros((workers, *self.shape))

        def part(i: int) -> float:
            low, high = (lo + (hi - lo) * end // workers for end in (i, i + 1))
            return float(loops.anchor(*self.model, x, low, high, kept, gradients[i]))

        with ThreadPoolExecutor(workers) as pool:
            loss = sum(pool.map(part, range(workers)))
        gradients.sum(0, out=gradient)
        value, norm = loops.conclude(loss, hi - lo, x, gradient, smooth, *terms)
        return PassResult(value, norm, smooth, gradient, kept)

    def objective(self, x: Array) -> tuple[float, Array]:
        """f and the gradient of its smooth part."""
        found = self.anchor(x)
        return found.value, found.smooth

    def norms(self) -> Array:
        """‖a_i‖² + bias² of every row."""
        sums = np.empty(self.n)
        square_norms(self.parts, self.n, self.d, self.bias, sums)
        return sums

    def L(self) -> float:
        """The smoothness constant of every f_i, κ·max_i w_i(‖a_i‖² + bias²) + that of the penalty."""
        return self.loss.curvature * float((self.weight * self.norms()).max()) + self.penalty.curvature

    def subset(self, index: npt.NDArray[Any]) -> Problem:
        """The problem of some rows, copied; sparse rows become dense where that is faster."""
        taken = not self.sparse and isinstance(index, np.ndarray)
        rows = self.rows.take(index, axis=0) if taken else self.rows[index]
        if self.sparse and rows.nnz >= DENSE_FROM * rows.shape[0] * rows.shape[1]:
            rows = rows.toarray()
        return replace(self, rows=rows, y=self.y[index], weight=self.weight[index])


def variance(anchor: PassResult, norms: Array, n: int) -> float:
    """S* from an anchor of the first B of its rows, of n in all, unbiased, exact for B = n; NaN for B = 1.

    With ∇f_i = φ'_i·a_i it takes the slopes and the norms of the rows alone.
    """
    B = len(norms)
    if B < 2:
        return float("nan")
    return float(loops.spread(anchor.kept, norms, anchor.gradient)) * B / (B - 1) * (n - 1) / n
