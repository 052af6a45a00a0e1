"""How L is measured, which no paper gives for a net: when, from how many mini-batches, and what is made of them.

L is the largest curvature that a mini-batch sees, the median over a few of them, measured once, at the first anchor
(`vcsg.run.power_iteration`). Their size is the smaller of the mini-batches of that epoch and the next: VCSG begins with
b = n^{1/4} and goes on with fewer. Estimating again at every later anchor fails on nets: a smaller step lets the
sharpness rise, so the step falls further. VCSG can measure once more, after a pass, and take what is far smaller: the
starting point of a deep net may have a curvature that nothing has later.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Sequence

from vcsg.method.definition import Method
from vcsg.run.state import CourseState

logger = logging.getLogger("vcsg")

DRAWS = 5
"""The most mini-batches whose curvature is measured; their median is L."""
ITERATIONS = 8
"""Power iterations per mini-batch."""
FAR_LARGER = 2.0
"""How many times the second estimate of L the first has to be for the second to be taken."""
CALLS = 2 * ITERATIONS
"""Gradients per sample of each mini-batch."""


def plan(b: int, chunk: int, n: int) -> tuple[int, int]:
    """How many mini-batches of how many samples to measure: `DRAWS` of size b, but at most about one pass in all.

    A smaller mini-batch has the larger curvature on average (the top eigenvalue is convex in the Hessian), so a
    cut of its size errs on the safe side.
    """
    size = min(b, chunk, max(1, n // CALLS))
    return max(1, min(DRAWS, n // (CALLS * size))), size


def plan_whole(b: int, n: int, ranks: int = 1) -> tuple[int, int]:
    """How many batches of b samples to measure, where they cannot be cut: those of one step on all ranks at least."""
    return max(1, min(DRAWS, n // (CALLS * b)) // ranks) * ranks, b


def measures_again(state: CourseState, method: Method, n: int) -> bool:
    """Whether L is to be measured a second time: a pass or more after the first, at a point that training led to.

    Not after a roll-back, which has told that L was too small.
    """
    measured, wanted = state.L_measured, getattr(method.schedule, "measure_again", False)
    return wanted and measured is not None and state.drawn and state.ifo >= measured + n


def joined(state: CourseState, found: Sequence[float]) -> list[float]:
    """The curvatures of this phase so far, with those just found; refused where L cannot be had from them."""
    curvatures = [*state.curvatures, *found]
    last = len(curvatures) == state.phase.count
    if state.L is None and (not math.isfinite(sum(curvatures)) or (last and not any(curvatures))):
        raise FloatingPointError(
            f"L cannot be estimated: the curvature of a mini-batch at the starting point is {curvatures[-1]}. "
            "Give L= or lr=, or check that the loss depends smoothly on the parameters"
        )
    return curvatures


def take_L(state: CourseState) -> None:
    """L is measured, or once more: then only a much smaller one is taken, since larger ones feed themselves."""
    # A mini-batch without curvature (a dead unit, a dropped sample) says nothing of the step.
    found = statistics.median([c for c in state.curvatures if c] or [math.inf])
    if state.L is None:
        state.L, state.L_measured = found, state.ifo
    elif found * FAR_LARGER < state.L:
        logger.info("L is measured again, and is %.3g in place of %.3g", found, state.L)
        state.L, state.start_L = found, state.L
