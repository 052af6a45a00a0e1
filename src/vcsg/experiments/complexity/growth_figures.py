"""The figures for print: calls against n and against 1/ε, and the exponents with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from vcsg.experiments.complexity.cells import STEPS, Design
from vcsg.experiments.complexity.contenders import CONTENDERS, Contender
from vcsg.experiments.complexity.families import FAMILIES
from vcsg.experiments.complexity.growth import Growth
from vcsg.experiments.complexity.observations import Observation, median_calls
from vcsg.study.view.figures.axes import TWO_COLUMNS, grid, plain
from vcsg.study.view.style import DASHES, ORANGE, VERMILLION, Look, look_of

OWN_LOOKS = {"vcsg-lemma": Look(VERMILLION, "dot"), "growing-svrg": Look(ORANGE)}
MARKS = ("o", "s", "^", "v", "D", "d", "P", "X", "*")


def look(contender: Contender) -> Look:
    """The look of a method in every figure of the experiment."""
    return OWN_LOOKS.get(contender.name) or look_of(contender.method)


def figures(
    observations: Sequence[Observation], found: Sequence[Growth], design: Design
) -> dict[str, Callable[[], Figure]]:
    """The names of the figures and what makes them."""
    eps = sorted(design.targets)[len(design.targets) // 2]
    n = max(design.sizes)
    in_n = [one for one in observations if one.eps == eps]
    in_eps = [one for one in observations if one.n == n]
    return {
        "exponents": partial(exponent_figure, found),
        "calls-n": partial(growth_figure, in_n, "n", f"calls to ‖∇f‖² ≤ {eps:g}"),
        "calls-eps": partial(growth_figure, in_eps, "1/ε", f"calls to ‖∇f‖² ≤ ε, n = {n:,}"),
    }


def points(observations: Sequence[Observation], axis: str) -> tuple[list[float], list[float]]:
    """The medians over the draws along n or 1/ε, without those where most runs did not get there."""
    at: dict[float, list[Observation]] = {}
    for one in observations:
        at.setdefault(one.n if axis == "n" else 1 / one.eps, []).append(one)
    medians = {place: median_calls(own) for place, own in sorted(at.items())}
    kept = {place: calls for place, calls in medians.items() if math.isfinite(calls)}
    return list(kept), list(kept.values())


def growth_figure(observations: Sequence[Observation], axis: str, title: str) -> Figure:
    """Calls along n or 1/ε: a column of panels for every family, a row for every kind of step."""
    names = [name for name in CONTENDERS if any(one.contender == name for one in observations)]
    made = Figure(figsize=(TWO_COLUMNS, 4.6), layout="constrained")
    panels = made.subplots(len(STEPS), len(FAMILIES), squeeze=False, sharex=True, sharey=True)
    for steps, row in zip(STEPS, panels, strict=True):
        for family, axes in zip(FAMILIES, row, strict=True):
            for place, name in enumerate(names):
                own = [one for one in observations if (one.contender, one.family, one.steps) == (name, family, steps)]
                _line(axes, *points(own, axis), look(CONTENDERS[name]), MARKS[place])
            _lay_out(axes, axis, f"{FAMILIES[family].label}\n{STEPS[steps]}", family == next(iter(FAMILIES)))
    for axes in panels[-1]:
        axes.set_xlabel(axis)
    handles = [
        Line2D([], [], color=look(CONTENDERS[name]).colour, dashes=DASHES[look(CONTENDERS[name]).dash],
               marker=MARKS[place], markersize=3.5, label=CONTENDERS[name].label)
        for place, name in enumerate(names)
    ]  # fmt: skip
    made.legend(handles=handles, loc="outside lower center", ncols=5)
    made.suptitle(f"{title}; medians over the draws", fontsize=8)
    return made


def _line(axes: Axes, x: list[float], y: list[float], style: Look, mark: str) -> None:
    axes.plot(x, y, color=style.colour, dashes=DASHES[style.dash], marker=mark, markersize=3.5, linewidth=1.1)


def _lay_out(axes: Axes, axis: str, title: str, first: bool) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title, loc="left", fontsize=7)
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
        side.set_minor_formatter(NullFormatter())
    if first:
        axes.set_ylabel("calls")
    grid(axes)


def exponent_figure(found: Sequence[Growth]) -> Figure:
    """Claimed beside measured: the exponents in n and in 1/ε, a line for every method."""
    names = list(dict.fromkeys(one.contender.name for one in found))
    made = Figure(figsize=(TWO_COLUMNS, 0.27 * len(names) + 1.15), layout="constrained")
    panels = made.subplots(1, 2, sharey=True)
    for place, (axes, axis) in enumerate(zip(panels, ("n", "1/ε"), strict=True)):
        for one in found:
            _exponent(axes, one, place, names.index(one.contender.name))
        axes.set_xlabel(f"exponent in {axis}")
        axes.set_yticks(range(len(names)), [CONTENDERS[name].label for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.axvline(0, color="0.6", linewidth=0.6, zorder=0)
        axes.tick_params(axis="y", length=0)
        grid(axes, "x")
    handles = [
        Line2D([], [], color="0.2", marker="o", lw=0.9, markersize=4, label="measured, steps of theory"),
        Line2D([], [], color="0.2", marker="o", lw=0.9, markersize=4, markerfacecolor="white",
               label="measured, best constant step"),
        Line2D([], [], color="0.2", marker="|", lw=0, markersize=9, markeredgewidth=2, label="claimed"),
    ]  # fmt: skip
    made.legend(handles=handles, loc="outside lower center", ncols=3)
    return made


def _exponent(axes: Axes, one: Growth, place: int, row: int) -> None:
    claim, measured = one.axes[place]
    shift = -0.16 if one.steps == "theory" else 0.16
    colour = look(one.contender).colour
    if claim is not None:
        axes.plot(claim, row, marker="|", color="0.2", markersize=15, markeredgewidth=2, zorder=2)
    if measured is None:
        return
    axes.plot([measured.low, measured.high], [row + shift] * 2, color=colour, linewidth=1.3, zorder=3)
    face = colour if one.steps == "theory" else "white"
    axes.plot(measured.value, row + shift, "o", color=colour, markerfacecolor=face, markersize=4, zorder=4)
