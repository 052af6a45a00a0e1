"""`vcsg payoff`: whether variance reduction pays, under each step rule and at several mini-batch sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcsg.commands import completion, options
from vcsg.commands.ending import check_folder, errors, finish
from vcsg.commands.showing import command_line, words


def payoff(
    only: Annotated[
        str, typer.Option(metavar="network|convex", help="The one problem to run; the default is both.")
    ] = "",
    network: Annotated[
        str, typer.Option(help="The workload with a network.", autocompletion=completion.workloads)
    ] = "cifar10/lenet-5",
    convex: Annotated[
        str, typer.Option(metavar="DATASET", help="The data set, of two classes, of the logistic regression.")
    ] = "phishing",
    target: Annotated[
        str, typer.Option(metavar="METRIC=VALUE", help="What the network is to reach; it may change without new runs.")
    ] = "test-error=0.4",
    gap: Annotated[
        float, typer.Option(help="The f − min f that the regression is to reach; it may change without new runs.")
    ] = 1e-5,
    estimators: Annotated[
        str, typer.Option(help="The estimators, separated by commas; the default is all, sgd must be among them.")
    ] = "",
    rules: Annotated[
        str, typer.Option(help="The step rules, separated by commas: plain, adaptive, orthogonal; the default is all.")
    ] = "",
    sizes: Annotated[str, typer.Option(help="The mini-batch sizes, separated by commas.")] = "16,64,256",
    seeds: Annotated[int, typer.Option(help="The number of seeds, counted from 0.")] = 3,
    passes: Annotated[float, typer.Option(help="Passes of every run on the network.")] = 8.0,
    convex_passes: Annotated[float, typer.Option(help="Passes of every run on the regression.")] = 20.0,
    trials: Annotated[int, typer.Option(help="Short runs that choose the step of each combination.")] = 6,
    trial_passes: Annotated[float, typer.Option(help="Passes of each of these on the network.")] = 3.0,
    convex_trial_passes: Annotated[float, typer.Option(help="Passes of each of these on the regression.")] = 20.0,
    every: Annotated[float, typer.Option(help="Passes between evaluations.")] = 0.5,
    out: Annotated[Path, typer.Option(help="The folder of the records. What is there already is continued.")] = Path(
        "payoff-output"
    ),
    jobs: options.Jobs = 1,
    search_jobs: options.SearchJobs = None,
    threads: options.Threads = 1,
    device: options.Device = "cpu",
    data_dir: options.DataDir = None,
    checkpoint_seconds: options.CheckpointSeconds = options.CHECKPOINT_SECONDS,
    report: options.MakeReport = True,
    plan: options.PlanOnly = False,
    records_only: Annotated[
        bool,
        typer.Option("--records-only", help="Run nothing: show what the folder holds, wherever it was measured."),
    ] = False,
) -> None:
    """Measure whether variance reduction pays, in gradients and in seconds.

    Every estimator of the gradient meets every step rule and mini-batch size, with a step size that equally many
    short runs choose. The answer is what each needs to a goal, over what the plain mini-batch gradient needs.
    """
    from vcsg.experiments.payoff.paying import GAP, PROBLEMS, PayoffExperiment, PayoffProblem, show, without_matrices
    from vcsg.experiments.payoff.payoff_study import PayoffGrid
    from vcsg.experiments.payoff.ridge_logistic import NAME
    from vcsg.study.compare import parse_sizes
    from vcsg.study.plan import check_place
    from vcsg.study.targets import Target
    from vcsg.study.view.tables import console
    from vcsg.training.interrupt import Interrupt

    interrupt = Interrupt()
    with errors(interrupt):
        check_folder(out)
        check_place(out, "")
        if records_only and not out.is_dir():
            raise FileNotFoundError(f"{out} is not a folder: give one that `vcsg payoff` wrote")
        if only and only not in PROBLEMS:
            raise ValueError(f"only = {only!r}: choose {' or '.join(PROBLEMS)}, or leave it out for both")
        if not 0 < gap < float("inf"):
            raise ValueError(f"gap = {gap}: give a finite number above 0")
        goals = [("network", Target.parse(target)), ("convex", Target(GAP, gap))]
        goals = [(key, goal) for key, goal in goals if only in ("", key)]
        if records_only:
            for path in show(goals, out, data_dir, console(), report)[:3]:
                print(f"Written: {path}")
            return
        chosen = {"estimators": tuple(words([estimators])), "rules": tuple(words([rules]))}
        common = {name: values for name, values in chosen.items() if values}
        grid = PayoffGrid(
            **common,
            sizes=parse_sizes(sizes),
            seeds=seeds,
            passes=passes,
            trials=trials,
            trial_passes=trial_passes,
            every=every,
        )
        problems = []
        if only != "convex":
            problems.append(PayoffProblem("network", network, grid))
        if only != "network":
            own = PayoffGrid(
                **common,
                sizes=grid.sizes,
                seeds=seeds,
                passes=convex_passes,
                trials=trials,
                trial_passes=convex_trial_passes,
                every=every,
            )
            problems.append(PayoffProblem("convex", f"{convex}/{NAME}", without_matrices(own)))
        experiment = PayoffExperiment(
            problems,
            out,
            command_line(),
            jobs=jobs,
            search_jobs=search_jobs,
            threads=threads,
            device=device,
            data_dir=data_dir,
            checkpoint_seconds=checkpoint_seconds,
        )
        for line in experiment.plan():
            print(line)
        if plan:
            print(f"What is left takes about {experiment.minutes(interrupt):.1f} minutes.")
            return
        done, failures = experiment.run(console(stderr=True), interrupt)
        made = show(goals, out, data_dir, console(), report)
        print(f"Records: {out}")
        for path in made[:3]:
            print(f"Written: {path}")
        finish(not done, failures, interrupt)
