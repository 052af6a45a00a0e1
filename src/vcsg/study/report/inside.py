"""The inner life of an anchored method, interactive: its batch sizes, and what its anchors measured."""

from __future__ import annotations

import numpy as np

from vcsg.study.records import RunRecord
from vcsg.study.report.layout import GREY, Plot, base, digits, plain, x_axis, y_axis
from vcsg.study.view.curves import Array
from vcsg.study.view.epoch_series import EpochSeries, epochs_of
from vcsg.study.view.style import GREEN, ORANGE, PURPLE, SKY, VERMILLION

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down")
"""The colours of the regimes."""


def inside(run: RunRecord) -> Plot:
    """B_j and b_j above, marked by regime; S*, ‖∇f‖², its rough bound and ε below; against passes."""
    epochs = epochs_of(run)
    norms = [epochs.variance, epochs.bound, epochs.gradient, *([epochs.eps] if epochs.eps is not None else [])]
    layout = base(560) | {
        "xaxis": x_axis("passes", anchor="y2"),
        "yaxis": y_axis("samples", [epochs.B, epochs.b], domain=[0.54, 1]),
        "yaxis2": y_axis("squared norm", [part[part > 0] for part in norms], domain=[0, 0.46]),
        "meta": {
            "said": f"Dots for {epochs.total:,} epochs: above, the batch sizes; below, what their anchors measured."
        },
    }
    return {"data": [*_sizes(epochs), *_norms(epochs)], "layout": layout}


def _sizes(epochs: EpochSeries) -> list[Plot]:
    kept = np.array(epochs.regime)
    found = []
    for place, regime in enumerate(epochs.regimes):
        own = kept == regime
        name = f"batch size B, regime: {regime}" if regime else "batch size B"
        symbol = SYMBOLS[place % len(SYMBOLS)]
        found.append(_dots(epochs.passes[own], epochs.B[own], VERMILLION, name, symbol, "y"))
    return [*found, _dots(epochs.passes, epochs.b, PURPLE, "mini-batch size b", "circle", "y")]


def _norms(epochs: EpochSeries) -> list[Plot]:
    gaps = " (gaps: ≤ 0)" if (epochs.gradient <= 0).any() else ""
    found = [
        _dots(epochs.passes, epochs.variance, ORANGE, "variance S*", "triangle-up", "y2"),
        _dots(epochs.passes, epochs.bound, SKY, "rough bound of ‖∇f‖²", "square", "y2"),
        _dots(epochs.passes, epochs.gradient, GREEN, f"estimate of ‖∇f‖²{gaps}", "circle", "y2"),
    ]
    if epochs.eps is not None:
        line = {"color": GREY, "dash": "dash", "width": 1.5}
        ends = {"x": digits(epochs.passes[[0, -1]]), "y": digits(epochs.eps[[0, -1]])}
        name = f"ε = {epochs.eps[-1]:.3g}"
        found.append({"type": "scatter", "mode": "lines", **ends, "line": line, "name": name, "yaxis": "y2"})
    return found


def _dots(x: Array, y: Array, colour: str, name: str, symbol: str, axis: str) -> Plot:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": digits(x),
        "y": digits(np.where(y > 0, y, np.nan)),
        "name": plain(name),
        "marker": {"color": colour, "symbol": symbol, "size": 5},
        "yaxis": axis,
        "hovertemplate": "%{y:.3g} at pass %{x:.2f}",
    }
