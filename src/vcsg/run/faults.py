"""What a run is refused, given up or warned for: what is wrong with a batch or with f, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vcsg.run.watch import BadSamples, Diverged

SAME_GRADIENTS = (
    "all %d batches of the first anchor have the same loss and gradient, to the last bit: does the closure evaluate "
    "the batch in hand, or the same tensors each time?"
)
LOSS_IS_A_SUM = (
    "the loss of a batch grows with its size, as a sum does: it is %.4g for %d samples, where batches of the anchor "
    "have %.4g for %d. Anchors and mini-batches do not match then: return the mean over the batch"
)
GIVEN_ORDER = (
    "the loader reads its samples in order: the anchors of %s are made of its next batches, and stand for all samples "
    "only if that order is a random one; give it shuffle=True"
)
MAX_ROLLBACKS = 10
"""How often in a row a diverged epoch is tried again, L doubled each time, before the run gives up."""


def chunk_fault(loss: float, deviation: float) -> str | None:
    """Say what is not finite of a chunk with this loss and this ‖g_k − m‖²; or None."""
    if not math.isfinite(loss):
        return f"the loss is {loss}"
    return None if math.isfinite(deviation) else "the gradient is not finite"


def bad_start(fault: str, samples: Sequence[int]) -> BadSamples:
    """The error for a fault of these samples where no step was taken yet."""
    return BadSamples(f"{fault} at the starting point, before any step", samples)


def gave_up(reason: str, epoch: int, tried: float | None) -> Diverged:
    """The error for a run that went back to an epoch too often, the last time for this reason and with this L."""
    return Diverged(
        f"gave up after {MAX_ROLLBACKS} roll-backs to epoch {epoch}: {reason} (with L = {tried:.3g}). "
        "The model is at the last good point. Give a larger L= or a smaller lr=, or look for samples with "
        "an extreme loss"
    )


def check_repeatable(loss: float, again: float) -> None:
    """Refuse a random f, for which a batch has two losses at the same point."""
    if abs(loss - again) > 1e-4 * max(abs(loss), abs(again)):
        raise ValueError(
            f"the same samples have the loss {loss:.6g} and {again:.6g} at the same point: f is random, as with "
            "dropout or random augmentation, and nothing can be certified of its gradient. Train without them, or "
            "stop by another rule than vcsg.stationary"
        )
