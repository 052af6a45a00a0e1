"""L-BFGS for a squared loss, where f is a parabola along every direction: then its steps are conjugate gradients.

One evaluation on the way, at x + t·p, tells the slope of f all along p, and so the lowest point x + t·a·p. There ∇f is
∇f(x) + a·(∇f(x + t·p) − ∇f(x)), without another pass. With steps to the lowest points the directions of L-BFGS are
conjugate (Nazareth 1979), and no method that is given products with the Hessian alone needs fewer steps. The last point
is evaluated, like all that are returned.
"""

from __future__ import annotations

import math

import numpy as np

from vcsg.linear.problem import Array, PassResult
from vcsg.linear.solvers.quasi_newton import ROUNDED, CountedObjective, Middle, Search

BLURRED = 1e3
"""The rounding of a ∇f that was not evaluated, in units of one that was, from which on a pass is spent on it."""
STRETCH = 16.0
"""The most, and one over the least, by which an evaluation is further along than the next point is expected."""


class ParabolicSearch(Search):
    """Steps to the lowest point along each direction, of a convex f that is a parabola there."""

    def __init__(self, f: CountedObjective, x: Array, here: PassResult, middle: Middle) -> None:
        super().__init__(f, x, here, middle)
        self.stretch = 1.0
        """How far along the last direction the lowest point was, in units of it."""
        self.blur = 1.0
        """A bound on the rounding of ∇f at x, in units of that of an evaluation."""
        self.means: Array | None = None
        """What a step of the coefficients moves the best intercept by, −means·step; None where it is not followed."""
        if middle == "identity" and f.problem.bias and f.problem.n < f.problem.d:
            self.follow_intercept()

    def step(self) -> str:
        """Go to the lowest point along the next direction; the reason where none leads down."""
        x, here, trial = self.x, self.here, np.empty(self.x.shape)
        slope = self.aim(trial)
        if not slope < 0:
            self.look()  # the best intercept may be all there was to find, as for a single row
            return "no direction leads down any more"
        if self.stretch != 1.0:
            np.add(x, self.stretch * self.inverse.direction, out=trial)
        there = self.f(trial)
        self.passes += 1
        bend = float(np.vdot(there.smooth, self.inverse.direction)) - slope
        if not 0 < bend < math.inf:
            return ROUNDED
        share = -slope / bend
        smooth = here.smooth + share * (there.smooth - here.smooth)
        self.last, self.before = x, here.smooth
        self.x = x + share * self.stretch * self.inverse.direction
        self.here = PassResult(
            here.value + share * self.stretch * slope / 2, math.sqrt(np.vdot(smooth, smooth)), smooth, smooth, here.kept
        )
        self.blur = abs(1 - share) * self.blur + share + 1
        self.stretch = min(STRETCH, max(1 / STRETCH, share * self.stretch))
        if self.here.norm <= self.f.tol or self.blur > BLURRED:
            self.look()
        self.leasts.append(min(self.leasts[-1], self.here.norm))
        return ""

    def follow_intercept(self) -> None:
        """Go to the best intercept, and stay there: directions are those among the features less their means.

        With fewer rows than features a change of the intercept can nearly be made up for by the coefficients, so along
        one direction f is hardly curved, and conjugate gradients would take many steps for that alone.
        """
        problem, bias = self.f.problem, self.f.problem.bias
        self.means = (problem.shares @ problem.rows) / bias
        shift, smooth = -self.here.smooth[0, -1] / bias**2, self.here.smooth.copy()
        smooth[0, :-1] += shift * bias**2 * self.means
        smooth[0, -1] = 0.0
        value = self.here.value + shift * self.here.smooth[0, -1] / 2
        self.x = self.x.copy()
        self.x[0, -1] += shift
        self.here = PassResult(value, math.sqrt(np.vdot(smooth, smooth)), smooth, smooth, self.here.kept)
        self.last, self.before = self.x, smooth

    def turn(self, trial: Array) -> float:
        """direction ← that of the pairs and H as they are, trial ← where it leads; the slope along it."""
        slope = super().turn(trial)
        if self.means is not None:
            self.inverse.direction[0, -1] = -float(self.means @ self.inverse.direction[0, :-1])
            np.add(self.x, self.inverse.direction, out=trial)
        return slope

    def renew(self) -> None:
        """Make H anew, with the intercept as one of its coordinates; or go on from where combinations of rows lead."""
        super().renew()
        self.means, self.stretch, self.blur = None, 1.0, 1.0

    def look(self) -> None:
        """Evaluate f at x, where ∇f is known but for the rounding of evaluations elsewhere."""
        self.here, self.blur = self.f(self.x), 1.0
        self.passes += 1
