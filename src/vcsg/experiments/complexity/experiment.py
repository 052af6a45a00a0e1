"""The experiment as a whole: its sizes, its runs, and what is made of the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from vcsg.experiments import sheet
from vcsg.experiments.complexity.cells import Design, tasks
from vcsg.experiments.complexity.contenders import CONTENDERS
from vcsg.experiments.complexity.families import FAMILIES
from vcsg.experiments.complexity.growth import growths, sentences
from vcsg.experiments.complexity.growth_table import print_growths
from vcsg.experiments.complexity.observations import read_observations, search_cost
from vcsg.experiments.conducting import conduct
from vcsg.experiments.drawing import draw_all
from vcsg.names import suggestion
from vcsg.training.interrupt import Interrupt

_ALL = tuple(FAMILIES), tuple(CONTENDERS)
SIZES = {
    "quick": Design(*_ALL, sizes=(200, 800), targets=(1e-2, 1e-3), draws=2, passes=100, calls=1e6),
    "default": Design(
        *_ALL, sizes=(500, 3000, 17_000, 100_000), targets=(1e-2, 1e-4, 1e-6), draws=3, passes=600, calls=2e7
    ),
    "full": Design(
        *_ALL,
        sizes=(500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000),
        targets=(1e-2, 1e-3, 1e-4, 1e-5, 1e-6),
        draws=8,
        passes=2000,
        calls=1e9,
    ),
}
"""What each size measures."""


def make_design(size: str, families: Sequence[str] = (), methods: Sequence[str] = ()) -> Design:
    """The design of a size, for some of the families and methods or, where none are given, for all."""
    if size not in SIZES:
        raise ValueError(f"size {size!r}: choose one of {', '.join(SIZES)}")
    for given, known, what in ((families, FAMILIES, "family"), (methods, CONTENDERS, "method")):
        for name in given:
            if name not in known:
                raise ValueError(f"no {what} {name!r}: {suggestion(name, list(known))}")
    own = SIZES[size]
    return replace(
        own,
        families=tuple(dict.fromkeys(families)) or own.families,
        methods=tuple(dict.fromkeys(methods)) or own.methods,
    )


def measure(design: Design, folder: Path, jobs: int, console: Console, interrupt: Interrupt) -> bool:
    """Do what is left to do; returns whether all is done."""
    return conduct(tasks(design), design, design.identity(), folder, jobs, console, interrupt)


def show(design: Design, folder: Path, console: Console, command: str, report: bool = True) -> list[Path]:
    """Print the table and what it says; with `report`, draw the figures and write the page. Returns the files."""
    observations = read_observations(folder, design)
    found = growths(observations, design)
    said = sentences(found, observations, design, search_cost(folder, design))
    print_growths(console, found, said)
    if not report or not observations:
        return []
    from vcsg.experiments.complexity.growth_figures import figures
    from vcsg.experiments.complexity.growth_page import body

    made = draw_all(figures(observations, found, design), folder / "figures")
    page = body(found, observations, design, said, command)
    return [*made, sheet.write_page("Table 1, measured", page, folder / "report.html")]
