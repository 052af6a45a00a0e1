"""The report: one HTML file that needs nothing else, made from the records of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vcsg.files import write_text


def write(folders: Sequence[Path], path: Path) -> Path:
    """Write the report of all runs in or below the folders.

    Args:
        folders: of studies, as `vcsg compare` leaves them, or of single runs.
        path: of the HTML file. It has everything in it and opens without a network.

    Returns:
        The path. (Needs plotly.)
    """
    try:
        import plotly  # type: ignore[import-untyped]  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the report needs plotly: pip install 'vcsg[study]'") from error
    from vcsg.study.report.page import Page
    from vcsg.study.report.sections import sections

    folders = [Path(folder) for folder in folders]
    found = sections(folders)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, Page(found, folders).html())
    return path
