"""When a run has diverged, judged by what its anchors and steps measure for nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
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
COLLAPSE = 5.0
"""E‖∇f_i‖² may fall by this factor while the loss rises back, and no more: beyond it the net is dead."""
CARRIERS = 8.0
"""Samples that carry a rise of the loss are believed only where a smaller anchor had met so many of them on average."""
RETURN_ERRORS = 4.0
"""The standard errors of a mean loss of steps that are allowed for, where it is said to be back where it began."""
VERY_LAST = 5
"""The losses of last steps of which most have grown where a run diverges, and not where one sample is extreme."""
LAST_STEPS = 16
"""The losses of last steps that tell whether the point where a run ends is a good one."""


class Diverged(RuntimeError):
    """A run gave up: whatever the step size, it came back to what is not finite or far too large."""


class BadSamples(FloatingPointError):
    """The loss or the gradient of some samples is not finite at a point that is good for others: the data are at fault.

    Args:
        fault: what is not finite, and where.
        samples: the numbers of the samples, those of a whole batch where no single ones are known, none where a loop
            hands over the batches.
    """

    def __init__(self, fault: str, samples: Sequence[int]) -> None:
        self.fault, self.samples = fault, list(samples)
        named = f"sample {samples[0]}" if len(samples) == 1 else f"samples {self.samples[:10] or 'of this batch'}"
        rest = f", the first ten of {len(samples)} in the batch" if len(samples) > 10 else ""
        super().__init__(f"{fault}: look at the model and at the {named}{rest}")


@dataclass
class Watch:
    """Judges whether a run has diverged, by what its anchors measure for nothing.

    The references are fixed or fall (had they risen with the loss, a slow divergence would never be seen), except that
    a larger anchor than any before knows better: few samples may have missed the large losses of a heavy tail. It is
    condemned only where its loss is that of so many samples that the smaller anchor would have met some of them.

    A dead net has the loss of a guess, which is about the first loss, so a bound above that never tells. But it had
    learnt before, or its E‖∇f_i‖² is small, where a loss that grows in a net that lives brings larger gradients. So the
    point is condemned, four standard errors allowed for,

    - where the loss fell by more than half of |the first loss|, and is back at the first but for a twentieth of that;
    - where the loss is back above the middle between the first and the lowest, and E‖∇f_i‖² is a fifth or less of
      what it was at the lowest;
    - where E‖∇f_i‖² is a fifth or less of the first, and the loss fell by less than ‖∇f‖²/(4L) of the first anchor.
      A convex f falls by ‖∇f‖²/(2L) at least before its gradient vanishes; each roll-back halves the bound.
    """

    first_loss: float = math.nan
    lowest_loss: float = math.nan
    first_moment: float = math.nan
    """E‖∇f_i‖² = ‖g‖² + S* at the first anchor."""
    largest_anchor: int = 0
    loss_scale: float = 0.0
    """The mean |loss| of the samples that gave the first loss, as far as it is known."""
    start_loss: float = math.nan
    start_moment: float = math.nan
    start_gradient: float = math.nan
    start_size: int = 0
    """Loss, E‖∇f_i‖², a lower estimate of ‖∇f‖² and the size of the first anchor of the run."""
    best_loss: float = math.nan
    best_moment: float = math.nan
    """The lowest loss of all anchors of the run, and E‖∇f_i‖² there."""

    def renewed(self) -> Watch:
        """The watch for a point that is accepted: its anchor, drawn again, is the reference."""
        return Watch(
            start_loss=self.start_loss,
            start_moment=self.start_moment,
            start_gradient=self.start_gradient,
            start_size=self.start_size,
            best_loss=self.best_loss,
            best_moment=self.best_moment,
        )

    def fault(self, anchor: Anchor, sign: int = 1, L: float | None = None) -> str | None:
        """Say what is wrong with the point of this anchor, or None. An anchor too small to tell is not judged.

        `sign` is −1 where f is maximised, and 0 where some parameters go up and some down, and the loss tells nothing.
        """
        if anchor.B < min(MIN_CHUNKS, anchor.n):
            return None
        loss, margin = sign * anchor.loss, LOSS_ERRORS * anchor.loss_error
        if math.isnan(self.first_moment):
            self.first_moment = anchor.moment
        elif sign and (fault := self._dead(loss, _margin(anchor, self.start_size), anchor, L)):
            return fault
        if self.first_moment and anchor.moment > GRADIENT_GROWTH * self.first_moment:
            return f"E‖∇f_i‖² grew from {self.first_moment:.4g} to {anchor.moment:.4g}"
        if anchor.B > self.largest_anchor:
            if fault := self._growth(loss, LOSS_GROWTH, _margin(anchor, self.largest_anchor)):
                return fault
            self.largest_anchor, self.first_loss = anchor.B, math.nan
        fault = self.loss_fault(loss, abs(loss), LOSS_GROWTH, margin)
        if not fault:
            self._note(loss + margin, anchor)
        return fault

    def _dead(self, loss: float, margin: float, anchor: Anchor, L: float | None) -> str | None:
        """Whether the loss came back all the way, or half of it or never fell while the samples' gradients vanished."""
        fall = self.start_loss - self.best_loss
        if fall > abs(self.start_loss) / 2 and loss - margin > self.start_loss - fall / 20:
            return f"the loss is back at {loss:.4g}, where it began, after {self.best_loss:.4g}"
        collapsed = f"and yet E‖∇f_i‖² fell to {anchor.moment:.4g}: f is flat here, as where a net is dead"
        back = loss - margin > self.best_loss + fall / 2
        if back and anchor.moment * COLLAPSE < self.best_moment:
            return f"the loss is {loss:.4g} after {self.best_loss:.4g}, {collapsed}"
        # A closure may return a constant in place of the loss, which tells nothing.
        judged = loss != self.start_loss
        still = judged and L is not None and self.start_loss - loss + margin < self.start_gradient / (4 * L)
        if still and anchor.moment * COLLAPSE < self.start_moment:
            return f"the loss has hardly fallen, from {self.start_loss:.4g} to {loss:.4g}, {collapsed}"
        return None

    def _note(self, loss: float, anchor: Anchor) -> None:
        """Remember the first anchor of the run, and that of the lowest loss; what its few samples may miss is in."""
        if math.isnan(self.start_loss):
            self.start_loss, self.start_moment, self.start_size = loss, anchor.moment, anchor.B
            self.start_gradient = max(0.0, anchor.gradient_norm2 - LOSS_ERRORS * anchor.noise)
        if not self.best_loss <= loss:
            self.best_loss, self.best_moment = loss, anchor.moment

    def return_fault(self, loss: float, error: float) -> str | None:
        """Say that a loss which fell by half is back where it began, as that of a net that died; else None.

        It is the mean over some steps, with its standard error. Points and losses of steps that follow each other are
        alike, and the lowest of many means is low by chance; so a quarter of the fall, less many errors, decides.
        """
        fall = self.first_loss - self.lowest_loss
        if fall > abs(self.first_loss) / 2 and loss - RETURN_ERRORS * error > self.first_loss - fall / 4:
            return f"the loss is back at {loss:.4g}, where it began, after {self.lowest_loss:.4g}"
        return None

    def loss_fault(
        self, loss: float, size: float, growth: float = STEP_LOSS_GROWTH, margin: float = 0.0, least: float = 0.0
    ) -> str | None:
        """Say what is wrong with this loss, or None.

        A loss may be near 0 by chance, and says nothing of its scale then. That is the largest of the mean |loss| of
        the samples at the first (`size`), the fall since, and `least`.
        """
        if math.isnan(self.first_loss):
            self.first_loss = self.lowest_loss = loss
            self.loss_scale = size
        fault = self._growth(loss, growth, margin, least)
        if not fault:
            self.lowest_loss = min(self.lowest_loss, loss + margin)
        return fault

    def _growth(self, loss: float, growth: float, margin: float, least: float = 0.0) -> str | None:
        scale = self._scale(least)
        if scale and loss > self.lowest_loss + growth * scale + margin:
            return f"the loss grew from {self.lowest_loss:.4g} to {loss:.4g}"
        return None

    def _scale(self, least: float = 0.0) -> float:
        """The size of a change of the loss that says something; 0 where no loss is known."""
        if math.isnan(self.first_loss):
            return 0.0
        return max(self.loss_scale, abs(self.first_loss), self.first_loss - self.lowest_loss, least)

    def stays_up(self, losses: Sequence[float], least: float = 0.0) -> bool:
        """Whether most of the very last of these losses are far above the lowest.

        The mean of many alone does not tell: a sample that is far from all others brings it to any size, at every point
        and however small the step. Where a run diverges, the losses of all samples are large.
        """
        last = losses[-VERY_LAST:]
        return not last or statistics.median(last) > self.lowest_loss + LOSS_GROWTH * self._scale(least)

    def ending_fault(self, losses: Sequence[float], least: float = 0.0, goes_on: bool = False) -> str | None:
        """Say what is wrong with the point where steps of these losses, the last `LAST_STEPS` or fewer, have led.

        It is condemned where they are back where the loss began, after it had fallen by more than half, but for a tenth
        of the fall; or where they grew beyond what an anchor may have. It is the geometric mean of what they are above
        the lowest loss that is compared: by Markov's inequality that of k losses exceeds c times their mean with a
        probability of c^−k at most, however heavy their tail. Where the run goes on, and is judged so again and again,
        four standard errors are allowed for.
        """
        first, lowest = self._references()
        fall, scale = first - lowest, self._scale(least)
        if len(losses) < LAST_STEPS or not scale or statistics.median(losses) <= lowest:
            return None
        margin = RETURN_ERRORS * statistics.stdev(losses) / math.sqrt(len(losses)) if goes_on else 0.0
        if fall > abs(first) / 2 and _typical_excess(losses, lowest, fall) - margin > (0.75 if goes_on else 0.9) * fall:
            return f"the loss is back at {statistics.median(losses):.4g}, where it began, after {lowest:.4g}"
        if _typical_excess(losses, self.lowest_loss, scale) - margin > LOSS_GROWTH * scale:
            return f"the loss grew from {self.lowest_loss:.4g} to {statistics.median(losses):.4g}"
        return None

    def gained_nothing(self, losses: Sequence[float]) -> str | None:
        """Say that steps of these losses have led hardly lower than the first loss, or None.

        Three quarters of them are above it, but for a fiftieth of its size; or, where they scatter by more than a
        fifth of it, as good as all of them are above it.
        """
        count, (first, _) = len(losses), self._references()
        if count < LAST_STEPS:
            return None
        steady = statistics.pstdev(losses) <= self.loss_scale / 5
        above = sum(loss > first - (self.loss_scale / 50 if steady else 0) for loss in losses)
        if above < (3 * count / 4 if steady else count / 2 + 2 * math.sqrt(count)):
            return None
        return f"the loss is {statistics.median(losses):.4g}, and it began at {first:.4g}"

    def _references(self) -> tuple[float, float]:
        """The first loss of the run and the lowest, of anchors and of steps."""
        first = self.first_loss if math.isnan(self.start_loss) else self.start_loss
        return first, min((loss for loss in (self.best_loss, self.lowest_loss) if loss == loss), default=math.nan)


def _typical_excess(losses: Sequence[float], lowest: float, scale: float) -> float:
    """The geometric mean of what losses are above the lowest, each counted as a hundredth of the scale at least."""
    return math.exp(statistics.fmean(math.log(max(loss - lowest, scale / 100)) for loss in losses))


def _margin(anchor: Anchor, smaller: int) -> float:
    """What the loss of an anchor may lie above that of one of so many samples by chance.

    Four standard errors; of a larger anchor so many that the samples which carry the excess, (excess/error)² of them at
    most, would have been met `CARRIERS` times by the smaller one.
    """
    if anchor.B <= smaller:
        return LOSS_ERRORS * anchor.loss_error
    if not smaller or math.isnan(anchor.loss_s2):
        return math.inf
    return math.sqrt(max(LOSS_ERRORS**2, CARRIERS * anchor.B / smaller) * anchor.loss_s2 / anchor.B)
