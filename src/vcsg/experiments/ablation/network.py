"""The variants on a network, as a study: the same initial weights, data and evaluations for all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vcsg.experiments.ablation.variants import CHAIN, VARIANTS
from vcsg.study import compare
from vcsg.study.budgets import Budget
from vcsg.study.plan import Study
from vcsg.study.records import RunRecord, load
from vcsg.study.running.workers import Outcome
from vcsg.study.targets import Target
from vcsg.training.interrupt import Interrupt

WORKLOAD = "mnist-mini/lenet-300-100"
METHODS = "vcsg.experiments.ablation.network_methods"


@dataclass(frozen=True)
class NetworkDesign:
    """Variants with every seed, for some passes."""

    variants: tuple[str, ...]
    seeds: int
    passes: float
    every: float
    """Passes between evaluations."""
    target: float
    """The training loss to reach."""


def make_study(design: NetworkDesign, folder: Path, jobs: int, command: str) -> Study:
    """The study of the variants."""
    from vcsg.study.imports import load as load_imports

    load_imports([METHODS])
    return compare.make_study(
        WORKLOAD,
        folder,
        methods=list(design.variants),
        budget=Budget(passes=design.passes),
        seeds=range(design.seeds),
        targets=[Target("train_loss", design.target)],
        every=design.every,
        jobs=jobs,
        imports=[METHODS],
        command=command,
    )


def conduct_study(study: Study, console: Console, interrupt: Interrupt) -> Outcome:
    """Make the runs that are missing."""
    return compare.conduct(study, console, interrupt)


def network_costs(folder: Path, level: float) -> dict[str, dict[int, float]]:
    """Passes to a training loss, by variant and seed; ∞ where a run did not get there."""
    found: dict[str, dict[int, float]] = {}
    for run in _runs(folder):
        row = run.reach("train_loss", level)
        found.setdefault(run.config.method, {})[run.config.seed] = math.inf if row is None else float(row["passes"])
    return {variant.key: found[variant.key] for variant in VARIANTS if variant.key in found}


def common_level(folder: Path) -> float:
    """The lowest training loss that every run of the chain reached; ∞ where a method of it has no run."""
    runs = [run for run in _runs(folder) if run.config.method in {variant.key for variant in CHAIN}]
    if {run.config.method for run in runs} != {variant.key for variant in CHAIN}:
        return math.inf
    return max(_lowest(run.evaluations) for run in runs)


def final_losses(folder: Path) -> dict[str, dict[int, float]]:
    """The training loss at the end, by variant and seed."""
    found: dict[str, dict[int, float]] = {}
    for run in _runs(folder):
        if run.final.get("train_loss") is not None:
            found.setdefault(run.config.method, {})[run.config.seed] = run.final["train_loss"]
    return found


def _runs(folder: Path) -> list[RunRecord]:
    if not folder.is_dir():
        return []
    return [run for run in load(folder) if run.config.role == "run" and run.status in ("finished", "failed")]


def _lowest(rows: Iterable[dict[str, float]]) -> float:
    return min((row["train_loss"] for row in rows if row.get("train_loss") is not None), default=math.inf)
