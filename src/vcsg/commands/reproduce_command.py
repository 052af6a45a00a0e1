"""`vcsg reproduce`: the experiments of the paper."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vcsg.commands import completion, options
from vcsg.commands.ending import check_folder, errors, finish
from vcsg.commands.showing import command_line, conduct, draw, make_report, show_plan, words
from vcsg.study.search import SHARE, TRIALS

if TYPE_CHECKING:
    from vcsg.study.plan import Study
    from vcsg.study.view.sections import Section


def reproduce(
    data_set: Annotated[
        list[str] | None,
        typer.Option(
            help="One of mnist, cifar10, cifar10-vgg-16 and tiny-imagenet; repeatable; the default is all found.",
            autocompletion=completion.paper_data_sets,
        ),
    ] = None,
    methods: Annotated[
        str,
        typer.Option(
            help="The methods, separated by commas, such as tuned:adamw; the default is all. A name without a protocol "
            "stands for those protocols in which `reproduce` has it.",
            autocompletion=completion.methods,
        ),
    ] = "",
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            help="The protocols of the methods: paper, tuned or default; repeatable, or separated by commas; the "
            "default is all.",
            autocompletion=completion.protocols,
        ),
    ] = None,
    budget: options.Budget = "30passes",
    seeds: options.Seeds = "3",
    out: Annotated[Path, typer.Option(help="The folder for the studies, one for each data set.")] = Path(
        "reproduce-output"
    ),
    every: options.Every = None,
    trials: options.Trials = TRIALS,
    share: options.Share = SHARE,
    search_budget: options.SearchBudget = None,
    search_b: options.SearchB = "16,64,256",
    stop_at_target: options.StopAtTarget = False,
    jobs: options.Jobs = 1,
    search_jobs: options.SearchJobs = None,
    threads: options.Threads = 1,
    device: options.Device = "cpu",
    data_dir: options.DataDir = None,
    checkpoint_seconds: options.CheckpointSeconds = options.CHECKPOINT_SECONDS,
    report: options.MakeReport = True,
    import_: options.Import = None,
    plan: options.PlanOnly = False,
    forecast: Annotated[
        bool,
        typer.Option("--forecast/--no-forecast", help="Whether to show first what will be run, and about how long."),
    ] = True,
) -> None:
    """Run the experiments of the paper.

    They are run as the paper sets them, and with tuned step and mini-batch sizes beside rivals and `auto`. The plan,
    with estimated times, is shown first. A folder can be filled by several calls: what is there stays.
    """
    from vcsg.study import compare, imports, outcome
    from vcsg.study import reproduce as paper
    from vcsg.study.budgets import Budget
    from vcsg.study.running import torchrun
    from vcsg.study.view.plan_table import duration
    from vcsg.training.interrupt import Interrupt
    from vcsg.workloads import DataError

    interrupt = Interrupt()
    with errors(interrupt):
        torchrun.check_alone("vcsg reproduce")
        check_folder(out)
        loaded = imports.load(import_ or [])
        available, missing = paper.available(words(data_set or []), data_dir)
        chosen = paper.choose(words([methods]), words(protocol or []))
        for name in missing:
            where = "" if data_dir is None else f" --data-dir {shlex.quote(data_dir)}"
            fetch = f"vcsg data fetch {paper.PAIRINGS[name].partition('/')[0]}{where}"
            print(f"The data of {name} are missing: fetch them with {fetch}", file=sys.stderr)
        if not available:
            raise DataError("the data of no data set were found: fetch one, or give --data-dir")
        failures: dict[str, str] = {name: "its data are missing" for name in missing if data_set}

        def study_of(name: str) -> Study:
            return paper.paper_study(
                name,
                out / name,
                methods=chosen,
                budget=Budget.parse(budget),
                seeds=compare.parse_seeds(seeds),
                every=every,
                trials=trials,
                share=share,
                search_budget=None if search_budget is None else Budget.parse(search_budget),
                search_b=compare.parse_sizes(search_b) if search_b and paper.searched(chosen) else (),
                stop_at_target=stop_at_target,
                jobs=jobs,
                search_jobs=search_jobs,
                threads=threads,
                device=device,
                data_dir=data_dir,
                command=command_line(),
                imports=loaded,
                checkpoint_seconds=checkpoint_seconds,
            )

        seconds = [show_plan(study_of(name), interrupt) for name in available if plan or forecast]
        if len(seconds) > 1:
            print(f"All data sets together: about {duration(sum(seconds))}.")
        if plan:
            finish(False, failures, interrupt)
            return
        interrupted = False
        shown: list[Section] = []
        for name in available:
            found, read = conduct(study_of(name), report, interrupt)
            shown += read
            failures |= {f"{name}/{key}": why for key, why in found.failures.items()}
            if interrupted := found.interrupted:
                break
        if report:
            together = outcome.read_sections([out], shown)
            make_report(together, [out], out / "report.html", draw(out, together))
        finish(interrupted, failures, interrupt)
