"""The experiment as a whole: its problems, its runs, and what is made of the records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from vcsg.experiments.drawing import draw_all
from vcsg.experiments.payoff import ridge_logistic
from vcsg.experiments.payoff.payoff_cells import Payoff, read_cells, save
from vcsg.experiments.payoff.payoff_study import VECTOR, PayoffGrid, make_payoff_study, with_base_alone
from vcsg.experiments.payoff.payoff_table import print_payoff
from vcsg.experiments.payoff.payoff_words import NOTES, report
from vcsg.files import write_text
from vcsg.study import compare
from vcsg.study.plan import Study
from vcsg.study.running.forecast import forecast, measure
from vcsg.study.running.miniature import load_workload
from vcsg.study.targets import Target
from vcsg.training.interrupt import Interrupt

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROBLEMS = ("network", "convex")
GAP = "gap"
RECORDS, REPORT = "payoff.json", "report.md"


@dataclass(frozen=True)
class PayoffProblem:
    """A problem, what is measured on it, and the grid that is run."""

    key: str
    workload: str
    goal: Target
    """The value to reach: of a metric of studies, or of "gap", f − min f."""
    grid: PayoffGrid


class PayoffExperiment:
    """The experiment in a folder: a study for each problem, and what is made of their records."""

    def __init__(self, problems: list[PayoffProblem], folder: Path, command: str, **options: Any) -> None:
        self._problems, self._folder, self._command = problems, folder, command
        self._studies = [self._study(one, options) for one in problems]

    def _study(self, one: PayoffProblem, options: dict[str, Any]) -> Study:
        return make_payoff_study(one.workload, self._folder / one.key, one.grid, command=self._command, **options)

    def plan(self) -> list[str]:
        """What will be run, in words."""
        said = [f"{one.workload}: {one.grid.plan()}." for one in self._problems]
        return said + ([VECTOR] if any(one.key == "convex" for one in self._problems) else [])

    def minutes(self, interrupt: Interrupt) -> float:
        """About how long what is left will take, by a short measurement of the mini-batch gradient's steps."""
        seconds = 0.0
        for study in self._studies:
            loaded = load_workload(study.workload, study.data_dir, study.device)
            with interrupt as asked:
                paces = measure(with_base_alone(study), asked)
            known = {entry.path: paces[_base_path(entry.path)] for entry in study.entries}
            tests = 0 if loaded.test is None else len(loaded.test[0])
            for line in forecast(study, known, tests):
                searched = line.label.endswith(": search") and study.search_jobs is not None
                seconds += line.total / (study.search_jobs or 1 if searched else study.jobs)
        return seconds / 60

    def run(self, console: Console, interrupt: Interrupt) -> tuple[bool, dict[str, str]]:
        """Make the runs that are missing; returns whether all are done, and why runs could not be made, by name."""
        failures: dict[str, str] = {}
        for one, study in zip(self._problems, self._studies, strict=True):
            done = compare.conduct(study, console, interrupt)
            failures |= {f"{one.key}/{name}": why for name, why in done.failures.items()}
            if done.interrupted:
                return False, failures
        return True, failures

    def read(self) -> list[Payoff]:
        """What the records say so far; problems without a complete cell are left out."""
        found = [self._payoff(one, study) for one, study in zip(self._problems, self._studies, strict=True)]
        return [one for one in found if one.cells]

    def _payoff(self, one: PayoffProblem, study: Study) -> Payoff:
        least = self._least(study) if one.goal.metric == GAP else None
        cells = read_cells(study.folder, one.goal.metric, least)
        device = torch.cuda.get_device_name(study.device) if study.device.startswith("cuda") else "one CPU thread"
        return Payoff(one.key, one.workload, study.n, one.goal.metric, one.goal.value, device, study.jobs, least, cells)

    def _least(self, study: Study) -> float:
        rows, targets = load_workload(study.workload, study.data_dir, study.device).train
        return ridge_logistic.least_value(rows, targets)

    def show(self, console: Console, with_figures: bool = True) -> list[Path]:
        """Print tables, write the measurements and the report, and draw the figure; returns the files."""
        found = self.read()
        for one in found:
            print_payoff(console, one)
        if not found:
            console.print("No combination has come to its end.")
            return []
        save(found, self._folder / RECORDS)
        write_text(self._folder / REPORT, report(found, self._command, NOTES))
        made = [self._folder / RECORDS, self._folder / REPORT]
        return [*made, *(draw_payoffs(found, self._folder / "figures") if with_figures else [])]


def draw_payoffs(found: list[Payoff], folder: Path) -> list[Path]:
    """Draw the figure. (Needs matplotlib.)"""

    def figure() -> Figure:
        from vcsg.experiments.payoff.payoff_figure import payoff_figure

        return payoff_figure(found)

    figures: dict[str, Callable[[], Figure]] = {"payoff": figure}
    return draw_all(figures, folder)


def _base_path(path: str) -> str:
    from vcsg.experiments.payoff.gradient_estimators import BASE, name_of, parts_of

    protocol, _, name = path.partition("/")
    _, rule, b = parts_of(name)
    return f"{protocol}/{name_of(BASE, rule, b)}"


def without_matrices(grid: PayoffGrid) -> PayoffGrid:
    """The grid for a problem whose parameter is a vector: without the orthogonal step."""
    kept = tuple(rule for rule in grid.rules if rule != "orthogonal")
    if not kept:
        raise ValueError(f"{VECTOR} Give plain or adaptive, or --only network")
    return replace(grid, rules=kept)
