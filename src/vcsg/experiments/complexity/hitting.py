"""IFO calls until the true ‖∇f‖² is at most ε, by a run of the compiled engine.

‖∇f‖² over all rows is looked at whenever the calls have grown by a tenth since the last look, at the point that the run
is at, within an inner loop too, and the looks are not counted. So a count is exact to a tenth for every method alike,
whatever the length of its epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from vcsg.experiments.complexity.families import DrawnProblem
from vcsg.linear.solvers.family import LinearExecutor
from vcsg.method import Method
from vcsg.run.watch import Diverged

RATIO = 1.1
"""The growth of the calls between two looks at ‖∇f‖²."""
FIRST = 64.0
"""The calls before the first look."""


@dataclass
class Hits:
    """The calls at which each target was first met."""

    ifo: dict[float, int] = field(default_factory=dict)
    """By ε; a target that was not met is missing, and one that the start meets already has 0."""
    spent: int = 0
    """The calls of the run."""
    gradient_norm2: float = math.inf
    """‖∇f‖² at the last look."""
    rollbacks: int = 0
    """How often the run diverged, went back and halved its step."""
    failure: str = ""
    """Why the run gave up before its budget was spent."""


class Looker:
    """Looks at ‖∇f‖² when it is due, and notes which targets are met."""

    def __init__(self, executor: LinearExecutor, targets: Sequence[float]) -> None:
        self._executor, self._seen, self._due = executor, executor.point.x.copy(), FIRST
        self.left = sorted(targets, reverse=True)
        self.hits = Hits()
        self._note()

    @property
    def ifo(self) -> int:
        return self._executor.course.state.ifo

    def steps(self) -> int:
        """How many inner steps there are until a look is due."""
        state = self._executor.course.state
        each = state.phase.size(0) * (2 if self._executor.course.compares else 1)
        return max(1, math.ceil((self._due - state.ifo) / each))

    def look(self, ahead: int = 0) -> None:
        """Look where x has moved and the calls, with those `ahead` that will not move it, have grown enough."""
        x = self._executor.point.x
        if self.ifo + ahead < self._due or np.array_equal(x, self._seen):
            return
        self._seen, self._due = x.copy(), max(self._due, self.ifo * RATIO)
        self._note()

    def _note(self) -> None:
        """Measure ‖∇f‖² at x and note which targets it meets."""
        found = self._executor.problem.anchor(self._executor.point.x).norm ** 2
        self.hits.gradient_norm2 = found
        while self.left and found <= self.left[0]:
            self.hits.ifo[self.left.pop(0)] = self.ifo


def hits(
    drawn: DrawnProblem, method: Method, seed: int, caps: dict[float, float], asked: Callable[[], bool] = lambda: False
) -> Hits:
    """Run a method until every target is met, or its cap of calls is spent.

    Args:
        drawn: the problem; L is given.
        method: what to run.
        seed: of all sampling.
        caps: for every target ε, the most calls that the run may spend on it.
        asked: whether the run is to stop; called between its parts, and a KeyboardInterrupt where it is so.
    """
    executor = LinearExecutor(drawn.problem, drawn.start, method, seed, drawn.L)
    looker, course = Looker(executor, list(caps)), executor.course
    try:
        while any(looker.ifo < caps[eps] for eps in looker.left):
            if asked():
                raise KeyboardInterrupt
            if course.state.phase.kind == "anchor":
                looker.look(ahead=course.state.phase.total)
                if not looker.left:
                    break
                executor.look()
            else:
                executor.move(looker.steps())
            looker.look()
    except (Diverged, FloatingPointError) as error:
        looker.hits.failure = str(error)
    found = looker.hits
    found.spent = looker.ifo
    found.rollbacks = round(math.log2((course.state.L or drawn.L) / drawn.L))
    found.ifo = {eps: ifo for eps, ifo in found.ifo.items() if ifo <= caps[eps]}
    return found
