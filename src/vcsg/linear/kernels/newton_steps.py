"""Newton's method for one output and dense rows as one compiled call: a small fit is as fast as its arithmetic."""

from __future__ import annotations

from typing import Any

from vcsg.linear.kernels.compiled import njit
from vcsg.linear.kernels.hessian import factor, gram, row_curvatures, scale_rows, substitute
from vcsg.linear.kernels.loops import evaluate

HALVINGS = 30
"""How often a step may be halved before f counts as not falling any more."""
FLOOR = 1e-15
"""The ‖∇f‖ at which rounding counts as reached, in units of that at the start."""
LONGEST, NARROW = 2, 4
"""The most passes that a factor is kept for: 2 and a quarter of the number of unknowns, twice as long as it takes."""
LEVEL = 1e-12
"""The relative difference of two values of f below which rounding decides, and ‖∇f‖ is compared in their place."""


@njit
def newton_steps(
    rows: Any, y: Any, weight: Any, code: int, scale: float, bias: float, x: Any, kept: Any, g: Any, smooth: Any,
    l2: float, tol: float, exact: bool, budget: int, seen: Any, scaled: Any, hessian: Any, bends: Any, trial: Any,
    direction: Any,
) -> Any:  # fmt: skip
    """Move x by Newton steps, halved until f falls, until ‖∇f‖ ≤ tol.

    A factor of the Hessian is kept as long as that pays. Near the solution, where the last step left a share r of ‖∇f‖,
    the next one leaves r² with a new factor and 2r with the same one. So a new one saves half of the passes that are
    left at most, and is made where these are expected to take twice as long as it does.

    Args:
        rows: the dense rows, as a tuple of one array.
        y: the targets.
        weight: the weights of the rows.
        code: the number of the loss.
        scale: σ of the loss.
        bias: the value of the intercept's feature, 0 for none.
        x: the start; becomes the solution.
        kept: room for the slopes of all rows.
        g: room for the gradient of the mean loss.
        smooth: becomes ∇f.
        l2: the weight of the penalty.
        tol: the bound on ‖∇f‖.
        exact: whether to go on beyond it, as far as rounding allows.
        budget: the largest number of passes.
        seen: becomes a line (passes, f, ‖∇f‖) for the start and every step; as many steps as fit.
        scaled: room for the rows, and a column for the intercept where there is one.
        hessian: room for the Hessian.
        bends: room for the curvatures of all rows.
        trial: room for a point, of zeros.
        direction: room for a step.

    Returns:
        The number of lines written to `seen`, the number of passes, and whether every Hessian had a factor.
    """
    (n, d), width = rows[0].shape, direction.size
    value, norm = evaluate(rows, y, weight, code, scale, bias, x, 0, n, 1, kept, g, smooth, 0.0, l2, 0.0)
    passes, lines, anew = 1, 1, True
    goal, longest = min(tol, FLOOR * norm) if exact else tol, LONGEST + width // NARROW
    seen[0, 0], seen[0, 1], seen[0, 2] = 1.0, value, norm
    while lines < seen.shape[0] and passes < budget and norm > goal:
        if anew:
            row_curvatures(rows, y, weight, code, scale, bias, x, bends)
            scale_rows(rows[0], bends, 0, bias, scaled)
            gram(scaled, hessian)
            for j in range(d):
                hessian[j, j] += l2
            if not factor(hessian):
                return lines, passes, False
        for j in range(width):
            direction[j] = smooth[0, j]
        substitute(hessian, direction)
        slope, step, before, fallen = 0.0, 1.0, norm, False
        for j in range(width):
            slope -= direction[j] * smooth[0, j]
        for _ in range(HALVINGS if anew else 1):
            for j in range(width):
                trial[0, j] = x[0, j] - step * direction[j]
            there, norm = evaluate(rows, y, weight, code, scale, bias, trial, 0, n, 1, kept, g, smooth, 0.0, l2, 0.0)
            passes += 1
            level = abs(there - value) <= LEVEL * abs(value)
            fallen = norm < before if level else there <= value + 1e-4 * step * slope
            if fallen or passes >= budget:
                break
            step /= 2
        if not fallen:
            _, norm = evaluate(rows, y, weight, code, scale, bias, x, 0, n, 1, kept, g, smooth, 0.0, l2, 0.0)
            if anew or passes >= budget:
                return lines, passes, True
            passes, anew = passes + 1, True
            continue
        for j in range(width):
            x[0, j] = trial[0, j]
        value = there
        seen[lines, 0], seen[lines, 1], seen[lines, 2] = passes, value, norm
        lines += 1
        if norm <= goal or (norm <= tol and anew and norm > before / 2):
            break
        left, expected = norm / before * (2.0 if anew else 1.0), norm
        for _ in range(longest):
            expected *= left
        anew = left > 0.5 or expected > goal
    return lines, passes, True
