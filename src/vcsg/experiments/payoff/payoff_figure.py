"""One figure: what every estimator needed to the goal against b; a row per problem and unit, a column per step rule."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from vcsg.experiments.payoff.gradient_estimators import ESTIMATORS
from vcsg.experiments.payoff.payoff_cells import UNITS, Payoff, PayoffCell
from vcsg.experiments.payoff.payoff_words import goal_text
from vcsg.study.view.figures.axes import TWO_COLUMNS, empty, grid, plain
from vcsg.study.view.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION

LOOKS = {
    "sgd": (BLACK, "o"),
    "momentum": ("#7F7F7F", "s"),
    "svrg": (SKY, "v"),
    "fresh-svrg": (BLUE, "^"),
    "scsg": (GREEN, "D"),
    "storm": (VERMILLION, "P"),
    "mars": (PURPLE, "X"),
    "page": (ORANGE, "<"),
}
"""The colour and the mark of every estimator."""
Dashes = tuple[float, tuple[float, ...]]
WITHOUT: Dashes = (0, ())
WITH: Dashes = (0, (3, 1.2))
"""The lines of estimators without variance reduction and with it."""
ROW = 1.8


def payoff_figure(payoffs: Sequence[Payoff]) -> Figure:
    """Passes and seconds to the goal against b; lower is better. Marks above the frame's line did not come there."""
    rules = list(dict.fromkeys(rule for found in payoffs for rule in found.rules))
    lines = [(found, unit) for found in payoffs for unit in UNITS]
    made = Figure(figsize=(TWO_COLUMNS, ROW * len(lines) + 0.7), layout="constrained")
    panels = made.subplots(len(lines), len(rules), squeeze=False, sharey="row")
    for (found, unit), row in zip(lines, panels, strict=True):
        limit = _limit(found, unit)
        for axes, rule in zip(row, rules, strict=True):
            _panel(axes, found, rule, unit, limit)
        row[0].set_ylabel(f"{found.workload}\n{unit} to\n{goal_text(found)}")
    for axes, rule in zip(panels[0], rules, strict=True):
        axes.set_title(f"{rule} step", fontweight="bold")
    _legend(made, payoffs)
    return made


def _panel(axes: Axes, found: Payoff, rule: str, unit: str, limit: float) -> None:
    own = [cell for cell in found.cells if cell.rule == rule]
    if not own:
        empty(axes, "a vector has no\northogonal step")
        return
    keys, sizes = found.estimators, found.sizes
    for place, key in enumerate(keys):
        shift = 1.045 ** (place - (len(keys) - 1) / 2)  # marks beside one another
        _draw(axes, [cell for cell in own if cell.estimator == key], found.goal, unit, limit, shift)
    axes.axhline(limit, color="0.6", linewidth=0.5, linestyle=(0, (1, 1.5)), zorder=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(b) for b in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(sizes[0] / 1.6, sizes[-1] * 1.6)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("mini-batch size b")
    grid(axes)


def _draw(axes: Axes, cells: list[PayoffCell], goal: float, unit: str, limit: float, shift: float) -> None:
    if not cells:
        return
    colour, mark = LOOKS[cells[0].estimator]
    line = WITH if ESTIMATORS[cells[0].estimator].reduces else WITHOUT
    cells = sorted(cells, key=lambda cell: cell.b)
    there = [(cell.b * shift, cell.cost(goal, unit)) for cell in cells]
    reached = [(x, y) for x, y in there if math.isfinite(y)]
    axes.plot([x for x, _ in reached], [y for _, y in reached], color=colour, marker=mark, markersize=4,
              linestyle=line, linewidth=1.1, zorder=3)  # fmt: skip
    for cell in cells:
        costs = [cost for run in cell.runs if math.isfinite(cost := run.cost(goal, unit))]
        if len(costs) > 1:
            axes.plot([cell.b * shift] * 2, [min(costs), max(costs)], color=colour, linewidth=2.6, alpha=0.3, zorder=2)
    missed = [x for x, y in there if math.isinf(y)]
    axes.plot(missed, [limit * 1.25] * len(missed), mark, color=colour, markerfacecolor="white", markersize=4, zorder=3)


def _limit(found: Payoff, unit: str) -> float:
    """The line above which a mark stands for an estimator that did not come to the goal with most of its seeds."""
    costs = [cost for cell in found.cells for run in cell.runs if math.isfinite(cost := run.cost(found.goal, unit))]
    return 1.25 * max([*costs, *([found.cells[0].spent(unit)] if unit == "passes" or not costs else [])])


def _legend(made: Figure, payoffs: Sequence[Payoff]) -> None:
    keys = [key for key in ESTIMATORS if any(key in found.estimators for found in payoffs)]
    handles = [
        Line2D([], [], color=LOOKS[key][0], marker=LOOKS[key][1], markersize=4, label=ESTIMATORS[key].label,
               linestyle=WITH if ESTIMATORS[key].reduces else WITHOUT)
        for key in keys
    ]  # fmt: skip
    handles.append(Line2D([], [], color="0.3", marker="o", markerfacecolor="white", linewidth=0,
                          label="above the dotted line: goal not reached"))  # fmt: skip
    made.legend(handles=handles, loc="outside lower center", ncols=3)
    reading = "lower is better · solid: no variance reduction · dashed: with it"
    made.suptitle(f"{reading} · medians, bars from the least to the largest seed", fontsize=7, color="0.35")
