"""What a course asks of whoever holds the point of a run, and the numbers that a step needs besides its direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

AVERAGING = 8
"""k in the weight (1 + k)/(t + k) of the t-th point in the average: the share of points older than s is (s/t)^(1+k)."""


@dataclass(frozen=True)
class StepNumbers:
    """The numbers that a step needs besides its direction."""

    step_size: Callable[[float], float]
    """lr of a parameter group → η."""
    moment: int
    """The number of the step since second moments began, from 1."""
    memory: float
    """The weight of m in v, where m is the v of the step before."""
    from_zero: bool
    """Whether m began at 0, and not at an anchor."""
    average: float | None
    """The weight of the new point in the average of all points; None where there is none."""


class Holder(Protocol):
    """Whoever holds the point x, and copies of it by name: "anchor" is the last good point, "output" the reservoir."""

    @property
    def lr(self) -> float:
        """The `lr` of the first parameter group that moves."""

    @property
    def sign(self) -> int:
        """1 to minimise, −1 to maximise, 0 where parameter groups differ and the loss tells nothing."""

    @property
    def penalty(self) -> float:
        """What f has at x beside the losses that are reported: Σ (weight_decay/2)‖x‖² over the parameter groups."""

    def store(self, name: str) -> None:
        """Copy x to the point of that name."""

    def restore(self, name: str) -> None:
        """Copy the point of that name to x."""

    def step_along_mean(self, weight: float, numbers: StepNumbers) -> None:
        """x ← x − η·P(weight·m)."""


def averaging_weight(step: int) -> float:
    """The weight of point t, from 1, in the average: of all points a polynomial one, that forgets the early ones."""
    return (1 + AVERAGING) / (step + AVERAGING)
