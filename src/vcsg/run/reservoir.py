"""The point that a run returns, where it is one of the ends of its epochs, and whether that is another than x."""

from __future__ import annotations

from vcsg.run.holder import Holder
from vcsg.run.sampling import stream
from vcsg.run.state import CourseState


def offer(state: CourseState, holder: Holder, output: str, seed: int) -> None:
    """A one-slot weighted reservoir: keep x̃_j with probability weight_j / (sum of all weights so far)."""
    if not state.pending:
        return
    state.output_weight += state.pending
    accepted = stream(seed, "output", state.phase.number).random() < state.pending / state.output_weight
    state.pending = 0.0
    if output == "weighted" and accepted:
        holder.store("output")


def is_elsewhere(state: CourseState, output: str) -> bool:
    """Whether the point that the method returns is another than x."""
    return (output == "weighted" and state.output_weight > 0) or (output == "average" and state.averaged > 0)
