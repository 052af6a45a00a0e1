"""What the commands print of records and write beside them: tables and findings, figures, the report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcsg.study.plan import Study
    from vcsg.study.running.workers import Outcome
    from vcsg.study.view.sections import Section
    from vcsg.training.interrupt import Interrupt


def conduct(study: Study, report: bool, interrupt: Interrupt) -> tuple[Outcome, list[Section]]:
    """Make the runs of a study and show what came out; returns what became of the tasks, and the records."""
    from vcsg.study import compare, outcome
    from vcsg.study.view.tables import console

    done = compare.conduct(study, console(stderr=True), interrupt)
    found = outcome.read_sections([study.folder])
    done.failures |= outcome.failures(found, study.folder)
    if not show(found, study.folder):
        print("No run has come to its first evaluation.")
    elif report and not done.interrupted:
        drawn = draw(study.folder / "figures", found)
        make_report(found, [study.folder], study.folder / "report.html", drawn)
    return done, found


def show_plan(study: Study, interrupt: Interrupt) -> float:
    """Print what is left to do of a study, and about how long that will take; returns the seconds."""
    from vcsg.study import compare
    from vcsg.study.outcome import print_table
    from vcsg.study.view.plan_table import plan_sentence, plan_table, plan_title, time_left
    from vcsg.study.view.tables import console

    lines, shown = compare.look_ahead(study, interrupt), console()
    shown.print(plan_title(study), highlight=False, markup=False, style="bold")
    if lines:
        print_table(shown, plan_table(lines))
    shown.print(plan_sentence(study, lines), highlight=False, markup=False)
    return time_left(study, lines)


def show(found: list[Section], folder: Path) -> bool:
    """Print the tables and findings of a folder, where a run came to its first evaluation."""
    from vcsg.study import outcome
    from vcsg.study.view.tables import console

    if not outcome.any_runs(found):
        return False
    outcome.print_outcome(console(), found)
    print(f"Records: {folder}")
    return True


def draw(folder: Path, found: list[Section]) -> list[Path]:
    """Draw the figures into a folder, where matplotlib is installed; returns their files."""
    from vcsg.study import outcome

    try:
        made = outcome.draw_figures(folder, found)
    except ModuleNotFoundError as error:
        print(f"No figures: {error}", file=sys.stderr)
        return []
    if made:
        print(f"Figures: {made[0].parent}")
    return made


def make_report(found: list[Section], folders: Sequence[Path], path: Path, pictures: Sequence[Path]) -> None:
    """Write the report, where plotly is installed."""
    from vcsg.study import outcome

    try:
        print(f"Report: {outcome.write_report(found, folders, path, pictures)}")
    except ModuleNotFoundError as error:
        print(f"No report: {error}", file=sys.stderr)


def words(texts: Sequence[str]) -> list[str]:
    """The words of lists that are separated by commas."""
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def command_line() -> str:
    """The command as the user gave it."""
    return shlex.join(["vcsg", *sys.argv[1:]])
