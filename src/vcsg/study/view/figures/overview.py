"""Progress of the methods: figures 1 and 2 of the paper, and ‖∇f‖² where it was measured on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vcsg.study.records import RunRecord
from vcsg.study.targets import Target
from vcsg.study.view.curves import Curve, curves, error_metric, needs_log
from vcsg.study.view.figures.axes import (
    ONE_COLUMN,
    TWO_COLUMNS,
    across,
    draw_curves,
    empty,
    end_of,
    grid,
    label_ends,
    legend,
    log_time,
    plain,
    upwards,
)
from vcsg.study.view.figures.bars import time_per_pass
from vcsg.study.view.style import Look, looks
from vcsg.study.view.summary import groups
from vcsg.study.view.words import METRIC_NAMES, SCALES, metric_name, seeds_text, target_value

Targets = Mapping[str, Sequence[Target]]
"""Targets by workload."""
ROW = 1.95
"""The height of a row of panels, in inches."""
SINGLE = 3.1
"""The height of a figure with one panel over the whole width, in inches."""
NAME = 0.21
"""The height that the name of a curve beside it takes, in inches."""
LEGEND = 0.45
"""The height that title and legend take."""


def overview(runs: list[RunRecord], protocol: str, targets: Targets, unit: str = "passes") -> Figure:
    """The paper's Fig. 1: test error and training loss against passes, and the time per pass; a row per workload."""
    own = of_protocol(runs, protocol)
    names, look = workloads(own), looks(runs)
    figure = Figure(figsize=(TWO_COLUMNS, ROW * len(names) + LEGEND), layout="constrained")
    title(figure, own, protocol, targets)
    panels = figure.subplots(len(names), 3, squeeze=False, width_ratios=[1, 1, 0.8])
    drawn: list[Curve] = []
    for name, (left, middle, right) in zip(names, panels, strict=True):
        here = [run for run in own if run.config.workload == name]
        metric = error_metric(here, targets.get(name, ()))
        drawn += panel(left, here, protocol, metric, unit, look)
        mark_targets(left, [target for target in targets.get(name, ()) if target.metric == metric])
        left.set_title(name, loc="left", fontweight="bold")
        drawn += panel(middle, here, protocol, "train_loss", unit, look)
        time_per_pass(right, here, look)
    legend(figure, drawn, look)
    return figure


def against_time(runs: list[RunRecord], protocol: str, targets: Targets, unit: str = "seconds") -> Figure:
    """The paper's Fig. 2: test error against time, the target as a line; a panel per workload.

    A single workload has the whole width, and the names of the methods stand beside their curves.
    """
    own = of_protocol(runs, protocol)
    names, look = workloads(own), looks(runs)
    columns = min(len(names), 3)
    rows = -(-len(names) // columns)
    alone = len(names) == 1
    tall = max(SINGLE, NAME * len(groups(own)) + LEGEND)
    figure = Figure(figsize=(TWO_COLUMNS, tall if alone else ROW * rows + LEGEND), layout="constrained")
    title(figure, own, protocol, targets, "lower and further left is better")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    drawn: list[Curve] = []
    for name, axes in zip(names, panels, strict=False):
        here = [run for run in own if run.config.workload == name]
        metric = error_metric(here, targets.get(name, ()))
        found = panel(axes, here, protocol, metric, unit, look)
        if unit == "seconds" and needs_log(found):
            log_time(axes, found)
        wanted = [target for target in targets.get(name, ()) if target.metric == metric]
        mark_targets(axes, wanted, beside=not alone)
        axes.set_title(name, loc="left", fontweight="bold")
        drawn += found
        if alone and found:
            label_ends(axes, found, look)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    legend(figure, drawn, look, named=not alone)
    return figure


def gradient(runs: list[RunRecord], workload: str, protocol: str, targets: Sequence[Target] = ()) -> Figure:
    """‖∇f‖² over all n samples against passes, for a problem where it is measured at every evaluation."""
    own = [run for run in of_protocol(runs, protocol) if run.config.workload == workload]
    look = looks(runs)
    figure = Figure(figsize=(ONE_COLUMN, ROW + 0.35 + LEGEND), layout="constrained")
    axes = figure.subplots()
    drawn = panel(axes, own, protocol, "grad_norm2", "passes", look)
    mark_targets(axes, [target for target in targets if target.metric == "grad_norm2"])
    axes.set_title(workload, loc="left", fontweight="bold")
    title(figure, own, protocol, {workload: targets})
    legend(figure, drawn, look)
    return figure


def panel(
    axes: Axes, runs: list[RunRecord], protocol: str, metric: str, unit: str, look: dict[tuple[str, str], Look]
) -> list[Curve]:
    """One metric of one workload; returns what was drawn."""
    drawn = curves(runs, protocol, unit, metric)
    if not drawn:
        empty(axes, f"no {metric_name(metric)} was measured")
        return []
    draw_curves(axes, drawn, look)
    upwards(axes, METRIC_NAMES[metric], drawn)
    across(axes, unit, end_of(drawn))
    grid(axes)
    return drawn


def mark_targets(axes: Axes, targets: Sequence[Target], beside: bool = True) -> None:
    """A line at every target, its value at the right end, outside the data, or on it; one below the data gets room."""
    if not axes.axison:
        return
    for target in targets:
        value = SCALES.get(target.metric, 1.0) * target.value
        low, high = axes.get_ylim()
        if value > 0 or axes.get_yscale() == "linear":
            axes.set_ylim(min(low, value / 1.25 if value > 0 else value), max(high, value))
        axes.axhline(value, color="0.35", linewidth=0.8, zorder=1)
        shown = target_value(target) if target.metric in SCALES else plain(target.value)
        axes.annotate(
            shown if beside else f"target: {shown}",
            (1 if beside else 0, value),
            xycoords=("axes fraction", "data"),
            xytext=(2, 0) if beside else (3, 2),
            textcoords="offset points",
            va="center" if beside else "bottom",
            fontsize=6.5,
            color="0.25",
            bbox=None if beside else {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5},
        )


def title(figure: Figure, runs: list[RunRecord], protocol: str, targets: Targets, reading: str = "") -> None:
    """The title: what a reader has to know who sees the figure alone, such as how it is read."""
    parts = [reading] + ([f"protocol: {protocol}"] if protocol else [])
    if any(targets.get(name) for name in workloads(runs)):
        parts.append("horizontal line: the target")
    parts.append(seeds_text(runs))
    parts = [part for part in parts if part]
    narrow = figure.get_figwidth() < TWO_COLUMNS and len(parts) > 1
    lines = [parts[:-1], parts[-1:]] if narrow else [parts]
    figure.suptitle("\n".join(" · ".join(line) for line in lines), fontsize=7, color="0.35")


def of_protocol(runs: list[RunRecord], protocol: str) -> list[RunRecord]:
    return [run for run in runs if run.config.role == "run" and run.config.protocol == protocol]


def workloads(runs: list[RunRecord]) -> list[str]:
    return list(dict.fromkeys(run.config.workload for run in runs))
