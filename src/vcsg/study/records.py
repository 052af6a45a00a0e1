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
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from vcsg.files import append, synced_size, write_text
from vcsg.run.record import Record
from vcsg.training.checkpoints import Damaged

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


class RunWriter:
    """Writes the folder of one run. What cannot be written is an OSError that names the file."""

    def __init__(self, path: str | os.PathLike[str], record: RunRecord) -> None:
        self._path, self._record = Path(path), record

    def begin(self, resumed: bool = False) -> None:
        """The run begins, with nothing in the folder that an earlier one left; or goes on, with what it left."""
        self._path.mkdir(parents=True, exist_ok=True)
        if not resumed:
            for name in (EVALUATIONS, EPOCHS, WEIGHTS):
                (self._path / name).unlink(missing_ok=True)
        self._head()

    def evaluation(self, row: Row) -> None:
        self._append(EVALUATIONS, row)

    def epoch(self, record: Record) -> None:
        self._append(EPOCHS, epoch_row(record))

    def close(self, status: str, message: str = "", **notes: Any) -> None:
        self._record.status, self._record.message = status, message
        self._record.notes |= notes
        self._head()

    def state_dict(self) -> dict[str, Any]:
        """How long the files are, once they are on disk."""
        return {name: synced_size(self._path / name) for name in (EVALUATIONS, EPOCHS)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Cut off what came after: it will come again."""
        for name, size in state_dict.items():
            if (there := synced_size(self._path / name)) < size:
                raise Damaged(f"{self._path / name} has {there:,} bytes, where a checkpoint counts on {size:,}")
        for name, size in state_dict.items():
            if (self._path / name).exists():
                os.truncate(self._path / name, size)

    def _append(self, name: str, row: Row) -> None:
        append(self._path / name, (json.dumps(_plain(row), allow_nan=False) + "\n").encode())

    def _head(self) -> None:
        record = self._record
        head = {
            "format": FORMAT,
            "config": asdict(record.config),
            "environment": record.environment,
            "started": record.started,
            "status": record.status,
            "message": record.message,
            "notes": record.notes,
        }
        write_text(self._path / "run.json", json.dumps(_plain(head), indent=1, allow_nan=False) + "\n")


def check_free(path: Path) -> None:
    """A folder has room for one run."""
    if (path / "run.json").exists():
        raise FileExistsError(
            f"{path} holds a run already: give another folder, or --resume to go on with one that was broken off"
        )


def epoch_row(record: Record) -> Row:
    """A `vcsg.Record` as a line: its fields but the anchor, and what the anchor measured."""
    row: Row = {f.name: getattr(record, f.name) for f in fields(record) if f.name != "anchor"}
    anchor = record.anchor
    row |= {"anchor_size": None, "loss": None, "variance": None, "gradient_norm2": None, "gradient_bound": None}
    if anchor is not None:
        row |= {
            "anchor_size": anchor.B,
            "loss": anchor.loss,
            "variance": anchor.variance,
            "gradient_norm2": anchor.gradient_norm2,
            "gradient_bound": anchor.rough_bound,
        }
    return row


def load(*folders: str | os.PathLike[str]) -> list[RunRecord]:
    """Every run in or below the folders, in the order of their paths."""
    paths = {path.resolve(): path for folder in folders for path in _heads(Path(folder))}
    return [_read(path) for _, path in sorted(paths.items())]


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


def _plain(value: Any) -> Any:
    """The same with None for every number that is not finite, which JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
