"""The inner life of an anchored method: the batch sizes that it chose, and what its anchors measured."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vcsg.study.records import RunRecord
from vcsg.study.view.curves import Array
from vcsg.study.view.epoch_series import EpochSeries, epochs_of
from vcsg.study.view.figures.axes import TWO_COLUMNS, across, balanced, grid, log_scale
from vcsg.study.view.style import GREEN, ORANGE, PURPLE, REGIMES, SKY, VERMILLION

DOTS = 1500
"""The most epochs that are drawn."""


def inside(run: RunRecord) -> Figure:
    """B_j and b_j; S*, the estimate of ‖∇f‖², its rough bound and ε; above both, the regime of every epoch."""
    epochs = epochs_of(run, DOTS)
    ribbon = len(epochs.regimes) > 1
    figure = Figure(figsize=(TWO_COLUMNS, 2.7), layout="constrained")
    top, panels = figure.subplots(2, 2, height_ratios=[0.045 if ribbon else 0.001, 1], sharex="col")
    title = f"{run.config.workload}: inside {run.config.label}"
    if run.config.protocol:
        title += f" · protocol: {run.config.protocol}"
    title += f" · seed {run.config.seed} · one dot per epoch{epochs.share}"
    figure.suptitle(title, fontsize=7, color="0.35")
    for axes in top:
        _ribbon(axes, epochs)
    _sizes(panels[0], epochs)
    _norms(panels[1], epochs)
    for axes in panels:
        across(axes, "passes", epochs.end)
        grid(axes)
        _legend_below(axes)
    return figure


def _ribbon(axes: Axes, epochs: EpochSeries) -> None:
    """The regimes along the x axis, where there are several."""
    axes.set_axis_off()
    if len(epochs.regimes) > 1:
        for regime in epochs.regimes:
            axes.broken_barh(epochs.spans(regime), (0, 1), facecolor=regime_colour(regime), linewidth=0)
        axes.set_ylim(0, 1)


def _legend_below(axes: Axes) -> None:
    handles = axes.get_legend_handles_labels()[0]
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.24),
        ncols=balanced(len(handles), 3),
        handletextpad=0.4,
        columnspacing=1.4,
        handlelength=1.6,
        markerscale=1.6,
    )


def _sizes(axes: Axes, epochs: EpochSeries) -> None:
    _dots(axes, epochs.passes, epochs.B, VERMILLION, "batch size $B_j$", "o")
    _dots(axes, epochs.passes, epochs.b, PURPLE, "mini-batch size $b_j$", "s")
    _log(axes, [epochs.B, epochs.b])
    axes.set_ylabel("samples")
    for regime in epochs.regimes if len(epochs.regimes) > 1 else ():
        axes.bar(0, 0, color=regime_colour(regime), label=f"regime: {regime}")


def _norms(axes: Axes, epochs: EpochSeries) -> None:
    estimate = "estimate of ‖∇f‖²"
    if (epochs.gradient <= 0).any():
        estimate += " (gaps: ≤ 0)"
    _dots(axes, epochs.passes, epochs.variance, ORANGE, "variance S*", "^")
    _dots(axes, epochs.passes, epochs.bound, SKY, "rough bound of ‖∇f‖²", "s")
    _dots(axes, epochs.passes, epochs.gradient, GREEN, estimate, "o")
    _log(axes, [epochs.variance, epochs.bound, epochs.gradient, *([epochs.eps] if epochs.eps is not None else [])])
    if epochs.eps is not None:
        axes.plot(
            epochs.passes, epochs.eps, color="black", linewidth=0.9, dashes=(4, 2), label=f"ε = {epochs.eps[-1]:.3g}"
        )
    axes.set_ylabel("squared norm")


def _dots(axes: Axes, x: Array, y: Array, colour: str, label: str, marker: str) -> None:
    shown = [math.nan if not value > 0 else value for value in y]
    size = 2.6 if len(y) <= 150 else 1.9
    axes.plot(x, shown, marker, color=colour, markersize=size, markeredgewidth=0, label=label)


def _log(axes: Axes, drawn: list[Array]) -> None:
    values = np.concatenate(drawn)
    values = values[np.isfinite(values) & (values > 0)]
    if len(values):
        log_scale(axes, values)


def regime_colour(regime: str) -> str:
    return REGIMES.get(regime, "0.6")
