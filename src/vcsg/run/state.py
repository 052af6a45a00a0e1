"""What a run knows besides tensors: its place in the method, what it counted and measured, and when it must stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vcsg.method.schedules import Plan
from vcsg.run.sampling import Phase
from vcsg.run.variance import MIN_CHUNKS, Anchor, AnchorSum

GRADIENT_GROWTH = 1e4
"""E‖∇f_i‖² at an anchor may be this many times that at the first, and no more."""
LOSS_GROWTH = 1.0
"""The loss may exceed the lowest seen by this many times |the first loss|, and no more."""
LOSS_ERRORS = 4.0
"""The standard errors of an anchor's loss that are allowed for on top."""
STEP_LOSS_GROWTH = 1000.0
"""In place of both where the losses of steps are judged: few samples, perhaps of a heavy tail, tell no more."""


class Diverged(RuntimeError):
    """A run gave up: whatever the step size, it came back to what is not finite or far too large."""


@dataclass(frozen=True)
class Settings:
    """The choices that are not the method's; a state is loaded only where they are the same."""

    output: str
    variance: str
    chunk: int
    clip_norm: float | None

    @property
    def exact(self) -> bool:
        return self.variance == "exact"


@dataclass(frozen=True)
class Record:
    """One epoch, told when its anchor is done and its plan is made (for a method without anchor, at its start)."""

    epoch: int
    """j, from 1."""
    regime: str
    """Which of the method's weights are in use; "" where there is but one choice."""
    B: int
    """The batch size that sets step and length of this epoch."""
    b: int
    """The mini-batch size."""
    step_size: float
    """η, for the first parameter group."""
    length: int
    """N, the number of inner steps."""
    L: float
    """The smoothness constant in use."""
    eps: float | None
    """The target ε of a method that has one."""
    anchor: Anchor | None
    """What the anchor measured: size, loss, S*, ‖g‖² and bounds; None for a method without anchor."""
    ifo: int
    """Gradient evaluations so far, this epoch's anchor included."""
    passes: float
    """The same in units of n."""

    @property
    def loss(self) -> float:
        """The mean loss over the anchor's samples."""
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


@dataclass
class Watch:
    """Judges whether a run has diverged, by what its anchors measure for nothing.

    The references are fixed or fall (had they risen with the loss, a slow divergence would never be seen), except that
    a larger anchor than any before knows better: few samples may have missed the large losses of a heavy tail.
    """

    first_loss: float = math.nan
    lowest_loss: float = math.nan
    first_moment: float = math.nan
    """E‖∇f_i‖² = ‖g‖² + S* at the first anchor."""
    largest_anchor: int = 0

    def fault(self, anchor: Anchor, sign: int = 1) -> str | None:
        """What is wrong with the point of this anchor, or None. An anchor too small to tell is not judged.

        `sign` is −1 where f is maximised, and 0 where some parameters go up and some down, and the loss tells nothing.
        """
        if anchor.B < min(MIN_CHUNKS, anchor.n):
            return None
        if math.isnan(self.first_moment):
            self.first_moment = anchor.moment
        if self.first_moment and anchor.moment > GRADIENT_GROWTH * self.first_moment:
            return f"E‖∇f_i‖² grew from {self.first_moment:.4g} to {anchor.moment:.4g}"
        if anchor.B > self.largest_anchor:
            self.largest_anchor, self.first_loss = anchor.B, math.nan
        return self.loss_fault(sign * anchor.loss, LOSS_GROWTH, LOSS_ERRORS * anchor.loss_error)

    def loss_fault(self, loss: float, growth: float = STEP_LOSS_GROWTH, margin: float = 0.0) -> str | None:
        """What is wrong with this loss, or None."""
        if math.isnan(self.first_loss):
            self.first_loss = self.lowest_loss = loss
        if self.first_loss and loss > self.lowest_loss + growth * abs(self.first_loss) + margin:
            return f"the loss grew from {self.lowest_loss:.4g} to {loss:.4g}"
        self.lowest_loss = min(self.lowest_loss, loss + margin)
        return None


@dataclass
class Run:
    """The discrete state of an optimizer: plain numbers, so that a checkpoint of it is plain too."""

    phase: Phase
    position: int = 0
    """Batches of the phase that were consumed (not drawn: workers read ahead)."""
    epoch: int = 1
    anchor_size: int = 0
    """Of this epoch; after a roll-back the anchor is drawn again at the size it had."""
    good_epoch: int = 0
    """The epoch that the run can go back to, the size of its anchor, and what `watch` knew then."""
    good_size: int = 0
    ifo: int = 0
    steps: int = 0
    phase_ifo: int = 0
    phase_steps: int = 0
    """`ifo` and `steps` when the phase began."""
    L: float | None = None
    first_variance: float = math.nan
    drawn: bool = False
    """Whether this epoch has an anchor of its own; where not, its mean loss judges it."""
    depth: int = -1
    """The deepest anchor (y, m) that is valid: 0 the drawn one, above it those that moved; −1 none."""
    plan: Plan | None = None
    anchor_sum: AnchorSum = field(default_factory=AnchorSum)
    anchor: Anchor | None = None
    curvatures: list[float] = field(default_factory=list)
    loss_sum: float = 0.0
    loss_count: int = 0
    """The losses of the inner steps since they were last judged; only where no anchor judges."""
    judged: bool = False
    """Whether the losses since the last good point were found good."""
    watch: Watch = field(default_factory=Watch)
    good_watch: Watch = field(default_factory=Watch)
    rollbacks: int = 0
    """Since the last epoch that ended well."""
    pending: float = 0.0
    """The output weight of the last x̃_j, not yet offered to the reservoir: its anchor may still condemn it."""
    output_weight: float = 0.0
    """The total weight of all x̃_j offered so far."""

    def told(self, step_size: float, length: int) -> Record:
        """The record of the epoch that has just been planned."""
        assert self.plan is not None
        assert self.L is not None
        return Record(
            epoch=self.epoch,
            regime=self.plan.regime,
            B=self.plan.B,
            b=self.plan.b,
            step_size=step_size,
            length=length,
            L=self.L,
            eps=self.plan.eps,
            anchor=self.anchor,
            ifo=self.ifo,
            passes=self.ifo / self.phase.n,
        )

    def rewound(self) -> Run:
        """The same run at the beginning of its anchor; no point has moved since."""
        return replace(self, position=0, ifo=self.phase_ifo, steps=self.phase_steps, anchor_sum=AnchorSum())

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Run:
        made: dict[str, Any] = dict(state)
        for name, kind in PARTS.items():
            made[name] = kind(**state[name])
        made["plan"] = None if state["plan"] is None else Plan(**state["plan"])
        made["anchor"] = None if state["anchor"] is None else Anchor(**state["anchor"])
        made["curvatures"] = list(state["curvatures"])
        return cls(**made)


PARTS = {"phase": Phase, "anchor_sum": AnchorSum, "watch": Watch, "good_watch": Watch}
