"""Which runs are seeds of one line: those of one method with the same settings, whatever folders they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from vcsg.study.budgets import Budget
from vcsg.study.records import RunRecord

Key = tuple[str, str, str, str]
"""Workload, protocol, method and label: what the runs of one line have in common."""
SETTINGS = ("lr", "L", "budget", "device", "threads")
"""What a label names where nothing before it tells two lines apart."""
SAMPLES = ", n = "
"""What stands before the number of samples in the name of a workload."""


def line_of(run: RunRecord) -> Key:
    """The line that a run belongs to, once labels tell settings apart."""
    config = run.config
    return config.workload, config.protocol, config.method, config.label


def named_by_samples(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """The runs, where one workload has several numbers of samples with n in its name: these are different problems."""
    read, sizes = list(runs), dict[str, set[int]]()
    for run in read:
        sizes.setdefault(run.config.workload, set()).add(run.config.n)
    return [
        replace(run, config=replace(run.config, workload=f"{run.config.workload}{SAMPLES}{run.config.n:,}"))
        if len(sizes[run.config.workload]) > 1
        else run
        for run in read
    ]


def of_workload(name: str, workload: str) -> bool:
    """Whether this is the name of a workload, or of some of its samples."""
    return name.partition(SAMPLES)[0] == workload


def compared(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """The runs to compare, without those of a search: labels tell settings apart, and every seed counts once.

    Of several runs of a seed with the same settings, the one that spent the most gradients is taken.
    """
    found: dict[tuple[Key, int], RunRecord] = {}
    for run in told_apart(run for run in runs if run.config.role == "run"):
        place = line_of(run), run.config.seed
        if place not in found or run.final.get("ifo", 0) > found[place].final.get("ifo", 0):
            found[place] = run
    return list(found.values())


def repeated(runs: Iterable[RunRecord]) -> list[str]:
    """The seeds that were run more than once with the same settings."""
    made = Counter((line_of(run), run.config.seed) for run in told_apart(runs))
    return [f"{label}, seed {seed}" for ((*_, label), seed), count in made.items() if count > 1]


def told_apart(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """The runs, with labels that differ where their settings do.

    A label has all options but `lr` and `L`, and `lr` where it was given to a method that is else as by default. Where
    the runs of one label have several step sizes, their labels get `lr`; where they then still have several values of
    the next of `SETTINGS`, that; and so on. The seeds of a method in one study are always one line.
    """
    named, made = [_with_own_step(run) for run in runs], dict[tuple[Path, Key], dict[str, str]]()
    settings = [made.setdefault((_made_in(run), line_of(run)), _settings(run)) for run in named]
    for name in SETTINGS:
        values: dict[Key, set[str]] = {}
        for run, own in zip(named, settings, strict=True):
            values.setdefault(line_of(run), set()).add(own[name])
        named = [
            _named(run, f"{name}={own[name]}") if own[name] and len(values[line_of(run)]) > 1 else run
            for run, own in zip(named, settings, strict=True)
        ]
    return named


def _with_own_step(run: RunRecord) -> RunRecord:
    """The run; under the protocol of defaults with its step in the label, where one was given."""
    lr = run.config.options.get("lr")
    named = run.config.protocol != "default" or lr is None or "lr=" in run.config.label
    return run if named else _named(run, f"lr={lr:.6g}")


def _made_in(run: RunRecord) -> Path:
    """The folder of a method in a study, or that of a single run."""
    return run.path.parent if run.config.protocol else run.path


def _settings(run: RunRecord) -> dict[str, str]:
    """The settings as the command line has them; "" where one was not given, as an L that was estimated for a seed."""
    config = run.config
    given = {name: None if name in run.notes else config.options.get(name) for name in ("lr", "L")}
    numbers = {name: "" if value is None else f"{value:.6g}" for name, value in given.items()}
    return {**numbers, "budget": str(Budget(**config.budget)), "device": config.device, "threads": str(config.threads)}


def _named(run: RunRecord, setting: str) -> RunRecord:
    return replace(run, config=replace(run.config, label=f"{run.config.label}, {setting}"))
