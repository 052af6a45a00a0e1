"""What a method is: data that every executor reads the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vcsg.method.schedules import Schedule
from vcsg.method.weights import Rule, Weights

Length = Literal["geometric", "fixed"]
"""N_j ~ Geom with mean B/b on {0, 1, 2, …}, or N_j = ⌈B/b⌉."""


@dataclass(frozen=True)
class Method:
    """weights (by regime) × schedule × length of the inner loop; the step size is lr · (γ/L) · plan.factor."""

    name: str
    weights: Mapping[str, Rule]
    """The rule of each regime that the schedule names; most methods have the one regime ""."""
    schedule: Schedule
    length: Length
    gamma: float = 1 / 3
    moves: Literal["epoch", "step", "nested"] = "epoch"
    """When the anchor moves: with each epoch, with every step (y ← x, m ← v), or level by level as the plan says."""
    drawn: Literal["epoch", "once"] = "epoch"
    """When an anchor is drawn: for each epoch, or once, at the start."""
    leap: bool = False
    """Whether the anchor's own gradient is a step, x ← x − ηm, before the inner loop."""
    table: int = 0
    """The most bytes that a table of gradients in place of y may take; 0 for no table."""

    @property
    def choices(self) -> tuple[Weights, ...]:
        """Every triple of weights the method can use."""
        return tuple(dict.fromkeys(w for rule in self.weights.values() for w in rule.choices))

    def anchored(self, epoch: int) -> bool:
        """Whether the method has an anchor in epoch j: some weight of y or m is not 0."""
        rules = (rule.at(epoch) for rule in self.weights.values())
        return any(w.anchor or w.mean for rule in rules for w in rule.choices)

    @property
    def unbiased(self) -> bool:
        """Whether E v = ∇f(x) with a full anchor, whatever the step; an anchor that moved is not full."""
        return self.moves == "epoch" and all(w.unbiased for w in self.choices)

    def __str__(self) -> str:
        rules = [
            (f"{regime}: " if regime else "") + " or ".join(map(str, rule.choices))
            for regime, rule in self.weights.items()
        ]
        return f"{self.name:<14} {'; '.join(rules)}"
