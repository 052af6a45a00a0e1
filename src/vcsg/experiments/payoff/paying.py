"""The experiment as a whole: its problems, its runs, and what is made of the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from vcsg.experiments.drawing import draw_all
from vcsg.experiments.payoff import ridge_logistic
from vcsg.experiments.payoff.payoff_cells import Payoff, complete_runs, read_cells, save
from vcsg.experiments.payoff.payoff_study import VECTOR, PayoffGrid, make_payoff_study, with_base_alone
from vcsg.experiments.payoff.payoff_table import print_payoff
from vcsg.experiments.payoff.payoff_words import NOTES, report
from vcsg.files import write_text
from vcsg.study import compare, plan
from vcsg.study.running.forecast import forecast, measure
from vcsg.study.running.miniature import load_workload
from vcsg.study.targets import Target
from vcsg.training.interrupt import Interrupt

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROBLEMS = ("network", "convex")
GAP = "gap"
"""The measure of the convex problem, f − min f."""
RECORDS, REPORT = "payoff.json", "report.md"


@dataclass(frozen=True)
class PayoffProblem:
    """A problem, and the grid that is run on it."""

    key: str
    """"network" or "convex"."""
    workload: str
    grid: PayoffGrid


class PayoffExperiment:
    """The experiment in a folder: a study for each problem."""

    def __init__(self, problems: list[PayoffProblem], folder: Path, command: str, **options: Any) -> None:
        self._problems = problems
        self._studies = [
            make_payoff_study(one.workload, folder / one.key, one.grid, command=command, **options) for one in problems
        ]

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


def read_payoff(key: str, folder: Path, goal: Target, data_dir: str | None = None) -> Payoff | None:
    """What the records of a problem say so far, wherever they were made; None where no combination is complete."""
    runs = complete_runs(folder)
    if not runs:
        return None
    config, made_on = runs[0].config, runs[0].environment["device"]
    least = _least(config.workload, data_dir) if goal.metric == GAP else None
    cells = read_cells(runs, goal.metric, least)
    cpu = "one CPU thread" if config.threads == 1 else f"{config.threads} CPU threads"
    device, jobs = made_on if config.device.startswith("cuda") else cpu, plan.read(folder)["jobs"]
    return Payoff(key, config.workload, config.n, goal.metric, goal.value, device, jobs, least, cells)


def _least(workload: str, data_dir: str | None) -> float:
    rows, targets = load_workload(workload, data_dir, "cpu").train
    return ridge_logistic.least_value(rows, targets)


def show(problems: Sequence[tuple[str, Target]], folder: Path, data_dir: str | None, console: Console,
         with_figures: bool = True) -> list[Path]:  # fmt: skip
    """Print tables of what a folder holds, write the measurements and the report, and draw the figure.

    Returns the files.

    Args:
        problems: "network" or "convex", each with the value to reach.
        folder: the folder of the experiment.
        data_dir: the folder of the data, for min f.
        console: where to print.
        with_figures: whether to draw. (Needs matplotlib.)
    """
    read = [read_payoff(key, folder / key, goal, data_dir) for key, goal in problems if (folder / key).is_dir()]
    found = [one for one in read if one is not None and one.cells]
    for one in found:
        print_payoff(console, one)
    if not found:
        console.print("No combination has come to its end.")
        return []
    save(found, folder / RECORDS)
    commands = [text for one in found for text in plan.commands_of(plan.read(folder / one.key))]
    write_text(folder / REPORT, report(found, list(dict.fromkeys(commands)), NOTES))
    made = [folder / RECORDS, folder / REPORT]
    return [*made, *(draw_payoffs(found, folder / "figures") if with_figures else [])]


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
