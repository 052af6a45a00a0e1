"""The report: one HTML file that needs nothing else, made from the records of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from vcsg.files import write_text
from vcsg.study.view.sections import Section


def write(sections: list[Section], folders: Sequence[Path], path: Path, pictures: Iterable[Path] = ()) -> Path:
    """Write the report of some runs as one HTML file, which opens without a network. (Needs plotly.)

    Args:
        sections: the records by workload, as `vcsg.study.view.sections` reads them.
        folders: the folders they were read from, which the page names.
        path: the HTML file to write.
        pictures: the files of `vcsg.study.view.figures.draw`, which the page shows where JavaScript is turned off.

    Returns:
        The path.
    """
    try:
        import plotly  # type: ignore[import-untyped]  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the report needs plotly: pip install 'vcsg[study]'") from error
    from vcsg.study.report.page import Page

    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, Page(sections, folders, pictures).html())
    return path
