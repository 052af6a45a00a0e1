"""`vcsg report`: tables, figures and a page from records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vcsg.commands import options
from vcsg.commands.ending import check_file, errors
from vcsg.commands.showing import draw


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs or studies.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file: .html, or .md for a page in Markdown; the default is report.html in the first folder."
        ),
    ] = None,
    target: options.Targets = None,
    import_: options.Import = None,
) -> None:
    """Make tables, figures and a report from records.

    The records may come from other machines and earlier times.
    """
    from vcsg.study import imports, outcome
    from vcsg.study.targets import Target
    from vcsg.study.view.tables import console

    with errors():
        place = out or folders[0] / "report.html"
        if folders[0].is_dir() or out is not None:
            check_file(place)
        imports.load(import_ or [])
        wanted = [Target.parse(text) for text in target or []]
        found = outcome.read_sections(folders)
        outcome.check_any_runs(found, folders)
        if wanted:
            found = [section.aiming_at(wanted) for section in found]
        outcome.print_outcome(console(), found)
        drawn = draw(folders[0] / "figures" if out is None else out.with_name(f"{out.stem}-figures"), found)
        if place.suffix.lower() == ".md":
            made = outcome.write_markdown(found, place, drawn)
        else:
            made = outcome.write_report(found, folders, place, drawn)
        print(f"Report: {made}")
