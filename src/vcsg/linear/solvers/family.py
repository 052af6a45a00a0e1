"""The compiled executor: any method of the family on linear models, with the samples that `FiniteSumOptimizer` draws.

It drives the same course as the optimizer, a phase at a time. An anchor of all n rows leaves their slopes, and its
inner steps then cost one evaluation. A smaller anchor, a rule that compares gradients or an anchor that moves needs
two.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from vcsg.linear.inner_steps import constant_steps
from vcsg.linear.kernels import order as orders
from vcsg.linear.kernels import paired
from vcsg.linear.kernels.loops import renewing, shrink
from vcsg.linear.problem import Array, PassResult, Problem, variance
from vcsg.linear.solution import HistoryEntry, Solution
from vcsg.method import Method
from vcsg.method.schedules import Facts
from vcsg.method.weights import Constant, Rule, Tested, is_standard
from vcsg.run.course import Course
from vcsg.run.course_options import CourseOptions
from vcsg.run.holder import StepNumbers
from vcsg.run.sampling import stream
from vcsg.run.variance import AnchorSum

EVALUATE_EVERY = 10
"""A method without anchors is evaluated on all rows in every tenth epoch."""
JUDGED_ROWS = 256
"""The rows whose mean loss judges the steps of an epoch that has no anchor, at most."""
TESTS = {"norm": paired.NORM, "lemma": paired.LEMMA, "elementwise": paired.ELEMENTWISE}


class LinearPoint:
    """The arrays of a run: x, the anchor y with its mean m, and the anchor that moves where the method has one."""

    lr, sign, penalty = 1.0, 1, 0.0

    def __init__(self, problem: Problem, start: Array) -> None:
        self.problem, self.x = problem, start.copy()
        self.anchor, self.mean = start.copy(), np.zeros(problem.shape)
        self.loss_mean = np.zeros(problem.shape)
        """m without the gradient of the penalty."""
        self.slopes = np.empty(0)
        """w_i φ'_i at y of every row of the anchor."""
        self.moved = self.anchor, self.mean
        """(y, m) of the anchor that moves with the steps."""

    def store(self, name: str) -> None:
        """Keep x as the last good point, which is y. (There is no weighted output, and so no other name.)"""
        self.anchor = self.x.copy()

    def restore(self, name: str) -> None:
        """Go back to the last good point."""
        self.x = self.anchor.copy()

    def step_along_mean(self, weight: float, numbers: StepNumbers) -> None:
        """x ← prox(x − η·weight·m)."""
        step, l1 = numbers.step_size(self.lr), self.problem.penalty.l1
        self.x -= step * weight * self.mean
        if l1:
            shrink(self.x, step * l1)


class LinearExecutor:
    """Does the phases of a run by compiled loops; an epoch is `look` and `move`.

    Args:
        problem: what is minimised.
        start: where to begin.
        method: what to run.
        seed: of all sampling.
        L: the smoothness constant; None is the closed form max_i L_i.
        order: how inner steps take rows, "random" or "interleaved".
    """

    def __init__(
        self,
        problem: Problem,
        start: Array,
        method: Method,
        seed: int = 0,
        L: float | None = None,
        order: str = "random",
    ) -> None:
        check(problem, method, order)
        self.problem, self._order, self._norms = problem, order, problem.norms
        self.point = LinearPoint(problem, start)
        options = CourseOptions(variance="exact")
        self.course = Course(method, problem.n, self.point, None, options, seed, problem.L() if L is None else L)
        self.passes = 0.0
        """Rows evaluated at a point, in units of n."""
        self.measured = self.point.x
        """The point that was last looked at; a method that steps along its anchor has gone on from it already."""

    def look(self) -> tuple[int, float, float]:
        """Draw an anchor where the epoch has one: how many rows were seen, f and ‖∇f‖ over them.

        A method without anchors is evaluated on all rows in every tenth epoch, which costs a pass.
        """
        state = self.course.state
        if state.phase.kind == "anchor":
            rows, found = state.phase.total, self._anchor()
            return rows, found.value, found.norm
        if state.epoch % EVALUATE_EVERY:
            return 0, math.nan, math.inf
        self.passes += 1
        self.measured = self.point.x.copy()
        found = self.problem.anchor(self.measured)
        return self.problem.n, found.value, found.norm

    def move(self, most: int | None = None) -> None:
        """The inner steps of the epoch; with `most`, at least one of them and at most so many."""
        phase = self.course.state.phase
        while phase.kind == "inner" and self.course.state.phase is phase:
            self._inner(phase.count if most is None else most)
            if most is not None:
                return

    def _anchor(self) -> PassResult:
        """Evaluate B rows at x: m and S*, f and ‖∇f‖ over them."""
        point, phase, n = self.point, self.course.state.phase, self.problem.n
        B = phase.total
        part = self.problem if n == B else self.problem.subset(phase.indices)
        norms = self._norms if n == B else self._norms[phase.indices]
        self.measured = point.x.copy()
        found = part.anchor(self.measured)
        self.passes += B / n
        point.mean, point.loss_mean, point.slopes = found.smooth, found.gradient, found.kept
        spread = variance(found, norms, n) * n / (n - 1) * (B - 1) if B > 1 else 0.0
        # The losses of single rows are not known: of some rows, the mean alone condemns nothing.
        total = AnchorSum(samples=B, chunks=B, loss=found.value, spread=spread, loss_spread=0.0 if n == B else math.inf)
        self.course.take_anchor(total, found.norm * found.norm)
        return found

    def _inner(self, most: int) -> None:
        """The inner steps up to where the course judges them next, and at most so many."""
        course, state, rule = self.course, self.course.state, self.course.rule
        if not is_standard(rule):
            raise ValueError(rule_refusal(course.method, rule))
        index = self._index(state.position, min(course.next_judgement(), state.position + most))
        if state.position == 0 and not state.drawn and not course.allows(self._loss(index[:1]), 0.0):
            return
        self._take(rule, index, course.step_size(self.point.lr))
        loss = self._loss(index)
        course.take_steps([loss] * len(index), [0.0] * len(index))

    def _take(self, rule: Rule, index: orders.Index, step: float) -> None:
        """x after the steps with these rows."""
        course, point, problem = self.course, self.point, self.problem
        touched = index.size / problem.n
        if course.method.table:
            renewing(*problem.model, point.x, point.slopes, point.loss_mean, index, step, *problem.penalty.terms)
        elif type(rule) is Constant and course.method.moves == "epoch" and (self._exact or not rule.weights.anchor):
            self._constant(rule, index, step)
        else:
            self._paired(rule, index, step)
            touched *= 2
        self.passes += touched

    @property
    def _exact(self) -> bool:
        """Whether the anchor took all rows, so that the slopes of all are known."""
        return len(self.point.slopes) == self.problem.n

    def _constant(self, rule: Constant, index: orders.Index, step: float) -> None:
        weights, problem, point = rule.weights, self.problem, self.point
        slopes: Array = np.zeros((problem.n, problem.outputs))
        pull: Array = np.zeros(problem.shape)
        if weights.anchor or weights.mean:
            pull = weights.mean * point.mean + weights.anchor * problem.penalty.gradient(point.anchor)
            slopes = point.slopes if self._exact else slopes
        point.x = constant_steps(problem, point.x, slopes, pull, index, step, weights, average=False)

    def _paired(self, rule: Rule, index: orders.Index, step: float) -> None:
        point, moves = self.point, self.course.method.moves == "step"
        [(read, _)] = self.course.levels(1)
        if read == 0:
            point.moved = (point.anchor.copy(), point.mean.copy()) if moves else (point.anchor, point.mean)
        test = TESTS[rule.test] if type(rule) is Tested else paired.NO_TEST
        passed, failed = (np.array(rule.choices[k], dtype=np.float64) for k in (0, -1))
        paired.paired_inner(
            *self.problem.model, point.x, *point.moved, index, step, test, passed, failed, moves,
            *self.problem.penalty.terms,
        )  # fmt: skip

    def _loss(self, index: orders.Index) -> float:
        """f over the last rows of some steps, where the method's own losses judge it; else whether x is finite."""
        if self.course.state.drawn and self.course.method.drawn == "epoch":
            return 0.0 if np.isfinite(self.point.x).all() else math.nan
        rows = index.reshape(-1)[-JUDGED_ROWS:].astype(np.int64)
        return self.problem.subset(rows).anchor(self.point.x).value

    def _index(self, first: int, end: int) -> orders.Index:
        """The rows of the steps from `first` on, before `end`."""
        phase, n = self.course.state.phase, self.problem.n
        b = phase.size(0)
        if self._order == "interleaved":
            rng = stream(self.course.seed, "samples", phase.number)
            lines = [orders.interleaved(n, b, rng) for _ in range(math.ceil(phase.count / (n // b)))]
            return np.concatenate(lines)[first:end]
        rows = phase.indices.astype(np.uint32).reshape(-1, b)
        return rows[[phase.block(k) for k in range(first, end)]] if phase.blocks else rows[first:end]


def run(
    problem: Problem,
    start: Array,
    method: Method,
    tol: float = 1e-4,
    passes: float = 100.0,
    seed: int = 0,
    L: float | None = None,
    order: str = "random",
    report: Callable[[HistoryEntry], None] = lambda _: None,
) -> Solution:
    """Run a method of the family on a linear model.

    Args:
        problem: what to minimise.
        start: where to begin, of shape `problem.shape`.
        method: one of `vcsg.make`; nested anchors (SNVRG) and rules with code of their own are refused.
        tol: stop where ‖∇f‖ ≤ tol over all rows.
        passes: stop when so many passes are used up; a row evaluated at one point counts 1/n.
        seed: of all sampling.
        L: the smoothness constant; None is the closed form max_i L_i. It doubles where a run diverges.
        order: "random" rows, as the optimizer draws them, or "interleaved" ones, which memory serves faster.
        report: called with a `HistoryEntry` for every anchor.
    """
    executor = LinearExecutor(problem, start, method, seed, L, order)
    began, history = time.perf_counter(), []
    while executor.passes < passes:
        rows, value, norm = executor.look()
        entry = HistoryEntry(method.name, rows, value, norm, executor.passes, time.perf_counter() - began)
        history.append(entry)
        report(entry)
        if norm <= tol and rows == problem.n:
            return Solution(executor.measured, history, True, "‖∇f‖ ≤ tol")
        executor.move()
    executor.passes += 1
    found = problem.anchor(executor.point.x, keep=False)
    entry = HistoryEntry(method.name, problem.n, found.value, found.norm, executor.passes, time.perf_counter() - began)
    history.append(entry)
    report(entry)
    message = "‖∇f‖ ≤ tol" if found.norm <= tol else f"{passes:g} passes are used up"
    return Solution(executor.point.x, history, found.norm <= tol, message)


def check(problem: Problem, method: Method, order: str) -> None:
    """Refuse what the compiled loops cannot run as it stands."""
    if not method.needs_L or method.drawn == "never" or method.output != "last":
        raise ValueError(
            f"{method.name} has the step rule {type(method.step).__name__}, draws anchors {method.drawn!r} and returns "
            f"the {method.output!r} point; the compiled loops take plain steps from anchors and return the last point: "
            "use FiniteSumOptimizer"
        )
    if method.moves == "nested":
        raise ValueError(f"{method.name} has nested anchors, which the compiled loops lack: use FiniteSumOptimizer")
    for rule in (rule.at(1) for rule in method.weights.values()):
        if not is_standard(rule):
            raise ValueError(rule_refusal(method, rule))
    if order not in ("random", "interleaved"):
        raise ValueError(f"order = {order!r}: choose 'random' or 'interleaved'")
    if method.table:
        b = method.schedule(Facts(1, problem.n, math.nan, math.nan)).b
        if problem.n % b or order != "random":
            raise ValueError(
                f"{method.name} with b = {b} on n = {problem.n} rows: its fixed blocks must have one size and come in "
                "random order; choose a b that divides n"
            )


def rule_refusal(method: Method, rule: Rule) -> str:
    """Why a rule cannot be run by the compiled loops."""
    return (
        f"{method.name} has the rule {type(rule).__name__}, which forms its direction by code of its own; the compiled "
        "loops know constant weights and the tests of vcsg.method.Tested: use FiniteSumOptimizer"
    )
