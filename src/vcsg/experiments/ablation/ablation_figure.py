"""The figure of one setting for print: every variant beside VCSG, in groups by the part that is changed."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from vcsg.experiments.ablation.ablated_costs import AblationSetting, Comparison, comparisons
from vcsg.experiments.ablation.variants import BASE
from vcsg.study.view.figures.axes import TWO_COLUMNS, grid, plain
from vcsg.study.view.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION

COLOURS = (VERMILLION, BLUE, GREEN, ORANGE, PURPLE, SKY, BLACK, "#6B5B3E", "#7F7F7F")
"""The colours of the parts, in their order."""
ROW = 0.17
"""The height of a line, in inches."""


def ratio_figure(setting: AblationSetting) -> Figure:
    """The ratio of every variant's passes to VCSG's: a dot for the mean, small ones for the seeds."""
    found = [one for one in comparisons(setting) if one.variant != BASE and one.ratios]
    parts = list(dict.fromkeys(one.variant.part for one in found))
    made = Figure(figsize=(TWO_COLUMNS, ROW * (len(found) + len(parts)) + 1.0), layout="constrained")
    axes = made.subplots()
    labels: list[str] = []
    for part, colour in zip(parts, COLOURS, strict=False):
        labels.append(part)
        for one in (one for one in found if one.variant.part == part):
            _mark(axes, one, len(labels), colour)
            labels.append(one.variant.label)
    _lay_out(axes, setting, labels, parts)
    return made


def _mark(axes: Axes, one: Comparison, row: float, colour: str) -> None:
    if one.complete:
        axes.plot([min(one.ratios), max(one.ratios)], [row, row], color=colour, linewidth=1, zorder=2)
        axes.plot(one.ratios, [row] * len(one.ratios), "o", color=colour, markersize=2, zorder=3)
    mark, face = ("o", colour) if one.complete else (">", "white")
    axes.plot(one.ratio, row, mark, color=colour, markerfacecolor=face, markersize=5, zorder=4)


def _lay_out(axes: Axes, setting: AblationSetting, labels: Sequence[str], parts: Sequence[str]) -> None:
    axes.set_xscale("log")
    axes.axvline(1, color="0.35", linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(labels)), labels)
    for text in axes.get_yticklabels():
        text.set_fontweight("bold" if text.get_text() in parts else "normal")
    axes.set_ylim(len(labels), -0.8)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(
        f"passes to {setting.goal}, over those of VCSG (left of 1 is better)\n"
        "arrow: not all runs got there, at least this"
    )
    axes.set_title(setting.title, loc="left", fontweight="bold")
    axes.spines["left"].set_visible(False)
    grid(axes, "x")
