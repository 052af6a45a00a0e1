"""The discrete state of a run: its place in the method, what it counted and measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vcsg.method.schedules import Plan
from vcsg.run.handed_batches import LoopPlace
from vcsg.run.record import Record
from vcsg.run.sampling import Phase
from vcsg.run.variance import Anchor, AnchorSum
from vcsg.run.watch import Watch


@dataclass
class CourseState:
    """The place of a run in its method: plain numbers and strings, so that a checkpoint of it is plain too."""

    phase: Phase
    unit: float = 1.0
    """The lr that stands for a factor of 1 in the step size: with `lr` alone it is that lr, else 1."""
    position: int = 0
    """Batches of the phase that were consumed (not drawn: workers read ahead)."""
    epoch: int = 1
    anchor_size: int = 0
    """The size of this epoch's anchor; after a roll-back the anchor is drawn again at the size it had."""
    full_anchor: bool = False
    """Whether the next anchor was asked to take all n samples."""
    good_epoch: int = 0
    """The epoch that the run can go back to, the size of its anchor, and what `watch` knew then."""
    good_size: int = 0
    ifo: int = 0
    steps: int = 0
    phase_ifo: int = 0
    phase_steps: int = 0
    """`ifo` and `steps` when the phase began."""
    L: float | None = None
    L_measured: int | None = None
    """`ifo` when L was measured, as long as it may be measured once more."""
    start_L: float = 0.0
    """The L of the starting point, where another is in use since: it tells what the loss was to fall from there."""
    first_variance: float = math.nan
    settled_variance: float = math.nan
    recent: list[float] = field(default_factory=list)
    """S* at the first, at the second and at the last anchors of points that are good."""
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
    loss_size: float = 0.0
    loss_squares: float = 0.0
    """Σ|loss| of the same steps."""
    last_losses: list[float] = field(default_factory=list)
    """The losses of the last steps since the last anchor or roll-back, at most `LAST_STEPS`: they judge the end."""
    judged: bool = False
    """Whether the losses since the last good point were found good."""
    watch: Watch = field(default_factory=Watch)
    good_watch: Watch = field(default_factory=Watch)
    moments: int = 0
    """Steps since the second moments of an adaptive step began."""
    averaged: int = 0
    """Steps whose points are in the average, where the output is one."""
    rollbacks: int = 0
    """Since the last epoch that ended well."""
    suspect: bool = False
    """Whether the run went back because something was not finite: gradients of steps are looked at from then on."""
    pending: float = 0.0
    """The output weight of the last x̃_j, not yet offered to the reservoir: its anchor may still condemn it."""
    output_weight: float = 0.0
    """The total weight of all x̃_j offered so far."""
    deterministic: bool = False
    """Whether a batch was evaluated twice at one point, with equal losses."""
    record: Record | None = None
    """The record of the last epoch that was planned."""
    loop: LoopPlace = field(default_factory=LoopPlace)
    """The place of the loop that hands over the batches, where one does."""

    def rewound(self) -> CourseState:
        """The same run at the beginning of its anchor; no point has moved since."""
        loop = replace(self.loop, parts=[])
        return replace(self, position=0, ifo=self.phase_ifo, steps=self.phase_steps, anchor_sum=AnchorSum(), loop=loop)

    def forget_losses(self) -> None:
        """The losses of the inner steps are judged, or of no use: begin to sum anew."""
        self.loss_sum, self.loss_size, self.loss_squares, self.loss_count = 0.0, 0.0, 0.0, 0

    def go_back(self) -> None:
        """Return to the last good point: to its epoch, the size of its anchor and what was known then, with 2L."""
        self.epoch, self.anchor_size, self.watch = self.good_epoch, self.good_size, replace(self.good_watch)
        self.pending, self.depth, self.moments, self.averaged = 0.0, -1, 0, 0
        self.forget_losses()
        self.judged, self.last_losses, self.L_measured = False, [], None
        self.rollbacks += 1
        self.L = 2 * (self.L or 0.0)

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> CourseState:
        made: dict[str, Any] = dict(state)
        for name in PARTS.keys() & state.keys():
            made[name] = PARTS[name](**state[name])
        made["plan"] = None if state["plan"] is None else Plan(**state["plan"])
        made["anchor"] = None if state["anchor"] is None else Anchor(**state["anchor"])
        made["record"] = None if state["record"] is None else Record.from_state_dict(state["record"])
        for name in ("curvatures", "recent", "last_losses"):
            made[name] = list(state.get(name, ()))
        loaded = cls(**made)
        loaded.loop.parts = list(loaded.loop.parts)  # the state that was given stays what it is
        return loaded


PARTS: dict[str, Callable[..., Any]] = {
    "phase": Phase,
    "anchor_sum": AnchorSum,
    "watch": Watch,
    "good_watch": Watch,
    "loop": LoopPlace,
}
