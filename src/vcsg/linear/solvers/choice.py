"""Which solver suits a problem: a function of its shape alone, with measured constants.

docs/engineering/linear.md tells what was measured.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from vcsg.linear.kernels.losses import LOGISTIC
from vcsg.linear.problem import Array, Problem

SOLVERS = ("growing-svrg", "l-bfgs", "newton", "dual", "working-set", "interior-point")

NEWTON = 2e6
"""The largest n·(unknowns)² for which Newton's method is fastest."""
NEWTON_WIDEST = 50
"""The most features for which it is, but for least squares, which need one Hessian: L-BFGS makes cheaper steps."""
NEWTON_OUTPUTS = 1e8
"""The largest n·(unknowns)² for which Newton's method takes over for several outputs where other steps are slow."""
NEWTON_STEPS, PATIENCE = 12.0, (100.0, 800.0)
"""The Newton steps that a fit of several outputs needs; the passes that those of the smallest problem take, and the
most that are waited for."""
PASS_WORK, PASS_START = 1.5, 5e4
"""The time of a pass for each number and output, and to begin it, in multiply-adds of a Hessian of several outputs."""
PILOT = 24
"""The fewest rows for each unknown of dense data for which stochastic steps on a part of the rows save passes."""
PILOT_CLASSES = 100
"""The fewest sparse rows of several classes for each feature for which they do: without them L-BFGS begins with the
diagonal of the Hessian, which takes next to nothing."""
FEWEST = 4096
"""The fewest rows for which stochastic steps save more than they cost to set up."""
WIDE = 2.0
"""The fewest features for each row for which the dual is faster on sparse rows."""
STRONG = 5.0
"""The largest penalty λn, in units of the mean of ‖a_i‖², for which the dual is faster than L-BFGS."""
COARSE = 0.5
"""The largest tolerance for which the dual is faster, in units of ‖∇f‖ at 0 with labels drawn by a fair coin."""
MANY = 1000
"""The fewest features for which a working set is faster for the L1 penalty, on sparse rows or on few dense ones."""
SHORT = 2.0
"""The most dense rows for each feature for which that holds."""
SMALL = 2e5
"""The largest n·d for which a working set is faster for the L1 penalty whatever the shape: its overhead is least."""
COLUMNS = (40.0, 200.0)
"""The passes after which L-BFGS takes over from coordinate descent for a loss that is not squared, and those for small
or wide data, where its own are dear beside them: where columns are correlated, coordinate descent takes long."""


class Shape(NamedTuple):
    """What the choice of a solver depends on."""

    n: int
    """The number of rows."""
    d: int
    """The number of features."""
    entries: int
    """The number of stored entries: n·d for dense rows."""
    outputs: int = 1
    """The number of lines of coefficients: that of classes for the multinomial loss, else 1."""
    smooth: bool = True
    """Whether loss and penalty are twice differentiable almost everywhere and convex: no L1, no bounded loss."""
    dual: bool = False
    """Whether it is L2-logistic regression of sparse rows from the start 0, which the dual solver takes."""
    lasso: bool = False
    """Whether there is an L1 penalty or a bound, beside a convex loss with one output, as the working set takes it."""
    bounded: bool = True
    """Whether the curvature of the loss has a bound."""
    positive: bool = False
    """Whether coefficients are bounded to be 0 or above."""
    kinked: bool = False
    """Whether the loss is piecewise linear."""
    fixed: bool = False
    """Whether margins have an offset."""
    quadratic: bool = False
    """Whether the loss is squared, so that a quadratic model of it is the loss itself."""
    square: float = 1.0
    """The mean of ‖a_i‖² over the rows; measured where it matters, for `dual` and wide rows."""
    l2: float = 0.0
    """λ, the weight of the penalty."""
    tol: float = 0.0
    """The bound on ‖∇f‖."""

    @property
    def work(self) -> float:
        """The multiply-adds of a Hessian of all rows, for one output."""
        return self.n * (self.d + 1.0) ** 2

    @property
    def newton_pays(self) -> bool:
        """Whether Newton's method is fastest for a smooth f: never for several outputs, whose Hessian has all pairs."""
        return self.outputs == 1 and self.work <= NEWTON and (self.d <= NEWTON_WIDEST or self.quadratic)

    @property
    def patience(self) -> float:
        """The passes after which Newton's method takes over, for several outputs: as many as it takes by itself."""
        pairs, width, (least, most) = self.outputs * (self.outputs + 1) / 2, self.d + 1.0, PATIENCE
        if self.outputs == 1 or not self.smooth or self.n * (self.outputs * width) ** 2 > NEWTON_OUTPUTS:
            return math.inf
        hessian = self.n * pairs * width**2 + (self.outputs * width) ** 3
        each = PASS_WORK * self.n * self.d * self.outputs + PASS_START
        return min(least + NEWTON_STEPS * hessian / each, most)

    @property
    def columns_passes(self) -> float:
        """The passes after which L-BFGS takes over from coordinate descent."""
        if self.quadratic or self.positive:
            return math.inf
        return COLUMNS[self.n * self.d <= SMALL or self.d > self.n]

    @property
    def sparse(self) -> bool:
        """Whether some entries are not stored."""
        return self.entries < self.n * self.d

    @property
    def dual_pays(self) -> bool:
        """Whether coordinate ascent in the dual is faster than L-BFGS."""
        wide = self.dual and self.d >= WIDE * self.n
        coin = math.sqrt(self.square / self.n) / 2
        return wide and self.l2 * self.n <= STRONG * self.square and self.tol <= COARSE * coin


def shape_of(problem: Problem, start: Array, tol: float) -> Shape:
    """The shape of a problem."""
    entries = int(problem.rows.nnz) if problem.sparse else problem.n * problem.d
    smooth = problem.smooth
    dual = smooth and problem.sparse and problem.loss.code == LOGISTIC and problem.penalty.l2 > 0 and not start.any()
    wide = dual and problem.d >= WIDE * problem.n
    square = float(problem.rows.data @ problem.rows.data) / problem.n if wide else 1.0
    terms = problem.penalty
    convex = problem.loss.convex and not problem.loss.kinked and not terms.rational and problem.outputs == 1
    return Shape(
        problem.n, problem.d, entries, problem.outputs, smooth, dual, convex and (terms.l1 > 0 or terms.positive),
        problem.loss.bounded, terms.positive, problem.loss.kinked, problem.fixed, problem.loss.quadratic,
        square, terms.l2, tol,
    )  # fmt: skip


def choose(shape: Shape) -> str:
    """The name of the fastest solver for a shape.

    "interior-point" for a loss that is piecewise linear, "l-bfgs" for margins with an offset. "working-set" for
    bounds, and for the L1 penalty with a thousand features or more, on sparse rows or on few dense ones, for small
    data and for least squares. "newton" for small problems of few features and one output: their Hessians cost less
    than anything else. "dual" for sparse rows with at least two features for each row, where the penalty is weak and
    the tolerance not coarse. "l-bfgs" where there are few rows, or few for each feature, so that a part of them says
    little. "growing-svrg" for everything else, and for penalties and losses that are not smooth or not convex.
    """
    if shape.kinked:
        return "interior-point"
    if shape.fixed:
        return "l-bfgs"
    wide = shape.d >= MANY and (shape.sparse or shape.n <= SHORT * shape.d)
    small = shape.n * shape.d <= SMALL
    if shape.positive or (shape.lasso and (wide or small or shape.quadratic or not shape.bounded)):
        return "working-set"
    if not shape.smooth:
        return "growing-svrg"
    if shape.newton_pays:
        return "newton"
    if shape.dual_pays:
        return "dual"
    if not shape.bounded:
        return "l-bfgs"
    if shape.outputs > 1:
        return "l-bfgs" if shape.n < (PILOT_CLASSES if shape.sparse else PILOT) * shape.d else "growing-svrg"
    few = shape.d > WIDE * shape.n if shape.sparse else shape.n < PILOT * shape.d
    return "l-bfgs" if few or shape.n < FEWEST else "growing-svrg"


def refusal(solver: str, shape: Shape) -> str:
    """Why a solver cannot be used for a shape; empty where it can."""
    if (solver == "interior-point") != shape.kinked:
        return "solver='interior-point' is for loss='quantile', and that loss has no other: choose 'auto'"
    if shape.fixed and (solver != "l-bfgs" or not shape.smooth):
        return "offset needs penalty='l2' or None, and solver='auto' or 'l-bfgs'"
    if shape.positive and (solver != "working-set" or not shape.lasso):
        return (
            "positive=True needs a convex loss, penalty='l2', 'l1', 'elasticnet' or None, and solver='working-set': "
            "choose 'auto'"
        )
    if solver == "growing-svrg" and not shape.bounded:
        return "solver='growing-svrg' needs a loss with a bound on its curvature: choose 'auto'"
    if solver == "newton" and not shape.smooth:
        return "solver='newton' needs a convex loss and no penalty but 'l2': choose 'growing-svrg' or 'l-bfgs'"
    if solver == "working-set" and not shape.lasso:
        return "solver='working-set' needs penalty='l1' or 'elasticnet', a convex loss and two classes: choose 'auto'"
    if solver == "dual" and not shape.dual:
        return (
            "solver='dual' needs sparse rows, loss='logistic' with two classes, penalty='l2', alpha above 0 and no "
            "warm start: choose 'auto'"
        )
    return ""
