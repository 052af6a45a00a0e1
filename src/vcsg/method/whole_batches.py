"""A method for batches that a loop hands over: b is theirs, and an anchor is a whole number of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from vcsg.method.definition import Method
from vcsg.method.schedules import BatchSize, Bounded, Facts, GrowingAnchor, Plan, PowerLaw, Schedule, VarianceControlled

DRAW = "leave batch_size out and let the optimizer draw"
LEAST_BATCHES = 8
"""The fewest batches of an anchor whose S* decides on sizes, all n samples permitting: 7 degrees of freedom."""


def for_batches(method: Method, b: int) -> Method:
    """The method with mini-batches of b samples and anchors that are a multiple of b, or all n samples.

    What a method needs that whole batches cannot give is refused.
    """
    if method.table:
        raise ValueError(
            f"{method.name} keeps a gradient for each of fixed blocks of samples, and a loop hands over others every "
            f"time: {DRAW}, or choose svrg, which keeps one gradient"
        )
    if method.moves == "nested":
        raise ValueError(
            f"{method.name} has mini-batches of a size of their own at every level, and the batches of a loop are all "
            f"alike: {DRAW}, or choose svrg"
        )
    steps = any(w.now or w.anchor for w in method.choices)
    return replace(method, schedule=WholeBatches(_fitted(method.schedule, b, steps), b, steps))


def options_for_batches(factory: Callable[..., Method], options: Mapping[str, Any], b: int) -> dict[str, Any]:
    """The options of a method with the b of a loop; another one that was asked for is refused."""
    known, given = inspect.signature(factory).parameters, dict(options)
    if "b" in known:
        asked = given.get("b", known["b"].default)
        if asked not in (known["b"].default, b):
            raise ValueError(f"b = {asked!r}: the loop hands over {b} samples for a step; leave b out, or {DRAW}")
        given["b"] = b
    floor = given.get("b_min")
    if floor is not None and not floor <= b:
        raise ValueError(f"b_min = {floor!r}: the loop hands over {b} samples for a step; leave b_min out, or {DRAW}")
    return given


def _fitted(schedule: Schedule, b: int, steps: bool) -> Schedule:
    """The schedule with this b in its formulas, where there are steps with mini-batches."""
    if isinstance(schedule, PowerLaw):
        return replace(schedule, b=b if steps else schedule.b, batch=WholeAnchors(schedule.batch, b))
    if isinstance(schedule, VarianceControlled):
        given: dict[str, Any] = {field.name: getattr(schedule, field.name) for field in fields(schedule)}
        return WholeControlled(**{**given, "b_min": b, "loop_b": b})
    if is_dataclass(schedule) and any(field.name == "b" for field in fields(schedule)):
        return replace(schedule, b=b)
    return schedule


def whole(size: int, b: int, n: int, least: int = 1) -> int:
    """The smallest multiple of b that is at least `size` and `least` batches, or n where that is smaller."""
    return min(n, b * max(least, math.ceil(size / b)))


@dataclass(frozen=True)
class WholeBatches:
    """A schedule whose sizes are whole batches of b samples, or n: those of `schedule`, rounded up."""

    schedule: Schedule
    b: int
    steps: bool = True
    """Whether steps take mini-batches; where they go along the anchor's mean alone (gradient descent), none do."""

    @property
    def regimes(self) -> tuple[str, ...]:
        return getattr(self.schedule, "regimes", ("",))

    @property
    def measure_again(self) -> bool:
        return getattr(self.schedule, "measure_again", False)

    @property
    def _least(self) -> int:
        return LEAST_BATCHES if isinstance(self.schedule, GrowingAnchor) else 1

    def first(self, n: int) -> int:
        return whole(self.schedule.first(n), self.b, n, self._least)

    def __call__(self, facts: Facts) -> Plan:
        plan, n = self.schedule(facts), facts.n
        loop_B = None if plan.loop_B is None else whole(plan.loop_B, self.b, n)
        B, next_B = (whole(size, self.b, n, self._least) for size in (plan.B, plan.next_B))
        return replace(plan, B=B, b=self.b if self.steps else plan.b, next_B=next_B, loop_B=loop_B)


@dataclass(frozen=True)
class WholeAnchors:
    """The sizes B_j of `batch` in whole batches of b samples, so that (b/B)^α is of the anchor that there is."""

    batch: BatchSize
    b: int

    def first(self, n: int) -> int:
        return self._whole(self.batch.first(n), n)

    def __call__(self, facts: Facts) -> tuple[int, int]:
        B, next_B = self.batch(facts)
        return self._whole(B, facts.n), self._whole(next_B, facts.n)

    def _whole(self, size: int, n: int) -> int:
        return whole(size, self.b, n, LEAST_BATCHES if isinstance(self.batch, Bounded) else 1)


@dataclass(frozen=True)
class WholeControlled(VarianceControlled):
    """VCSG's schedule with B_j in whole batches of `loop_b` samples; its floor b_min is the same number."""

    loop_b: int = 1

    def __call__(self, facts: Facts) -> Plan:
        plan = super().__call__(facts)
        if plan.b == self.loop_b:
            return plan
        # The printed b is larger than the loop's: as where a floor raises it, the step goes with √b but in the first.
        factor = plan.factor * (1.0 if plan.regime == "first" else math.sqrt(self.loop_b / plan.b))
        return replace(plan, b=self.loop_b, factor=factor)

    def bound(self, facts: Facts) -> tuple[int, str]:
        B, regime = super().bound(facts)
        return whole(B, self.loop_b, facts.n, LEAST_BATCHES), regime
