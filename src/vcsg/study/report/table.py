"""Tables of the report: cells that know what they are sorted by, in a box that scrolls where the page is narrow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vcsg.study.report.markup import Child, Markup, tag
from vcsg.study.view.summary import Spread
from vcsg.study.view.words import SPACE, amount


@dataclass(frozen=True)
class Cell:
    """What a cell shows and what it is sorted by; None is sorted last, whichever way."""

    shown: Child
    value: float | str | None = None
    number: bool = False


def words(content: str, shown: Child | None = None) -> Cell:
    return Cell(content if shown is None else shown, content.lower())


def number(value: float | None, shown: Child) -> Cell:
    known = value is not None and math.isfinite(value)
    return Cell(shown if known else "–", value if known else None, True)


def spent(unit: str, value: float | None) -> Cell:
    """A cell with seconds, passes or gradients."""
    return number(value, amount(unit, value))


def spread_cell(spread: Spread, unit: str) -> Cell:
    """The median to a target, and how far the seeds go apart, or how many came so far."""
    if spread.median is None:
        share = f" ({spread.count} of {spread.of})" if spread.count else ""
        return Cell(tag("span", f"not reached{share}", class_="missed") if unit == "seconds" else "–", None, True)
    shown: list[Child] = [amount(unit, spread.median)]
    if spread.count < spread.of:
        shown.append(tag("small", f" {spread.count} of {spread.of} seeds"))
    elif spread.count > 1 and spread.low is not None and spread.high is not None:
        shown.append(tag("small", f" ({_range(unit, spread.low, spread.high)})"))
    return number(spread.median, shown)


def _range(unit: str, low: float, high: float) -> str:
    """A range of two numbers, without the unit that stands before it already."""
    first, last = amount(unit, low), amount(unit, high)
    units = {text.partition(SPACE)[2] for text in (first, last)}
    return f"{first}–{last}" if len(units) > 1 else "–".join(text.partition(SPACE)[0] for text in (first, last))


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]], sortable: bool = True) -> Markup:
    """A table whose column heads are buttons that sort; the first cell of a row is its head."""
    rows = list(rows)
    body = [tag("tr", [_cell(cell, "td" if place else "th") for place, cell in enumerate(row)]) for row in rows]
    kinds = ["number" if rows and rows[0][place].number else "words" for place in range(len(heads))]
    made = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", [_head(*head, sortable) for head in zip(heads, kinds, strict=True)])),
        tag("tbody", body),
        class_="sortable" if sortable else "plain",
    )
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _head(name: str, kind: str, sortable: bool) -> Markup:
    if not sortable:
        return tag("th", name, scope="col", class_=kind)
    return tag("th", tag("button", name, type="button"), scope="col", class_=kind, aria_sort="none")


def _cell(cell: Cell, kind: str) -> Markup:
    value = "" if cell.value is None else str(cell.value)
    scope: dict[str, str | bool] = {"scope": "row"} if kind == "th" else {}
    return tag(kind, cell.shown, data_value=value, class_="number" if cell.number else "words", **scope)
