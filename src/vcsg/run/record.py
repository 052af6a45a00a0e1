"""The record of an epoch, made when its anchor is done, and rules that stop a run by it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from vcsg.run.certificate import Certificate, certify
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
    """The measurements of the anchor: size, loss, S* and ‖g‖²; None for a method without anchor."""
    ifo: int
    """Gradient evaluations so far, this epoch's anchor included."""
    passes: float
    """The same in units of n."""

    @property
    def loss(self) -> float:
        """f by the anchor's samples: their mean loss, and the penalty of `weight_decay` (less it, to maximise).

        NaN where no anchor was drawn; a rule for `until` that asks for it there is refused.
        """
        return self.anchor.loss if self.anchor else math.nan

    @property
    def variance(self) -> float:
        """S* at the anchor."""
        return self.anchor.variance if self.anchor else math.nan

    @property
    def gradient_norm2(self) -> float:
        """The unbiased estimate of ‖∇f‖² at the anchor; exact where the anchor took all n samples."""
        return self.anchor.gradient_norm2 if self.anchor else math.nan

    def scalars(self) -> dict[str, float]:
        """Every number of the record by its name, for a logger: flat, and without those that are not known or finite.

        An anchor adds `loss`, `variance`, `gradient_norm2`, `rough_bound` and `anchor_size`, the number of its samples.
        """
        anchor = self.anchor
        numbers: dict[str, float | None] = {
            "epoch": self.epoch,
            "passes": self.passes,
            "ifo": self.ifo,
            "B": self.B,
            "b": self.b,
            "length": self.length,
            "step_size": self.step_size,
            "L": self.L,
            "eps": self.eps,
            "loss": self.loss,
            "variance": self.variance,
            "gradient_norm2": self.gradient_norm2,
            "rough_bound": anchor.rough_bound if anchor else None,
            "anchor_size": anchor.B if anchor else None,
        }
        return {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}

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


class UnmeasuredRecord(Record):
    """The record of a run without anchors, as a rule is asked about it: it refuses to be compared by what is not known.

    No comparison with NaN is true, so the rule, or a part of it, would do nothing.
    """

    @property
    def loss(self) -> float:
        raise self._unknown("loss")

    @property
    def variance(self) -> float:
        raise self._unknown("variance")

    @property
    def gradient_norm2(self) -> float:
        raise self._unknown("gradient_norm2")

    def scalars(self) -> dict[str, float]:
        return Record(**vars(self)).scalars()

    def __str__(self) -> str:
        return str(Record(**vars(self)))

    def _unknown(self, name: str) -> ValueError:
        return ValueError(
            f"until= asks for record.{name}, which is measured at anchors, and this method draws none in an epoch: no "
            "comparison with it would be true. Choose a method that does, such as svrg or vcsg, or ask for "
            "record.passes; a rule for both kinds asks for record.anchor first, which is None here"
        )


class Answer(Enum):
    """What a rule for `until` may answer besides True and False; it counts as False."""

    CONFIRM = "confirm"
    """Go on, but the next anchor is to take all n samples."""

    def __bool__(self) -> bool:
        return False


Until = Callable[[Record], "bool | Answer"]
"""A rule that is asked once for the record of every epoch; True ends the run."""


@dataclass(frozen=True)
class Stationary:
    """A rule for `until` that stops where ‖∇f‖² ≤ ε is certain, or nearly so; see `stationary`."""

    eps: float
    confidence: float = 1.0
    largest_gradient: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.eps < math.inf:
            raise ValueError(f"eps = {self.eps}: give a finite number above 0")
        if not 0 < self.confidence <= 1:
            raise ValueError(f"confidence = {self.confidence}: give a number above 0, at most 1")
        if self.largest_gradient is not None and not 0 < self.largest_gradient < math.inf:
            raise ValueError(f"largest_gradient = {self.largest_gradient}: give a finite number above 0, or None")

    def certificate(self, record: Record) -> Certificate | None:
        """What the anchor of this record proves; None where that is nothing."""
        if record.anchor is None:
            return None
        return certify(record.anchor, record.ifo, self.confidence, self.largest_gradient)

    def __call__(self, record: Record) -> bool | Answer:
        anchor, certificate = record.anchor, self.certificate(record)
        if certificate is not None and certificate.bound <= self.eps:
            return True
        # Not the estimate without bias: near a minimum that is negative for every second anchor.
        near = anchor is not None and not anchor.whole and anchor.g_norm2 <= self.eps
        return Answer.CONFIRM if near else False


def stationary(eps: float, confidence: float = 1.0, largest_gradient: float | None = None) -> Stationary:
    """A rule for `until` that stops where ‖∇f‖² ≤ ε, as an anchor of all n samples found it.

    A smaller anchor cannot tell: a few samples may carry the gradient, and it may have missed them. Where its ‖g‖² is
    at most ε, the next anchor takes all n samples, and is counted like any other. So a stop is certain for
    deterministic f_i, up to rounding. The model is then at the anchor's point (a method whose anchor is itself a step,
    such as gradient descent and SPIDER, has already taken it). A loss that differs when the same samples are evaluated
    twice at the same point, as with dropout, is refused; this is looked at once, with one batch, which is counted.

    Args:
        eps: ε.
        confidence: where it is below 1 and `largest_gradient` is given, a smaller anchor may end the run too: of all
            such runs at least that share end where ‖∇f‖² ≤ ε, however many anchors they looked at.
        largest_gradient: a bound of the norm of every sample's gradient, that you know to hold on the way (without the
            part of `weight_decay`).
    """
    return Stationary(eps, confidence, largest_gradient)
