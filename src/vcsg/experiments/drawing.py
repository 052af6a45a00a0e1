"""Figures of an experiment for print, as PNG and PDF with the look of the study's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vcsg.files import replacing
from vcsg.study.view.figures import DPI, FORMATS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_all(figures: Mapping[str, Callable[[], Figure]], out: Path) -> list[Path]:
    """Draw figures, by the names of their files. (Needs matplotlib.)"""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the figures need matplotlib: pip install 'vcsg[study]'") from error
    from vcsg.study.view.figures.axes import SETTINGS

    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, make in figures.items():
        with matplotlib.rc_context(SETTINGS):
            figure = make()
            for suffix, metadata in FORMATS.items():
                with replacing(out / f"{name}.{suffix}") as new:
                    figure.savefig(new, dpi=DPI, metadata=metadata)
                figure.set_layout_engine("none")
                paths.append(out / f"{name}.{suffix}")
    return paths
