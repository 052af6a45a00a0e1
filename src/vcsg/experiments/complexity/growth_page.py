"""The page of the experiment: findings, claimed beside measured, the growth of the calls, every median."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from vcsg.experiments import sheet
from vcsg.experiments.complexity.cells import STEPS, Design
from vcsg.experiments.complexity.claimed_powers import RATES
from vcsg.experiments.complexity.contenders import CONTENDERS, GRID_TEXT
from vcsg.experiments.complexity.exponents import exponents
from vcsg.experiments.complexity.families import DIMENSION, FAMILIES
from vcsg.experiments.complexity.growth import NOTE, Growth, budget_text, interval_text, verdict
from vcsg.experiments.complexity.growth_plots import calls_plot, exponent_plot
from vcsg.experiments.complexity.hitting import RATIO
from vcsg.experiments.complexity.observations import Observation, median_calls
from vcsg.study.report.markup import Child, Markup, tag
from vcsg.study.report.table import Cell, number, table, words
from vcsg.study.view.words import SPACE, amount

CLAIM_CAPTION = (
    "Bars are the intervals of what was measured, full marks with the steps of theory, open ones with the best "
    "constant step of the grid; the upright strokes are the claims."
)


def body(
    found: Sequence[Growth], observations: Sequence[Observation], design: Design, said: Sequence[str], command: str
) -> list[Child]:
    """The parts of the page in order."""
    eps, n = sorted(design.targets)[len(design.targets) // 2], max(design.sizes)
    in_n, in_eps = [o for o in observations if o.eps == eps], [o for o in observations if o.n == n]
    plots = {f"in {axis}": exponent_plot(found, axis) for axis in ("n", "1/ε")}
    growth = [
        *_growth(in_n, "n", f"Calls to ‖∇f‖² ≤ {eps:g}, against n", design),
        *_growth(in_eps, "1/ε", f"Calls with n = {n:,}, against 1/ε", design),
    ]
    how = [tag("p", line) for line in measured_how(design)]
    return [
        sheet.findings(said),
        sheet.section(
            "Claimed and measured",
            exponent_table(found),
            sheet.note(NOTE),
            sheet.figure("Exponents", plots, CLAIM_CAPTION),
        ),
        sheet.section("The growth of the calls", growth),
        sheet.section("By family", family_table(observations, design)),
        sheet.section("Every median", *(median_table(observations, design, family) for family in design.families)),
        sheet.section("How it was measured", how, method_table(design), sheet.command(command)),
    ]


def exponent_table(found: Sequence[Growth]) -> Markup:
    """Claimed beside measured, a line for every method and kind of step."""
    heads = ["method", "step", "claimed calls"]
    heads += [f"{axis}{column}" for axis in ("n", "1/ε") for column in (": claimed", ": measured", ": verdict")]
    rows = []
    for one in found:
        cells = [
            words(one.contender.label),
            words(one.steps),
            words((one.rate.text if one.rate else "–").replace(" ", SPACE)),
        ]
        for claim, measured in one.axes:
            value = measured.value if measured else None
            cells += [
                number(claim, f"{claim or 0:.2f}"),
                number(value, interval_text(measured)),
                words(verdict(claim, measured)),
            ]
        share = f"{one.measured.reached} of {one.measured.runs}"
        rows.append([*cells, number(one.measured.reached / max(1, one.measured.runs), share)])
    return table("Exponents of the calls, all families together", [*heads, "reached ε"], rows)


def family_table(observations: Sequence[Observation], design: Design) -> Markup:
    """The measured exponents of every family by itself."""
    heads = ["method", "step"]
    heads += [f"{FAMILIES[name].label}: {axis}" for name in design.families for axis in ("n", "1/ε")]
    rows = []
    for name in design.methods:
        for steps in STEPS:
            cells = [words(CONTENDERS[name].label), words(steps)]
            for family in design.families:
                fitted = exponents(
                    [o for o in observations if (o.contender, o.steps, o.family) == (name, steps, family)]
                )
                pair = fitted.n, fitted.eps
                cells += [number(one.value if one else None, interval_text(one)) for one in pair]
            rows.append(cells)
    return table("Measured exponents by family", heads, rows)


def median_table(observations: Sequence[Observation], design: Design, family: str) -> Markup:
    """The median calls of every method at every n and ε."""
    cells = [(n, eps) for n in design.sizes for eps in design.targets]
    heads = ["method", "step"] + [f"n = {n:,}, ε = {eps:g}" for n, eps in cells]
    rows: list[list[Cell]] = []
    for name in design.methods:
        for steps in STEPS:
            own = [o for o in observations if (o.contender, o.steps, o.family) == (name, steps, family)]
            row = [words(CONTENDERS[name].label), words(steps)]
            for n, eps in cells:
                calls = median_calls([o for o in own if (o.n, o.eps) == (n, eps)])
                row.append(number(calls, amount("ifo", calls)) if math.isfinite(calls) else Cell("–", None, True))
            rows.append(row)
    caption = f"Median calls, {FAMILIES[family].label}; – where half of the draws or more did not get there"
    return table(caption, heads, rows)


def _growth(observations: Sequence[Observation], axis: str, title: str, design: Design) -> Iterator[Markup]:
    for steps, said in STEPS.items():
        plots = {}
        for family in design.families:
            own = [one for one in observations if (one.family, one.steps) == (family, steps)]
            if own:
                plots[FAMILIES[family].label] = calls_plot(own, axis)
        if plots:
            yield sheet.figure(f"{title}; {said}", plots, "Medians over the draws; a click on a name hides its curve.")


def measured_how(design: Design) -> Iterator[str]:
    """The set-up, in sentences."""
    labels = ", ".join(FAMILIES[name].label for name in design.families)
    yield (
        f"Problems are drawn ({labels}; d = {DIMENSION}, rows of unit norm, the start on the far side of the "
        f"solution), {design.draws} of each n = {', '.join(f'{n:,}' for n in design.sizes)}. L is known and given to "
        "every method. A draw has its own problem and its own samples."
    )
    yield (
        "A call is one gradient of one f_i at one point; all that a method evaluates is counted, also what it threw "
        f"away after a divergence. The true ‖∇f‖² is looked at whenever the calls have grown by {RATIO - 1:.0%}, also "
        "within an inner loop, and those looks are not counted. So the count is that of the first point seen with "
        "‖∇f‖² ≤ ε, to a tenth, not of the random output that the theorems speak of. An ε that the start meets "
        "already is left out."
    )
    yield (
        f"A run may spend {budget_text(design)}. One that did not get there is censored: the fit takes it as more "
        "than that. The step “theory” is that of the method's analysis, “best” the constant step c/L with the best c "
        f"of {GRID_TEXT}, by a search on a problem that no run has."
    )


def method_table(design: Design) -> Markup:
    """The step of theory of every method, and where its claim comes from."""
    rows = []
    for contender in (CONTENDERS[name] for name in design.methods):
        rate = RATES.get(contender.method)
        claim = (rate.text, rate.source) if rate else ("–", "none for non-convex sums")
        rows.append([words(text) for text in (contender.label, contender.theory, *claim)])
    return table("Methods", ["method", "step of its theory", "claimed calls", "source"], rows, sortable=False)
