"""`vcsg compare`: several methods on one workload, over several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcsg.commands import completion, options
from vcsg.commands.ending import check_folder, errors, finish
from vcsg.commands.showing import command_line, conduct, show_plan, words
from vcsg.study.search import SHARE, TRIALS


def compare(
    workload: options.Workload,
    methods: Annotated[
        str,
        typer.Option(
            help="The methods, separated by commas; PROTOCOL:METHOD runs one under that protocol alone.",
            autocompletion=completion.methods,
        ),
    ] = "vcsg,scsg,svrg,sgd",
    budget: options.Budget = "30passes",
    seeds: options.Seeds = "3",
    target: options.Targets = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            help="The rules of the comparison: default, paper or tuned; repeatable, or separated by commas.",
            autocompletion=completion.protocols,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the study. An existing study is continued.")] = Path(
        "study-output"
    ),
    set_: options.Set = None,
    config: options.Config = None,
    import_: options.Import = None,
    every: options.Every = None,
    trials: options.Trials = TRIALS,
    share: options.Share = SHARE,
    search_budget: options.SearchBudget = None,
    search_b: options.SearchB = None,
    stop_at_target: options.StopAtTarget = False,
    jobs: options.Jobs = 1,
    search_jobs: options.SearchJobs = None,
    threads: options.Threads = 1,
    device: options.Device = "cpu",
    data_dir: options.DataDir = None,
    checkpoint_seconds: options.CheckpointSeconds = options.CHECKPOINT_SECONDS,
    report: options.MakeReport = True,
    plan: options.PlanOnly = False,
) -> None:
    """Compare methods on one workload, over several seeds.

    The outcome is a table of what each method needed and where it ended, figures, and a report.
    """
    from vcsg.study import compare as comparison
    from vcsg.study import settings
    from vcsg.study.budgets import Budget
    from vcsg.study.running import torchrun
    from vcsg.study.targets import Target
    from vcsg.training.interrupt import Interrupt

    interrupt = Interrupt()
    with errors(interrupt):
        torchrun.check_alone("vcsg compare")
        check_folder(out)
        study = comparison.make_study(
            workload,
            out,
            methods=words([methods]),
            protocols=words(protocol or ["default"]),
            budget=Budget.parse(budget),
            seeds=comparison.parse_seeds(seeds),
            settings=settings.parse(set_ or [], config),
            targets=[Target.parse(text) for text in target or []],
            every=every,
            trials=trials,
            share=share,
            search_budget=None if search_budget is None else Budget.parse(search_budget),
            stop_at_target=stop_at_target,
            search_b=() if search_b is None else comparison.parse_sizes(search_b),
            device=device,
            threads=threads,
            jobs=jobs,
            search_jobs=search_jobs,
            data_dir=data_dir,
            command=command_line(),
            imports=import_ or [],
            checkpoint_seconds=checkpoint_seconds,
        )
        if plan:
            show_plan(study, interrupt)
            return
        found, _ = conduct(study, report, interrupt)
        finish(found.interrupted, found.failures, interrupt)
