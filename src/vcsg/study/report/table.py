"""Tables of the report: cells that know what they are sorted by, in a box that scrolls where the page is narrow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from vcsg.study.report.markup import Child, Markup, tag
from vcsg.study.targets import METRICS
from vcsg.study.view.summary import Spread
from vcsg.study.view.words import SPACE, amount, measured


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
    return _with_range(spread, lambda value: amount(unit, value))


def final_cell(spread: Spread | None, name: str) -> Cell:
    """Where a method ended by a metric, or what it spent in all: the median, and how far the seeds go apart."""
    if spread is None:
        return number(None, "")
    show = partial(measured, name) if name in METRICS else partial(amount, name)
    if spread.median is None:
        few = tag("small", f"{spread.count} of {spread.of} seeds") if spread.count else ""
        return Cell(["–", " ", few], None, True)
    return _with_range(spread, show)


def _with_range(spread: Spread, show: Callable[[float], str]) -> Cell:
    """A median that is there, with the range of all seeds, or the number of those that have the value."""
    assert spread.median is not None
    shown: list[Child] = [show(spread.median)]
    if spread.count < spread.of:
        shown += [" ", tag("small", f"{spread.count} of {spread.of} seeds")]
    elif spread.low is not None and spread.high is not None and show(spread.low) != show(spread.high):
        shown += [" ", tag("small", from_to(show(spread.low), show(spread.high)))]
    return number(spread.median, shown)


def from_to(low: str, high: str) -> str:
    """A range of two numbers as text, which have their unit once where it is the same."""
    units = {text.partition(SPACE)[2] for text in (low, high)}
    return f"{low}–{high}" if len(units) > 1 else f"{low.partition(SPACE)[0]}–{high}"


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]], sortable: bool = True) -> Markup:
    """A table whose column heads are buttons that sort; the first cell of a row is its head."""
    rows = list(rows)
    body = [tag("tr", [_cell(cell, "td" if place else "th") for place, cell in enumerate(row)]) for row in rows]
    kinds = ["number" if rows and rows[0][place].number else "words" for place in range(len(heads))]
    made = tag(
        "table",
        tag("caption", tag("span", caption)),
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
