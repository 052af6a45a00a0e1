"""A plan as a figure: how many samples the anchor of every epoch has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vcsg.theory.planner import MethodPlan, RunPlan

LINES = (("#D55E00", "-"), ("#0072B2", "--"), ("#009E73", "-."), ("#CC79A7", ":"), ("#E69F00", "--"), ("#000000", "-"))
"""Okabe and Ito's colours with dashes, told apart by every kind of colour vision and in grey."""
MARKS = {"start": "s", "first": "o", "second": "^"}
"""The marks of VCSG's regimes."""
LEAST = 12
"""The fewest epochs that are drawn."""


def batch_sizes(plan: RunPlan) -> Figure:
    """B_j over the epochs: a line for every method, one for all of those whose sizes are the same."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = figure.subplots()
    curves = _curves(plan)
    if not curves:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "no method of the plan draws anchors", ha="center", va="center", color="0.45")
        return figure
    end = max(LEAST, *(len(own.epochs) + 2 for names in curves.values() for own in names[:1] if own.settled))
    for (colour, dashes), (sizes, group) in zip(_cycle(len(curves)), curves.items(), strict=True):
        _draw(axes, list(sizes), group, end, colour, dashes)
    s = plan.setting
    axes.set(
        xscale="log" if end > 60 else "linear",
        yscale="log",
        xlabel="epoch j",
        ylabel="samples of the anchor, $B_j$",
        xlim=(1, end),
        ylim=(None, 1.25 * s.n),
    )
    axes.axhline(s.n, color="0.6", linewidth=0.8, zorder=0)
    axes.annotate("n", (1, s.n), xytext=(-4, 0), textcoords="offset points", ha="right", va="center", color="0.4")
    axes.set_title(f"n = {s.n:,}, ε = {s.eps:g}, S* = {s.variance:.3g}", fontsize=9, loc="left")
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=7.5)
    return figure


def _cycle(count: int) -> list[tuple[str, str]]:
    return [LINES[k % len(LINES)] for k in range(count)]


def _curves(plan: RunPlan) -> dict[tuple[int, ...], list[MethodPlan]]:
    """The methods that draw anchors, those with the same sizes together."""
    found: dict[tuple[int, ...], list[MethodPlan]] = {}
    for own in plan.methods:
        sizes = tuple(planned.plan.B for planned in own.epochs if planned.base)
        if sizes and len(sizes) == len(own.epochs):
            key = sizes[:1] if own.settled and len(set(sizes)) == 1 else sizes
            found.setdefault(key, []).append(own)
    return found


def _draw(axes: Axes, sizes: list[int], group: list[MethodPlan], end: int, colour: str, dashes: str) -> None:
    if group[0].settled:
        sizes = sizes + sizes[-1:] * (end - len(sizes))
    shown = range(1, min(len(sizes), end) + 1)
    names = [own.name for own in group]
    label = ",\n".join(", ".join(names[k : k + 2]) for k in range(0, len(names), 2))
    axes.plot(shown, sizes[: len(shown)], color=colour, linestyle=dashes, linewidth=1.6, label=label)
    for regime in dict.fromkeys(planned.regime for planned in group[0].epochs if planned.regime):
        own = [planned for planned in group[0].epochs if planned.regime == regime and planned.epoch <= end]
        axes.plot(
            [planned.epoch for planned in own],
            [planned.plan.B for planned in own],
            MARKS.get(regime, "D"),
            color=colour,
            markersize=4,
            label=f"{names[0]}, {regime} regime",
        )
