"""Figures for print, made from records alone; each is a function that returns a matplotlib figure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vcsg.files import replacing
from vcsg.study.records import RunConfig, RunRecord
from vcsg.study.targets import Target
from vcsg.study.view.configurations import compared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
WORDS = {"paper": "as printed", "tuned": "tuned"}
"""What a protocol is called beside a method, in a figure of several protocols."""
FORMATS = {"png": {"Software": None}, "pdf": {"CreationDate": None}}
"""The suffixes of the files, and the metadata to leave out because it would differ each time."""


def draw(
    runs: list[RunRecord], out: Path, targets: Sequence[Target] | Mapping[str, Sequence[Target]] = ()
) -> list[Path]:
    """Write every figure that the runs have something for, as PNG and PDF.

    Args:
        runs: of one or several workloads and protocols; those of a search are left out.
        out: the folder, which is made where it is missing.
        targets: for all workloads, or by workload.

    Returns:
        The paths of the files. (Needs matplotlib.)
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the figures need matplotlib: pip install 'vcsg[study]'") from error
    from vcsg.study.view.figures.axes import SETTINGS

    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, make in figures(runs, targets):
        with matplotlib.rc_context(SETTINGS):
            figure = make()
            for suffix, metadata in FORMATS.items():
                with replacing(out / f"{name}.{suffix}") as new:
                    figure.savefig(new, dpi=DPI, metadata=metadata)
                figure.set_layout_engine("none")  # the layout is done; finding it again takes half of the time
                paths.append(out / f"{name}.{suffix}")
    return paths


def figures(
    runs: list[RunRecord], targets: Sequence[Target] | Mapping[str, Sequence[Target]] = ()
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """The name of every figure and the function that makes it, in the order of the files."""
    from vcsg.study.view import curves, epoch_series
    from vcsg.study.view.figures import anchors, bars, overview

    own = compared(runs)
    workloads = overview.workloads(own)
    by_workload = targets if isinstance(targets, Mapping) else {name: list(targets) for name in workloads}
    for protocol in dict.fromkeys(run.config.protocol for run in own):
        given = own, protocol, by_workload
        yield file_name("fig1", protocol), partial(overview.overview, *given)
        yield file_name("fig1", protocol, "ifo"), partial(overview.overview, *given, unit="ifo")
        yield file_name("fig2", protocol), partial(overview.against_time, *given)
        yield file_name("fig2", protocol, "ifo"), partial(overview.against_time, *given, unit="ifo")
    if len({run.config.protocol for run in own}) > 1:
        yield "fig2", partial(overview.against_time, together(own), "", by_workload)
    for workload in workloads:
        here = [run for run in own if run.config.workload == workload]
        for target in by_workload.get(workload, ()):
            yield file_name("to-target", workload, str(target)), partial(bars.to_target, own, workload, target)
        for protocol in dict.fromkeys(run.config.protocol for run in here):
            if curves.has_path(overview.of_protocol(here, protocol), "grad_norm2"):
                made = partial(overview.gradient, own, workload, protocol, by_workload.get(workload, ()))
                yield file_name("gradient", workload, protocol), made
    for run in epoch_series.anchored_runs(own):
        config = run.config
        yield file_name("inside", config.workload, config.protocol, config.label), partial(anchors.inside, run)


def together(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The same runs under no protocol, so that one figure has them all; names tell what was tuned and what printed."""
    return compared(replace(run, config=replace(run.config, protocol="", label=_named(run.config))) for run in runs)


def _named(config: RunConfig) -> str:
    """The label of a method with the protocol in a word; none stands for the defaults."""
    word = WORDS.get(config.protocol, "")
    told = not word or word in config.label or "paper" in config.label
    return config.label if told else f"{config.label}, {word}"


def file_name(*parts: str) -> str:
    """The parts as one name of plain characters."""
    return "-".join(filter(None, (re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-").lower() for part in parts)))
