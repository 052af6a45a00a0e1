"""Official files, downloaded once, compared with their checksums, and put in place only when they are right."""

from __future__ import annotations

import hashlib
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

from vcsg.files import replacing
from vcsg.workloads.dataset import DataError

TIMEOUT = 30.0
"""Seconds without a byte after which a download fails."""

logger = logging.getLogger("vcsg")


@dataclass(frozen=True)
class Download:
    """One file of a data set.

    Attributes:
        url: where it is published.
        size: in bytes.
        digests: "sha256:…" or "md5:…" of what it may hold, any of them.
    """

    url: str
    size: int
    digests: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.url.rpartition("/")[2]


def download(file: Download, folder: Path, progress: bool | None = None) -> Path:
    """The file in the folder, which is left alone where the right one is there already.

    Args:
        progress: shows a line on stderr as it goes; None is True on a terminal alone.
    """
    path = folder / file.name
    if path.is_file() and matches(path, file):
        return path
    try:
        import pooch  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(f"a download needs pooch: pip install pooch, or put {file.url} into {folder}") from error
    logger.info("downloading %s to %s", file.url, path)
    bar = Bar(file.name) if progress or (progress is None and sys.stderr.isatty()) else False
    get = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=TIMEOUT)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as new:
            get(file.url, str(new), None)
            if not matches(new, file):
                raise DataError(
                    f"{file.url} gave {new.stat().st_size:,} bytes whose checksum is not {' or '.join(file.digests)}: "
                    f"not kept. Try again, or put the file from elsewhere into {folder}"
                )
    except OSError as error:  # those of requests are among them
        raise DataError(
            f"{file.url} could not be downloaded ({error}): try again, or put the file from elsewhere into {folder}"
        ) from error
    return path


def matches(path: Path, file: Download) -> bool:
    """Whether the content of `path` has one of the digests."""
    kinds = {digest.partition(":")[0] for digest in file.digests}
    with path.open("rb") as content:
        for kind in kinds:
            content.seek(0)
            if f"{kind}:{hashlib.file_digest(content, kind).hexdigest()}" in file.digests:
                return True
    return False


class Bar:
    """Progress on stderr, in the form that pooch asks for."""

    def __init__(self, name: str) -> None:
        self.total, self._name, self._done, self._shown = 0, name, 0, -1

    def update(self, count: int) -> None:
        """`count` more bytes are there."""
        self._done = min(self._done + count, self.total or sys.maxsize)
        share = 100 * self._done // self.total if self.total else self._done >> 20
        if share != self._shown:
            self._shown = share
            amount = f"{share} % of {self.total / 1e6:.1f} MB" if self.total else f"{share} MiB"
            print(f"\r{self._name}: {amount}", end="", file=sys.stderr, flush=True)

    def reset(self) -> None:
        """Back to the beginning; pooch does this before it fills the bar."""
        self._done = 0

    def close(self) -> None:
        """The download has ended."""
        print(file=sys.stderr)
