"""The progress of the methods, interactive: the same curves, colours and dashes as on paper."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vcsg.study.records import RunRecord
from vcsg.study.report.layout import GREY, Plot, base, digits, faint, nested, plain, x_axes, x_axis, y_axis
from vcsg.study.targets import Target
from vcsg.study.view.curves import Array, Curve, Rest, ceiling, curves, last, log_range, needs_log, thin, values_of
from vcsg.study.view.label_places import apart, within
from vcsg.study.view.style import Look
from vcsg.study.view.summary import UNITS
from vcsg.study.view.words import METRIC_NAMES, SCALES, SPACE, metric_name

LINE_POINTS, BAND_POINTS = 250, 120
"""The most points of a line and of one side of its band."""
FIRST = "seconds"
"""The unit of the x axis that is shown first."""
LABEL_GAP = 17.0
"""The distance between two names beside their curves, in pixels."""
Looks = dict[tuple[str, str], Look]


def progress(runs: list[RunRecord], protocol: str, metric: str, look: Looks, targets: Sequence[Target]) -> Plot:
    """A metric against time, and by a switch against passes or gradients; the targets of the metric as lines."""
    by_unit = {unit: {one.key: one for one in curves(runs, protocol, unit, metric)} for unit in UNITS}
    data: list[Plot] = []
    for key in by_unit[FIRST]:
        own = {unit: found[key] for unit, found in by_unit.items()}
        data += [*_band(own, look[key]), _median(own, look[key], metric)]
        data += [*_rests(own, look[key]), *_tails(own, look[key], metric)]
    marked = [target for target in targets if target.metric == metric]
    times = list(by_unit["seconds"].values())
    axes = x_axes({"seconds": log_range(times)} if needs_log(times) else {})
    layout = _layout(metric, marked, list(by_unit[FIRST].values()), axes)
    return {"data": data, "layout": layout | {"meta": {"axes": axes, "said": _said(times, metric)}}}


def _median(own: dict[str, Curve], look: Look, metric: str) -> Plot:
    first = own[FIRST]
    shown = {unit: _points(curve, metric) for unit, curve in own.items()}
    return {
        "type": "scatter",
        "mode": "lines" if len(first.x) > 1 else "markers",
        **shown[FIRST],
        "name": plain(first.label),
        "legendgroup": plain(first.label),
        "line": {"color": look.colour, "dash": look.dash, "width": 2},
        "hovertemplate": "%{text}",
        "meta": {"switch": shown, "colours": [look.colour, look.on_dark]},
    }


def _points(curve: Curve, metric: str) -> Plot:
    """The median, and for the pointer its value with its unit and the range over the seeds."""
    keep = _kept(curve.x, LINE_POINTS)
    values = zip(curve.median[keep], curve.low[keep], curve.high[keep], strict=True)
    texts = [_value(metric, *three, curve.runs) for three in values]
    return {"x": digits(curve.x[keep]), "y": digits(curve.median[keep]), "text": texts}


def _value(metric: str, median: float, low: float, high: float, runs: int) -> str:
    unit = f"{SPACE}%" if metric in SCALES else ""
    if not math.isfinite(median):
        return "–"
    seeds = f" ({low:.3g}–{high:.3g}{unit}, {runs} seeds)" if runs > 1 else ""
    return f"{median:.3g}{unit}{seeds}"


def _rests(own: dict[str, Curve], look: Look) -> list[Plot]:
    """The seeds that go on after the first has ended, each by itself, with a dot at its end."""
    most = max(len(curve.rests) for curve in own.values())
    found = []
    for place in range(most):
        shown = {unit: _rest(curve.rests[place : place + 1]) for unit, curve in own.items()}
        found.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": shown[FIRST]["x"],
                "y": shown[FIRST]["y"],
                "legendgroup": plain(own[FIRST].label),
                "showlegend": False,
                "hoverinfo": "skip",
                "opacity": 0.75,
                "line": {"color": look.colour, "width": 1},
                "marker": {"color": look.colour, "size": shown[FIRST]["marker.size"]},
                "meta": {"switch": shown, "colours": [look.colour, look.on_dark]},
            }
        )
    return found


def _rest(found: tuple[Rest, ...]) -> Plot:
    """One of them; nothing for a unit in which it ends with the others."""
    if not found:
        return {"x": [], "y": [], "marker.size": []}
    (rest,) = found
    keep = _kept(rest.x, BAND_POINTS)
    return {"x": digits(rest.x[keep]), "y": digits(rest.y[keep]), "marker.size": [0] * (len(keep) - 1) + [5]}


def _said(drawn: list[Curve], metric: str) -> str:
    """The figure in a sentence."""
    unit = f"{SPACE}%" if metric in SCALES else ""
    ends = [(curve.label, end[1]) for curve in drawn if (end := last(curve)) is not None]
    values = "; ".join(f"{label} {value:.3g}{unit}" for label, value in sorted(ends, key=lambda pair: pair[1]))
    return (
        f"Curves of the {metric_name(metric)}, which can be shown by time, passes and gradients. At the end: {values}."
    )


def name_curves(plot: Plot, runs: list[RunRecord], protocol: str, metric: str, look: Looks) -> None:
    """Put the names of the methods beside the ends of their curves, once the y axis is settled.

    `meta.labels` has their heights by unit; page.js shows a legend instead where there is no room for them.
    """
    axis, layout = plot["layout"]["yaxis"], plot["layout"]
    logarithmic = axis.get("type") == "log"
    low, high = axis["range"]
    places: dict[str, list[float | None]] = {}
    for unit in UNITS:
        drawn = curves(runs, protocol, unit, metric)
        ends = [end[1] if (end := last(curve)) is not None else math.nan for curve in drawn]
        heights = [math.log10(y) if logarithmic and y > 0 else low if logarithmic else y for y in ends]
        shares = [
            min(max((height - low) / (high - low), 0.0), 1.0) if math.isfinite(height) else 1.0 for height in heights
        ]
        room = layout["height"] - layout["margin"]["t"] - layout["margin"]["b"]
        spread = within(apart(shares, LABEL_GAP / room), 0.0, 1.0)
        places[unit] = digits(low + share * (high - low) for share in spread)
    drawn = curves(runs, protocol, FIRST, metric)
    texts = [[_name(*pair) for pair in zip(drawn, shades, strict=True)] for shades in _shades(drawn, look)]
    beside = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 6, "showarrow": False, "captureevents": True}
    names = [
        beside | {"name": plain(curve.label), "text": text, "y": y, "yanchor": "middle", "align": "left"}
        for curve, text, y in zip(drawn, texts[0], places[FIRST], strict=True)
    ]
    room = 34 + 7.4 * max(len(curve.label + _status(curve)) for curve in drawn)
    layout["annotations"] = [*names, *layout["annotations"]]
    layout["meta"] |= {"labels": places, "texts": texts, "room": min(round(room), 230)}
    layout["margin"] = layout["margin"] | {"r": layout["meta"]["room"], "b": 44}  # no legend stands below the axis
    layout["showlegend"] = False


def _name(curve: Curve, colour: str) -> str:
    """A name with a piece of its line; one that no seed brought to an end says so."""
    return f'<span style="color:{colour}"><b>━</b></span> {plain(curve.label)}{_status(curve)}'


def _status(curve: Curve) -> str:
    return "" if len(curve.x) else f" ({curve.tails[0].status})"


def _shades(drawn: list[Curve], look: Looks) -> tuple[list[str], list[str]]:
    """The colours on a light and on a dark page."""
    return [look[curve.key].colour for curve in drawn], [look[curve.key].on_dark for curve in drawn]


def _band(own: dict[str, Curve], look: Look) -> list[Plot]:
    if own[FIRST].runs < 2:
        return []
    shown = {unit: _outline(curve) for unit, curve in own.items()}
    return [
        {
            "type": "scatter",
            "mode": "lines",
            **shown[FIRST],
            "fill": "toself",
            "fillcolor": faint(look.colour),
            "line": {"width": 0},
            "legendgroup": plain(own[FIRST].label),
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


def _tails(own: dict[str, Curve], look: Look, metric: str) -> list[Plot]:
    """The runs that did not finish: thin, with a mark at their ends."""
    found = []
    for place, tail in enumerate(own[FIRST].tails):
        ends = {unit: curve.tails[place] for unit, curve in own.items()}
        texts = [_value(metric, value, value, value, 1) for value in tail.y]
        shown = {unit: {"x": digits(end.x), "y": digits(end.y), "text": texts} for unit, end in ends.items()}
        before = len(tail.x) - 1
        symbols = ["circle"] * before + ["x" if tail.status == "failed" else "circle-open"]
        found.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                **shown[FIRST],
                "name": plain(f"{own['passes'].label} ({tail.status})"),
                "line": {"color": look.colour, "dash": look.dash, "width": 1},
                "marker": {"symbol": symbols, "size": [0] * before + [9], "color": look.colour},
                "hovertemplate": "%{text}",
                "meta": {"switch": shown, "colours": [look.colour, look.on_dark]},
            }
        )
    return found


def _kept(x: Array, points: int) -> list[int]:
    return [int(place) for place in thin(np.arange(len(x), dtype=float), points)]


def _layout(metric: str, targets: list[Target], drawn: list[Curve], axes: dict[str, Plot]) -> Plot:
    scale = SCALES.get(metric, 1.0)
    highest = ceiling(drawn)
    values = [part[~(part > highest)] for one in drawn for part in values_of(one)]
    name = METRIC_NAMES[metric] + (f", above {highest:.2g} cut off" if highest < math.inf else "")
    lines = [scale * target.value for target in targets]
    layout = base(420) | {
        "xaxis": x_axis(FIRST) | nested(axes[FIRST]),
        "yaxis": y_axis(name, [*values, np.array(lines)]),
        "hovermode": "x unified",
    }
    logarithmic = layout["yaxis"].get("type") == "log"
    shown = [value for value in lines if value > 0 or not logarithmic]
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": GREY, "width": 1.5}}
    above = {"xref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    layout["shapes"] = [across | {"y0": value, "y1": value} for value in shown]
    unit = f"{SPACE}%" if metric in SCALES else ""
    layout["annotations"] = [
        above | {"text": f"target: {value:g}{unit}", "y": math.log10(value) if logarithmic else value}
        for value in shown
    ]
    return layout
