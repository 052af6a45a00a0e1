"""What the records say of variance reduction, in sentences and tables made from the numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from vcsg.experiments.payoff.gradient_estimators import BASE, ESTIMATORS
from vcsg.experiments.payoff.payoff_cells import UNITS, Payoff, PayoffCell, ratio

SPENT = {"passes": "gradients", "seconds": "seconds"}
HEADS = (
    "step", "b", "estimator", "reached it", "passes to it", "over the mini-batch gradient's", "seconds to it",
    "over the mini-batch gradient's", "value at the end", "step size",
)  # fmt: skip


def goal_text(found: Payoff) -> str:
    """The goal, such as `a test error of 40 %`."""
    if found.measure == "gap":
        return f"f − min f ≤ {found.goal:g}"
    return f"a {found.measure.replace('_', ' ')} of {100 * found.goal:g} %"


def value_text(found: Payoff, value: float) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:.1e}" if found.measure == "gap" else f"{100 * value:.1f} %"


def title(found: Payoff) -> str:
    return f"{found.workload} (n = {found.n:,}), to {goal_text(found)}"


def sentences(found: Payoff) -> list[str]:
    """Whether variance reduction paid, in gradients and in seconds; and who came first under each step rule."""
    return [*(_paid(found, unit) for unit in UNITS), *(said for rule in found.rules for said in _first(found, rule))]


def _paid(found: Payoff, unit: str) -> str:
    answers = [
        ratio(cell, base, found.goal, unit).pays for cell, base in found.pairs() if ESTIMATORS[cell.estimator].reduces
    ]
    yes, no, open_ = (answers.count(answer) for answer in (True, False, None))
    left = f"; {open_} are not decided, for the budget ended too soon" if open_ else ""
    return (
        f"{title(found)}: with the same step rule and b, an estimator that reduces variance took fewer {SPENT[unit]} "
        f"than the mini-batch gradient in {yes} of {len(answers)} comparisons, and not fewer in {no}{left}."
    )


def _first(found: Payoff, rule: str) -> Iterator[str]:
    own = [cell for cell in found.cells if cell.rule == rule]
    parts = []
    for unit in UNITS:
        best = min(own, key=lambda cell: cell.cost(found.goal, unit))
        plain = min((cell for cell in own if not ESTIMATORS[cell.estimator].reduces),
                    key=lambda cell: cell.cost(found.goal, unit), default=best)  # fmt: skip
        if math.isfinite(best.cost(found.goal, unit)):
            beside = "" if best is plain else f", the best without variance reduction {_took(found, plain, unit)}"
            parts.append(f"fewest {SPENT[unit]}: {_took(found, best, unit)}{beside}")
    yield f"{rule.capitalize()} step, {'; '.join(parts)}." if parts else f"{rule.capitalize()} step: none came there."


def _took(found: Payoff, cell: PayoffCell, unit: str) -> str:
    cost, name = cell.cost(found.goal, unit), f"{ESTIMATORS[cell.estimator].label}, b = {cell.b}"
    if math.isinf(cost):
        return f"({name}) did not come there"
    unit_text = "s" if unit == "seconds" else "pass" if f"{cost:.3g}" == "1" else "passes"
    return f"{cost:.3g} {unit_text} ({name})"


def rows(found: Payoff) -> list[list[str]]:
    """The table, a row for each cell, in the order of `HEADS`."""
    return [_row(found, cell) for cell in found.cells]


def _row(found: Payoff, cell: PayoffCell) -> list[str]:
    made = [cell.rule, str(cell.b), ESTIMATORS[cell.estimator].label, f"{cell.reached(found.goal)} of {len(cell.runs)}"]
    base = found.of(BASE, cell.rule, cell.b)
    for unit in UNITS:
        cost = cell.cost(found.goal, unit)
        beside = "–" if base is None else str(ratio(cell, base, found.goal, unit))
        made.append(f"{cost:.3g}" if math.isfinite(cost) else "–")
        made.append("1" if cell is base and math.isfinite(cost) else beside)
    edge = ", edge" if cell.at_edge else ""
    return [*made, value_text(found, cell.final), f"{cell.lr:.3g} (× {cell.factor:.3g}{edge})"]


def markdown(found: Payoff) -> str:
    """The table in Markdown."""
    lines = [HEADS, ["---"] * len(HEADS), *rows(found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def report(payoffs: Sequence[Payoff], commands: Sequence[str], notes: Sequence[str]) -> str:
    """The whole report in Markdown."""
    parts = ["# Does variance reduction pay?", "```sh\n" + "\n".join(commands) + "\n```"]
    parts += [f"- {sentence}" for found in payoffs for sentence in sentences(found)]
    parts += ["![What every estimator needed to the goal, beside the mini-batch gradient](figures/payoff.png)"]
    parts += [f"## {title(found)}\n\n{setup(found)}\n\n{markdown(found)}" for found in payoffs]
    return "\n\n".join([*parts, "## How to read it", *notes]) + "\n"


def setup(found: Payoff) -> str:
    """How the numbers of a problem were measured."""
    run = found.cells[0].runs[0]
    seeds = len({run.seed for cell in found.cells for run in cell.runs})
    shared = f", {found.jobs} runs at a time" if found.jobs > 1 else ", one run at a time"
    return f"{seeds} seeds, {run.passes[-1]:.3g} passes each, on {found.device}{shared}."


NOTES = (
    "Numbers are medians over the seeds; a run that did not come to the goal counts as infinitely long. A ratio is of "
    "two medians with the same step rule and b. `≥` stands where the estimator did not come to the goal within the "
    "budget, `≤` where the mini-batch gradient did not, `–` where neither did.",
    "Every gradient of a single sample counts as one n-th of a pass: anchors, and both gradients of a step that takes "
    "two. All estimators have the same default step at a step rule and a b (1/(3L) for the plain step), and equally "
    "many short runs with the first seed, judged by the training loss, choose a factor of it. "
    "These runs are not counted. `edge` beside a step says that it is the smallest or the largest that was tried: a "
    "better one may lie beyond.",
)
