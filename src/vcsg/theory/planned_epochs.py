"""The epochs of a method as a run would plan them, from its own schedule, with S* held at one value.

A run measures S* at every anchor; here it stays what it is given as, the most that the theory allows for. Everything
else, B_j, b_j, η_j and N_j, comes from `vcsg.method.schedules`, which a run asks too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from vcsg.method.definition import Method
from vcsg.method.schedules import RECENT, Facts, Plan
from vcsg.method.step_rules import Adaptive, Plain
from vcsg.method.weights import Rule
from vcsg.theory.setting import Setting

LIMIT = 10_000
"""The most epochs that are planned one by one."""
FAR = 10**9
"""An epoch so late that a schedule which settles has settled."""


@dataclass(frozen=True)
class PlannedEpoch:
    """What an epoch will be.

    Attributes:
        epoch: j, from 1.
        anchor: the size of the anchor in hand; 0 where none is drawn in this epoch.
        base: the size of the anchor that the epoch works with, drawn now or before; 0 where there is none.
        eta: η_j.
        steps: the expected number of inner steps.
        calls: the expected number of gradients of single samples.
        plan: what the schedule planned, B_j, b_j and the regime among it.
        rule: the rule of the weights.
    """

    epoch: int
    anchor: int
    base: int
    eta: float
    steps: float
    calls: float
    plan: Plan
    rule: Rule

    @property
    def regime(self) -> str:
        return self.plan.regime

    @property
    def shape(self) -> tuple[object, ...]:
        """What tells an epoch from another, but for its number."""
        return self.plan, self.rule, self.anchor


def epochs(method: Method, setting: Setting) -> Iterator[PlannedEpoch]:
    """The epochs of a run, one after the other, without end."""
    anchor, j = method.schedule.first(setting.n), 1
    while True:
        yield (planned := _epoch(method, setting, j, anchor))
        anchor, j = planned.plan.next_B, j + 1


def settled(method: Method, setting: Setting, planned: PlannedEpoch) -> bool:
    """Whether all later epochs will be like this one; a schedule is taken to be monotone in j."""
    later = _epoch(method, setting, FAR, planned.plan.next_B)
    return planned.epoch > 1 and later.shape == planned.shape


def _epoch(method: Method, setting: Setting, j: int, anchor: int) -> PlannedEpoch:
    n, S = setting.n, setting.variance
    has_anchor = method.anchored(j)
    facts = Facts(
        epoch=j,
        n=n,
        variance=S if has_anchor and anchor > 1 else math.nan,
        first_variance=S if has_anchor else math.nan,
        anchor=anchor if has_anchor else None,
        recent=(S,) * min(j, RECENT) if has_anchor else (),
        settled_variance=S if has_anchor and j > 1 else math.nan,
    )
    plan = method.schedule(facts)
    rule = method.weights[plan.regime].at(j)
    drawn = has_anchor and (method.drawn == "epoch" or j == 1)
    steps = _steps(method, plan)
    samples = float(sum(plan.sizes)) if plan.levels else steps * plan.b
    size = anchor if has_anchor else 0
    return PlannedEpoch(
        epoch=j,
        anchor=size if drawn else 0,
        base=size,
        eta=step_size(method, plan, setting.L),
        steps=steps,
        calls=(size if drawn else 0) + evaluations(method, rule) * samples,
        plan=plan,
        rule=rule,
    )


def step_size(method: Method, plan: Plan, L: float) -> float:
    """η_j: (γ/L)·factor of a plain step, the step rule's own rate elsewhere."""
    return method.base * plan.factor / (L if isinstance(method.step, Plain) else 1.0)


def _steps(method: Method, plan: Plan) -> float:
    if plan.levels:
        return float(len(plan.levels))
    return plan.steps_B / plan.b if method.length == "geometric" else float(math.ceil(plan.steps_B / plan.b))


def evaluations(method: Method, rule: Rule) -> int:
    """Gradients per sample of an inner step: at x and at y, at x alone, or none where v = c·m."""
    if all(w.now == w.anchor == 0 for w in rule.choices):
        return 0
    return 2 if any(w.anchor for w in rule.choices) and not method.table else 1


def copies(method: Method, n: int) -> float:
    """The memory of a run beside the parameters and their gradient, in copies of the parameters.

    y, the point to go back to; m, where it is used; the two again for anchors that move, and for every level between
    the anchor and the last of nested ones; the gradient at y; the second moments of an adaptive step (an orthogonal one
    has them for parameters that are no matrices, which is not counted); the average; SAGA's table.
    """
    first = method.schedule(Facts(1, n, 1.0, 1.0, anchor=method.schedule.first(n), recent=(1.0,)))
    rules = list(method.weights.values())
    remembers = any(w.anchor or w.mean for rule in rules for w in rule.choices)
    total = 1.0 + remembers
    if method.moves == "step":
        total += 2 if method.drawn != "never" else any(w.anchor for rule in rules for w in rule.choices)
    elif method.moves == "nested":
        total += 2 * max(max(first.levels, default=0) - 1, 0)
    total += any(evaluations(method, rule) == 2 for rule in rules)
    total += isinstance(method.step, Adaptive) + (method.output != "last")
    return total + (math.ceil(n / first.b) if method.table else 0)
