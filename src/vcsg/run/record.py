"""The record of an epoch, made when its anchor is done, and rules that stop a run by it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from vcsg.run.variance import Anchor


@dataclass(frozen=True)
class Record:
    """One epoch, made when its anchor is done and its plan is known (for a method without anchor, at its start)."""

    epoch: int
    """j, from 1."""
    regime: str
    """The name of the weights in use, of a method that has several; else ""."""
    B: int
    """The batch size that sets step and length of this epoch."""
    b: int
    """The mini-batch size."""
    step_size: float
    """η, for the first parameter group that moves."""
    length: int
    """N, the number of inner steps."""
    L: float
    """The smoothness constant in use."""
    eps: float | None
    """The target ε of a method that has one."""
    anchor: Anchor | None
    """The measurements of the anchor: size, loss, S*, ‖g‖² and bounds; None for a method without anchor."""
    ifo: int
    """Gradient evaluations so far, this epoch's anchor included."""
    passes: float
    """The same in units of n."""

    @property
    def loss(self) -> float:
        """f by the anchor's samples: their mean loss, and the penalty of `weight_decay` (less it, to maximise)."""
        return self.anchor.loss if self.anchor else math.nan

    @property
    def variance(self) -> float:
        """S* at the anchor."""
        return self.anchor.variance if self.anchor else math.nan

    @property
    def gradient_norm2(self) -> float:
        """The unbiased estimate of ‖∇f‖² at the anchor; exact where the anchor took all n samples."""
        return self.anchor.gradient_norm2 if self.anchor else math.nan

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Record:
        return cls(**{**state, "anchor": None if state["anchor"] is None else Anchor(**state["anchor"])})

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} {self.regime or '–'}: B={self.B} b={self.b} η={self.step_size:.3g} N={self.length} "
            f"loss={self.loss:.4g} S*={self.variance:.3g} ‖∇f‖²≈{self.gradient_norm2:.3g} L={self.L:.3g} "
            f"passes={self.passes:.2f}"
        )


def stationary(eps: float, confidence: float = 0.95) -> Callable[[Record], bool]:
    """A rule for `batches(until=...)`: stop at an anchor where ‖∇f‖² ≤ ε with at least this confidence.

    The model is then at the anchor's point (a method whose anchor is itself a step, such as gradient descent and
    SPIDER, has already taken it).
    """
    if not 0 < eps < math.inf:
        raise ValueError(f"eps = {eps}: give a finite number above 0")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence}: give a number strictly between 0 and 1")

    def reached(record: Record) -> bool:
        return record.anchor is not None and record.anchor.gradient_bound(confidence) <= eps

    return reached
