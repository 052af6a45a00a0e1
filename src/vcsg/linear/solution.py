"""What a run leaves: an entry for every anchor, and the point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vcsg.linear.problem import Array


class HistoryEntry(NamedTuple):
    """What one anchor, or one evaluation of L-BFGS, saw."""

    stage: str
    """The method; or of the default solver "growing", "full" or "l-bfgs"."""
    rows: int
    """How many rows it took; all n make it exact."""
    objective: float
    gradient_norm: float
    """‖∇f‖ of the objective over these rows."""
    passes: float
    """Over all n rows, so far."""
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.stage:<8} rows={self.rows:<8} f={self.objective:.8g} ‖∇f‖={self.gradient_norm:.3g} "
            f"passes={self.passes:.2f} {self.seconds:.3f} s"
        )


@dataclass
class Solution:
    x: Array
    """One line per output: the weights, and the intercept last."""
    history: list[HistoryEntry]
    converged: bool
    message: str
