"""The command `vcsg`: it parses, calls `vcsg.study` and `vcsg.workloads`, and prints."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vcsg import workloads
from vcsg.study import compare as comparison
from vcsg.study import imports, outcome, reproduce, settings
from vcsg.study import methods as known_methods
from vcsg.study.budgets import Budget
from vcsg.study.methods import LABELS
from vcsg.study.plan import Study
from vcsg.study.running import torchrun
from vcsg.study.running.workers import Outcome
from vcsg.study.search import SHARE, TRIALS
from vcsg.study.targets import Target
from vcsg.study.view.sections import Section
from vcsg.study.view.tables import console
from vcsg.training.interrupt import Interrupt
from vcsg.training.saving import CHECKPOINT_SECONDS
from vcsg.version import __version__
from vcsg.workloads import DataError
from vcsg.workloads.folders import data_folders

app = typer.Typer(
    help="Variance-reduced optimisation of finite sums: VCSG and its family, run and compared.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Find and download data sets.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")

Workload = Annotated[
    str, typer.Argument(metavar="WORKLOAD", help="The workload, as DATASET/MODEL; see `vcsg list workloads`.")
]
BudgetOption = Annotated[
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
Device = Annotated[str, typer.Option(help="The device that runs use: cpu, cuda, or cuda:1.")]
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
SearchB = Annotated[
    str | None,
    typer.Option(
        metavar="64,128,256",
        help="Mini-batch sizes to search as well (protocol tuned), for every method that has an option b.",
    ),
]
Jobs = Annotated[int, typer.Option(help="How many runs to make at a time, each in a process of its own.")]
Checkpoints = Annotated[float, typer.Option("--checkpoint-seconds", help="Seconds between two checkpoints of a run.")]
Report = Annotated[bool, typer.Option(help="Whether to draw figures and write an HTML report.")]


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if show:
        print(f"vcsg {__version__}")
        raise typer.Exit


@app.command()
def run(
    workload: Workload,
    method: Annotated[str, typer.Option(help="The method to run; see `vcsg list methods`.")] = "vcsg",
    seed: Annotated[int, typer.Option(min=0, help="The seed of the initial weights and of all sampling.")] = 0,
    budget: BudgetOption = "10passes",
    out: Annotated[Path, typer.Option(help="The folder for the records and the final weights.")] = Path("run-output"),
    set_: Set = None,
    config: Config = None,
    every: Every = None,
    device: Device = "cpu",
    threads: Threads = 1,
    data_dir: DataDir = None,
    import_: Import = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder, if there is one.")] = False,
    checkpoint_seconds: Checkpoints = CHECKPOINT_SECONDS,
) -> None:
    """Run one method on one workload.

    Started by torchrun, it runs on several ranks.
    """
    interrupt = Interrupt()
    with errors(interrupt), torchrun.joined(device) as rank:
        study = comparison.make_study(
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
        record = comparison.run_alone(study, console(stderr=True, quiet=rank > 0), resume, interrupt)
        if rank == 0:
            _show(outcome.read_sections([out]), out)
        failures = {record.config.label: record.message} if record.message else {}
        _finish(record.status == "interrupted", failures, interrupt)


@app.command()
def compare(
    workload: Workload,
    methods: Annotated[
        str, typer.Option(help="The methods, separated by commas; PROTOCOL:METHOD runs one under that protocol alone.")
    ] = "vcsg,scsg,svrg,sgd",
    budget: BudgetOption = "30passes",
    seeds: Seeds = "3",
    target: Targets = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="The rules of the comparison: default, paper or tuned; repeatable, or separated by commas."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the study. An existing study is continued.")] = Path(
        "study-output"
    ),
    set_: Set = None,
    config: Config = None,
    import_: Import = None,
    every: Every = None,
    trials: Trials = TRIALS,
    share: Share = SHARE,
    search_b: SearchB = None,
    jobs: Jobs = 1,
    threads: Threads = 1,
    device: Device = "cpu",
    data_dir: DataDir = None,
    checkpoint_seconds: Checkpoints = CHECKPOINT_SECONDS,
    report: Report = True,
) -> None:
    """Compare methods on one workload, over several seeds.

    The outcome is a table of what each method needed and where it ended, figures, and a report.
    """
    interrupt = Interrupt()
    with errors(interrupt):
        torchrun.check_alone("vcsg compare")
        study = comparison.make_study(
            workload,
            out,
            methods=_words([methods]),
            protocols=_words(protocol or ["default"]),
            budget=Budget.parse(budget),
            seeds=comparison.parse_seeds(seeds),
            settings=settings.parse(set_ or [], config),
            targets=[Target.parse(text) for text in target or []],
            every=every,
            trials=trials,
            share=share,
            search_b=() if search_b is None else comparison.parse_sizes(search_b),
            device=device,
            threads=threads,
            jobs=jobs,
            data_dir=data_dir,
            command=_command(),
            imports=import_ or [],
            checkpoint_seconds=checkpoint_seconds,
        )
        found, _ = _conduct(study, report, interrupt)
        _finish(found.interrupted, found.failures, interrupt)


@app.command("reproduce")
def reproduce_paper(
    data_set: Annotated[
        list[str] | None,
        typer.Option(help="One of mnist, cifar10 and tiny-imagenet; repeatable; the default is all that are found."),
    ] = None,
    budget: BudgetOption = reproduce.BUDGET,
    seeds: Seeds = "3",
    out: Annotated[Path, typer.Option(help="The folder for the studies, one for each data set.")] = Path(
        "reproduce-output"
    ),
    every: Every = None,
    trials: Trials = TRIALS,
    share: Share = SHARE,
    jobs: Jobs = 1,
    threads: Threads = 1,
    device: Device = "cpu",
    data_dir: DataDir = None,
    checkpoint_seconds: Checkpoints = CHECKPOINT_SECONDS,
    report: Report = True,
    import_: Import = None,
) -> None:
    """Run the experiments of the paper.

    They are run as the paper sets them, and with tuned step sizes.
    """
    interrupt = Interrupt()
    with errors(interrupt):
        torchrun.check_alone("vcsg reproduce")
        loaded = imports.load(import_ or [])
        available, missing = reproduce.available(_words(data_set or []), data_dir)
        for name in missing:
            print(f"The data of {name} are missing: fetch them with vcsg data fetch {name}", file=sys.stderr)
        failures: dict[str, str] = {name: "its data are missing" for name in missing if data_set}
        interrupted, shown = False, list[Section]()
        for name in available:
            study = reproduce.paper_study(
                name,
                out / name,
                budget=Budget.parse(budget),
                seeds=comparison.parse_seeds(seeds),
                every=every,
                trials=trials,
                share=share,
                jobs=jobs,
                threads=threads,
                device=device,
                data_dir=data_dir,
                command=_command(),
                imports=loaded,
                checkpoint_seconds=checkpoint_seconds,
            )
            found, read = _conduct(study, report, interrupt)
            shown += read
            failures |= {f"{name}/{key}": why for key, why in found.failures.items()}
            if interrupted := found.interrupted:
                break
        if available and report:
            _make_report(outcome.read_sections([out], shown), [out], out / "report.html")
        if not available:
            raise DataError("the data of no data set were found: fetch one, or give --data-dir")
        _finish(interrupted, failures, interrupt)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs or studies.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file; the default is report.html in the first folder.")
    ] = None,
    target: Targets = None,
    import_: Import = None,
) -> None:
    """Make tables, figures and a report from records.

    The records may come from other machines and earlier times.
    """
    with errors():
        imports.load(import_ or [])
        wanted = [Target.parse(text) for text in target or []]
        found = outcome.read_sections(folders)
        outcome.check_any_runs(found, folders)
        if wanted:
            found = [section.aiming_at(wanted) for section in found]
        outcome.print_outcome(console(), found)
        _draw(folders[0] if out is None else out.parent, found)
        made = outcome.write_report(found, folders, out or folders[0] / "report.html")
        print(f"Report: {made}")


class Listed(StrEnum):
    WORKLOADS = "workloads"
    METHODS = "methods"


@app.command("list")
def list_(
    what: Annotated[Listed, typer.Argument(help="What to list.")],
    data_dir: DataDir = None,
    import_: Import = None,
) -> None:
    """List the workloads or the methods, with their options."""
    with errors():
        imports.load(import_ or [])
    if what is Listed.METHODS:
        for name in known_methods.names():
            options = ", ".join(known_methods.parameters(name))
            print(f"{name:<20} {LABELS.get(name, name):<20} {options}")
        return
    for listing in workloads.names(data_dir):
        download = "" if listing.files is not None else f"  download: {listing.download / 1e6:.0f} MB"
        print(f"{listing.name:<38} n = {listing.n:>7,}  {listing.d:>11,} parameters{download}")


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="The data set to download.")],
    data_dir: DataDir = None,
    import_: Import = None,
) -> None:
    """Download a data set, unless its files are here already."""
    with errors():
        imports.load(import_ or [])
        for path in workloads.fetch(name, data_dir):
            print(path)


@data_app.command("where")
def data_where(data_dir: DataDir = None, import_: Import = None) -> None:
    """Say where data sets are looked for, and which were found."""
    with errors():
        imports.load(import_ or [])
    print("Data sets are looked for in:", ", ".join(map(str, data_folders(data_dir))))
    for name, source in workloads.data_sets().items():
        files = workloads.where(name, data_dir)
        place = "in the package" if files == [] else files[0].parent if files else f"not found: vcsg data fetch {name}"
        print(f"{name:<14} n = {source.n:>7,}  {place}")


# --- what commands share


@contextmanager
def errors(interrupt: Interrupt | None = None) -> Iterator[None]:
    """Print an error in one line and exit: status 2 for a wrong call, 1 for others, 130 for Ctrl-C, 143 for SIGTERM."""
    try:
        yield
    except DataError as error:
        _fail(str(error), 1)
    except ValueError as error:
        _fail(str(error), 2)
    except (OSError, ModuleNotFoundError) as error:
        _fail(str(error), 1)
    except KeyboardInterrupt:
        raise typer.Exit((interrupt or Interrupt()).status) from None


def _fail(message: str, status: int) -> None:
    print(f"vcsg: {message}", file=sys.stderr)
    raise typer.Exit(status)


def _conduct(study: Study, report: bool, interrupt: Interrupt) -> tuple[Outcome, list[Section]]:
    """Make the runs of a study and show what came out; returns what became of the tasks, and the records."""
    done = comparison.conduct(study, console(stderr=True), interrupt)
    found = outcome.read_sections([study.folder])
    done.failures |= outcome.failures(found, study.folder)
    if not _show(found, study.folder):
        print("No run has come to its first evaluation.")
    elif report and not done.interrupted:
        _draw(study.folder, found)
        _make_report(found, [study.folder], study.folder / "report.html")
    return done, found


def _show(found: list[Section], folder: Path) -> bool:
    """Print the tables and findings of a folder, where a run came to its first evaluation."""
    if not outcome.any_runs(found):
        return False
    outcome.print_outcome(console(), found)
    print(f"Records: {folder}")
    return True


def _draw(place: Path, found: list[Section]) -> None:
    try:
        made = outcome.draw_figures(place, found)
    except ModuleNotFoundError as error:
        print(f"No figures: {error}", file=sys.stderr)
        return
    if made:
        print(f"Figures: {made[0].parent}")


def _make_report(found: list[Section], folders: Sequence[Path], path: Path) -> None:
    try:
        print(f"Report: {outcome.write_report(found, folders, path)}")
    except ModuleNotFoundError as error:
        print(f"No report: {error}", file=sys.stderr)


def _finish(interrupted: bool, failures: dict[str, str], interrupt: Interrupt) -> None:
    for name, why in failures.items():
        print(f"vcsg: {name}: {why}", file=sys.stderr)
    if interrupted:
        raise typer.Exit(interrupt.status)
    if failures:
        raise typer.Exit(1)


def _words(texts: Sequence[str]) -> list[str]:
    """The words of lists that are separated by commas."""
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def _command() -> str:
    return shlex.join(["vcsg", *sys.argv[1:]])
