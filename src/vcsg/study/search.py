"""The search for a step size, and for b: the same number of short runs for every method, judged by the training loss.

The factors are powers of 2 of the method's own default step: first 1, 4 and 1/4; then on by 4 in the direction that was
better, until it gets worse; then by 2 around the best, by √2, and so on until the trials are spent. What is tried next
is a function of what was found before, so an interrupted search continues from its records.

Where mini-batch sizes b are searched as well, the first of them gets that search. Every other begins at the best
factor of the one before it and goes on by 2, with about half as many trials: 1, 2 and ½ times that factor, then on in
the better direction or in between. The best of all trials is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vcsg.study.records import Row, RunRecord

TRIALS = 7
"""Short runs per method, and per mini-batch size where that is not searched."""
LEAST_TRIALS = 3
"""The fewest short runs that make a search: a factor, a larger and a smaller one."""
SHARE = 0.25
"""The share of the budget that each of these runs gets."""
LEAST_PASSES = 8.0
"""The fewest passes of each short run.

The printed first epoch of VCSG takes 3 passes on average, and its steps are √n times smaller than those after it:
judged within it, a search chooses a step with which all that follows diverges."""


Size = int | None
"""A mini-batch size; None where it is not searched."""


def next_exponent(losses: Mapping[float, float], start: float = 0.0, ratio: float = 2.0) -> float:
    """The e of the factor 2^e to try next, given the loss of each that was tried.

    Args:
        losses: the loss of every exponent that was tried.
        start: the first exponent to try.
        ratio: the distance of the next ones.
    """
    for first in (start, start + ratio, start - ratio):
        if first not in losses:
            return first
    best = best_exponent(losses)
    if best == max(losses):
        return best + ratio
    if best == min(losses):
        return best - ratio
    while True:
        ratio /= 2
        for candidate in (best + ratio, best - ratio):
            if candidate not in losses:
                return candidate


def best_exponent(losses: Mapping[float, float]) -> float:
    """The exponent with the least loss; the smallest of several, because where all diverged the step has to shrink."""
    return min(losses, key=lambda e: (losses[e], e))


def quotas(sizes: Sequence[Size], trials: int) -> list[int]:
    """The number of trials of each mini-batch size: all of them for the first, about half as many for the others."""
    return [trials, *[max(LEAST_TRIALS, (trials + 1) // 2)] * (len(sizes) - 1)]


def next_trial(
    losses: Mapping[Size, Mapping[float, float]], sizes: Sequence[Size], trials: int
) -> tuple[Size, float] | None:
    """The mini-batch size and the exponent to try next; None where the search is complete.

    Args:
        losses: the loss of every exponent that was tried, by mini-batch size.
        sizes: the mini-batch sizes to search, in order; (None,) for a search over the step alone.
        trials: the number of trials for the first of them.
    """
    start, ratio = 0.0, 2.0
    for b, quota in zip(sizes, quotas(sizes, trials), strict=True):
        own = losses.get(b, {})
        if len(own) < quota:
            return b, next_exponent(own, start, ratio)
        start, ratio = best_exponent(own), 1.0
    return None


def loss_of(trial: RunRecord) -> float:
    """The loss over all training samples at the end of a trial; +∞ where it diverged."""
    loss = trial.final.get("train_loss") if trial.status == "finished" else None
    return math.inf if loss is None else float(loss)


@dataclass(frozen=True)
class Choice:
    """What a search found."""

    lr: float
    losses: dict[float, float]
    """The loss of every trial, by exponent; with the chosen b, where that was searched."""
    base: float
    """The default step of the method, which is the factor 1."""
    ifo: int
    seconds: float
    epoch: int
    """The epoch in which the best trial ended."""
    b: Size = None
    """The chosen mini-batch size; None where it was not searched."""
    sizes: dict[int, dict[float, float]] = field(default_factory=dict)
    """The losses by exponent for every mini-batch size that was searched."""

    @property
    def exponent(self) -> float:
        return best_exponent(self.losses)

    @property
    def at_edge(self) -> bool:
        """Whether the best is the smallest or the largest that was tried: a better one may lie beyond."""
        return self.exponent in (min(self.losses), max(self.losses))

    @property
    def b_at_edge(self) -> bool:
        """Whether the best b is the smallest or the largest that was tried."""
        return self.b is not None and self.b in (min(self.sizes), max(self.sizes))

    def notes(self, passes: str) -> Row:
        by_size: list[tuple[Size, dict[float, float]]] = [*self.sizes.items()] or [(None, self.losses)]
        tried = [(b, e, loss) for b, losses in by_size for e, loss in losses.items()]
        found = {
            "trials": len(tried),
            "of": f"{passes} each, by the loss over all training samples at their end",
            "default_step": self.base,
            "factors": [2**e for _, e, _ in tried],
            "losses": [loss for *_, loss in tried],
            "factor": 2**self.exponent,
            "lr": self.lr,
            "at_edge": self.at_edge,
            "epoch": self.epoch,
            "ifo": self.ifo,
            "seconds": self.seconds,
            "caution": "a short run favours steps that are large at first and methods that need no anchor",
        }
        if self.b is None:
            return found
        return found | {"b": self.b, "b_tried": [b for b, *_ in tried], "b_at_edge": self.b_at_edge}


def choose(trials: Mapping[float, RunRecord], base: float) -> Choice:
    """The choice of the best among the trials, which are given by exponent."""
    return choose_among({None: trials}, base)


def choose_among(trials: Mapping[Size, Mapping[float, RunRecord]], base: float) -> Choice:
    """The choice of the best among the trials, which are given by mini-batch size and exponent."""
    losses = {b: {e: loss_of(trial) for e, trial in own.items()} for b, own in trials.items()}
    b = min(losses, key=lambda b: min(losses[b].values()))  # the first of several
    if not math.isfinite(min(losses[b].values())):
        tried = ", ".join(f"{base * 2**e:.3g}" for e in dict.fromkeys(e for own in losses.values() for e in own))
        raise ValueError(f"every step size that was tried diverged ({tried}): give lr= for this method")
    made = [trial for own in trials.values() for trial in own.values()]
    ifo = sum(int(trial.final.get("ifo", 0)) for trial in made)
    seconds = sum(float(trial.final.get("seconds", 0.0)) for trial in made)
    best = best_exponent(losses[b])
    sizes = {size: own for size, own in losses.items() if size is not None}
    return Choice(base * 2**best, losses[b], base, ifo, seconds, int(trials[b][best].final["epoch"]), b, sizes)
