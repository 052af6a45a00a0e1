"""`vcsg run`: one method on one workload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcsg.commands import completion, options
from vcsg.commands.ending import check_folder, errors, finish
from vcsg.commands.showing import show


def run(
    workload: options.Workload,
    method: Annotated[
        str, typer.Option(help="The method to run; see `vcsg list methods`.", autocompletion=completion.method)
    ] = "vcsg",
    seed: Annotated[int, typer.Option(min=0, help="The seed of the initial weights and of all sampling.")] = 0,
    budget: options.Budget = "10passes",
    out: Annotated[Path, typer.Option(help="The folder for the records and the final weights.")] = Path("run-output"),
    set_: options.Set = None,
    config: options.Config = None,
    every: options.Every = None,
    device: options.Device = "cpu",
    threads: options.Threads = 1,
    data_dir: options.DataDir = None,
    import_: options.Import = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder, if there is one.")] = False,
    checkpoint_seconds: options.CheckpointSeconds = options.CHECKPOINT_SECONDS,
) -> None:
    """Run one method on one workload.

    Started by torchrun, it runs on several ranks.
    """
    from vcsg.study import compare, outcome, settings
    from vcsg.study.budgets import Budget
    from vcsg.study.running import torchrun
    from vcsg.study.view.tables import console
    from vcsg.training.interrupt import Interrupt

    interrupt = Interrupt()
    with errors(interrupt), torchrun.joined(device) as rank:
        check_folder(out)
        study = compare.make_study(
            workload,
            out,
            methods=[method],
            budget=Budget.parse(budget),
            seeds=[seed],
            settings=settings.parse(set_ or [], config),
            every=every,
            device=device,
            threads=threads,
            data_dir=data_dir,
            imports=import_ or [],
            checkpoint_seconds=checkpoint_seconds,
        )
        record = compare.run_alone(study, console(stderr=True, quiet=rank > 0), resume, interrupt)
        if rank == 0:
            show(outcome.read_sections([out]), out)
        failures = {record.config.label: record.message} if record.message else {}
        finish(record.status == "interrupted", failures, interrupt)
