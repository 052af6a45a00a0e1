"""Pieces of work whose outcome is a record: what worker processes load. It needs no torch."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from multiprocessing.synchronize import Event as Flag
from pathlib import Path
from typing import Any, Protocol

from vcsg.files import write_text
from vcsg.silence import without_warnings

Row = dict[str, Any]
Asked = Callable[[], bool]
"""Whether the work is to stop; called between its parts."""


class Piece(Protocol):
    """A piece of work that leaves one record."""

    @property
    def name(self) -> str:
        """The path of its record below the folder, without the suffix."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of the pieces whose records it reads."""

    def perform(self, design: Any, folder: Path, asked: Asked) -> Row:
        """Do the work and return the record; a KeyboardInterrupt where it was asked to stop."""


def record_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def read_record(folder: Path, name: str) -> Row:
    """The record of a piece; a file that is not one is named."""
    path = record_path(folder, name)
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is no record of an experiment ({error}): remove it, and it is made again") from error


def do(piece: Piece, design: Any, folder: Path, asked: Asked) -> None:
    """Do a piece of work and write its record, which is complete or absent.

    Warnings about steps that diverged are in the record and not on the terminal.
    """
    with without_warnings():
        found = piece.perform(design, folder, asked)
    path = record_path(folder, piece.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(found, separators=(",", ":")) + "\n")


_flag: list[Flag] = []
"""The request to stop, as a worker process was given it."""


def begin_worker(flag: Flag) -> None:
    """Prepare a worker process; the main process handles Ctrl-C and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _flag.append(flag)


def do_in_worker(piece: Piece, design: Any, folder: Path) -> bool:
    """Do a piece of work in a worker process; returns False where it was asked to stop."""
    try:
        do(piece, design, folder, _flag[-1].is_set)
    except KeyboardInterrupt:
        return False
    return True
