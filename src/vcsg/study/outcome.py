"""What is made of records, now or at any later time: tables with their findings, the figures, and the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vcsg.study.records import RunRecord
from vcsg.study.view.findings import findings
from vcsg.study.view.markdown_page import write_page
from vcsg.study.view.sections import Section, sections
from vcsg.study.view.tables import remarks, tables
from vcsg.study.view.words import SPACE


def read_sections(folders: Sequence[Path], known: Iterable[Section] = ()) -> list[Section]:
    """Every run of the folders by workload; records of `known` sections are not read again."""
    return sections(folders, [run for section in known for run in (*section.records, *section.search)])


def check_any_runs(found: Iterable[Section], folders: Iterable[Path]) -> None:
    if not any_runs(found):
        named = ", ".join(map(str, folders))
        raise FileNotFoundError(f"there is no run in {named}: give a folder that `vcsg run` or `vcsg compare` wrote")


def any_runs(found: Iterable[Section]) -> bool:
    """Whether a run came to its first evaluation, so that there is something to show."""
    return any(section.evaluated for section in found)


def failures(found: Iterable[Section], folder: Path) -> dict[str, str]:
    """Why runs failed, by their paths below the folder. The trials of a search may fail."""
    failed = [run for section in found for run in section.runs if run.status == "failed"]
    return {str(run.path.relative_to(folder)): run.message for run in failed}


def print_outcome(console: Console, found: Iterable[Section]) -> None:
    """Print the tables of every workload, how to read them, and what they say."""
    for section in found:
        for table in tables(section.evaluated, section.asked, console.width):
            print_table(console, table)
        for sentence in remarks(section.runs, section.asked):
            console.print(sentence, highlight=False, markup=False, style="dim")
        for sentence in findings(section):
            console.print(sentence.replace(SPACE, " "), highlight=False, markup=False)


def print_table(console: Console, table: Table) -> None:
    """Print a table, without blanks at the ends of lines where it goes to a file."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.print(line.rstrip(), highlight=False, markup=False)


def draw_figures(folder: Path, found: Iterable[Section]) -> list[Path]:
    """Draw the figures of all runs into a folder. (Needs matplotlib.)"""
    from vcsg.study.view import figures

    found = list(found)
    runs: list[RunRecord] = [run for section in found for run in section.runs]
    return figures.draw(runs, folder, {section.workload: section.asked for section in found})


def write_report(found: list[Section], folders: Sequence[Path], path: Path, pictures: Iterable[Path] = ()) -> Path:
    """Write the HTML report, with the pictures that `draw_figures` made. (Needs plotly.)"""
    from vcsg.study import report

    return report.write(found, folders, path, pictures)


def write_markdown(found: list[Section], path: Path, pictures: Iterable[Path] = ()) -> Path:
    """Write the same as a page in Markdown."""
    return write_page(found, path, pictures)
