"""What one method will do on a problem, as data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from vcsg.method.definition import Method
from vcsg.theory.guarantees import Guarantee
from vcsg.theory.planned_epochs import PlannedEpoch

LISTED = 300
"""The most epochs of a method that are kept in a plan."""


@dataclass(frozen=True)
class MethodPlan:
    """What one method will do.

    Attributes:
        name: the name of the method.
        method: the method with its options.
        epochs: its first epochs, up to the one from which on all are alike; at most `LISTED`.
        settled: whether all epochs after the last of these are like it.
        guarantee: the cost of reaching ε, as far as it is proved.
        claimed: the gradients that Table 1 of the paper claims, without constants; None where it has no row.
        copies: the memory beside the parameters and their gradient, in copies of the parameters.
    """

    name: str
    method: Method
    epochs: tuple[PlannedEpoch, ...]
    settled: bool
    guarantee: Guarantee
    claimed: float | None
    copies: float

    @property
    def stages(self) -> list[tuple[PlannedEpoch, PlannedEpoch]]:
        """The first and the last epoch of every stretch that has one regime."""
        runs = [list(run) for _, run in groupby(self.epochs, key=lambda planned: planned.regime)]
        return [(run[0], run[-1]) for run in runs]
