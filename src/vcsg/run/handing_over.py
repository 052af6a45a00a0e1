"""What becomes of a phase when a loop hands over a batch, or begins a pass: its batches are those of the loop."""

from __future__ import annotations

from dataclasses import replace

from vcsg.run.handed_batches import LoopSizes, completed, resized
from vcsg.run.sampling import Share
from vcsg.run.state import CourseState


def begin_anchor(state: CourseState, loop: LoopSizes, size: int) -> tuple[int, ...]:
    """The sizes of the batches that an anchor of about so many samples is made of, from the next batch on."""
    state.loop = replace(state.loop, parts=[])
    return state.loop.ahead(size, loop)


def take_batch(state: CourseState, loop: LoopSizes, share: Share, size: int) -> None:
    """A batch of that size is handed over: the phase has it now, and an anchor ends where it should."""
    state.loop = replace(state.loop, parts=list(state.loop.parts))  # an error in this step puts the old one back
    state.loop.arrive(size, loop, state.phase.kind == "anchor")
    width = share.width(state.phase, state.position)
    state.phase = resized(state.phase, state.position, width, size, state.loop, loop, state.anchor_size)


def begin_pass(state: CourseState, loop: LoopSizes, short: bool) -> None:
    """A pass of the loop begins, which ends with a short batch or drops it: what is left of an anchor follows it."""
    state.loop.begin(short)
    if state.phase.kind == "anchor":
        before = [state.phase.size(k) for k in range(state.position)]
        state.phase = completed(state.phase, before, state.loop, loop, state.anchor_size)
