"""The table of exponents for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from vcsg.experiments.complexity.growth import NOTE, Growth, interval_text, verdict

HEADS = ("method", "step", "claimed\nin n", "measured", "", "claimed\nin 1/ε", "measured", "", "runs that\nreached ε")


def cells(one: Growth) -> list[str]:
    """The cells of a line."""
    (p, in_n), (q, in_eps) = one.axes
    return [
        one.contender.label,
        one.steps,
        "–" if p is None else f"{p:.2f}",
        interval_text(in_n),
        verdict(p, in_n),
        "–" if q is None else f"{q:.2f}",
        interval_text(in_eps),
        verdict(q, in_eps),
        f"{one.measured.reached}/{one.measured.runs}",
    ]


def print_growths(console: Console, found: Sequence[Growth], said: Sequence[str]) -> None:
    """Print the table and what it says."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in HEADS:
        made.add_column(head, no_wrap=True)
    for one in found:
        made.add_row(*cells(one))
    with console.capture() as captured:
        console.print(made)
    for line in captured.get().splitlines():
        console.print(line.rstrip(), highlight=False, markup=False)
    console.print(NOTE, highlight=False, markup=False, style="dim")
    for sentence in said:
        console.print(sentence, highlight=False, markup=False)
