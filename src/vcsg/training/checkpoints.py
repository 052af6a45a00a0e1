"""Checkpoints on disk: what a run needs to continue as if it had never stopped, in files that are complete or absent.

    checkpoint-000000012.vcsg     the last two are kept; the number counts upwards

A file has a line that names the format, a line with the SHA-256 of the rest, and the rest as `torch.save` writes it. It
is read with `weights_only=True`: tensors, numbers and strings, and no code.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from vcsg.files import replacing

logger = logging.getLogger("vcsg.checkpoints")

FORMAT = 1
HEAD = b"vcsg checkpoint "
KEPT_CHECKPOINTS = 2
NAME = re.compile(r"checkpoint-(\d{9})\.vcsg")

State = dict[str, Any]


class Damaged(ValueError):
    """A checkpoint has changed since it was written, or no longer fits the records written beside it."""


class Checkpoints:
    """The checkpoints of one run in a folder.

    Args:
        folder: the folder of the checkpoints; it is created if it does not exist.
        config: what must be the same for a run to continue from a checkpoint; plain values by name.
    """

    def __init__(self, folder: str | os.PathLike[str], config: Mapping[str, Any]) -> None:
        self.folder, self._config = Path(folder), dict(config)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._verified = self._failing = False

    def __bool__(self) -> bool:
        """Whether the folder holds a checkpoint."""
        return bool(self._files())

    def save(self, state: Mapping[str, Any]) -> bool:
        """Write a new checkpoint, and keep the last two.

        A disk that is full or not writable does not end the run: the checkpoint before is still there. Then this
        returns False and logs a warning, once until a checkpoint can be written again.
        """
        head, payload = encode({"config": self._config, "state": dict(state)})
        if not self._verified:
            _check_loadable(payload)
            self._verified = True
        files = self._files()
        try:
            with replacing(self.folder / f"checkpoint-{max(files, default=0) + 1:09d}.vcsg") as new:
                write(new, head, payload)
        except OSError as error:
            left = f"the last one is {files[max(files)].name}" if files else "there is none yet"
            if not self._failing:
                logger.warning("no checkpoint could be written: %s; %s, and the run continues", error, left)
            self._failing = True
            return False
        if self._failing:
            logger.warning("checkpoints can be written again in %s", self.folder)
        self._failing = False
        for number in sorted(files)[: 1 - KEPT_CHECKPOINTS]:
            with suppress(OSError):
                files[number].unlink()
        return True

    def load(self, accept: Callable[[State], None]) -> bool:
        """Pass the state of the last sound checkpoint to `accept`; returns False where there is none.

        A checkpoint that is damaged is removed, so that the last two are sound again, and the one before is tried.
        `accept` may find damage too, by raising `Damaged` before it changes anything.
        """
        files = self._files()
        for number in sorted(files, reverse=True):
            try:
                found = decode(files[number])
                check_same(files[number], found["config"], self._config)
                accept(found["state"])
            except Damaged as error:
                left = "the one before is used" if number > min(files) else "there is none before it"
                logger.warning("%s; it is removed, %s", error, left)
                files[number].unlink()
                continue
            return True
        return False

    def clear(self) -> None:
        """Remove all checkpoints, the oldest first."""
        for _, path in sorted(self._files().items()):
            path.unlink()

    def _files(self) -> dict[int, Path]:
        found = ((NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return {int(match[1]): path for match, path in found if match}


def check_same(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise a ValueError unless the run at `path` has the same configuration as this one."""
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            raise ValueError(
                f"{path} is of another run: its {name} is {theirs.get(name)!r}, here it is {ours.get(name)!r}. "
                f"Continue with the same settings, such as {name} = {theirs.get(name)!r}, or give another folder"
            )


def encode(content: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The two header lines of a file, and the rest of it."""
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    payload = buffer.getvalue()  # no copy; and a view that an error keeps would be told of by Python 3.13, on stderr
    return HEAD + f"{FORMAT}\n{hashlib.sha256(payload).hexdigest()}\n".encode(), payload


def write(path: Path, *parts: bytes) -> None:
    with open(path, "wb") as file:
        for part in parts:
            file.write(part)


def decode(path: Path) -> dict[str, Any]:
    """The content of a file, after its checksum was verified."""
    raw = path.read_bytes()
    first, _, rest = raw[:200].partition(b"\n")
    if not first.startswith(HEAD):
        raise Damaged(f"{path} is damaged: it begins with {raw[:20]!r}, and not with {HEAD!r}")
    digest = rest.partition(b"\n")[0]
    payload = memoryview(raw)[len(first) + len(digest) + 2 :]
    if first != HEAD + str(FORMAT).encode() and first.removeprefix(HEAD).isdigit():
        raise ValueError(
            f"{path} has format {first.removeprefix(HEAD).decode()}, this version of vcsg reads format {FORMAT}: "
            "continue with the version that wrote it, or give another folder"
        )
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        raise Damaged(f"{path} is damaged: its {len(payload):,} bytes do not have the checksum they were written with")
    try:
        content = torch.load(io.BytesIO(payload), weights_only=True, map_location="cpu")
        return {"config": dict(content["config"]), "state": dict(content["state"])}
    except Exception as error:
        # The checksum is right, so the file is not damaged: someone else made it, perhaps to run code.
        raise ValueError(
            f"{path} was not written by vcsg and is not loaded: it holds more than tensors, numbers and "
            "strings. Remove it, or give another folder"
        ) from error


def _check_loadable(payload: bytes) -> None:
    """Refuse to write what could not be read again."""
    try:
        torch.load(io.BytesIO(payload), weights_only=True, map_location="meta")
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise TypeError(
            "the state of the model holds more than tensors, numbers and strings, and a checkpoint of it could not be "
            f"loaded: let get_extra_state() return these alone, or leave checkpoint= out ({reason})"
        ) from error
