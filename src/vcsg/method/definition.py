"""A method: data that the course reads and every executor runs the same way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from vcsg.method.schedules import Schedule
from vcsg.method.step_rules import Plain, StepRule
from vcsg.method.weights import Constant, Rule, Weights, is_standard

Length = Literal["geometric", "fixed"]
"""N_j ~ Geom with mean B/b on {0, 1, 2, …}, or N_j = ⌈B/b⌉."""
Moves = Literal["epoch", "step", "nested"]
"""When the anchor moves: with each epoch, with every step (y ← x, m ← v), or level by level as the plan says."""
Drawn = Literal["epoch", "once", "never"]
"""When an anchor is drawn: for each epoch; once, at the start; or never, so that m begins at 0 (momentum)."""
Output = Literal["last", "weighted", "average"]
OUTPUTS: tuple[str, ...] = get_args(Output)
"""The points that a run can return: its last, one drawn from the ends of its epochs, or the average of all."""

TABLE_WEIGHTS = Weights(1, -1, 1)
"""The weights of the one estimator that has a table (SAGA)."""


@dataclass(frozen=True)
class Method:
    """weights (by regime) × schedule × length of the inner loop × when the anchor moves × step rule.

    A combination that no executor could run as it stands is refused when the method is made.
    """

    name: str
    weights: Mapping[str, Rule]
    """The rule of each regime that the schedule names; most methods have the one regime ""."""
    schedule: Schedule
    length: Length
    gamma: float = 1 / 3
    """γ in the step size of a plain step, lr · (γ/L) · plan.factor."""
    moves: Moves = "epoch"
    drawn: Drawn = "epoch"
    anchor_step: bool = False
    """Whether the anchor's own gradient is a step, x ← x − ηm, before the inner loop."""
    table: bool = False
    """Whether a table of the last gradient of every block of samples stands in place of ∇f_I(y) (SAGA)."""
    table_limit: int = 2**30
    """The most bytes that the table may take."""
    step: StepRule = Plain()  # noqa: RUF009 (a frozen value)
    """The step rule P in x ← x − η·P(v)."""
    output: Output = "last"
    """The point that is returned where the user does not say: the last, a weighted draw, or the average."""
    decay: float = field(default=0.0, repr=False)
    """The decoupled weight decay where the user gives no weight decay. (A saved run has it in its parameter groups.)"""

    def __post_init__(self) -> None:
        self._check_values()
        self._check_rules()
        self._check_combination()

    @property
    def choices(self) -> tuple[Weights, ...]:
        """Every triple of weights the method can use."""
        return tuple(dict.fromkeys(w for rule in self.weights.values() for w in rule.choices))

    def anchored(self, epoch: int) -> bool:
        """Whether the method draws an anchor in epoch j or before: some weight of y or m is not 0."""
        return self.drawn != "never" and self._remembers(epoch)

    def _remembers(self, epoch: int) -> bool:
        """Whether some weight of y or m is not 0."""
        rules = (rule.at(epoch) for rule in self.weights.values())
        return any(w.anchor or w.mean for rule in rules for w in rule.choices)

    @property
    def needs_L(self) -> bool:
        """Whether the step size comes from the smoothness constant."""
        return isinstance(self.step, Plain)

    @property
    def base(self) -> float:
        """The step size of lr = 1 and L = 1, but for the factor of the schedule."""
        return self.gamma if isinstance(self.step, Plain) else self.step.rate

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

    # --- what cannot be run is refused here, before any work

    def _check_values(self) -> None:
        for name, value, kind in (
            ("length", self.length, Length),
            ("moves", self.moves, Moves),
            ("drawn", self.drawn, Drawn),
            ("output", self.output, Output),
        ):
            if value not in get_args(kind):
                raise ValueError(self._fault(name, value, f"choose {' or '.join(map(repr, get_args(kind)))}"))
        if not 0 < self.gamma < math.inf:
            raise ValueError(self._fault("gamma", self.gamma, "give a finite number above 0"))
        if not 0 <= self.decay < math.inf:
            raise ValueError(self._fault("decay", self.decay, "give a finite number, at least 0"))
        for name, flag in (("anchor_step", self.anchor_step), ("table", self.table)):
            if not isinstance(flag, bool):
                raise ValueError(self._fault(name, flag, "give True or False"))

    def _check_rules(self) -> None:
        if not self.weights:
            raise ValueError(self._fault("weights", self.weights, 'give a rule, as {"": Constant(Weights(1, -1, 1))}'))
        for regime, rule in self.weights.items():
            own = f"weights[{regime!r}]"
            if not hasattr(rule, "choices") or not hasattr(rule, "at"):
                raise TypeError(self._fault(own, rule, "give a rule such as Constant(Weights(1, -1, 1))"))
            if not rule.choices or not all(math.isfinite(w) for triple in rule.choices for w in triple):
                raise ValueError(self._fault(f"{own}.choices", rule.choices, "give triples of finite weights"))
            first = rule.at(1)
            if not is_standard(first) and not hasattr(first, "combine"):
                remedy = "give Constant or Tested weights, or a rule with a method combine"
                raise TypeError(self._fault(f"{own}.at(1)", first, remedy))
        missing = [regime for regime in getattr(self.schedule, "regimes", ("",)) if regime not in self.weights]
        if missing:
            raise ValueError(
                f"method {self.name!r}: the schedule names the regime {missing[0]!r}, for which there are no weights, "
                f"only for {', '.join(map(repr, self.weights))}: add a rule for it, or declare the schedule's `regimes`"
            )

    def _check_combination(self) -> None:
        others = [rule for rule in self.weights.values() if rule != Constant(TABLE_WEIGHTS)]
        if self.table and (others or self.moves != "epoch" or self.anchor_step):
            raise ValueError(
                f"method {self.name!r}: a table needs the weights {TABLE_WEIGHTS}, moves='epoch' and anchor_step=False"
            )
        if self.drawn == "never" and (self.moves != "step" or self.anchor_step or self.table):
            remedy = "without an anchor to draw, y and m move with every step: moves='step', no anchor_step, no table"
            raise ValueError(self._fault("drawn", self.drawn, remedy))
        if self.moves == "nested" and self.drawn != "epoch":
            raise ValueError(self._fault("drawn", self.drawn, "nested anchors need drawn='epoch'"))
        if self.drawn == "once" and self.moves == "epoch" and not self.table and self.anchored(1):
            remedy = "an anchor that is drawn once has to move with every step, moves='step', or to be a table"
            raise ValueError(self._fault("drawn", self.drawn, remedy))
        if (self.moves != "epoch" or self.anchor_step) and not self._remembers(1):
            raise ValueError(
                f"method {self.name!r}: moves={self.moves!r} and anchor_step={self.anchor_step} speak of an anchor, "
                "and no weight of y or m is other than 0: leave them out, or give weights that use the anchor"
            )

    def _fault(self, field: str, value: object, remedy: str) -> str:
        return f"method {self.name!r}: {field} = {value!r}: {remedy}"
