"""The records of a run: one folder per run, which is plain text except for the weights.

    run.json              what was asked for, where the run was made, and how it ended
    evaluations.jsonl     one line per evaluation, in order
    epochs.jsonl          one line per epoch of a method of the family: its `vcsg.Record`
    weights.safetensors   the final weights
    checkpoint-*.vcsg     while the run is not finished; see `vcsg.training.checkpoints`

Every line is written before the run continues, so a run that was killed can be read up to its last line. Tables,
figures and reports are made from these folders alone, wherever they were written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
"""The version of the folders' format; a newer one is refused."""

Row = dict[str, Any]

EVALUATIONS, EPOCHS = "evaluations.jsonl", "epochs.jsonl"
WORDS = ("regime",)
"""What a line has that is a word and no number."""
WEIGHTS = "weights.safetensors"


@dataclass
class RunConfig:
    """What was asked of a run: asked again on the same machine, it gives the same records except times."""

    workload: str
    """The name of the workload, as `vcsg.workloads.load` takes it."""
    method: str
    """The name of a registered method or baseline."""
    label: str
    """The name of the method in tables and figures."""
    options: Row
    """Options of the method and the optimizer: b, lr, L, eps, …"""
    seed: int
    budget: dict[str, float]
    """The limits, {"passes": 30.0} or {"seconds": 120.0} or both: the first that is reached ends the run."""
    every: float
    """Passes between two evaluations."""
    protocol: str
    """The protocol: "default", "paper", "tuned", or "" for a run that is no part of a study."""
    role: str = "run"
    """"run", or "search" for a short run that only helps to choose a step size."""
    device: str = "cpu"
    threads: int = 1
    n: int = 0
    """The number of training samples."""
    tests: int = 0
    """The number of test samples."""
    parameters: int = 0
    command: str = ""
    """The command that makes the run again."""


@dataclass
class RunRecord:
    """A run, as read from its folder."""

    path: Path
    config: RunConfig
    environment: Row
    """Versions and hardware: "vcsg", "torch", "python", "platform", "processor", "cores", "device"."""
    started: str
    """When the run started, in ISO 8601."""
    status: str
    """"running" (or killed), "finished", "interrupted" or "failed"."""
    message: str = ""
    """Why a run failed."""
    notes: Row = field(default_factory=dict)
    """Further facts: where L came from, what a search found, what was warned of."""
    evaluations: list[Row] = field(default_factory=list)
    """"ifo", "passes", "seconds" (training alone), "epoch", "train_loss" (over all n samples), and what the workload
    measures: "test_loss", "test_error", "test_error_top5"; "grad_norm2" (‖∇f‖² over all n samples) on the last one at
    least. None stands for what is not finite."""
    epochs: list[Row] = field(default_factory=list)

    @property
    def final(self) -> Row:
        """The last evaluation."""
        return self.evaluations[-1] if self.evaluations else {}

    def reach(self, metric: str, target: float) -> Row | None:
        """The first evaluation at which the metric is at most the target; None where it was not reached."""
        return next((row for row in self.evaluations if row.get(metric) is not None and row[metric] <= target), None)


def load(*folders: str | os.PathLike[str], known: Iterable[RunRecord] = ()) -> list[RunRecord]:
    """Every run in or below the folders, in the order of their paths; one that is `known` is not read again."""
    paths = {path.resolve(): path for folder in folders for path in _heads(Path(folder))}
    read = {(run.path / "run.json").resolve(): run for run in known}
    return [read[place] if place in read else _read(path) for place, path in sorted(paths.items())]


def _heads(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: give one that `vcsg run` or `vcsg compare` wrote")
    return folder.rglob("run.json")


def _read(head: Path) -> RunRecord:
    try:
        found = json.loads(head.read_text(encoding="utf-8"))
        if found["format"] > FORMAT:
            raise ValueError(f"{head} has format {found['format']}, this version reads up to {FORMAT}: upgrade vcsg")
        return RunRecord(
            path=head.parent,
            config=RunConfig(**found["config"]),
            environment=found["environment"],
            started=found["started"],
            status=found["status"],
            message=found["message"],
            notes=found["notes"],
            evaluations=list(_rows(head.parent / EVALUATIONS, ("ifo", "passes", "seconds"))),
            epochs=list(_rows(head.parent / EPOCHS, ("epoch", "passes", "anchor_size"))),
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{head} is not the record of a run ({error!r}): remove the folder or leave it out") from error


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[Row]:
    """The complete lines of a file; a run that was killed may have left its last line cut off."""
    if not path.exists():
        return
    for number, line in enumerate(lines := path.read_bytes().splitlines(keepends=True), 1):
        if not line.endswith(b"\n") and number == len(lines):
            return
        try:
            row = json.loads(line)
            _check_row(row, needed)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {line[:60]!r} is not a record ({error})") from error
        yield row


def _check_row(row: Any, needed: tuple[str, ...]) -> None:
    """Raise a ValueError unless a line has what every record has, and numbers where these are looked for."""
    if not isinstance(row, dict):
        raise ValueError("it is no record by names")
    missing = [name for name in needed if name not in row]
    if missing:
        raise ValueError(f"it has no {missing[0]}")
    texts = [name for name, value in row.items() if isinstance(value, str) and name not in WORDS]
    if texts:
        raise ValueError(f"{texts[0]} is no number")
