"""What is made of records, now or at any later time: the table and the verdict, the figures, the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vcsg.study import plan
from vcsg.study.records import RunRecord, load
from vcsg.study.targets import Target
from vcsg.study.view.findings import verdict
from vcsg.study.view.tables import remarks, tables


def read_runs(folders: Iterable[Path]) -> list[RunRecord]:
    """Every run of the folders; there has to be one."""
    folders = list(folders)
    runs = load(*folders)
    if not any(map(_told, runs)):
        named = ", ".join(map(str, folders))
        raise FileNotFoundError(f"there is no run in {named}: give a folder that `vcsg run` or `vcsg compare` wrote")
    return runs


def any_runs(folder: Path) -> bool:
    """Whether there is anything to make a table of."""
    return any(map(_told, load(folder)))


def failures(folder: Path) -> dict[str, str]:
    """Why runs failed, by their paths below the folder. The trials of a search may."""
    failed = [run for run in load(folder) if run.status == "failed" and run.config.role == "run"]
    return {str(run.path.relative_to(folder)): run.message for run in failed}


def _told(run: RunRecord) -> bool:
    return run.config.role == "run" and bool(run.evaluations)


def studies(folders: Iterable[Path]) -> list[Path]:
    """The folders of the studies in or below the given ones."""
    return sorted({path.parent for folder in folders for path in folder.rglob("study.json")})


def asked_targets(folders: Iterable[Path]) -> dict[str, list[Target]]:
    """The targets that the studies in or below the folders look for, by workload."""
    found: dict[str, list[Target]] = {}
    for study in map(plan.read, studies(folders)):
        own = found.setdefault(study["workload"], [])
        own += [target for asked in study["targets"] if (target := Target(**asked)) not in own]
    return found


def print_outcome(console: Console, folders: Sequence[Path], targets: Mapping[str, list[Target]]) -> None:
    """The tables, how they are to be read, and what they say, for every workload with its targets."""
    runs = read_runs(folders)
    jobs = max((plan.read(folder).get("jobs", 1) for folder in studies(folders)), default=1)
    for workload in dict.fromkeys(run.config.workload for run in runs):
        own = [run for run in runs if run.config.workload == workload]
        wanted = targets.get(workload, [])
        for table in tables([run for run in own if run.evaluations], wanted, console.width):
            _print_table(console, table)
        for sentence in remarks(own, wanted, jobs):
            console.print(sentence, highlight=False, markup=False, style="dim")
        for sentence in verdict(own, wanted):
            console.print(sentence, highlight=False, markup=False)


def _print_table(console: Console, table: Table) -> None:
    """Without blanks at the ends of lines, where it goes to a file."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.print(line.rstrip(), highlight=False, markup=False)


def draw_figures(place: Path, folders: Sequence[Path], targets: Mapping[str, list[Target]]) -> list[Path]:
    """Of the runs in the folders, into "figures" below `place`. (Needs matplotlib.)"""
    from vcsg.study.view import figures

    return figures.draw(read_runs(folders), place / "figures", targets)


def write_report(folders: Sequence[Path], path: Path) -> Path:
    """The HTML report. (Needs plotly.)"""
    from vcsg.study import report

    return report.write(list(folders), path)
