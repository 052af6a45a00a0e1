"""The page of the ablation: the verdict, and for each setting a table and a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from vcsg.experiments import sheet
from vcsg.experiments.ablation.ablated_costs import AblationSetting, comparisons, ratio_text, sentences
from vcsg.experiments.ablation.ablation_figure import COLOURS
from vcsg.experiments.ablation.variants import BASE
from vcsg.study.report.layout import Plot, base, plain
from vcsg.study.report.markup import Child, Markup, tag
from vcsg.study.report.table import number, table, words

CAPTION = (
    "The mean ratio over runs on the same problem, and the range of the runs. Left of 1 a change makes VCSG cheaper. A "
    "triangle marks a variant of which not every run got there: its ratio is at least that."
)


def ablation_body(settings: Sequence[AblationSetting], setups: Sequence[str], command: str) -> list[Child]:
    """The parts of the page in order."""
    said = [sentence for setting in settings for sentence in sentences(setting)]
    parts: list[Child] = [sheet.findings(said)]
    parts += [sheet.section(one.title, list(_setting(one))) for one in settings if comparisons(one)]
    how = [tag("p", line) for line in setups]
    return [*parts, sheet.section("How it was measured", how, sheet.command(command))]


def _setting(setting: AblationSetting) -> Iterator[Markup]:
    found = comparisons(setting)
    heads = ["part (VCSG's value)", "changed to", "passes", "ratio to VCSG", "reached it"]
    rows = [
        [
            words(one.variant.part or "VCSG"),
            words(one.variant.label),
            number(one.cost if math.isfinite(one.cost) else None, f"{one.cost:.1f}"),
            number(one.ratio, ratio_text(one)),
            number(one.reached, f"{one.reached} of {one.runs}"),
        ]
        for one in found
    ]
    yield table(f"Passes to {setting.goal}", heads, rows)
    yield sheet.figure(f"Passes to {setting.goal}, over those of VCSG", {"": _plot(setting)}, CAPTION)


def _plot(setting: AblationSetting) -> Plot:
    found = [one for one in comparisons(setting) if one.variant != BASE and one.ratios]
    parts = list(dict.fromkeys(one.variant.part for one in found))
    data = []
    for part, colour in zip(parts, COLOURS, strict=False):
        own = [one for one in found if one.variant.part == part]
        data.append({
            "type": "scatter", "mode": "markers", "name": plain(part),
            "x": [one.ratio for one in own], "y": [plain(_label(part, one.variant.label)) for one in own],
            "error_x": {"type": "data", "symmetric": False, "thickness": 1.4, "width": 0,
                        "array": [max(one.ratios) - one.ratio if one.complete else 0 for one in own],
                        "arrayminus": [one.ratio - min(one.ratios) if one.complete else 0 for one in own]},
            "marker": {"size": 9, "color": colour,
                       "symbol": ["circle" if one.complete else "triangle-right-open" for one in own]},
            "hovertemplate": "%{x:.2f}",
        })  # fmt: skip
    order = [plain(_label(one.variant.part, one.variant.label)) for one in reversed(found)]
    layout = base(24 * len(found) + 150) | {
        "xaxis": {"title": {"text": "ratio to VCSG"}, "type": "log", "automargin": True, "gridcolor": "#e3e7eb"},
        "yaxis": {"categoryorder": "array", "categoryarray": order, "automargin": True, "gridcolor": "#e3e7eb"},
        "shapes": [{"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": "#808080"}}],
        "showlegend": False,
    }
    return {"data": data, "layout": layout}


def _label(part: str, label: str) -> str:
    return label if part.startswith("from") else f"{part.partition(' (')[0]}: {label}"
