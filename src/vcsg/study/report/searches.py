"""The search of the protocol "tuned" for step sizes, and for b: what it chose, what it cost, and every trial."""

from __future__ import annotations

import math
import os
from pathlib import Path

from vcsg.study.records import RunRecord
from vcsg.study.report.markup import Markup
from vcsg.study.report.table import Cell, number, spent, table, words
from vcsg.study.view.sections import Section
from vcsg.study.view.style import place_of
from vcsg.study.view.tables import b_at_edge
from vcsg.study.view.words import SPACE, amount, measured

UNITS = ("passes", "ifo", "seconds")


def cost(trials: list[RunRecord]) -> str:
    """What the search took, in words."""
    passes, ifo, seconds = (amount(unit, value) for unit, value in _total(trials).items())
    for letter, word in (("M", "million"), ("k", "thousand")):
        ifo = ifo.replace(f"{SPACE}{letter}", f"{SPACE}{word}")
    sizes = " and mini-batch sizes" if _sizes(trials) else ""
    return (
        f"{len(trials)} short runs chose the step sizes{sizes} of the protocol “tuned”, by the training loss at their "
        f"end. They took {passes} passes, {ifo} gradients and {seconds} in all, which no time or count above includes."
    )


def chosen(section: Section) -> Markup:
    """What the search found for every method, and what it cost."""
    sizes = _sizes(section.search)
    b = ("chosen b",) if sizes else ()
    heads = ("method", "trials", *b, "chosen step size", "its training loss", "passes", "gradients", "time", "remarks")
    rows = []
    common = _common(section.search)
    for own in _by_method(section.search):
        best = min(own, key=_loss)
        rows.append(
            [
                words(_label(best, common)),
                number(len(own), str(len(own))),
                *([_size(best)] if sizes else []),
                _step(best),
                number(_loss(best), measured("train_loss", _loss(best))),
                *(spent(unit, value) for unit, value in _total(own).items()),
                words(_remark(section, best)),
            ]
        )
    return table("What the search chose", heads, rows)


def trials(section: Section) -> Markup:
    """Every trial, in the order in which they were made."""
    sizes = _sizes(section.search)
    b = ("b",) if sizes else ()
    heads = ("method", "trial", *b, "step size", "training loss", "passes", "gradients", "time", "ended")
    common = _common(section.search)
    return table("All trials", heads, [_trial(run, sizes, common) for own in _by_method(section.search) for run in own])


def _trial(run: RunRecord, sizes: bool, common: Path | None) -> list[Cell]:
    trial = run.notes.get("trial")
    return [
        words(_label(run, common)),
        number(trial, str(trial)),
        *([_size(run)] if sizes else []),
        _step(run),
        number(_loss(run), measured("train_loss", _loss(run))),
        *(spent(unit, run.final.get(unit)) for unit in UNITS),
        words(f"{run.status}: {run.message}" if run.message else run.status),
    ]


def _by_method(runs: list[RunRecord]) -> list[list[RunRecord]]:
    """The trials of each method in each study, in the order of all figures."""
    found: dict[tuple[str, str, Path], list[RunRecord]] = {}
    for run in sorted(runs, key=lambda run: run.notes.get("trial") or 0):
        found.setdefault((run.config.method, run.config.label, run.path.parent), []).append(run)
    return [found[key] for key in sorted(found, key=lambda key: (*place_of(*key[:2]), key[2]))]


def _study_of(trial: RunRecord) -> Path:
    """The folder of the study that a short run belongs to: it is in search/METHOD/TRIAL."""
    return trial.path.resolve().parents[2]


def _common(trials: list[RunRecord]) -> Path | None:
    """The folder that has the studies of all short runs, where these are several."""
    studies = {_study_of(run) for run in trials}
    return Path(os.path.commonpath(studies)) if len(studies) > 1 else None


def _label(trial: RunRecord, common: Path | None) -> str:
    """The label of a method, with the folder of its study where there are several."""
    if common is None:
        return trial.config.label
    study = _study_of(trial)
    return f"{trial.config.label} ({study.name if study == common else study.relative_to(common)})"


def _remark(section: Section, best: RunRecord) -> str:
    """A remark where no trial ended well, or where the best step is at the edge of what was tried."""
    if math.isinf(_loss(best)):
        return "no trial came to a finite loss"
    made = _study_of(best) / "runs"
    runs = [r for r in section.runs if r.config.method == best.config.method and made in r.path.resolve().parents]
    found = [run.notes["search"] for run in runs if isinstance(run.notes.get("search"), dict)]
    said = []
    if any(note.get("at_edge") for note in found):
        said.append("at the edge of what was tried: a better one may lie beyond")
    if any(b_at_edge(note) for note in found):
        said.append("b is the smallest or the largest that was tried")
    return "; ".join(said)


def _total(runs: list[RunRecord]) -> dict[str, float]:
    return {unit: sum(run.final.get(unit) or 0 for run in runs) for unit in UNITS}


def _loss(run: RunRecord) -> float:
    loss = run.final.get("train_loss") if run.status == "finished" else None
    return math.inf if loss is None else float(loss)


def _sizes(runs: list[RunRecord]) -> bool:
    """Whether mini-batch sizes were searched: several were tried for a method."""
    tried: dict[str, set[int]] = {}
    for run in runs:
        if "b" in run.notes:
            tried.setdefault(run.config.method, set()).add(run.notes["b"])
    return any(len(sizes) > 1 for sizes in tried.values())


def _size(run: RunRecord) -> Cell:
    b = run.notes.get("b", run.config.options.get("b"))
    return number(b, "–" if b is None else str(b))


def _step(run: RunRecord) -> Cell:
    lr = run.config.options.get("lr")
    return number(lr, "–" if lr is None else f"{lr:.3g}")
