"""The plan of an epoch: what a schedule is told of the run so far, what is refused of its answer, what is recorded."""

from __future__ import annotations

import math
from dataclasses import replace

from vcsg.method.definition import Method
from vcsg.method.schedules import RECENT, Facts, Plan
from vcsg.run.record import Record
from vcsg.run.sampling import draw_geometric, stream
from vcsg.run.state import CourseState


def blocks(method: Method, n: int, least: int) -> int:
    """How many gradients the method's table holds, for mini-batches of `least` samples or more; 0 without a table."""
    if not method.table:
        return 0
    b = method.schedule(Facts(1, n, math.nan, math.nan)).b
    return max(1, n // least) if b < least else math.ceil(n / b)


def remember_variance(state: CourseState, variance: float) -> None:
    """Keep the S* of an anchor whose point is good, for the plans of later epochs."""
    if not state.first_variance > 0:
        state.first_variance = variance
    elif state.epoch > 1 and not state.settled_variance > 0:
        state.settled_variance = variance
    if not math.isnan(variance):
        state.recent = [*state.recent, variance][-RECENT:]


def plan_epoch(state: CourseState, method: Method, n: int, least: int) -> Plan:
    """The plan of the epoch that begins, with mini-batches of `least` samples or more."""
    plan = method.schedule(_facts(state, n))
    _check(plan, method, n)
    return replace(plan, b=max(plan.b, least))


def smallest_batch(state: CourseState, method: Method, n: int, least: int) -> int:
    """The smallest mini-batch of this epoch and the next, as they are planned from the S* of now.

    The smaller a mini-batch, the larger its curvature, and L has to serve for all.
    """
    assert state.plan is not None
    ahead = method.schedule(replace(_facts(state, n), epoch=state.epoch + 1))
    return max(min(state.plan.b, ahead.b), least)


def inner_steps(state: CourseState, method: Method, seed: int) -> int:
    """How many steps the inner phase of this epoch has, drawn where the method draws it."""
    plan = state.plan
    assert plan is not None
    planned = len(plan.levels) or math.ceil(plan.steps_B / plan.b)
    if method.length == "geometric":
        return draw_geometric(stream(seed, "length", state.phase.number), plan.steps_B, plan.b)
    return planned


def epoch_record(state: CourseState, n: int, step_size: float, length: int) -> Record:
    """The record of the epoch that was planned, of so many inner steps."""
    plan = state.plan
    assert plan is not None
    assert state.L is not None
    return Record(
        epoch=state.epoch,
        regime=plan.regime,
        B=plan.B,
        b=plan.b,
        step_size=step_size,
        length=length,
        L=state.L,
        eps=plan.eps,
        anchor=state.anchor,
        ifo=state.ifo,
        passes=state.ifo / n,
    )


def _facts(state: CourseState, n: int) -> Facts:
    anchor = state.anchor
    return Facts(
        epoch=state.epoch,
        n=n,
        variance=anchor.variance if anchor else math.nan,
        first_variance=state.first_variance,
        anchor=anchor.B if anchor else None,
        recent=tuple(state.recent),
        settled_variance=state.settled_variance,
    )


def _check(plan: Plan, method: Method, n: int) -> None:
    """Refuse a plan that could not be run as it stands: the schedule may be the user's own."""
    where = f"the schedule of {method.name!r} planned"
    if plan.regime not in method.weights:
        known = ", ".join(map(repr, method.weights))
        raise ValueError(f"{where} the regime {plan.regime!r}, for which there are no weights: name one of {known}")
    for name, size in (("b", plan.b), ("next_B", plan.next_B)):
        if not 1 <= size <= n:
            raise ValueError(f"{where} {name} = {size!r}: plan between 1 and n = {n} samples")
    if not min(plan.B, plan.steps_B) >= 1 or not 0 <= plan.factor < math.inf:
        raise ValueError(
            f"{where} B = {plan.steps_B!r}, a factor of {plan.factor!r}: plan B ≥ 1 and a finite factor ≥ 0"
        )
    if bool(plan.levels) != (method.moves == "nested") or len(plan.sizes) != len(plan.levels):
        raise ValueError(
            f"{where} {len(plan.levels)} levels and {len(plan.sizes)} sizes, and the method has moves = "
            f"{method.moves!r}: nested anchors need a level and a size for every step, others have none"
        )
