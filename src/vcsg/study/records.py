"""What a run leaves on disk, and how it is read again: one folder per run, plain text but for the weights.

    run.json              what was asked for, where it ran, and how it ended
    evaluations.jsonl     one line per evaluation, in order
    epochs.jsonl          one line per epoch of a method of the family: its `vcsg.Record`
    weights.safetensors   the final weights
    checkpoint-*.vcsg     while it is not finished, see `vcsg.training.checkpoints`

Every line is on its way to the disk before the run goes on, so a run that was killed is readable up to there. Tables,
figures and report are made from these folders alone, wherever they were written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
"""Of the folders; a reader refuses what is newer than itself."""

Row = dict[str, Any]

EVALUATIONS, EPOCHS = "evaluations.jsonl", "epochs.jsonl"
WEIGHTS = "weights.safetensors"


@dataclass
class RunConfig:
    """What was asked for: with the same of it on the same machine, a run has the same records except times."""

    workload: str
    """As `vcsg.workloads.load` takes it."""
    method: str
    """A registered name, or that of a baseline of torch."""
    label: str
    """What tables and figures call it."""
    options: Row
    """Of the method and the optimizer: b, lr, L, eps, …"""
    seed: int
    budget: dict[str, float]
    """{"passes": 30.0} or {"seconds": 120.0}, or both: the first that is reached."""
    every: float
    """Passes between two evaluations."""
    protocol: str
    """"default", "paper", "tuned", or "" for a run by itself."""
    role: str = "run"
    """"run", or "search" for one that only chose a step size."""
    device: str = "cpu"
    threads: int = 1
    n: int = 0
    """Training samples."""
    tests: int = 0
    """Test samples."""
    parameters: int = 0
    command: str = ""
    """That makes the run again."""


@dataclass
class RunRecord:
    """A run as its folder tells it."""

    path: Path
    config: RunConfig
    environment: Row
    """Versions and hardware: "vcsg", "torch", "python", "platform", "processor", "cores", "device"."""
    started: str
    """The time, in ISO 8601."""
    status: str
    """"running" (or killed), "finished", "interrupted" or "failed"."""
    message: str = ""
    """Why a run failed."""
    notes: Row = field(default_factory=dict)
    """What the protocol has to say: where L came from, what a search found."""
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
        raise FileNotFoundError(f"{folder} is no folder: give one that `vcsg run` or `vcsg compare` wrote")
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
            evaluations=list(_rows(head.parent / EVALUATIONS)),
            epochs=list(_rows(head.parent / EPOCHS)),
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{head} is not the record of a run ({error!r}): remove the folder or leave it out") from error


def _rows(path: Path) -> Iterator[Row]:
    """The whole lines of a file; the last one of a run that was killed may be cut off."""
    if not path.exists():
        return
    for number, line in enumerate(lines := path.read_bytes().splitlines(keepends=True), 1):
        if not line.endswith(b"\n") and number == len(lines):
            return
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: {line[:60]!r} is not a record ({error})") from error
