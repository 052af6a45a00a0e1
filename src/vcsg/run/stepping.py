"""The inner steps of an epoch: by which rule each chooses its weights, what it reads and writes, and its numbers."""

from __future__ import annotations

from collections.abc import Callable

from vcsg.method.definition import Method
from vcsg.method.schedules import Plan
from vcsg.method.weights import Constant, Rule, Weights
from vcsg.run.holder import StepNumbers, averaging_weight
from vcsg.run.sampling import Phase
from vcsg.run.state import CourseState


def rule_in_use(planned: Rule, state: CourseState, method: Method) -> Rule:
    """The rule that chooses the weights of the next step: the planned one, but where nothing is remembered yet."""
    if method.drawn == "never" and state.depth < 0:  # y is x, and m is 0
        weights = planned.choices[-1]
        return Constant(Weights(weights.now + weights.anchor, 0, 0))
    return planned


def next_levels(state: CourseState, method: Method, plan: Plan, count: int) -> list[tuple[int, int]]:
    """The levels of the next steps: the (y, m) that each reads, and the one that it moves to (x, v); 0 for none."""
    position, depth = state.position, state.depth
    if method.moves == "epoch":
        return [(0, 0)] * count
    if method.moves == "step":
        return [(depth, 1), *[(1, 1)] * (count - 1)][:count]
    found = []
    for level in plan.levels[position : position + count]:
        found.append((min(level - 1, depth), level if level < max(plan.levels) else 0))
        depth = found[-1][1] or depth
    return found


def next_numbers(
    state: CourseState, method: Method, planned: Rule, step_size: Callable[[float], float], averages: bool, count: int
) -> list[StepNumbers]:
    """The numbers that the next steps need besides their directions, under the rule that is planned."""
    memory = planned.choices[0].mean if method.moves == "step" and type(planned) is Constant else 0.0
    weights = [averaging_weight(state.averaged + k) for k in range(1, count + 1)]
    return [
        StepNumbers(
            step_size=step_size,
            moment=state.moments + k,
            memory=memory,
            from_zero=method.drawn == "never",
            average=weight if averages else None,
        )
        for k, weight in enumerate(weights, 1)
    ]


def count_steps(state: CourseState, count: int, levels: list[tuple[int, int]], evaluations: int) -> None:
    """So many steps of these levels were taken, each with so many gradients of every sample."""
    first = state.position
    state.steps += count
    state.ifo += evaluations * _samples_between(state.phase, first, first + count)
    for _, write in levels:
        state.depth = write or state.depth
    count_moves(state, count)
    state.position += count


def count_moves(state: CourseState, count: int) -> None:
    """The point moved so many times."""
    state.moments += count
    state.averaged += count


def _samples_between(phase: Phase, first: int, end: int) -> int:
    """How many samples the batches from `first` on have, before `end`."""
    if end == first + 1:
        return phase.size(first)
    return int(phase.bounds(end - 1).stop - phase.bounds(first).start)
