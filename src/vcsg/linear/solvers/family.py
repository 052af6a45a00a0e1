"""Any method of the family on the compiled loops, with the samples that `FiniteSumOptimizer` would draw.

The plan of every epoch is the method's own; an anchor of all n rows leaves their slopes, and its inner steps then cost
one evaluation. A smaller anchor, a rule that compares gradients or an anchor that moves needs both evaluations.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from vcsg.linear.inner_steps import constant_steps
from vcsg.linear.kernels import order as orders
from vcsg.linear.kernels import paired
from vcsg.linear.kernels.loops import renewing, shrink
from vcsg.linear.problem import Array, Problem, variance
from vcsg.linear.solution import HistoryEntry, Solution
from vcsg.method import Method
from vcsg.method.schedules import Facts, Plan
from vcsg.method.weights import Constant, Rule, Tested
from vcsg.run.sampling import Phase, draw_geometric, stream

EVALUATE_EVERY = 10
"""The number of epochs between two evaluations of a method that has no anchors."""
TESTS = {"norm": paired.NORM, "lemma": paired.LEMMA, "elementwise": paired.ELEMENTWISE}


@dataclass
class MethodRun:
    """A run of one method; an epoch is `look` and `move`."""

    problem: Problem
    method: Method
    x: Array
    L: float
    seed: int
    order: str
    norms: Array
    epoch: int = 1
    number: int = 0
    """Counts phases, as the optimizer does: with the seed it determines what is drawn."""
    size: int = 0
    first_variance: float = math.nan
    variance: float = math.nan
    passes: float = 0.0
    seen: int = 0
    """The rows of this epoch's anchor; 0 where it has none of its own."""
    exact: bool = False
    """Whether the last anchor took all rows."""
    point: Array = field(default_factory=lambda: np.empty(0))
    """y, and below m with the penalty's part, and the slopes of all rows at y where they are known."""
    mean: Array = field(default_factory=lambda: np.empty(0))
    kept: Array = field(default_factory=lambda: np.empty(0))

    def look(self) -> tuple[int, float, float]:
        """Draw an anchor where the method wants one: how many rows were seen, f and ‖∇f‖ over them.

        A method without anchors is looked at in every tenth epoch, which costs a pass.
        """
        anchored = self.method.anchored(self.epoch)
        drawn = anchored and (self.method.drawn == "epoch" or not self.mean.size)
        self.seen = self.size if drawn else 0
        if not drawn and self.epoch % EVALUATE_EVERY:
            return 0, math.nan, math.inf
        value, norm = self.anchor() if drawn else self.evaluate()
        if not math.isfinite(value + norm):
            raise FloatingPointError(f"in epoch {self.epoch} f = {value} and ‖∇f‖ = {norm}, with L = {self.L:.3g}")
        return (self.seen if drawn else self.problem.n), value, norm

    def evaluate(self) -> tuple[float, float]:
        self.passes += 1
        found = self.problem.anchor(self.x)
        return found.value, found.norm

    def move(self) -> None:
        """The inner steps of the epoch."""
        spread = self.variance if self.seen else math.nan
        plan = self.method.schedule(Facts(self.epoch, self.problem.n, spread, self.first_variance))
        length = math.ceil(plan.B / plan.b)
        if self.method.length == "geometric":
            length = draw_geometric(stream(self.seed, "length", self.number), plan.B, plan.b)
        self.inner(plan, length, self.method.gamma / self.L * plan.factor)
        self.epoch, self.size = self.epoch + 1, plan.next_B

    def anchor(self) -> tuple[float, float]:
        """Evaluate B rows at x: y, m and S*; f and ‖∇f‖ over them."""
        problem, n, x = self.problem, self.problem.n, self.x
        self.number += 1
        self.exact = self.size == n
        chosen = Phase("anchor", self.number, 1, self.size, n, self.seed).indices.numpy()
        part = problem if self.exact else problem.subset(chosen)
        found = part.anchor(x)
        self.passes += self.size / n
        self.point, self.kept, self.mean = x.copy(), found.kept, found.smooth
        self.variance = variance(found, self.norms if self.exact else self.norms[chosen], n)
        self.first_variance = self.variance if math.isnan(self.first_variance) else self.first_variance
        return found.value, found.norm

    def inner(self, plan: Plan, length: int, step: float) -> None:
        rule = self.method.weights[plan.regime].at(self.epoch)
        if self.method.leap and self.seen:
            self.descend(self.mean, step)
        if all(w.now == w.anchor == 0 for w in rule.choices):
            for _ in range(length):
                self.descend(rule.choices[0].mean * self.mean, step)
            return
        if not length:
            return
        index = self.index(length, plan.b)
        touched = index.size / self.problem.n
        if self.method.table:
            terms = self.problem.penalty
            mean = self.mean - terms.gradient(self.point)
            renewing(*self.problem.model, self.x, self.kept, mean, index, step, *terms.terms)
            self.mean = mean + terms.gradient(self.point)
            self.passes += touched
        elif isinstance(rule, Constant) and self.method.moves == "epoch" and (self.exact or not rule.weights.anchor):
            self.constant(rule, index, step)
            self.passes += touched
        else:
            self.both(rule, index, step)
            self.passes += 2 * touched

    def constant(self, rule: Constant, index: orders.Index, step: float) -> None:
        weights, problem = rule.weights, self.problem
        if weights.anchor or weights.mean:
            pull = weights.mean * self.mean + weights.anchor * problem.penalty.gradient(self.point)
            kept = self.kept if self.exact else np.zeros((problem.n, problem.outputs))
        else:
            pull, kept = np.zeros(problem.shape), np.zeros((problem.n, problem.outputs))
        self.x = constant_steps(problem, self.x, kept, pull, index, step, weights, average=False)

    def both(self, rule: Rule, index: orders.Index, step: float) -> None:
        test = TESTS[rule.test] if isinstance(rule, Tested) else paired.NO_TEST
        passed, failed = rule.choices[0], rule.choices[-1]
        paired.paired_inner(
            *self.problem.model, self.x, self.point, self.mean, index, step, test, np.array(passed), np.array(failed),
            self.method.moves == "step", *self.problem.penalty.terms,
        )  # fmt: skip

    def index(self, length: int, b: int) -> orders.Index:
        """The rows of every step."""
        n = self.problem.n
        self.number += 1
        if self.order == "interleaved":
            rng = stream(self.seed, "samples", self.number)
            lines = [orders.interleaved(n, b, rng) for _ in range(math.ceil(length / (n // b)))]
            return np.concatenate(lines)[:length]
        blocks = n // b if self.method.table else 0
        phase = Phase("inner", self.number, length, length * b, n, self.seed, (), blocks)
        rows = phase.indices.numpy().astype(np.uint32).reshape(-1, b)
        return rows[[phase.block(k) for k in range(length)]] if blocks else rows

    def descend(self, v: Array, step: float) -> None:
        self.x -= step * v
        if self.problem.penalty.l1:
            shrink(self.x, step * self.problem.penalty.l1)


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
        method: one of `vcsg.make`; nested anchors (SNVRG) are refused.
        tol: stop where ‖∇f‖ ≤ tol over all rows.
        passes: stop when so many passes are used up; a row evaluated at one point counts 1/n.
        seed: of all sampling.
        L: the smoothness constant; None is the closed form max_i L_i.
        order: "random" rows, as the optimizer draws them, or "interleaved" ones, which memory serves faster.
        report: called with an `HistoryEntry` for every anchor.
    """
    engine = begin(problem, start, method, seed, L, order)
    began, history = time.perf_counter(), []
    while engine.passes < passes:
        rows, value, norm = engine.look()
        entry = HistoryEntry(method.name, rows, value, norm, engine.passes, time.perf_counter() - began)
        history.append(entry)
        report(entry)
        if norm <= tol and rows == problem.n:
            return Solution(engine.x, history, True, "‖∇f‖ ≤ tol")
        engine.move()
    return Solution(engine.x, history, False, f"{passes:g} passes are used up")


def begin(
    problem: Problem, start: Array, method: Method, seed: int = 0, L: float | None = None, order: str = "random"
) -> MethodRun:
    """The engine before its first epoch."""
    check(problem, method, order)
    L = problem.L() if L is None else L
    size = method.schedule.first(problem.n)
    return MethodRun(problem, method, start.copy(), L, seed, order, problem.norms(), size=size)


def check(problem: Problem, method: Method, order: str) -> None:
    if method.moves == "nested":
        raise ValueError(f"{method.name} has nested anchors, which the compiled engine lacks: use FiniteSumOptimizer")
    if order not in ("random", "interleaved"):
        raise ValueError(f"order = {order!r}: choose 'random' or 'interleaved'")
    if method.table:
        b = method.schedule(Facts(1, problem.n, math.nan, math.nan)).b
        if problem.n % b or order != "random":
            raise ValueError(
                f"{method.name} with b = {b} on n = {problem.n} rows: its fixed blocks must have one size and come in "
                "random order; choose a b that divides n"
            )
