"""The default way to solve: the solver that suits the problem's shape, or the one that is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable

from vcsg.linear.duality import duality_gap
from vcsg.linear.kernels.order import Draws, sample
from vcsg.linear.problem import Array, Problem, variance
from vcsg.linear.solution import HistoryEntry, Journal, Solution
from vcsg.linear.solvers import (
    dual,
    growing,
    interior_point,
    lbfgs,
    newton,
    quasi_newton,
    residual_newton,
    row_space,
    working_set,
)
from vcsg.linear.solvers.choice import PILOT, SOLVERS, choose, refusal, shape_of
from vcsg.method.schedules import GrowingAnchor

LOOK = 1024
"""The most rows that tell whether the start may be a solution."""
SAMPLE = 4096
"""The fewest rows of the Hessian that L-BFGS begins with."""
ENDLESS = "; penalty='rational' is bounded, so f may have no minimum where the classes can be told apart"
"""What is added where all passes are used up with that penalty."""


def solve(
    problem: Problem, start: Array, tol: float, passes: float = 1000.0, seed: int = 0, solver: str = "auto",
    schedule: GrowingAnchor = growing.DEFAULT, report: Callable[[HistoryEntry], None] = lambda _: None,
) -> Solution:  # fmt: skip
    """Find a point with ‖∇f‖ ≤ tol, or the best one when the passes are used up.

    Args:
        problem: what to minimise.
        start: the point to begin at, of shape `problem.shape`.
        tol: the bound on ‖∇f‖; with an L1 penalty, on the subgradient of least norm.
        passes: the largest number of passes over all rows.
        seed: the seed of the order of rows, where the solver takes some before others.
        solver: "auto" for the one that suits the problem's shape (`choice.choose`), or one of `choice.SOLVERS`.
        schedule: the sizes of anchors and mini-batches of "growing-svrg".
        report: called with every entry of the history.
    """
    shape = shape_of(problem, start, tol)
    chosen = choose(shape) if solver == "auto" else solver
    if chosen not in SOLVERS:
        raise ValueError(f"solver = {solver!r}: choose 'auto' or one of {', '.join(map(repr, SOLVERS))}")
    if reason := refusal(chosen, shape):
        raise ValueError(reason)
    journal = Journal(passes, report)
    if (start.any() or start_may_do(problem, start, tol)) and (found := at_start(problem, start, tol, journal)):
        found.gap = _gap(problem, found)
        return found
    if chosen == "growing-svrg" and solver == "auto" and not start[:, :-1].any() and growing.easy(problem):
        chosen = "l-bfgs"
    impatient = solver == "auto" and shape.patience + newton.STEPS <= passes
    hands_over = solver == "auto" and chosen == "working-set" and shape.columns_passes < passes
    journal.budget = shape.patience if impatient else shape.columns_passes if hands_over else passes
    if chosen == "newton":
        found = newton.solve(problem, start, tol, journal)
    elif chosen == "l-bfgs":
        found = lbfgs.solve(problem, start, tol, journal, _middle(problem, seed))
    elif chosen == "interior-point":
        found = interior_point.solve(problem, tol, journal, seed)
    elif chosen == "working-set":
        found = working_set.solve(problem, start, tol, journal)
    elif chosen == "dual":
        found = dual.solve(problem, tol, journal, seed)
    else:
        found = growing.solve(problem, start, tol, journal, seed, schedule)
    journal.budget = passes
    if impatient and not found.converged:
        found = _by_newton(problem, start, tol, journal, found)
    if hands_over and not found.converged and residual_newton.has_models(problem):
        journal.budget = journal.passes + journal.left / 2
        found = residual_newton.minimise_models(problem, found.x, tol, journal)
        journal.budget = passes
    if hands_over and not found.converged and journal.left > 0:
        found = lbfgs.solve(problem, found.x, tol, journal)
    if not found.converged and journal.left <= 0:
        endless = problem.penalty.rational and problem.loss.classifies
        found.message = f"{passes:g} passes are used up" + (ENDLESS if endless else "")
    if not problem.loss.kinked:
        found.gap = _gap(problem, found)
    found.solver = ", then ".join(dict.fromkeys(_name(stage) for stage in journal.stages if stage != "start"))
    return found


def _by_newton(problem: Problem, start: Array, tol: float, journal: Journal, before: Solution) -> Solution:
    """Newton's solution, or the one before if ‖∇f‖ is smaller there.

    It begins at the start: where other steps have stopped, f may be too flat for Newton's.
    """
    reached = journal.history[-1]
    found = newton.solve(problem, start, tol, journal)
    if found.converged or not reached.gradient_norm < journal.history[-1].gradient_norm:
        return found
    journal.note(reached.stage, reached.rows, reached.objective, reached.gradient_norm)
    return before


def at_start(problem: Problem, start: Array, tol: float, journal: Journal) -> Solution | None:
    """The start itself as the solution, where a pass shows that ‖∇f‖ ≤ tol there: a warm start may be one."""
    found = problem.anchor(start, keep=False)
    journal.passes += 1
    journal.note("start", problem.n, found.value, found.norm)
    if found.norm > tol or not math.isfinite(found.norm):
        return None
    return Solution(start.copy(), journal.history, True, "‖∇f‖ ≤ tol at the start", "none: solved at the start")


def start_may_do(problem: Problem, start: Array, tol: float) -> bool:
    """Whether the first rows tell that ‖∇f‖ ≤ tol at the start: for sparse rows, as in texts, 0 can be good enough.

    Their gradient is longer than ∇f by its noise, the variance of a row's over their number.
    """
    size = min(LOOK, problem.n // 16)
    if not (problem.sparse and problem.smooth and size > 1):
        return False
    seen = problem.anchor(start, 0, size)
    noise = variance(seen, problem.first_rows(size).norms, problem.n) / size
    return seen.norm**2 - noise <= tol**2


def _gap(problem: Problem, found: Solution) -> float:
    """The duality gap with an L1 penalty; NaN without one."""
    return duality_gap(problem, found.x, found.last) if problem.penalty.l1 else math.nan


def _middle(problem: Problem, seed: int) -> quasi_newton.Middle:
    """What L-BFGS begins with: a Hessian of some rows where the curvature has no bound and may vary by magnitudes, and
    where margins of many rows have an offset; its diagonal for sparse rows of several classes; else the identity, and
    where rows are few for the features.
    """
    if problem.sparse and problem.outputs > 1 and problem.smooth:
        return "diagonal"
    if row_space.cost(problem) < quasi_newton.renewal_cost(problem):
        return "identity"
    many = problem.fixed and problem.n > PILOT * problem.d
    if (
        (problem.loss.bounded and not many)
        or problem.penalty.l1
        or problem.outputs * (problem.d + 1) > quasi_newton.WIDEST
    ):
        return "identity"
    size = min(problem.n, max(SAMPLE, growing.HESSIAN * (problem.d + 1)))
    return problem.subset(sample(problem.n, size, Draws(seed)))


def _name(stage: str) -> str:
    """The solver that a stage of the history belongs to."""
    return "growing-svrg" if stage in ("growing", "full") else stage
