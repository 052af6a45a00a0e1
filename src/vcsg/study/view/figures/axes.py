"""Axes that read on paper: logarithms with plain numbers, units, a light grid, one legend outside the data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from vcsg.study.view.curves import Array, Curve, ceiling, last, log_range, values_of, xs_of
from vcsg.study.view.label_places import apart, within
from vcsg.study.view.style import DASHES, MANY, OURS, Look, place_of
from vcsg.study.view.words import AXES, thousands

ONE_COLUMN, TWO_COLUMNS = 3.5, 7.2
"""The widths of a journal's columns, in inches."""
WIDTH = 1.4
"""The width of a curve, in points."""
SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, and has ‖ and ∇
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "axes.labelpad": 3,
    "axes.edgecolor": "0.25",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "hatch.linewidth": 0.5,
    "lines.linewidth": WIDTH,
    "pdf.fonttype": 42,
}
"""The settings of matplotlib for all figures."""
LEGEND_GAP, LEGEND_LETTER = 46.0, 3.9
"""The width of an entry of a legend, in points: its line and the gaps, and a letter of its text."""
LABEL_GAP = 10.5
"""The distance between two names beside their curves, in points."""
LEADER: dict[str, Any] = {"color": "0.6", "linewidth": 0.5, "linestyle": (0, (1, 1.5)), "zorder": 1}
"""The line from the end of a curve to its name."""
MARKED: dict[str, Any] = {"marker": "o", "markersize": 2.2}
"""The mark where a seed ends that goes on after another has ended."""
ENDS = {"failed": "X", "interrupted": "o", "running": "o"}
"""The mark at the end of a run that did not finish."""


def draw_curves(axes: Axes, curves: list[Curve], looks: dict[tuple[str, str], Look]) -> None:
    """Median and band as far as all seeds go; thin lines for the seeds that go on, and for runs that did not finish."""
    for curve in curves:
        look = looks[curve.key]
        width = width_of(curve, len(curves))
        single = len(curve.x) == 1
        axes.plot(
            curve.x,
            curve.median,
            color=look.colour,
            dashes=DASHES[look.dash],
            marker="o" if single else "",
            markersize=3,
            label=curve.label,
            linewidth=width,
            zorder=2 + width / 10,
        )
        if curve.runs > 1:
            alpha = 0.08 if width < WIDTH else 0.16
            axes.fill_between(curve.x, curve.low, curve.high, color=look.colour, alpha=alpha, linewidth=0)
        for rest in curve.rests:
            axes.plot(rest.x, rest.y, color=look.colour, linewidth=0.6, alpha=0.7)
            axes.plot(rest.x[-1], rest.y[-1], color=look.colour, linewidth=0, **MARKED)
        for tail in curve.tails:
            axes.plot(tail.x, tail.y, color=look.colour, linewidth=0.7, dashes=DASHES[look.dash])
            _mark_end(axes, tail.x, tail.y, look.colour, tail.status)


def width_of(curve: Curve, among: int) -> float:
    """The width of a curve: where there are many, ours are thick and the others thin."""
    if among <= MANY:
        return WIDTH
    return 2.2 if curve.key[0] in OURS else 0.9


def _mark_end(axes: Axes, x: Array, y: Array, colour: str, status: str) -> None:
    seen = np.flatnonzero(np.isfinite(y))
    if len(seen):
        face = colour if status == "failed" else "white"
        axes.plot(x[seen[-1]], y[seen[-1]], ENDS[status], color=colour, markerfacecolor=face, markersize=4, zorder=4)


def upwards(axes: Axes, label: str, curves: list[Curve]) -> None:
    """The y axis of curves: logarithmic unless a value is negative; the label says what is left out."""
    values = np.concatenate([np.array([]), *(values for curve in curves for values in values_of(curve))])
    values = values[np.isfinite(values)]
    if not len(values) or values.min() < 0 or values.max() <= 0:
        axes.set_ylabel(label)
        return
    highest = ceiling(curves)
    label += f",\nabove {highest:.2g} cut off" if highest < math.inf else ""
    axes.set_ylabel(f"{label}, zeros left out" if values.min() == 0 else label)
    log_scale(axes, values[(values > 0) & (values <= highest)])


def log_scale(axes: Axes, values: Array) -> None:
    """A logarithmic y axis around the values, which are positive, with plain numbers as far as they are short."""
    low, high = float(values.min()), float(values.max())
    margin = max(high / low, 1.3) ** 0.05
    axes.set_yscale("log", nonpositive="mask")
    axes.set_ylim(low / margin, high * margin)
    if high / low < 4:
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.yaxis.set_minor_locator(NullLocator())
    elif high / low < 200:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 6) if high / low < 12 else (1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def plain(value: float) -> str:
    """A tick: 0.01 and 20 as they are, beyond that a power of ten."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:g}".replace("-", "−")
    power = math.floor(math.log10(abs(value)) + 1e-9)
    factor = value / 10.0**power
    return f"$10^{{{power}}}$" if math.isclose(factor, 1) else f"${factor:g}\\cdot10^{{{power}}}$"


def across(axes: Axes, unit: str, end: float) -> None:
    """The x axis, from 0 to the end; gradients in thousands, millions or billions."""
    axes.set_xlim(0, end if end > 0 else 1)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    scale, word = thousands(end) if unit == "ifo" else (1.0, "")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / scale:g}"))
    axes.set_xlabel(f"{AXES[unit]} ({word})" if word else AXES[unit])


def log_time(axes: Axes, curves: list[Curve]) -> None:
    """A logarithmic x axis."""
    axes.set_xscale("log", nonpositive="mask")
    axes.set_xlim(*log_range(curves))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(AXES["seconds"])


def end_of(curves: Iterable[Curve]) -> float:
    """The largest x of the curves."""
    return max((float(x[-1]) for curve in curves for x in xs_of(curve)), default=0.0)


def legend(figure: Figure, curves: Iterable[Curve], looks: dict[tuple[str, str], Look], named: bool = True) -> None:
    """Below the panels every method once, unless names stand beside the curves, and what thin lines and marks mean."""
    drawn = list(curves)
    handles: list[Artist] = [
        Line2D([], [], color=looks[key].colour, dashes=DASHES[looks[key].dash], label=key[1])
        for key in (order(drawn) if named else [])
    ]
    handles += _marks(drawn)
    if handles:
        longest = max(len(str(handle.get_label())) for handle in handles)
        room = 72 * figure.get_figwidth() / (LEGEND_GAP + LEGEND_LETTER * longest)
        figure.legend(handles=handles, loc="outside lower center", ncols=balanced(len(handles), max(1, int(room))))


def _marks(drawn: list[Curve]) -> list[Artist]:
    """What the thin lines and the marks mean, as far as there are any."""
    handles: list[Artist] = []
    if any(curve.rests for curve in drawn):
        handles.append(Line2D([], [], color="0.3", lw=0.6, **MARKED, label="single seeds, once the first has ended"))
    for status in sorted({tail.status for curve in drawn for tail in curve.tails}):
        face, words = ("0.3", "failed here") if status == "failed" else ("white", f"{status} here")
        handles.append(Line2D([], [], color="0.3", marker=ENDS[status], markerfacecolor=face, lw=0, label=words))
    return handles


def label_ends(axes: Axes, curves: list[Curve], looks: dict[tuple[str, str], Look]) -> None:
    """The name of every method to the right of the axes, as high as its curve ends; thin lines lead to the names.

    The scales have to be set already, since heights depend on them.
    """
    found = [(curve, *end) for curve in curves if (end := last(curve)) is not None]
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = [float(to_axes.transform((x, y))[1]) for _, x, y in found]
    gap = LABEL_GAP / (72 * axes.get_position().height * axes.figure.get_figheight())  # type: ignore[union-attr]
    places = within(apart([min(max(height, 0.0), 1.0) for height in heights], gap), 0.0, 1.0)
    for (curve, x, _), height, place in zip(found, heights, places, strict=True):
        colour = looks[curve.key].colour
        start = float(to_axes.transform((x, axes.get_ylim()[0]))[0])
        axes.plot([start, 1.0, 1.025], [height, height, place], transform=axes.transAxes, clip_on=False, **LEADER)
        axes.plot(
            [1.025, 1.095],
            [place, place],
            color=colour,
            dashes=DASHES[looks[curve.key].dash],
            transform=axes.transAxes,
            clip_on=False,
            linewidth=width_of(curve, len(curves)),
        )
        weight = "bold" if len(curves) > MANY and curve.key[0] in OURS else "normal"
        axes.text(1.105, place, curve.label, transform=axes.transAxes, va="center", fontsize=7, fontweight=weight)


def order(curves: Iterable[Curve]) -> list[tuple[str, str]]:
    """Method and label of the curves, each once, in the order of all figures."""
    return sorted({curve.key for curve in curves}, key=lambda key: place_of(*key))


def balanced(items: int, most: int) -> int:
    """Columns of a legend so that its rows are about equally long."""
    return math.ceil(items / math.ceil(items / most))


def grid(axes: Axes, which: str = "both") -> None:
    axes.grid(axis="both" if which == "both" else "x", color="0.88", linewidth=0.5)


def empty(axes: Axes, text: str) -> None:
    """A panel with nothing to draw says why."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", color="0.45", transform=axes.transAxes)
