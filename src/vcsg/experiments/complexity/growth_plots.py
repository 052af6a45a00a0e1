"""The interactive figures: the exponents with their intervals, and calls along n or 1/ε."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vcsg.experiments.complexity.cells import STEPS
from vcsg.experiments.complexity.contenders import CONTENDERS
from vcsg.experiments.complexity.growth import Growth
from vcsg.experiments.complexity.growth_figures import look, points
from vcsg.experiments.complexity.observations import Observation
from vcsg.study.report.layout import GRID, Plot, base, plain, y_axis

SYMBOLS = ("circle", "square", "triangle-up", "triangle-down", "diamond", "diamond-tall", "cross", "x", "star")


def exponent_plot(found: Sequence[Growth], axis: str) -> Plot:
    """Claimed and measured exponents in n or in 1/ε, a line for every method."""
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
        "xaxis": {"title": {"text": f"exponent in {axis}"}, "automargin": True, "gridcolor": GRID},
        "yaxis": {"categoryorder": "array", "categoryarray": order, "automargin": True, "gridcolor": GRID},
    }
    return {"data": data, "layout": layout}


def calls_plot(observations: Sequence[Observation], axis: str) -> Plot:
    """The median calls of every method along n or 1/ε."""
    data, drawn = [], []
    for place, (name, contender) in enumerate(CONTENDERS.items()):
        x, y = points([one for one in observations if one.contender == name], axis)
        if not x:
            continue
        drawn.append(np.array(y))
        data.append({
            "type": "scatter", "mode": "lines+markers", "x": x, "y": y, "name": plain(contender.label),
            "line": {"color": look(contender).colour, "dash": look(contender).dash, "width": 1.8},
            "marker": {"symbol": SYMBOLS[place], "size": 7, "color": look(contender).colour},
            "hovertemplate": "%{y:.3g}",
            "meta": {"colours": [look(contender).colour, look(contender).on_dark]},
        })  # fmt: skip
    layout = base(420) | {
        "xaxis": {"title": {"text": axis}, "type": "log", "automargin": True, "gridcolor": GRID},
        "yaxis": y_axis("calls", drawn),
        "hovermode": "x unified",
    }
    return {"data": data, "layout": layout}
