"""What it took to reach a target, as interactive bars."""

from __future__ import annotations

from vcsg.study.report.layout import GREY, Plot, base, digits, plain, x_axis
from vcsg.study.report.plots import Looks
from vcsg.study.view.summary import UNITS, Line
from vcsg.study.view.words import AXES, bar_end, bar_text

ROOM = 1.75
"""The length of the axis over that of the longest bar, which leaves room for the text at its end."""


def to_target(lines: list[Line], among: list[Line], target: str, look: Looks) -> Plot:
    """Bars to the target, hatched ones for what was spent without reaching it; a switch chooses the unit.

    Args:
        lines: the methods of one protocol.
        among: those of all protocols, for an axis that is the same for all.
    """
    ends = {unit: max(_whole(line, target, unit) for line in among) or 1.0 for unit in UNITS}
    axes = {unit: {"title.text": AXES[unit], "range": [0, ROOM * end]} for unit, end in ends.items()}
    values = "; ".join(f"{line.label}: {bar_text(line, target, 'seconds')}" for line in lines)
    layout = base(33 * len(lines) + 100) | {
        "showlegend": False,
        "bargap": 0.35,
        "xaxis": x_axis("seconds", range=axes["seconds"]["range"]),
        "yaxis": {"autorange": "reversed", "automargin": True, "ticklen": 4, "tickcolor": "rgba(0,0,0,0)"},
        "meta": {"axes": axes, "bars": True, "said": f"Bars of the time, passes or gradients to the target. {values}."},
        "margin": {"l": 8, "r": 8, "t": 30, "b": 56},
    }
    return {"data": [_bars(lines, target, look), _texts(lines, target)], "layout": layout}


def _bars(lines: list[Line], target: str, look: Looks) -> Plot:
    colours = [look[line.method, line.label] for line in lines]
    missed = [line.to_target[target]["seconds"].median is None for line in lines]
    shown = {unit: {"x": digits(bar_end(line, target, unit) for line in lines)} for unit in UNITS}
    for unit, attributes in shown.items():
        attributes |= {"error_x.array": digits(_reach(line, target, unit)[1] for line in lines)}
        attributes |= {"error_x.arrayminus": digits(_reach(line, target, unit)[0] for line in lines)}
    first = shown["seconds"]
    return {
        "type": "bar",
        "orientation": "h",
        "y": [plain(line.label) for line in lines],
        "x": first["x"],
        "error_x": {
            "type": "data",
            "array": first["error_x.array"],
            "arrayminus": first["error_x.arrayminus"],
            "color": GREY,
            "thickness": 1.5,
        },
        "hoverinfo": "skip",
        "marker": {
            "color": [one.colour for one in colours],
            "pattern": {"shape": ["/" if gone else "" for gone in missed], "fillmode": "replace", "size": 6},
        },
        "meta": {"switch": shown, "colours": [[one.colour for one in colours], [one.on_dark for one in colours]]},
    }


def _texts(lines: list[Line], target: str) -> Plot:
    """The texts at the ends of the bars and their whiskers."""
    shown = {
        unit: {
            "x": digits(_whole(line, target, unit) for line in lines),
            "text": [f" {plain(bar_text(line, target, unit))}" for line in lines],
        }
        for unit in UNITS
    }
    return {
        "type": "scatter",
        "mode": "text",
        "y": [plain(line.label) for line in lines],
        **shown["seconds"],
        "textposition": "middle right",
        "cliponaxis": False,
        "hoverinfo": "skip",
        "meta": {"switch": shown},
    }


def _reach(line: Line, target: str, unit: str) -> tuple[float, float]:
    """The distances from the median down to the lowest and up to the highest."""
    spread = line.to_target[target][unit]
    if spread.median is None or spread.low is None or spread.high is None:
        return 0.0, 0.0
    return spread.median - spread.low, spread.high - spread.median


def _whole(line: Line, target: str, unit: str) -> float:
    return bar_end(line, target, unit) + _reach(line, target, unit)[1]
