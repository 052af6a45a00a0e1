"""Downloads of official files: each is made once, and kept only if its checksum is right."""

from __future__ import annotations

import hashlib
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from vcsg.files import replacing
from vcsg.workloads.dataset import DataError

TIMEOUT = 30.0
"""Seconds without a byte after which a download fails."""

logger = logging.getLogger("vcsg")


@dataclass(frozen=True)
class Download:
    """One file of a data set.

    Attributes:
        url: the address that it is published at.
        size: its size in bytes.
        digests: checksums "sha256:…" or "md5:…"; the file has to match one of them.
    """

    url: str
    size: int
    digests: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.url.rpartition("/")[2]


def download(file: Download, folder: Path, progress: bool | None = None) -> Path:
    """Download the file to the folder, unless it is there already; returns its path.

    Args:
        progress: whether to show progress on stderr; None is True on a terminal alone.
    """
    path = folder / file.name
    if path.is_file() and matches(path, file):
        return path
    try:
        import pooch  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(f"a download needs pooch: pip install pooch, or put {file.url} into {folder}") from error
    logger.info("downloading %s to %s", file.url, path)
    bar = DownloadBar(file.name) if progress or (progress is None and sys.stderr.isatty()) else False
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
    except OSError as error:  # the errors of requests are OSErrors too
        raise DataError(
            f"{file.url} could not be downloaded ({_reason(error)}): try again, or put the file from elsewhere into "
            f"{folder}"
        ) from error
    return path


def _reason(error: OSError) -> str:
    """What went wrong, in a few words: the texts of requests name its own objects, and go over several lines."""
    import requests  # pooch needs it

    if isinstance(error, requests.Timeout):
        return f"no answer for {TIMEOUT:g} s"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"{error.response.status_code} {error.response.reason}, says the server"
    if isinstance(error, requests.ConnectionError):
        host = urlsplit(str(error.request.url)).netloc if error.request is not None else "the server"
        return f"no connection to {host}: is there a network?"
    return str(error)


def matches(path: Path, file: Download) -> bool:
    """Whether the content of `path` has one of the digests."""
    kinds = {digest.partition(":")[0] for digest in file.digests}
    with path.open("rb") as content:
        for kind in kinds:
            content.seek(0)
            if f"{kind}:{hashlib.file_digest(content, kind).hexdigest()}" in file.digests:
                return True
    return False


class DownloadBar:
    """Shows progress on stderr, with the interface that pooch needs."""

    def __init__(self, name: str) -> None:
        self.total, self._name, self._done, self._shown = 0, name, 0, -1

    def update(self, count: int) -> None:
        """Count `count` more bytes."""
        self._done = min(self._done + count, self.total or sys.maxsize)
        share = 100 * self._done // self.total if self.total else self._done >> 20
        if share != self._shown:
            self._shown = share
            amount = f"{share} % of {self.total / 1e6:.1f} MB" if self.total else f"{share} MiB"
            print(f"\r{self._name}: {amount}", end="", file=sys.stderr, flush=True)

    def reset(self) -> None:
        """Start again at 0, which pooch does before it fills the bar."""
        self._done = 0

    def close(self) -> None:
        """End the line of the bar."""
        print(file=sys.stderr)
