"""Checkpoints: what a run needs to go on as if it had never stopped, in files that are whole or not there.

    checkpoint-000000012.vcsg     the last two are kept; the number counts

A file is a line that names the format, a line with the SHA-256 of the rest, and the rest as `torch.save` writes it. It
is read with `weights_only=True`: tensors, numbers and strings, and no code.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vcsg.files import replacing

logger = logging.getLogger("vcsg")

HEAD = b"vcsg checkpoint 1\n"
KEPT = 2
NAME = re.compile(r"checkpoint-(\d{9})\.vcsg")


class Checkpoints:
    """The checkpoints of one run in a folder.

    Args:
        folder: made where it is not there.
        config: what must be the same for a checkpoint to be continued; plain values by name.
    """

    def __init__(self, folder: str | os.PathLike[str], config: Mapping[str, Any]) -> None:
        self.folder, self._config = Path(folder), dict(config)
        self.folder.mkdir(parents=True, exist_ok=True)

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._files())

    def save(self, state: Mapping[str, Any]) -> bool:
        """Write one more, and keep the two last.

        Where that fails for want of room or rights the run need not: the one before is still there. Then this returns
        False and says so in the log.
        """
        files = self._files()
        path = self.folder / f"checkpoint-{max(files, default=0) + 1:09d}.vcsg"
        try:
            with replacing(path) as new:
                new.write_bytes(encode({"config": self._config, "state": dict(state)}))
            for number in sorted(files)[: 1 - KEPT]:
                files[number].unlink()
        except OSError as error:
            left = f"the last one is {files[max(files)].name}" if files else "there is none yet"
            logger.warning("no checkpoint could be written to %s (%s); %s", self.folder, error, left)
            return False
        return True

    def load(self) -> dict[str, Any] | None:
        """The state of the last one that is sound; None where there is none at all."""
        files = self._files()
        faults = []
        for number in sorted(files, reverse=True):
            try:
                found = decode(files[number])
            except Damaged as error:
                logger.warning("%s; going back to the one before", error)
                faults.append(str(error))
                continue
            self._check(files[number], found["config"])
            state: dict[str, Any] = found["state"]
            return state
        if faults:
            raise Damaged(f"no checkpoint in {self.folder} is sound: {'; '.join(faults)}. Remove them to begin anew")
        return None

    def clear(self) -> None:
        """Remove them all: the run is done, or begins anew."""
        for path in self._files().values():
            path.unlink()

    def _check(self, path: Path, config: dict[str, Any]) -> None:
        for name in [*self._config, *config]:
            ours, theirs = self._config.get(name), config.get(name)
            if ours != theirs:
                raise ValueError(
                    f"{path} is of another run: its {name} is {theirs!r}, here it is {ours!r}. "
                    "Continue with the same settings, or give another folder"
                )

    def _files(self) -> dict[int, Path]:
        found = ((NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return {int(match[1]): path for match, path in found if match}


class Damaged(ValueError):
    """A checkpoint that is not as it was written."""


def encode(content: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    payload = buffer.getvalue()
    return HEAD + hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload


def decode(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    if not raw.startswith(HEAD):
        raise Damaged(f"{path} is no checkpoint of this version of vcsg: it begins with {raw[:20]!r}")
    digest, _, payload = raw[len(HEAD) :].partition(b"\n")
    if hashlib.sha256(payload).hexdigest().encode() != digest:
        raise Damaged(f"{path} is damaged: its {len(payload):,} bytes do not have the checksum they were written with")
    try:
        content: dict[str, Any] = torch.load(io.BytesIO(payload), weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        raise Damaged(f"{path} holds more than numbers, which is not loaded: it was not written by vcsg") from error
    return content
