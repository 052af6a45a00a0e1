"""`vcsg complexity`: how the calls to ε-accuracy grow with n and 1/ε, claimed beside measured."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vcsg.commands import options
from vcsg.commands.ending import errors, finish
from vcsg.commands.showing import command_line, words


class ExperimentSize(StrEnum):
    """How large an experiment is."""

    QUICK = "quick"
    DEFAULT = "default"
    FULL = "full"


Size = Annotated[
    ExperimentSize,
    typer.Option(help="How large the experiment is: quick (a trial), default (minutes), or full (hours)."),
]


def complexity(
    size: Size = ExperimentSize.DEFAULT,
    families: Annotated[str, typer.Option(help="Families of problems, separated by commas; the default is all.")] = "",
    methods: Annotated[str, typer.Option(help="Methods, separated by commas; the default is all.")] = "",
    out: Annotated[Path, typer.Option(help="The folder of the records. What is there already is continued.")] = Path(
        "complexity-output"
    ),
    jobs: options.Jobs = 2,
    report: options.MakeReport = True,
) -> None:
    """Measure how the gradients to ‖∇f‖² ≤ ε grow with n and 1/ε.

    GD, SGD, SVRG, SCSG, VCSG, Growing SVRG, SPIDER and PAGE on drawn problems with known L; the exponents of the
    paper's Table 1 stand beside those that are measured.
    """
    from vcsg.experiments.complexity import experiment
    from vcsg.study.view.tables import console
    from vcsg.training.interrupt import Interrupt

    interrupt = Interrupt()
    with errors(interrupt):
        design = experiment.make_design(size, words([families]), words([methods]))
        done = experiment.measure(design, out, jobs, console(stderr=True), interrupt)
        made = experiment.show(design, out, console(), command_line(), report)
        print(f"Records: {out}")
        for path in made[-1:]:
            print(f"Figures: {out / 'figures'}\nReport: {path}")
        finish(not done, {}, interrupt)
