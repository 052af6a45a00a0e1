"""A plan as tables for a terminal: the sizes of the epochs, and what they cost."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from vcsg.theory.method_plan import MethodPlan
from vcsg.theory.planned_epochs import PlannedEpoch, evaluations
from vcsg.theory.setting import Setting

WIDE = 100
"""The columns of a terminal from which on ranges stand in one line, and gradients beside passes."""
NOTES = (
    "B: samples of an anchor; b: samples of a mini-batch; η: step size; N: expected inner steps. A run measures S* at "
    "every anchor and follows it; here S* stays what was given.",
    "Proved: a random point of the run has E‖∇f‖² ≤ ε after that many gradients, on every problem with these n, L, S* "
    "and gap, convex or not, at the sizes and steps above. It is the worst case: most problems need far less.",
    "Claimed: the paper's Table 1 with L, S* and the gap put back and every constant left out; it is no bound. The "
    "rate of vcsg is false as printed (docs/theory.md).",
)


def as_text(setting: Setting, methods: Sequence[MethodPlan], width: int) -> str:
    """The tables and notes as plain text."""
    text = io.StringIO()
    show(setting, methods, Console(file=text, width=width, no_color=True))
    return text.getvalue().rstrip()


def show(setting: Setting, methods: Sequence[MethodPlan], console: Console) -> None:
    """Print the tables and notes."""
    for table in (sizes_table(setting, methods, console.width), cost_table(setting, methods, console.width)):
        console.print(table)
        console.print()
    for note in NOTES:
        console.print(note, highlight=False)


def title(s: Setting) -> str:
    """The problem in one line."""
    return f"n = {s.n:,}, ε = {s.eps:g}, L = {s.L:.4g}, S* = {s.variance:.4g}, gap = {s.gap:.4g}"


def sizes_table(setting: Setting, methods: Sequence[MethodPlan], width: int) -> Table:
    """B, b, η and N of every method, one row for each regime, and its memory."""
    table = _table(title(setting), ("method", "epochs", "regime"), ("B", "b", "η", "N", "memory¹"))
    arrow = " → " if width >= WIDE else " →\n"
    for own in methods:
        for place, (first, last) in enumerate(own.stages):
            begin, end = _sizes(own, first), _sizes(own, last)
            ranges = (a if a == b else f"{a}{arrow}{b}" for a, b in zip(begin, end, strict=True))
            table.add_row(
                own.name if place == 0 else "",
                _epochs(own, first, last),
                first.regime or "–",
                *ranges,
                f"{own.copies:,.0f}" if place == 0 else "",
            )
    table.caption = "¹ copies of the parameters, beside them and their gradient"
    return table


def _sizes(own: MethodPlan, planned: PlannedEpoch) -> tuple[str, str, str, str]:
    """B, b, η and N of an epoch."""
    return (
        f"{planned.plan.B:,}" if planned.base else "–",
        f"{planned.plan.b:,}" if evaluations(own.method, planned.rule) else "–",
        f"{planned.eta:.2g}",
        f"{planned.steps:,.0f}",
    )


def cost_table(setting: Setting, methods: Sequence[MethodPlan], width: int) -> Table:
    """The gradients to ε, proved and claimed, in passes over the data."""
    heading = f"Passes over the data (n gradients each) to ‖∇f‖² ≤ {setting.eps:g}"
    numbers = ("epochs", "gradients", "proved", "claimed") if width >= WIDE else ("epochs", "proved", "claimed")
    table = _table(heading, ("method",), numbers)
    table.add_column("remark")
    for own in sorted(methods, key=_cost):
        found, n = own.guarantee, setting.n
        cells = {
            "epochs": _number(found.epochs),
            "gradients": f"{found.calls:.2e}" if math.isfinite(found.calls) else "–",
            "proved": _number(found.calls / n),
            "claimed": "–" if own.claimed is None else _number(own.claimed / n),
        }
        table.add_row(own.name, *(cells[name] for name in numbers), found.reason)
    return table


def _cost(own: MethodPlan) -> tuple[float, bool, str]:
    return own.guarantee.calls, not own.guarantee.proved, own.name


def _table(heading: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(
        title=heading,
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title_justify="left",
        title_style="bold",
        caption_justify="left",
    )
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, no_wrap=True, justify="right")
    return table


def _epochs(own: MethodPlan, first: PlannedEpoch, last: PlannedEpoch) -> str:
    if last is own.epochs[-1]:
        same = own.settled and len({(planned.plan, planned.base > 0) for planned in own.epochs}) == 1
        return "all" if same else f"{first.epoch}, …"
    return f"{first.epoch}" if first is last else f"{first.epoch}–{last.epoch}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.3g}"
