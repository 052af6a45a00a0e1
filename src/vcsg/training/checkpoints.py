"""Checkpoints on disk: what a run needs to go on as if it had never stopped, in files that are whole or not there.

    checkpoint-000000012.vcsg     the last two are kept; the number counts

A file is a line that names the format, a line with the SHA-256 of the rest, and the rest as `torch.save` writes it. It
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
KEPT = 2
NAME = re.compile(r"checkpoint-(\d{9})\.vcsg")

State = dict[str, Any]


class Damaged(ValueError):
    """A checkpoint that is not as it was written, or no longer fits what was written beside it."""


class Checkpoints:
    """The checkpoints of one run in a folder.

    Args:
        folder: made where it is not there.
        config: what must be the same for a checkpoint to be continued; plain values by name.
    """

    def __init__(self, folder: str | os.PathLike[str], config: Mapping[str, Any]) -> None:
        self.folder, self._config = Path(folder), dict(config)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._tried = self._failing = False

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._files())

    def save(self, state: Mapping[str, Any]) -> bool:
        """Write one more, and keep the two last.

        Where that fails for want of room or rights the run need not: the one before is still there. Then this returns
        False and says so in the log, once until it goes well again.
        """
        head, payload = encode({"config": self._config, "state": dict(state)})
        if not self._tried:
            _try(payload)
            self._tried = True
        files = self._files()
        try:
            with replacing(self.folder / f"checkpoint-{max(files, default=0) + 1:09d}.vcsg") as new:
                write(new, head, payload)
        except OSError as error:
            left = f"the last one is {files[max(files)].name}" if files else "there is none yet"
            if not self._failing:
                logger.warning("no checkpoint could be written: %s; %s, and the run goes on", error, left)
            self._failing = True
            return False
        if self._failing:
            logger.warning("checkpoints can be written again in %s", self.folder)
        self._failing = False
        for number in sorted(files)[: 1 - KEPT]:
            with suppress(OSError):
                files[number].unlink()
        return True

    def load(self, accept: Callable[[State], None]) -> bool:
        """Hand the state of the last one that is sound to `accept`; False where there is none.

        One that is damaged, or that `accept` finds to be (then it has not changed anything yet), is removed, so that
        the two last are sound ones again, and the one before is tried.
        """
        files = self._files()
        for number in sorted(files, reverse=True):
            try:
                found = decode(files[number])
                check_same(files[number], found["config"], self._config)
                accept(found["state"])
            except Damaged as error:
                left = "going back to the one before" if number > min(files) else "there is none before it"
                logger.warning("%s; it is removed, %s", error, left)
                files[number].unlink()
                continue
            return True
        return False

    def clear(self) -> None:
        """Remove them all, the oldest first: the run is done, or begins anew."""
        for _, path in sorted(self._files().items()):
            path.unlink()

    def _files(self) -> dict[int, Path]:
        found = ((NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return {int(match[1]): path for match, path in found if match}


def check_same(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """What is at `path` has to be of the same configuration."""
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            raise ValueError(
                f"{path} is of another run: its {name} is {theirs.get(name)!r}, here it is {ours.get(name)!r}. "
                "Continue with the same, or give another folder"
            )


def encode(content: Mapping[str, Any]) -> tuple[bytes, memoryview]:
    """What a file begins with, and the rest."""
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    payload = buffer.getbuffer()
    return HEAD + f"{FORMAT}\n{hashlib.sha256(payload).hexdigest()}\n".encode(), payload


def write(path: Path, *parts: bytes | memoryview) -> None:
    with open(path, "wb") as file:
        for part in parts:
            file.write(part)


def decode(path: Path) -> dict[str, Any]:
    """The content of a file, its checksum verified first."""
    raw = path.read_bytes()
    first, _, rest = raw[:200].partition(b"\n")
    if not first.startswith(HEAD):
        raise Damaged(f"{path} is damaged: it begins with {raw[:20]!r}, and not with {HEAD!r}")
    digest = rest.partition(b"\n")[0]
    payload = memoryview(raw)[len(first) + len(digest) + 2 :]
    if first != HEAD + str(FORMAT).encode() and first.removeprefix(HEAD).isdigit():
        raise ValueError(
            f"{path} has format {first.removeprefix(HEAD).decode()}, this version of vcsg has {FORMAT}: continue with "
            "the version that wrote it, or give another folder"
        )
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        raise Damaged(f"{path} is damaged: its {len(payload):,} bytes do not have the checksum they were written with")
    try:
        content = torch.load(io.BytesIO(payload), weights_only=True, map_location="cpu")
        return {"config": dict(content["config"]), "state": dict(content["state"])}
    except Exception as error:
        # Not damaged, for the checksum is right: made by someone else, and perhaps to run code.
        raise ValueError(
            f"{path} was not written by vcsg and is not loaded: it holds other things than tensors, numbers and "
            "strings. Remove it, or give another folder"
        ) from error


def _try(payload: memoryview) -> None:
    """Nothing is written that could not be read again."""
    try:
        torch.load(io.BytesIO(payload), weights_only=True, map_location="meta")
    except Exception as error:
        reason = str(error).split("\n")[0]
        raise TypeError(
            "the state of the model holds more than tensors, numbers and strings, and a checkpoint of it could not be "
            f"loaded: let get_extra_state() return these alone, or leave checkpoint= out ({reason})"
        ) from error
