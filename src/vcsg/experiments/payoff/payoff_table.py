"""The tables of the experiment for a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from vcsg.experiments.payoff.payoff_cells import Payoff
from vcsg.experiments.payoff.payoff_words import rows, sentences, setup, title

HEADS = ("step", "b", "estimator", "reached", "passes", "ratio", "seconds", "ratio", "at the end", "step size")


def print_payoff(console: Console, found: Payoff) -> None:
    """Print a line for every cell, and what they say."""
    made = Table(title=title(found), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    for head in HEADS:
        made.add_column(head, no_wrap=True, max_width=24 if head == "estimator" else None)
    for row in rows(found):
        made.add_row(*row)
    with console.capture() as captured:
        console.print(made)
    for line in captured.get().splitlines():
        console.print(line.rstrip(), highlight=False, markup=False)
    for sentence in (setup(found), *sentences(found)):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
