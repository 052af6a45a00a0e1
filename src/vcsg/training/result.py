"""The result of `fit`: the trained model and what was measured on the way, also as a table and a figure."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from vcsg.run.certificate import Certificate
from vcsg.run.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = ("passes", "ifo", "seconds", "train_loss", "test_loss")
"""The keys that every row of a history has; "error" and the names of the metrics come after them."""
TABLE_ROWS = 10
"""The most rows of the history in `str(result)`."""
COLOURS = {"train_loss": "tab:gray", "test_loss": "tab:blue", "error": "tab:red"}


@dataclass(repr=False, eq=False)
class Result:
    """The result of `fit`. It can be pickled, the model included."""

    model: nn.Module
    """The model, at the point that the method returns."""
    method: str
    options: dict[str, Any]
    """The options as they were given, what `auto` chose of them, and the seed.

    The method with these options, on the same data and from the same start, for as many passes, is the same run.
    """
    n: int
    """The number of training samples."""
    history: list[dict[str, float]]
    """One row per evaluation: passes, ifo, seconds, train_loss, test_loss, error for classification, the metrics.

    `train_loss` is the mean, over the samples of all batches since the row before, of their loss at the point where
    the model was then. NaN stands for a value that is not known.
    """
    records: list[Record]
    """The record of every epoch; see `vcsg.Record`."""
    seconds: float
    """Time spent in training, without evaluations and checkpoints."""
    ifo: int
    """Gradients of single samples evaluated."""
    passes: float
    """`ifo` in units of n."""
    stopped: str
    """What ended the run: "passes", "seconds", "ifo", "until" or "interrupted"."""
    certificate: Certificate | None
    """What is promised of ‖∇f‖² at the last anchor, where `vcsg.stationary` ended the run; else None."""
    chosen: str
    """What the method `auto` chose, and why; "" for others."""
    engine: dict[str, Any]
    """How steps were executed: as CUDA graphs, with their number and the seconds to capture them; or why not so."""
    state: dict[str, Any]
    """The state of the optimizer, for `fit(result.model, …, state=result.state)` with larger limits."""

    def __repr__(self) -> str:
        last = self.history[-1] if self.history else {}
        found = [f"{label(k)} {cell(k, v)}" for k, v in last.items() if k not in COLUMNS[:3] and not math.isnan(v)]
        parts = [self.method, f"{self.passes:.1f} passes", f"{self.seconds:.1f} s", *found]
        return f"<vcsg.Result: {', '.join(parts)}>"

    def __str__(self) -> str:
        """The outcome as a table, of at most ten evaluations."""
        epochs = f"{len(self.records)} epoch{'' if len(self.records) == 1 else 's'}"
        head = (
            f"{self.method}: {self.passes:.1f} passes over {self.n:,} samples, {self.seconds:.1f} s, {epochs}; "
            f"stopped: {self.stopped}"
        )
        names = [name for name in _names(self.history) if _known(self.history, name)]
        kept = sorted({round(k) for k in np.linspace(0, len(self.history) - 1, TABLE_ROWS)}) if names else []
        cells = [[label(name) for name in names]]
        cells += [[cell(name, self.history[k][name]) for name in names] for k in kept]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells]
        return "\n".join([head, *lines]).rstrip()

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw losses and error against passes and, for a method with anchors, what the anchors measured by epoch.

        Args:
            path: where to save the figure as well; the suffix chooses the format.

        Returns:
            The figure, which belongs to no window. (Needs matplotlib.)
        """
        try:
            from matplotlib.figure import Figure
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("plot() needs matplotlib: pip install matplotlib") from error
        anchored = [record for record in self.records if record.anchor is not None]
        panels = 2 if anchored else 1
        figure = Figure(figsize=(6.4 * panels, 4.2), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)[0]
        _plot_history(axes[0], self.history)
        axes[0].set_title(f"{self.method}: {self.passes:.1f} passes, {self.seconds:.1f} s")
        if anchored:
            _plot_anchors(axes[1], anchored)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


def cell(name: str, value: float) -> str:
    """The text of a number in the history."""
    if math.isnan(value):
        return "–"
    if name == "error":
        return f"{value:.2%}"
    if name == "ifo":
        return f"{int(value):,}"
    return f"{value:.1f}" if name in ("passes", "seconds") else f"{value:.4g}"


def label(name: str) -> str:
    """The heading of a column of the history."""
    return {"ifo": "gradients", "train_loss": "train loss", "test_loss": "test loss"}.get(name, name)


def _names(history: list[dict[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for row in history for name in row))


def _known(history: list[dict[str, float]], name: str) -> bool:
    return not all(math.isnan(row[name]) for row in history)


def _plot_history(axes: Axes, history: list[dict[str, float]]) -> None:
    """Draw losses on the left axis, the error in percent on the right one."""
    for name in ("train_loss", "test_loss"):
        _draw(axes, history, name)
    axes.set(xlabel="passes (n gradients each)", ylabel="mean loss")
    sides = [axes]
    if "error" in _names(history):
        sides.append(axes.twinx())
        _draw(sides[1], history, "error", 100.0, "s--")
        sides[1].set_ylabel("test error, %", color=COLOURS["error"])
    _finish(sides)


def _draw(axes: Axes, history: list[dict[str, float]], name: str, scale: float = 1.0, style: str = "o-") -> None:
    rows = [row for row in history if not math.isnan(row[name])]
    if rows:
        x, y = [row["passes"] for row in rows], [scale * row[name] for row in rows]
        axes.plot(x, y, style, markersize=3, linewidth=1.5, color=COLOURS[name], label=label(name))


def _plot_anchors(axes: Axes, records: list[Record]) -> None:
    """Draw B by epoch on the left, its points marked by regime; S* and the estimate of ‖∇f‖² on the right."""
    epochs, sizes = [record.epoch for record in records], [record.B for record in records]
    axes.plot(epochs, sizes, drawstyle="steps-mid", color="0.75", linewidth=1)
    regimes = dict.fromkeys(record.regime for record in records)
    for regime, marker in zip(regimes, itertools.cycle("osD^v")):
        own = [record for record in records if record.regime == regime]
        x, y = [record.epoch for record in own], [record.B for record in own]
        axes.plot(x, y, marker, markersize=3.5, color="0.45", label=f"B ({regime})" if regime else "B")
    axes.set(xlabel="epoch j", ylabel="B, samples", title="measured at the anchors")
    right = axes.twinx()
    right.set_ylabel("S*, ‖∇f‖²")
    for text, colour, values in (
        ("S*", "tab:orange", [record.variance for record in records]),
        ("‖∇f‖²", "tab:green", [record.gradient_norm2 for record in records]),
    ):
        positive = [value if value > 0 else math.nan for value in values]
        text += " (gaps: estimate ≤ 0)" if any(value <= 0 for value in values) else ""
        right.plot(epochs, positive, "o-", markersize=3, linewidth=1.2, color=colour, label=text)
    _finish([axes, right])


def _finish(sides: list[Axes]) -> None:
    """Add logarithmic axes where all values are positive, a grid, and one legend below for both sides."""
    for side in sides:
        values = [float(y) for line in side.get_lines() for y in np.asarray(line.get_ydata()) if not math.isnan(y)]
        if values and min(values) > 0:
            _log_scale(side)
    sides[0].grid(alpha=0.3)
    handles = [line for side in sides for line in side.get_lines() if not str(line.get_label()).startswith("_")]
    if handles:
        below = (0.5, -0.13)
        sides[0].legend(handles=handles, loc="upper center", bbox_to_anchor=below, ncols=len(handles), frameon=False)


def _log_scale(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 1000:  # room for ticks between the powers of ten, as plain numbers
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low > 5 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
