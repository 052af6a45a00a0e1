"""The page of the experiment: findings, claimed beside measured, the growth of the calls, every median."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from vcsg.experiments import sheet
from vcsg.experiments.complexity.cells import STEPS, Design
from vcsg.experiments.complexity.contenders import CONTENDERS, GRID_TEXT
from vcsg.experiments.complexity.exponents import exponents
from vcsg.experiments.complexity.families import DIMENSION, FAMILIES
from vcsg.experiments.complexity.growth import NOTE, Growth, budget_text, interval_text, verdict
from vcsg.experiments.complexity.growth_figures import look, points
from vcsg.experiments.complexity.hitting import RATIO
from vcsg.experiments.complexity.observations import Observation, median_calls
from vcsg.study.report.layout import Plot, base, plain, y_axis
from vcsg.study.report.markup import Child, Markup, tag
from vcsg.study.report.table import Cell, number, table, words
from vcsg.study.view.words import amount

SYMBOLS = ("circle", "square", "triangle-up", "triangle-down", "diamond", "diamond-tall", "cross", "x", "star")


def body(
    found: Sequence[Growth], observations: Sequence[Observation], design: Design, said: Sequence[str], command: str
) -> list[Child]:
    """The parts of the page in order."""
    eps, n = sorted(design.targets)[len(design.targets) // 2], max(design.sizes)
    in_n, in_eps = [o for o in observations if o.eps == eps], [o for o in observations if o.n == n]
    return [
        sheet.findings(said),
        sheet.section(
            "Claimed and measured",
            exponent_table(found),
            sheet.note(NOTE),
            sheet.figure("Exponents", {f"in {axis}": _exponents(found, axis) for axis in ("n", "1/ε")}, _CLAIM_CAPTION),
        ),
        sheet.section("The growth of the calls", list(_growth(in_n, "n", f"Calls to ‖∇f‖² ≤ {eps:g}, against n")),
                      list(_growth(in_eps, "1/ε", f"Calls with n = {n:,}, against 1/ε"))),
        sheet.section("By family", family_table(observations)),
        sheet.section("Every median", *(median_table(observations, design, family) for family in design.families)),
        sheet.section("How it was measured", [tag("p", line) for line in measured_how(design)], method_table(),
                      sheet.command(command)),
    ]  # fmt: skip


_CLAIM_CAPTION = (
    "Bars are the intervals of what was measured, full marks with the steps of theory, open ones with the best constant "
    "step of the grid; the upright strokes are the claims."
)


def exponent_table(found: Sequence[Growth]) -> Markup:
    """Claimed beside measured, a line for every method and kind of step."""
    heads = ["method", "step", "claimed calls", "n: claimed", "n: measured", "n", "1/ε: claimed", "1/ε: measured", "1/ε",
             "reached ε"]  # fmt: skip
    rows = []
    for one in found:
        cells = [words(one.contender.label), words(one.steps), words(one.rate.text if one.rate else "–")]
        for claim, measured in one.axes:
            value = measured.value if measured else None
            cells += [
                number(claim, f"{claim or 0:.2f}"),
                number(value, interval_text(measured)),
                words(verdict(claim, measured)),
            ]
        share = f"{one.measured.reached} of {one.measured.runs}"
        rows.append([*cells, number(one.measured.reached / max(1, one.measured.runs), share)])
    return table("Exponents of the calls, all families together", heads, rows)


def family_table(observations: Sequence[Observation]) -> Markup:
    """The measured exponents of every family by itself."""
    heads = ["method", "step"] + [f"{kind.label}: {axis}" for kind in FAMILIES.values() for axis in ("n", "1/ε")]
    rows = []
    for name, contender in CONTENDERS.items():
        for steps in STEPS:
            cells = [words(contender.label), words(steps)]
            for family in FAMILIES:
                own = [o for o in observations if (o.contender, o.steps, o.family) == (name, steps, family)]
                fitted = exponents(own) if own else None
                for one in (fitted.n, fitted.eps) if fitted else (None, None):
                    cells.append(number(one.value if one else None, interval_text(one)))
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


def _exponents(found: Sequence[Growth], axis: str) -> Plot:
    place = 0 if axis == "n" else 1
    data = []
    for steps in STEPS:
        own = [one for one in found if one.steps == steps and one.axes[place][1]]
        measured = [one.axes[place][1] for one in own]
        colours = [look(one.contender).colour for one in own]
        data.append({
            "type": "scatter", "mode": "markers", "name": f"measured: {STEPS[steps]}",
            "x": [m.value for m in measured if m], "y": [plain(one.contender.label) for one in own],
            "error_x": {"type": "data", "symmetric": False, "thickness": 1.4, "width": 0,
                        "array": [m.high - m.value for m in measured if m],
                        "arrayminus": [m.value - m.low for m in measured if m]},
            "marker": {"size": 9, "color": colours, "symbol": "circle" if steps == "theory" else "circle-open"},
            "hovertemplate": "%{x:.2f}",
        })  # fmt: skip
    claims = {one.contender.label: one.axes[place][0] for one in found if one.claim}
    data.append({
        "type": "scatter", "mode": "markers", "name": "claimed", "x": list(claims.values()),
        "y": [plain(label) for label in claims], "hovertemplate": "%{x:.2f}",
        "marker": {"symbol": "line-ns", "size": 16, "line": {"width": 3, "color": "#808080"}},
    })  # fmt: skip
    order = [plain(contender.label) for contender in reversed(CONTENDERS.values())]
    layout = base(420) | {
        "xaxis": {"title": {"text": f"exponent in {axis}"}, "automargin": True, "gridcolor": "#e3e7eb"},
        "yaxis": {"categoryorder": "array", "categoryarray": order, "automargin": True, "gridcolor": "#e3e7eb"},
    }
    return {"data": data, "layout": layout}


def _growth(observations: Sequence[Observation], axis: str, title: str) -> Iterator[Markup]:
    for steps, said in STEPS.items():
        plots = {}
        for family, kind in FAMILIES.items():
            own = [one for one in observations if (one.family, one.steps) == (family, steps)]
            if own:
                plots[kind.label] = _lines(own, axis)
        if plots:
            yield sheet.figure(f"{title}; {said}", plots, "Medians over the draws; a click on a name hides its curve.")


def _lines(observations: Sequence[Observation], axis: str) -> Plot:
    data, drawn = [], []
    for place, (name, contender) in enumerate(CONTENDERS.items()):
        x, y = points([one for one in observations if one.contender == name], axis)
        if not x:
            continue
        drawn.append(y)
        data.append({
            "type": "scatter", "mode": "lines+markers", "x": x, "y": y, "name": plain(contender.label),
            "line": {"color": look(contender).colour, "dash": look(contender).dash, "width": 1.8},
            "marker": {"symbol": SYMBOLS[place], "size": 7, "color": look(contender).colour},
            "hovertemplate": "%{y:.3g}",
            "meta": {"colours": [look(contender).colour, look(contender).on_dark]},
        })  # fmt: skip
    layout = base(420) | {
        "xaxis": {"title": {"text": axis}, "type": "log", "automargin": True, "gridcolor": "#e3e7eb"},
        "yaxis": y_axis("calls", drawn),  # type: ignore[arg-type]
        "hovermode": "x unified",
    }
    return {"data": data, "layout": layout}


def measured_how(design: Design) -> Iterator[str]:
    """The set-up, in sentences."""
    labels = ", ".join(FAMILIES[name].label for name in design.families)
    yield (
        f"Problems are drawn ({labels}; d = {DIMENSION}, rows of unit norm, the start on the far side of the solution), "
        f"{design.draws} of each n = {', '.join(f'{n:,}' for n in design.sizes)}. L is known and given to every method. "
        "A draw has its own problem and its own samples."
    )
    yield (
        "A call is one gradient of one f_i at one point; all that a method evaluates is counted, also what it threw away "
        f"after a divergence. The true ‖∇f‖² is looked at whenever the calls have grown by {RATIO - 1:.0%}, also within "
        "an inner loop, and those looks are not counted. So the count is that of the first point seen with ‖∇f‖² ≤ ε, to "
        "a tenth, not of the random output that the theorems speak of."
    )
    yield (
        f"A run may spend {budget_text(design)}. One that did not get there is censored: the fit takes it "
        "as more than that. The method “theory” has the step of its analysis, “best” the constant step c/L with the "
        f"best c of {GRID_TEXT}."
    )


def method_table() -> Markup:
    """The step of theory of every method, and where its claim comes from."""
    rows = []
    for contender in CONTENDERS.values():
        one = Growth(contender, "theory", _NOTHING, None)
        rate = one.rate
        rows.append([words(contender.label), words(contender.theory), words(rate.text if rate else "–"),
                     words(rate.source if rate else "none for non-convex sums")])  # fmt: skip
    return table("Methods", ["method", "step of its theory", "claimed calls", "source"], rows, sortable=False)


_NOTHING = exponents([])
