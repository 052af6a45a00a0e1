"""n, L, S* and the gap of a workload, measured at its initial weights: what a plan of a run needs to know."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vcsg.study.running.estimates import first_record
from vcsg.study.running.miniature import load_workload
from vcsg.training.interrupt import StopRequest
from vcsg.training.progress import Silent


@dataclass(frozen=True)
class Measured:
    """What was measured of a workload.

    Attributes:
        n: the number of training samples.
        L: the smoothness constant: known, or the curvature that a mini-batch sees at the initial weights.
        variance: S* at the initial weights, from an anchor of all n samples.
        gap: the loss at the initial weights; the losses here are not negative, so that it is at least f(x_0) − inf f.
        known_L: whether L is known, and not estimated.
        calls: the gradients of single samples that it took.
    """

    n: int
    L: float
    variance: float
    gap: float
    known_L: bool
    calls: int

    def __str__(self) -> str:
        how = "known" if self.known_L else "estimated at the initial weights"
        return (
            f"n = {self.n:,}, L = {self.L:.4g} ({how}); at the initial weights S* = {self.variance:.4g} and a loss of "
            f"{self.gap:.4g}, which is taken for the gap. That took {self.calls / self.n:.1f} passes. What is proved "
            f"below holds where {'S*' if self.known_L else 'L and S*'} will not be larger later on."
        )


def measure(
    workload: str,
    stop: StopRequest,
    *,
    data_dir: str | None = None,
    device: str = "cpu",
    threads: int = 1,
    seed: int = 0,
) -> Measured | None:
    """Measure a workload by the first anchor of VCSG, which takes all n samples; None if interrupted."""
    loaded = load_workload(workload, data_dir, device)
    options = {} if loaded.L is None else {"L": loaded.L}
    record, _ = first_record(loaded, device, threads, "vcsg", options, seed, stop, Silent, f"measuring {workload}")
    if record is None:
        return None
    if not record.loss >= 0 or not math.isfinite(record.loss):
        raise ValueError(
            f"the loss of {workload} is {record.loss:.4g} at the initial weights: it bounds the gap only where losses "
            "are not negative; give --gap"
        )
    return Measured(loaded.n, record.L, record.variance, record.loss, loaded.L is not None, record.ifo)
