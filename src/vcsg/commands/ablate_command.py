"""`vcsg ablate`: VCSG with one part changed at a time, on a network and on a convex problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcsg.commands import options
from vcsg.commands.complexity_command import ExperimentSize, Size
from vcsg.commands.ending import errors, finish
from vcsg.commands.showing import command_line


def ablate(
    size: Size = ExperimentSize.DEFAULT,
    only: Annotated[
        str, typer.Option(metavar="network|convex", help="The one setting to run; the default is both.")
    ] = "",
    out: Annotated[Path, typer.Option(help="The folder of the records. What is there already is continued.")] = Path(
        "ablate-output"
    ),
    jobs: options.Jobs = 2,
    report: options.MakeReport = True,
) -> None:
    """Change one part of VCSG at a time, and say what each does.

    The control has VCSG's step and batch sizes with SVRG's weights: it tells which part of a gain is only the step.
    """
    from vcsg.experiments.ablation.study_of_parts import Ablation
    from vcsg.study.view.tables import console
    from vcsg.training.interrupt import Interrupt

    interrupt = Interrupt()
    with errors(interrupt):
        ablation = Ablation(size, out, jobs, command_line(), only)
        done, failures = ablation.measure(console(stderr=True), interrupt)
        made = ablation.show(console(), report)
        print(f"Records: {out}")
        for path in made[-1:]:
            print(f"Figures: {out / 'figures'}\nReport: {path}")
        finish(not done, failures, interrupt)
