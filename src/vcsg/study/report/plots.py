"""The progress of the methods, interactive: the same curves, colours and dashes as on paper."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vcsg.study.records import RunRecord
from vcsg.study.report.layout import GREY, Plot, base, digits, faint, plain, x_axis, y_axis
from vcsg.study.targets import Target
from vcsg.study.view.curves import Array, Curve, ceiling, curves, log_range, needs_log, thin, values_of
from vcsg.study.view.style import Look
from vcsg.study.view.summary import UNITS
from vcsg.study.view.words import AXES, METRIC_NAMES, SCALES

LINE_POINTS, BAND_POINTS = 250, 120
"""The most points of a line and of one side of its band."""
Looks = dict[tuple[str, str], Look]


def progress(runs: list[RunRecord], protocol: str, metric: str, look: Looks, targets: Sequence[Target]) -> Plot:
    """A metric against passes, and by a switch against time or gradients; the targets of the metric as lines."""
    by_unit = {unit: {one.key: one for one in curves(runs, protocol, unit, metric)} for unit in UNITS}
    data: list[Plot] = []
    for key in by_unit["passes"]:
        own = {unit: found[key] for unit, found in by_unit.items()}
        data += [*_band(own, look[key]), _median(own, look[key]), *_tails(own, look[key])]
    marked = [target for target in targets if target.metric == metric]
    layout = _layout(metric, marked, list(by_unit["passes"].values()))
    times = list(by_unit["seconds"].values())
    if needs_log(times):
        ends = digits(math.log10(end) for end in log_range(times))
        layout["meta"]["axes"]["seconds"] = {"title.text": AXES["seconds"], "type": "log", "range": ends}
    return {"data": data, "layout": layout}


def _median(own: dict[str, Curve], look: Look) -> Plot:
    first = own["passes"]
    shown = {unit: _points(curve) for unit, curve in own.items()}
    return {
        "type": "scatter",
        "mode": "lines" if len(first.x) > 1 else "markers",
        **shown["passes"],
        "name": plain(first.label),
        "legendgroup": plain(first.label),
        "line": {"color": look.colour, "dash": look.dash, "width": 2},
        "hovertemplate": "%{y:.3g}",
        "meta": {"switch": shown, "colours": [look.colour, look.on_dark]},
    }


def _points(curve: Curve) -> Plot:
    keep = _kept(curve.x, LINE_POINTS)
    return {"x": digits(curve.x[keep]), "y": digits(curve.median[keep])}


def _band(own: dict[str, Curve], look: Look) -> list[Plot]:
    if own["passes"].runs < 2:
        return []
    shown = {unit: _outline(curve) for unit, curve in own.items()}
    return [
        {
            "type": "scatter",
            "mode": "lines",
            **shown["passes"],
            "fill": "toself",
            "fillcolor": faint(look.colour),
            "line": {"width": 0},
            "legendgroup": plain(own["passes"].label),
            "showlegend": False,
            "hoverinfo": "skip",
            "meta": {"switch": shown},
        }
    ]


def _outline(curve: Curve) -> Plot:
    """The band as a polygon for every stretch without a gap."""
    keep = _kept(curve.x, BAND_POINTS)
    x, low, high = curve.x[keep], curve.low[keep], curve.high[keep]
    whole = np.isfinite(low) & np.isfinite(high)
    found_x: list[float | None] = []
    found_y: list[float | None] = []
    for stretch in np.split(np.arange(len(x)), np.flatnonzero(~whole)):
        part = stretch[whole[stretch]]
        if len(part) > 1:
            found_x += [*digits(x[part]), *digits(x[part][::-1]), None]
            found_y += [*digits(high[part]), *digits(low[part][::-1]), None]
    return {"x": found_x[:-1], "y": found_y[:-1]}


def _tails(own: dict[str, Curve], look: Look) -> list[Plot]:
    """The runs that did not finish: thin, with a mark at their ends."""
    found = []
    for place, tail in enumerate(own["passes"].tails):
        ends = {unit: curve.tails[place] for unit, curve in own.items()}
        shown = {unit: {"x": digits(end.x), "y": digits(end.y)} for unit, end in ends.items()}
        before = len(tail.x) - 1
        symbols = ["circle"] * before + ["x" if tail.status == "failed" else "circle-open"]
        found.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                **shown["passes"],
                "name": plain(f"{own['passes'].label} ({tail.status})"),
                "line": {"color": look.colour, "dash": look.dash, "width": 1},
                "marker": {"symbol": symbols, "size": [0] * before + [9], "color": look.colour},
                "hovertemplate": "%{y:.3g}",
                "meta": {"switch": shown, "colours": [look.colour, look.on_dark]},
            }
        )
    return found


def _kept(x: Array, points: int) -> list[int]:
    return [int(place) for place in thin(np.arange(len(x), dtype=float), points)]


def _layout(metric: str, targets: list[Target], drawn: list[Curve]) -> Plot:
    scale = SCALES.get(metric, 1.0)
    highest = ceiling(drawn)
    values = [part[~(part > highest)] for one in drawn for part in values_of(one)]
    name = METRIC_NAMES[metric] + (f", above {highest:.2g} cut off" if highest < math.inf else "")
    lines = [scale * target.value for target in targets]
    layout = base(420) | {
        "xaxis": x_axis("passes"),
        "yaxis": y_axis(name, [*values, np.array(lines)]),
        "meta": {
            "axes": {unit: {"title.text": title, "type": "linear", "autorange": True} for unit, title in AXES.items()}
        },
        "hovermode": "x unified",
    }
    logarithmic = layout["yaxis"].get("type") == "log"
    shown = [value for value in lines if value > 0 or not logarithmic]
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": GREY, "width": 1.5}}
    beside = {"xref": "paper", "x": 1.01, "xanchor": "left", "showarrow": False}
    layout["shapes"] = [across | {"y0": value, "y1": value} for value in shown]
    layout["annotations"] = [
        beside
        | {"text": f"{value:g}{' %' if metric in SCALES else ''}", "y": math.log10(value) if logarithmic else value}
        for value in shown
    ]
    return layout
