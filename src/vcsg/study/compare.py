"""Making a study from what a user asks for, and running it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from vcsg.files import locked
from vcsg.optimizer import FiniteSumOptimizer
from vcsg.study import methods as known_methods
from vcsg.study import plan
from vcsg.study.budgets import Budget
from vcsg.study.imports import load as load_imports
from vcsg.study.imports import remembered as remembered_imports
from vcsg.study.plan import Study
from vcsg.study.protocols import Entry, entries, smoothness_method
from vcsg.study.records import Row, RunRecord
from vcsg.study.running import tasks, torchrun
from vcsg.study.running.board import Board, Reporter, board
from vcsg.study.running.estimates import Smoothness, estimate
from vcsg.study.running.forecast import Forecast, forecast, measure
from vcsg.study.running.miniature import initial_model, load_workload
from vcsg.study.running.runs import Order, Show, execute, run_in
from vcsg.study.running.workers import Outcome, perform
from vcsg.study.running.writing import check_free
from vcsg.study.search import LEAST_TRIALS, SHARE, TRIALS
from vcsg.study.settings import MethodSettings
from vcsg.study.targets import Target
from vcsg.training.interrupt import Interrupt, StopRequest
from vcsg.training.saving import CHECKPOINT_SECONDS, check_seconds
from vcsg.workloads import Workload

MOST_SEEDS = 10_000
"""The most seeds that a number may stand for."""
MOST_THREADS = 1024
"""The most threads of a run: with some ten thousand a process may crash."""


def make_study(
    workload: str,
    folder: Path,
    *,
    methods: Sequence[str],
    budget: Budget,
    protocols: Sequence[str] = ("default",),
    seeds: Iterable[int] = (0,),
    settings: MethodSettings | None = None,
    targets: Iterable[Target] = (),
    every: float | None = None,
    trials: int = TRIALS,
    share: float = SHARE,
    search_budget: Budget | None = None,
    stop_at_target: bool = False,
    search_b: Iterable[int] = (),
    device: str = "cpu",
    threads: int = 1,
    jobs: int = 1,
    search_jobs: int | None = None,
    data_dir: str | None = None,
    command: str = "",
    imports: Iterable[str] = (),
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Study:
    """Make a study: its workload is read, and all that can be wrong is found before anything runs.

    Args:
        workload: the name of the workload, as `vcsg.workloads.load` takes it.
        folder: the folder for everything that the study writes.
        methods: names of methods; "tuned:sgd" runs one under that protocol alone.
        budget: what each run may spend.
        protocols: the protocols of the methods that name none themselves.
        seeds: the seeds of the initial weights and of all sampling.
        settings: options of methods.
        targets: the targets to look for in the evaluations.
        every: passes between evaluations; None is a 60th of the budget.
        trials: short runs in every search for a step size.
        share: the share of the budget that each of these gets; where a method with anchors is among those searched, not
            less than 8 passes if the budget has them.
        search_budget: what each of these may spend, in place of that share.
        stop_at_target: whether a run ends at the evaluation by which it has reached every target.
        search_b: the mini-batch sizes that the protocol tuned searches, besides the step size; none: it keeps its own.
        device: the device that runs use.
        threads: CPU threads per run.
        jobs: how many runs are made at a time.
        search_jobs: how many searches are made at a time; None is as many as jobs.
        data_dir: the folder of the data.
        command: the command that makes the study, to be written down in its folder.
        imports: files and modules of your own, for the names that they register; see `vcsg.study.imports`.
        checkpoint_seconds: seconds between two checkpoints of a run.
    """
    _check_numbers(every, share, trials, threads, jobs, search_jobs)
    check_seconds(checkpoint_seconds)
    loaded_imports = load_imports([*remembered_imports(folder), *imports])
    found = entries(methods, protocols, settings or MethodSettings(), _sizes(search_b))
    targets = tuple(targets)
    if stop_at_target and not targets:
        raise ValueError("a run is to stop at its targets, and there is none: give one, such as test-error=0.025")
    if not found:
        raise ValueError("no methods: give at least one, such as vcsg")
    seeds = tuple(map(check_seed, dict.fromkeys(seeds)))
    loaded = load_workload(workload, data_dir, _device(device))
    study = Study(
        folder=folder,
        workload=workload,
        entries=found,
        seeds=seeds,
        budget=budget,
        every=budget.every(loaded.n) if every is None else every,
        targets=targets,
        trials=trials,
        share=share,
        search_budget=search_budget,
        stop_at_target=stop_at_target,
        device=device,
        threads=threads,
        data_dir=data_dir,
        n=loaded.n,
        L=loaded.L,
        claim=None if loaded.claim is None else asdict(loaded.claim),
        command=command,
        imports=loaded_imports,
        jobs=jobs,
        search_jobs=search_jobs,
        checkpoint_seconds=checkpoint_seconds,
    )
    check_options(study, loaded)
    return study


def check_options(study: Study, workload: Workload) -> None:
    """Make every optimizer once, so that a wrong option is refused before anything runs."""
    for entry in study.entries:
        for one in [entry.with_b(b) for b in entry.search_b] or [entry]:
            _check_entry(one, study, workload)


def _check_entry(entry: Entry, study: Study, workload: Workload) -> None:
    options = dict(entry.options)
    if not {"lr", "L"} & set(options) and known_methods.needs_L(entry.method, options):
        options["L"] = 1.0
    try:
        made = known_methods.make(entry.method, initial_model(workload, 0), workload.n, options, study.seeds[0])
        if entry.protocol == "tuned" and isinstance(made, FiniteSumOptimizer):
            _check_search(made, study)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{entry.method}, protocol {entry.protocol}: {error}") from error


def _check_search(optimizer: FiniteSumOptimizer, study: Study) -> None:
    """Refuse a search whose runs would end with the first anchor: without a step, all step sizes are equally good."""
    passes, first = study.trial_budget.in_passes(study.n), optimizer.phase
    steps = any(weights.now for weights in optimizer.method.choices)
    if first.kind == "anchor" and steps and passes is not None and passes * study.n <= first.total:
        anchor = f"{first.total / study.n:.3g}"
        raise ValueError(
            f"the short runs of a search have {study.trial_budget}, and the first anchor takes {anchor} passes, "
            "so that none would take a step: give each of them at least twice that"
        )


def conduct(study: Study, console: Console, interrupt: Interrupt | None = None) -> Outcome:
    """Make the missing runs of a study and show their progress; `interrupt` knows afterwards which signal ended it."""
    plan.check_place(study.folder)
    with locked(study.folder):
        plan.begin(study)
        todo = tasks.plan(study)
        _announce(study, todo, console)
        total = sum(task.runs(study) for task in todo)
        done = sum(task.runs(study) for task in todo if task.done(study))
        with board(console, total, done) as shown, interrupt or Interrupt() as asked:
            return _perform(study, todo, shown, asked)


def _perform(study: Study, todo: list[tasks.StudyTask], shown: Board, asked: Interrupt) -> Outcome:
    """Do the tasks; searches first, where more of them are made at a time than runs whose seconds count."""
    if study.search_jobs is None:
        return perform(study, todo, shown, asked)
    early = [task for task in todo if not isinstance(task, tasks.Running)]
    outcome = perform(replace(study, jobs=study.search_jobs), early, shown, asked)
    if outcome.interrupted:
        return outcome
    return perform(study, [task for task in todo if isinstance(task, tasks.Running)], shown, asked, outcome)


def _announce(study: Study, todo: list[tasks.StudyTask], console: Console) -> None:
    """Say how many trials a search over b takes, before they begin."""
    searches = [task for task in todo if isinstance(task, tasks.Searching) and task.entry.search_b]
    if searches:
        trials, sizes = searches[0].runs(study), ", ".join(map(str, searches[0].entry.search_b))
        text = f"Search over the step size and b = {sizes}: {trials} short runs of {study.trial_budget} for each of"
        console.print(f"{text} {'; '.join(task.entry.label for task in searches)}", highlight=False, soft_wrap=True)


def look_ahead(study: Study, interrupt: Interrupt | None = None) -> list[Forecast]:
    """What is left to do of a study and how long it will take, by a measurement of a second or two for each method."""
    loaded = load_workload(study.workload, study.data_dir, study.device)
    tests = 0 if loaded.test is None else len(loaded.test[0])
    with interrupt or Interrupt() as asked:
        return forecast(study, measure(study, asked), tests)


def run_alone(study: Study, console: Console, resume: bool = False, interrupt: Interrupt | None = None) -> RunRecord:
    """Make the one run of a study with one entry and one seed, in the study's own folder and without a protocol.

    With `resume`, a run that is in the folder is continued; one that is complete is returned as it is.
    """
    (entry,), (seed,) = study.entries, study.seeds
    if not resume and torchrun.rank() == 0:
        check_free(study.folder)
    if (study.folder / "study.json").exists():
        raise FileExistsError(f"{study.folder} holds a study: give another folder for the run")
    with board(console, 1, 0) as shown, interrupt or Interrupt() as asked:
        show = partial(Reporter, partial(shown.tell, 0))
        smoothness = _smoothness(study, asked, show)
        options = {**entry.options, **({"L": smoothness.L} if smoothness else {})}
        config = tasks.configure(study, entry, options, seed, study.budget, study.every, "run")
        notes: Row = {"L": asdict(smoothness)} if smoothness else {}
        notes |= {"imports": list(study.imports)} if study.imports else {}
        seconds = study.checkpoint_seconds
        order = Order(
            replace(config, protocol=""), study.folder, study.data_dir, notes, study.gradients, resume, seconds
        )
        return execute(order, asked, show)


def _smoothness(study: Study, stop: StopRequest, show: Show) -> Smoothness | None:
    """The L that a single run is given; a run that is continued has it in its notes."""
    (entry,), (seed,) = study.entries, study.seeds
    by = smoothness_method(entry, study.entries)
    if by is None:
        return None
    if study.L is not None:
        return Smoothness(study.L, "known for this workload")
    earlier = run_in(study.folder)
    if earlier is not None and "L" in earlier.notes:
        return Smoothness(**earlier.notes["L"])
    found = estimate(study.workload, study.data_dir, study.device, study.threads, *by, seed, stop, show)
    if found is None:
        raise KeyboardInterrupt
    return found


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read seeds: `3` stands for 0, 1 and 2, and `0,5,7` is a list."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts if part) or not any(parts):
        raise ValueError(f"seeds {text!r}: give how many, such as 3, or which, such as 0,5,7")
    if len(parts) > 1:
        return tuple(check_seed(int(part)) for part in parts if part)
    if int(text) == 0:
        raise ValueError("seeds '0': give at least 1; for the seed 0 alone give 1")
    if int(text) > MOST_SEEDS:
        raise ValueError(f"seeds {text!r}: give at most {MOST_SEEDS:,}, or which, such as 0,5,7")
    return tuple(range(int(text)))


def check_seed(seed: int) -> int:
    """The seed, if torch's generators take it."""
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed {seed}: give a whole number, at least 0 and below 2^64")
    return seed


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read mini-batch sizes that are separated by commas."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise ValueError(f"search-b {text!r}: give mini-batch sizes, such as 64,128,256,512")
    return _sizes(map(int, parts))


def _sizes(found: Iterable[int]) -> tuple[int, ...]:
    sizes = tuple(dict.fromkeys(found))
    if any(isinstance(b, bool) or not isinstance(b, int) or b < 1 for b in sizes):
        raise ValueError(f"search-b = {', '.join(map(str, sizes))}: give whole numbers, each at least 1")
    return sizes


def _check_numbers(
    every: float | None, share: float, trials: int, threads: int, jobs: int, search_jobs: int | None
) -> None:
    if every is not None and not 0 < every < math.inf:
        raise ValueError(f"every = {every}: give the passes between evaluations, a finite number above 0")
    if not 0 < share <= 1:
        raise ValueError(f"trial-share = {share}: give the part of the budget, above 0 and at most 1")
    counts = (("trials", trials, LEAST_TRIALS), ("threads", threads, 1), ("jobs", jobs, 1))
    for name, value, least in (*counts, ("search-jobs", 1 if search_jobs is None else search_jobs, 1)):
        if value < least:
            raise ValueError(f"{name} = {value}: give a whole number, at least {least}")
    if threads > MOST_THREADS:
        raise ValueError(f"threads = {threads}: give at most {MOST_THREADS}")


def _device(name: str) -> str:
    try:
        kind = torch.device(name).type
    except RuntimeError as error:
        raise ValueError(f"device {name!r}: give cpu, cuda, or cuda:1") from error
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device {name!r}: give cpu, cuda, or cuda:1")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r}: torch finds no CUDA device here; give cpu")
    return name
