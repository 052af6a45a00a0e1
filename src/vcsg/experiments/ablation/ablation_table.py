"""The table of variants for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from vcsg.experiments.ablation.ablated_costs import AblationSetting, comparisons, ratio_text, sentences


def print_setting(console: Console, setting: AblationSetting) -> None:
    """Print a line for every variant."""
    found = comparisons(setting)
    if not found:
        return
    title = f"{setting.title}: passes to {setting.goal}"
    made = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left", title_style="bold")
    for head in ("part (VCSG's value)", "changed to", "passes", "ratio to VCSG", "reached it"):
        made.add_column(head, no_wrap=True)
    for one in found:
        cost = f"{one.cost:.1f}" if math.isfinite(one.cost) else "–"
        made.add_row(one.variant.part, one.variant.label, cost, ratio_text(one), f"{one.reached} of {one.runs}")
    with console.capture() as captured:
        console.print(made)
    for line in captured.get().splitlines():
        console.print(line.rstrip(), highlight=False, markup=False)


def print_verdicts(console: Console, settings: Iterable[AblationSetting]) -> None:
    """Print what the records say."""
    note = (
        "Passes are medians; ratios are geometric means over runs on the same problem, with the least and the largest."
    )
    console.print(note, highlight=False, markup=False, style="dim")
    for setting in settings:
        for sentence in sentences(setting):
            console.print(sentence, highlight=False, markup=False)
