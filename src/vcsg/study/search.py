"""The search for a step size: the same number of short runs for every method, judged by the training loss alone.

The factors are powers of 2 of the method's own default step: first 1, 4 and 1/4; then on by 4 in the direction that was
better, until it gets worse; then by 2 around the best, by √2, and so on until the trials are spent. What is tried next
is a function of what was found before, so a search that was interrupted goes on from its records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vcsg.study.records import Row, RunRecord

TRIALS = 7
"""Short runs per method."""
SHARE = 0.25
"""Of the budget, for each of them."""
LEAST_PASSES = 8.0
"""For each at least. The printed first epoch of VCSG takes 3 passes on average and its steps are √n times smaller than
those after it: judged within it, a search chooses a step with which all that follows diverges."""


def next_exponent(losses: Mapping[float, float]) -> float:
    """The e of the factor 2^e to try next, given the loss of each that was tried."""
    for first in (0.0, 2.0, -2.0):
        if first not in losses:
            return first
    best = best_exponent(losses)
    if best == max(losses):
        return best + 2
    if best == min(losses):
        return best - 2
    ratio = 1.0
    while True:
        for candidate in (best + ratio, best - ratio):
            if candidate not in losses:
                return candidate
        ratio /= 2


def best_exponent(losses: Mapping[float, float]) -> float:
    """That of the least loss; of equal ones the smallest step, for where all diverged it has to become smaller."""
    return min(losses, key=lambda e: (losses[e], e))


def loss_of(trial: RunRecord) -> float:
    """Over all training samples at its end; +∞ where it diverged."""
    loss = trial.final.get("train_loss") if trial.status == "finished" else None
    return math.inf if loss is None else float(loss)


@dataclass(frozen=True)
class Choice:
    """What a search found."""

    lr: float
    losses: dict[float, float]
    """By exponent."""
    base: float
    """The method's default step, the factor 1."""
    ifo: int
    seconds: float
    epoch: int
    """That the best trial ended in."""

    @property
    def exponent(self) -> float:
        return best_exponent(self.losses)

    @property
    def at_edge(self) -> bool:
        """Whether the best is the smallest or the largest that was tried: a better one may lie beyond."""
        return self.exponent in (min(self.losses), max(self.losses))

    def notes(self, passes: str) -> Row:
        return {
            "trials": len(self.losses),
            "of": f"{passes} each, by the loss over all training samples at their end",
            "default_step": self.base,
            "factors": [2**e for e in self.losses],
            "losses": list(self.losses.values()),
            "factor": 2**self.exponent,
            "lr": self.lr,
            "at_edge": self.at_edge,
            "epoch": self.epoch,
            "ifo": self.ifo,
            "seconds": self.seconds,
            "caution": "a short run favours steps that are large at first and methods that need no anchor",
        }


def choose(trials: Mapping[float, RunRecord], base: float) -> Choice:
    """The best of the trials, by exponent."""
    losses = {exponent: loss_of(trial) for exponent, trial in trials.items()}
    if not math.isfinite(min(losses.values())):
        tried = ", ".join(f"{base * 2**e:.3g}" for e in losses)
        raise ValueError(f"every step size that was tried diverged ({tried}): give lr= for this method")
    ifo = sum(int(trial.final.get("ifo", 0)) for trial in trials.values())
    seconds = sum(float(trial.final.get("seconds", 0.0)) for trial in trials.values())
    best = best_exponent(losses)
    return Choice(base * 2**best, losses, base, ifo, seconds, int(trials[best].final["epoch"]))
