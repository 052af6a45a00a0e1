"""Bars: the time that a pass takes, and what it took to reach a target."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vcsg.study.records import RunRecord
from vcsg.study.targets import Target
from vcsg.study.view.figures.axes import TWO_COLUMNS, empty, grid
from vcsg.study.view.style import Look, looks, place_of
from vcsg.study.view.summary import Line, groups, summarise
from vcsg.study.view.words import AXES, bar_end, bar_text, target_text

BAR = 0.19
"""The height of a bar and its gap, in inches."""


def time_per_pass(axes: Axes, runs: list[RunRecord], look: dict[tuple[str, str], Look]) -> None:
    """Seconds of training per n gradients: a bar to the median over the seeds, a line from the least to the most."""
    found = {key[2:]: paces for key, own in groups(runs).items() if (paces := sorted(_paces(own)))}
    found = {key: found[key] for key in sorted(found, key=lambda key: place_of(*key))}
    if not found:
        empty(axes, "no time was measured")
        return
    longest = max(paces[-1] for paces in found.values())
    scale, unit = (1.0, "s") if longest >= 0.1 else (1e3, "ms")
    for place, (key, paces) in enumerate(found.items()):
        middle, low, high = (scale * pace for pace in (median(paces), paces[0], paces[-1]))
        axes.barh(place, middle, color=look[key].colour, height=0.66)
        _whisker(axes, place, low, high)
        axes.text(high, place, f" {middle:.2g}", va="center", fontsize=6.5)
    axes.set_yticks(range(len(found)), [label for _, label in found])
    _lay_out(axes, f"time per pass ({unit})", len(found), scale * longest * 1.25)


def to_target(runs: list[RunRecord], workload: str, target: Target) -> Figure:
    """Seconds and passes to the target, a row of panels per protocol, the fastest method on top."""
    lines = [line for line in summarise(runs, [target]) if line.workload == workload]
    protocols = list(dict.fromkeys(line.protocol for line in lines))
    sizes = [sum(line.protocol == protocol for line in lines) for protocol in protocols]
    look = looks(runs)
    figure = Figure(figsize=(TWO_COLUMNS, BAR * sum(sizes) + 0.62 * len(sizes) + 0.3), layout="constrained")
    panels = figure.subplots(len(protocols), 2, squeeze=False, sharex="col", height_ratios=[s + 1 for s in sizes])
    figure.suptitle(f"{workload}: to a {target_text(target)}", fontsize=8, fontweight="bold")
    for protocol, row in zip(protocols, panels, strict=True):
        own = [line for line in lines if line.protocol == protocol]
        for axes, unit in zip(row, ("seconds", "passes"), strict=True):
            _target_bars(axes, own, str(target), unit, look)
            end = max(_longest(line, str(target), unit) for line in lines)
            _lay_out(axes, AXES[unit] if protocol == protocols[-1] else "", len(own), end * 1.35)
        row[0].set_yticks(range(len(own)), [line.label for line in own])
        row[1].set_yticks([])
        row[0].set_title(f"protocol: {protocol}" if protocol else "", loc="left", fontsize=7.5, color="0.35")
    return figure


def _target_bars(axes: Axes, lines: Sequence[Line], target: str, unit: str, look: dict[tuple[str, str], Look]) -> None:
    for place, line in enumerate(lines):
        spread, colour = line.to_target[target][unit], look[line.method, line.label].colour
        end = _longest(line, target, unit)
        if spread.median is None:
            length = bar_end(line, target, unit)
            axes.barh(place, length, height=0.66, facecolor="none", edgecolor=colour, hatch="/////", linewidth=0.8)
        else:
            axes.barh(place, spread.median, height=0.66, color=colour)
        if spread.low is not None and spread.high is not None:
            _whisker(axes, place, spread.low, spread.high)
        axes.text(end, place, f" {bar_text(line, target, unit)}", va="center", fontsize=6.5)


def _whisker(axes: Axes, place: int, low: float, high: float) -> None:
    """A line from the least to the most, with a light edge: bars may be as dark as it is."""
    if low < high:
        axes.plot([low, high], [place, place], color="white", linewidth=2, solid_capstyle="butt")
        axes.plot([low, high], [place, place], color="0.2", linewidth=0.9, solid_capstyle="butt")


def _longest(line: Line, target: str, unit: str) -> float:
    """How far a bar and its whisker reach."""
    return max(bar_end(line, target, unit), line.to_target[target][unit].high or 0.0)


def _lay_out(axes: Axes, label: str, bars: int, end: float) -> None:
    axes.set_ylim(bars - 0.4, -0.6)
    axes.set_xlim(0, end or 1)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label)
    axes.spines["left"].set_visible(False)
    grid(axes, "x")


def _paces(runs: list[RunRecord]) -> list[float]:
    return [run.final["seconds"] / run.final["passes"] for run in runs if run.final.get("passes")]
