"""How L is measured, which no paper gives for a net: from how many mini-batches, of how many samples.

L is the largest curvature that a mini-batch sees, the median over a few of them, measured once, at the first anchor
(`vcsg.run.power_iteration`). Their size is the smaller of the mini-batches of that epoch and the next: VCSG begins with
b = n^{1/4} and goes on with fewer. Estimating again at every later anchor fails on nets: a smaller step lets the
sharpness rise, so the step falls further. VCSG can measure once more, after a pass, and take what is far smaller: the
starting point of a deep net may have a curvature that nothing has later.
"""

from __future__ import annotations

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
