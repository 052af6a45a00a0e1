"""The result of a fit: the point, and an entry for every evaluation that was recorded on the way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from vcsg.linear.problem import Array, PassResult


class HistoryEntry(NamedTuple):
    """One evaluation of f and ∇f: at an anchor, by L-BFGS, Newton's method or coordinate descent."""

    stage: str
    """The name of the method, or the stage of a solver: "start", "growing", "full", "l-bfgs", "newton", …"""
    rows: int
    """The number of rows that were evaluated; with all n of them f and ∇f are exact. 0 where f and ∇f follow from the
    second moments of all rows, exact but for the rounding of these."""
    objective: float
    gradient_norm: float
    """‖∇f‖ of the objective over these rows."""
    passes: float
    """Passes over all n rows up to here; a row evaluated at one point counts 1/n, a line of second moments 1/d."""
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.stage:<8} rows={self.rows:<8} f={self.objective:.8g} ‖∇f‖={self.gradient_norm:.3g} "
            f"passes={self.passes:.2f} {self.seconds:.3f} s"
        )


@dataclass
class Journal:
    """The history of a fit while it runs: what was evaluated, the passes used so far, and how many there may be."""

    budget: float
    """The largest number of passes over all rows."""
    report: Callable[[HistoryEntry], None] = lambda _: None
    """Called with every entry."""
    passes: float = 0.0
    history: list[HistoryEntry] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def note(self, stage: str, rows: int, value: float, norm: float) -> None:
        """Add an entry to the history and report it."""
        entry = HistoryEntry(stage, rows, value, norm, self.passes, time.perf_counter() - self.began)
        self.history.append(entry)
        self.report(entry)

    @property
    def left(self) -> float:
        """The number of passes that may still be used."""
        return self.budget - self.passes

    @property
    def stages(self) -> list[str]:
        """The names of the stages so far, in the order in which they began."""
        return list(dict.fromkeys(entry.stage for entry in self.history))


@dataclass
class Solution:
    """The point a solver found, and how it got there."""

    x: Array
    """One line per output: the weights, and the intercept last."""
    history: list[HistoryEntry]
    converged: bool
    message: str
    """Why it ended."""
    solver: str = ""
    """The solvers that ran, in order."""
    measured: bool = True
    """Whether the last entry of the history has ‖∇f‖ at x over all rows."""
    last: PassResult | None = None
    """The pass over all rows at x, where the solver has it."""
    gap: float = math.nan
    """The duality gap, a bound on what f is above its minimum; NaN where it is not known."""
