"""The result of a fit: the point, and an entry for every evaluation that was recorded on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vcsg.linear.problem import Array


class HistoryEntry(NamedTuple):
    """One evaluation of f and ∇f: at an anchor, by L-BFGS or by Newton's method."""

    stage: str
    """The name of the method, or the default solver's stage: "growing", "full", "l-bfgs" or "newton"."""
    rows: int
    """The number of rows that were evaluated; with all n of them f and ∇f are exact."""
    objective: float
    gradient_norm: float
    """‖∇f‖ of the objective over these rows."""
    passes: float
    """Passes over all n rows up to here; a row evaluated at one point counts 1/n."""
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.stage:<8} rows={self.rows:<8} f={self.objective:.8g} ‖∇f‖={self.gradient_norm:.3g} "
            f"passes={self.passes:.2f} {self.seconds:.3f} s"
        )


@dataclass
class Solution:
    """The point a solver found, and how it got there."""

    x: Array
    """One line per output: the weights, and the intercept last."""
    history: list[HistoryEntry]
    converged: bool
    message: str
