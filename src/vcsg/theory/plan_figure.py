"""A plan as a figure: how many samples the anchor of every epoch has."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from vcsg.theory.method_plan import MethodPlan
from vcsg.theory.setting import Setting

LINES = (("#D55E00", "-"), ("#0072B2", "--"), ("#009E73", "-."), ("#CC79A7", ":"), ("#E69F00", "--"), ("#000000", "-"))
"""Okabe and Ito's colours with dashes, told apart by every kind of colour vision and in grey."""
MARKS = {"start": "s", "first": "o", "second": "^"}
"""The marks of VCSG's regimes."""
LEAST = 12
"""The fewest epochs that are drawn."""


def batch_sizes(setting: Setting, methods: Sequence[MethodPlan]) -> Figure:
    """B_j over the epochs: a line for every method, one for all of those whose sizes are the same."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = figure.subplots()
    curves = _curves(methods)
    if not curves:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no method of the plan draws an anchor for every epoch", ha="center", color="0.45")
        return figure
    end = max(LEAST, *(len(group[0].epochs) + 2 for group in curves.values()))
    for place, (sizes, group) in enumerate(curves.items()):
        _draw(axes, list(sizes), group, end, *LINES[place % len(LINES)])
    _frame(axes, setting, end)
    figure.legend(loc="outside right upper", frameon=False, fontsize=7.5)
    return figure


def _frame(axes: Axes, setting: Setting, end: int) -> None:
    axes.set(yscale="log", xlabel="epoch j", ylabel="samples of the anchor, $B_j$", xlim=(0.9, end))
    axes.set_ylim(top=1.3 * setting.n)
    if end > 60:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_title(f"n = {setting.n:,}, ε = {setting.eps:g}, S* = {setting.variance:.3g}", fontsize=9, loc="left")
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _curves(methods: Sequence[MethodPlan]) -> dict[tuple[int, ...], list[MethodPlan]]:
    """The methods that draw an anchor for every epoch, those with the same sizes together."""
    found: dict[tuple[int, ...], list[MethodPlan]] = {}
    for own in methods:
        sizes = tuple(planned.plan.B for planned in own.epochs if planned.anchor)
        if sizes and len(sizes) == len(own.epochs):
            key = sizes[:1] if own.settled and len(set(sizes)) == 1 and not own.epochs[0].regime else sizes
            found.setdefault(key, []).append(own)
    return found


def _draw(axes: Axes, sizes: list[int], group: list[MethodPlan], end: int, colour: str, dashes: str) -> None:
    regimes = [planned.regime for planned in group[0].epochs]
    if group[0].settled:  # all later epochs are like the last
        sizes, regimes = sizes + sizes[-1:] * (end - len(sizes)), regimes + regimes[-1:] * (end - len(regimes))
    names = [own.name for own in group]
    label = ",\n".join(", ".join(names[k : k + 2]) for k in range(0, len(names), 2))
    axes.plot(range(1, len(sizes) + 1), sizes, color=colour, linestyle=dashes, linewidth=1.6, label=label)
    for regime in dict.fromkeys(filter(None, regimes)):
        places = [j for j, own in enumerate(regimes, 1) if own == regime]
        at = [sizes[j - 1] for j in places]
        axes.plot(places, at, MARKS.get(regime, "D"), color=colour, markersize=4, label=f"{names[0]}, {regime} regime")
