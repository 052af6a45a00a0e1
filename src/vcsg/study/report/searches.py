"""The search of the protocol "tuned" for step sizes, and for b: what it chose, what it cost, and every trial."""

from __future__ import annotations

import math
from pathlib import Path

from vcsg.study.records import RunRecord
from vcsg.study.report.markup import Markup
from vcsg.study.report.table import Cell, number, spent, table, words
from vcsg.study.view.sections import Section
from vcsg.study.view.style import place_of
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
    for own in _by_method(section.search):
        best = min(own, key=_loss)
        rows.append(
            [
                words(best.config.label),
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
    return table("All trials", heads, [_trial(run, sizes) for own in _by_method(section.search) for run in own])


def _trial(run: RunRecord, sizes: bool) -> list[Cell]:
    trial = run.notes.get("trial")
    return [
        words(run.config.label),
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


def _remark(section: Section, best: RunRecord) -> str:
    """A remark where no trial ended well, or where the best step is at the edge of what was tried."""
    if math.isinf(_loss(best)):
        return "no trial came to a finite loss"
    study = best.path.parents[2]  # its runs are beside search/METHOD/TRIAL
    runs = [run for run in section.runs if run.config.method == best.config.method and study in run.path.parents]
    found = [run.notes["search"] for run in runs if isinstance(run.notes.get("search"), dict)]
    said = []
    if any(note.get("at_edge") for note in found):
        said.append("at the edge of what was tried: a better one may lie beyond")
    if any(note.get("b_at_edge") for note in found):
        said.append("b is the smallest or the largest that was tried")
    return "; ".join(said)


def _total(runs: list[RunRecord]) -> dict[str, float]:
    return {unit: sum(run.final.get(unit) or 0 for run in runs) for unit in UNITS}


def _loss(run: RunRecord) -> float:
    loss = run.final.get("train_loss") if run.status == "finished" else None
    return math.inf if loss is None else float(loss)


def _sizes(runs: list[RunRecord]) -> bool:
    """Whether mini-batch sizes were searched."""
    return any("b" in run.notes for run in runs)


def _size(run: RunRecord) -> Cell:
    b = run.notes.get("b", run.config.options.get("b"))
    return number(b, "–" if b is None else str(b))


def _step(run: RunRecord) -> Cell:
    lr = run.config.options.get("lr")
    return number(lr, "–" if lr is None else f"{lr:.3g}")
