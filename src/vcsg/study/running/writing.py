"""Writing the records of a run, which `vcsg.study.records` describes and reads."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from vcsg.files import append, synced_size, write_text
from vcsg.run.record import Record
from vcsg.study.records import EPOCHS, EVALUATIONS, FORMAT, WEIGHTS, Row, RunRecord
from vcsg.training.checkpoints import Damaged


class RunWriter:
    """Writes the folder of one run. An OSError names the file that could not be written."""

    def __init__(self, path: str | os.PathLike[str], record: RunRecord) -> None:
        self._path, self._record = Path(path), record

    def begin(self, resumed: bool = False) -> None:
        """Begin the run in an empty folder, or continue it with what the folder holds."""
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
        """The lengths of the files, which are on disk by then."""
        return {name: synced_size(self._path / name) for name in (EVALUATIONS, EPOCHS)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Cut off what was written after the checkpoint: the run will write it again."""
        for name, size in state_dict.items():
            if (found := synced_size(self._path / name)) < size:
                raise Damaged(f"{self._path / name} has {found:,} bytes, and a checkpoint needs {size:,}")
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
    """Refuse a folder that holds a run already."""
    if (path / "run.json").exists():
        raise FileExistsError(f"{path} holds a run already: give another folder, or continue the run with --resume")


def epoch_row(record: Record) -> Row:
    """A `vcsg.Record` as a row: its fields except the anchor, and what the anchor measured."""
    row: Row = {f.name: getattr(record, f.name) for f in fields(record) if f.name != "anchor"}
    anchor = record.anchor
    row |= {"anchor_size": None, "loss": None, "variance": None, "gradient_norm2": None, "gradient_bound": None}
    row["certified"] = None
    if anchor is not None:
        row |= {
            "anchor_size": anchor.B,
            "loss": anchor.loss,
            "variance": anchor.variance,
            "gradient_norm2": anchor.gradient_norm2,
            "gradient_bound": anchor.rough_bound,
            "certified": anchor.g_norm2 if anchor.B == anchor.n else None,
        }
    return row


def _plain(value: Any) -> Any:
    """The value with None for every number that is not finite, because JSON cannot write those."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
