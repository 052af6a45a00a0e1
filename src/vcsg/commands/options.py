"""The arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcsg.commands import completion

Workload = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="The workload, as DATASET/MODEL; see `vcsg list workloads`.",
        autocompletion=completion.workloads,
    ),
]
Budget = Annotated[
    str,
    typer.Option(
        metavar="30passes|120s|500000ifo",
        help="What each run may spend: passes over the data, seconds, or gradients of single samples.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="[METHOD.]NAME=VALUE", help="Sets an option of one or all methods; repeatable."),
]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE.toml", help="A file with options of methods; --set overrides it.")
]
Import = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="FILE.py|MODULE",
        help="A Python file or module that registers methods, models, data sets or baselines; repeatable.",
    ),
]
Every = Annotated[
    float | None,
    typer.Option(metavar="PASSES", help="Passes between evaluations; the default is a 60th of the budget."),
]
Device = Annotated[
    str,
    typer.Option(help="The device that runs use: cpu, cuda, or cuda:1.", autocompletion=completion.devices),
]
Threads = Annotated[int, typer.Option(help="CPU threads per run.")]
DataDir = Annotated[
    str | None, typer.Option(help="The folder of the data; the default is VCSG_DATA, then the downloads.")
]
Seeds = Annotated[str, typer.Option(help="The number of seeds, counted from 0, or a list of seeds such as 0,5,7.")]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", metavar="METRIC=VALUE", help="A target to reach, such as test-error=0.025; repeatable."),
]
Trials = Annotated[int, typer.Option(help="Short runs in each search for a step size (protocol tuned).")]
Share = Annotated[float, typer.Option("--trial-share", help="The share of the budget that each of these runs gets.")]
SearchBudget = Annotated[
    str | None,
    typer.Option(
        metavar="3passes|20s",
        help="What each of these runs may spend, in place of that share.",
    ),
]
StopAtTarget = Annotated[
    bool,
    typer.Option("--stop-at-target", help="End a run at the evaluation by which it has reached every target."),
]
SearchB = Annotated[
    str | None,
    typer.Option(
        metavar="64,128,256",
        help="Mini-batch sizes to search as well (protocol tuned), for every method that has an option b.",
    ),
]
Jobs = Annotated[int, typer.Option(help="How many runs to make at a time, each in a process of its own.")]
SearchJobs = Annotated[
    int | None,
    typer.Option(
        "--search-jobs",
        help="How many searches to make at a time, before the runs; the default is as many as runs.",
        show_default=False,
    ),
]
CheckpointSeconds = Annotated[
    float, typer.Option("--checkpoint-seconds", help="Seconds between two checkpoints of a run.")
]
MakeReport = Annotated[
    bool, typer.Option("--report/--no-report", help="Whether to draw figures and write an HTML report.")
]
PlanOnly = Annotated[
    bool,
    typer.Option(
        "--plan", help="Show what would be run and about how long it takes, by a short measurement; run nothing."
    ),
]
CHECKPOINT_SECONDS = 60.0
"""That of `vcsg.training.saving`, whose import takes as long as torch's; a test holds them together."""
