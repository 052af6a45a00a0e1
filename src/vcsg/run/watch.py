"""When a run has diverged, judged by what its anchors and steps measure for nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vcsg.run.variance import MIN_CHUNKS, Anchor

GRADIENT_GROWTH = 1e4
"""E‖∇f_i‖² at an anchor may be this many times that at the first, and no more."""
LOSS_GROWTH = 1.0
"""The loss may exceed the lowest seen by this many times |the first loss|, and no more."""
LOSS_ERRORS = 4.0
"""The standard errors of an anchor's loss that are allowed for on top."""
STEP_LOSS_GROWTH = 1000.0
"""The same where losses of steps are judged: few samples, perhaps of a heavy tail, tell no more."""


class Diverged(RuntimeError):
    """A run gave up: whatever the step size, it came back to what is not finite or far too large."""


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
        """Say what is wrong with the point of this anchor, or None. An anchor too small to tell is not judged.

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
        """Say what is wrong with this loss, or None."""
        if math.isnan(self.first_loss):
            self.first_loss = self.lowest_loss = loss
        if self.first_loss and loss > self.lowest_loss + growth * abs(self.first_loss) + margin:
            return f"the loss grew from {self.lowest_loss:.4g} to {loss:.4g}"
        self.lowest_loss = min(self.lowest_loss, loss + margin)
        return None
