"""What the interactive figures have in common: fonts, axes, and numbers of as many digits as a screen shows.

A figure is a dictionary of plotly's: data and layout. What a switch changes is in it: `meta.switch` of a trace has, by
the switch's value, the attributes to put in place of those drawn, `meta.axes` of the layout the x axes, `meta.labels`
the heights of the names beside the curves; `meta.colours` of a trace are its colours on a light and on a dark page.
page.js puts them there. `meta.said` of the layout is the figure in a sentence, for those who do not see it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from vcsg.study.view.curves import Array
from vcsg.study.view.style import BLACK
from vcsg.study.view.words import AXES

Plot = dict[str, Any]
GREY = "#808080"
"""A colour that is seen on a light and on a dark page."""
INK, GRID = "#1b1f24", "#e3e7eb"
"""The colours of a light page; page.js has those of a dark one."""
HOVER = {"passes": "after %{x:.2f} passes", "seconds": "after %{x:.3~g} s", "ifo": "after %{x:,} gradients"}
"""The first line of a box that shows the values under the pointer, by unit."""
MOST_TICKS = 7
CLEAR = "rgba(0,0,0,0)"


def base(height: int) -> Plot:
    """The layout that every figure begins with; its legend stands below the axes, at the bottom."""
    return {
        "height": height,
        "margin": {"l": 60, "r": 48, "t": 30, "b": 60},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
        "hoverlabel": {"bgcolor": "#ffffff", "font": {"color": INK}},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        "modebar": {"bgcolor": CLEAR, "color": GREY, "activecolor": "#0a5c94"},
        "template": {},
    }


def x_axis(unit: str, **more: Any) -> Plot:
    title = {"text": AXES[unit], "standoff": 8}
    hover = {"text": HOVER[unit]}
    return {"title": title, "unifiedhovertitle": hover, "rangemode": "tozero", "automargin": True, **_lines(), **more}


def x_axes(logarithmic: dict[str, tuple[float, float]]) -> dict[str, Plot]:
    """What a switch sets of the x axis, by unit; those with a range given are logarithmic."""
    return {unit: _x_of(unit, logarithmic.get(unit)) for unit in AXES}


def _x_of(unit: str, ends: tuple[float, float] | None) -> Plot:
    named = {"title.text": AXES[unit], "unifiedhovertitle.text": HOVER[unit]}
    if ends is None:
        return named | {"type": "linear", "autorange": True, "tickmode": "auto", "tickvals": None, "ticktext": None}
    values = log_values(*ends)
    scale = {"type": "log", "autorange": False, "range": digits(math.log10(end) for end in ends)}
    return named | scale | {"tickmode": "array", "tickvals": values, "ticktext": [f"{value:,g}" for value in values]}


def log_values(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis, few enough to stand side by side on a phone: at most seven."""
    for steps in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [float(f"{step}e{power}") for power in powers for step in steps]
        found = [value for value in found if low <= value <= high]
        if len(found) <= MOST_TICKS:
            return found or [float(f"{low:.2g}"), float(f"{high:.2g}")]
    return found[:: math.ceil(len(found) / MOST_TICKS)]


def nested(flat: Plot) -> Plot:
    """{"title.text": …} as {"title": {"text": …}}, without what is None: a layout as page.js would set it."""
    found: Plot = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        place = found
        for part in path:
            place = place.setdefault(part, {})
        if value is not None:
            place[last] = value
    return found


def y_axis(title: str, drawn: Iterable[Array], **more: Any) -> Plot:
    """The y axis of some values: logarithmic, unless one is negative or none is positive."""
    values = np.concatenate([np.array([]), *(np.asarray(part, dtype=float) for part in drawn)])
    values = values[np.isfinite(values)]
    axis: Plot = {"title": {"text": title, "standoff": 6}, "automargin": True, **_lines(), **more}
    if (values < 0).any() or not (values > 0).any():
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        margin = 0.04 * (high - low) or 0.5
        return axis | {"range": [low - margin, high + margin]}
    values = values[values > 0]
    low, high = math.log10(values.min()), math.log10(values.max())
    margin = max(0.04 * (high - low), 0.03)
    return log_ticks(axis | {"type": "log", "range": [low - margin, high + margin]})


def log_ticks(axis: Plot) -> Plot:
    """Ticks for the range of a logarithmic axis: plain numbers as long as they are short."""
    low, high = axis["range"]
    plainly = low > -4.2 and high < 6
    axis["exponentformat"] = "none" if plainly else "power"
    axis["dtick"] = "D1" if high - low < 1 else "D2" if high - low < 2.5 else max(1, round((high - low) / 7))
    axis["minorloglabels"] = "complete"
    return axis


def same_y(plots: Iterable[Plot]) -> None:
    """One y axis for plots that stand side by side, where all are logarithmic."""
    axes = [plot["layout"]["yaxis"] for plot in plots]
    if all(axis.get("type") == "log" for axis in axes):
        low, high = min(axis["range"][0] for axis in axes), max(axis["range"][1] for axis in axes)
        for axis in axes:
            axis["range"] = [low, high]
            log_ticks(axis)


def _lines() -> Plot:
    return {"gridcolor": GRID, "linecolor": GRID, "zerolinecolor": GRID}


def plain(text: str) -> str:
    """Text that plotly shows as it is: it would take tags in it for markup."""
    return html.escape(text, quote=False)


def faint(colour: str) -> str:
    """The colour of a band, on light and on dark."""
    seen = GREY if colour == BLACK else colour
    red, green, blue = (int(seen[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def digits(values: Iterable[float]) -> list[float | None]:
    """The values with five digits; None is a gap in the curve."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]
