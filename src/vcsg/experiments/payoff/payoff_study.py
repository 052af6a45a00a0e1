"""The experiment on one problem, as a study: a search for every step on one seed, then runs with all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vcsg.experiments.payoff.gradient_estimators import BASE, ESTIMATORS, RULES, SIZES, name_of, parts_of
from vcsg.names import suggestion
from vcsg.study import compare
from vcsg.study.budgets import Budget
from vcsg.study.imports import load as load_imports
from vcsg.study.plan import Study
from vcsg.study.search import LEAST_TRIALS

NAMES = "vcsg.experiments.payoff.payoff_names"
"""The module that registers what the study runs."""
VECTOR = (
    "The orthogonal step is left out on the convex problem: its parameter is a vector, and there is no matrix in it."
)


@dataclass(frozen=True)
class PayoffGrid:
    """What is compared: estimators × step rules × mini-batch sizes, and how long each is run."""

    estimators: tuple[str, ...] = tuple(ESTIMATORS)
    rules: tuple[str, ...] = RULES
    sizes: tuple[int, ...] = (16, 64, 256)
    seeds: int = 3
    passes: float = 8.0
    """Passes of every run: gradients of single samples, in units of n."""
    trials: int = 6
    """Short runs with the first seed that choose the step of each."""
    trial_passes: float = 3.0
    every: float = 0.5
    """Passes between evaluations."""

    def __post_init__(self) -> None:
        for name, known in (("estimators", ESTIMATORS), ("rules", RULES), ("sizes", SIZES)):
            values = getattr(self, name)
            for value in values:
                if value not in known:
                    raise ValueError(f"{name}: no {value!r}; {suggestion(str(value), list(map(str, known)))}")
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} = {', '.join(map(str, values))}: give each once, and at least one")
        if BASE not in self.estimators:
            raise ValueError(f"estimators without {BASE}: it is what the others are compared with, so add it")
        for name, least in (("seeds", 1), ("trials", LEAST_TRIALS)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} = {getattr(self, name)}: give a whole number, at least {least}")
        for name in ("passes", "trial_passes", "every"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} = {getattr(self, name)}: give a finite number above 0")

    @property
    def methods(self) -> list[str]:
        """The names of all combinations, by b and step rule: a part of them can be compared already."""
        return [name_of(one, rule, b) for b in self.sizes for rule in self.rules for one in self.estimators]

    def plan(self) -> str:
        """What will be run, in words."""
        cells = len(self.methods)
        passes = cells * (self.trials * self.trial_passes + self.seeds * self.passes)
        found = f"{_count(self.estimators, 'estimator')} × {_count(self.rules, 'step rule')}"
        return (
            f"{found} × {_count(self.sizes, 'mini-batch size')} = {_count(self.methods, 'combination')}; for each "
            f"{self.trials} short runs of {self.trial_passes:g} passes choose the step, then "
            f"{_count(range(self.seeds), 'seed')} of {self.passes:g} passes: {passes:,.0f} passes in all"
        )


def _count(values: Sequence[object], name: str) -> str:
    return f"{len(values)} {name}{'s' * (len(values) != 1)}"


def make_payoff_study(workload: str, folder: Path, grid: PayoffGrid, **options: Any) -> Study:
    """The study of one problem. It has no target: any can be looked for in its evaluations later."""
    load_imports([NAMES])
    return compare.make_study(
        workload,
        folder,
        methods=grid.methods,
        protocols=["tuned"],
        budget=Budget(passes=grid.passes),
        seeds=range(grid.seeds),
        every=grid.every,
        trials=grid.trials,
        search_budget=Budget(passes=grid.trial_passes),
        imports=[NAMES],
        **options,
    )


def with_base_alone(study: Study) -> Study:
    """The same study with the mini-batch gradient alone, whose steps tell about how long all will take."""
    return replace(study, entries=tuple(entry for entry in study.entries if parts_of(entry.method)[0] == BASE))
