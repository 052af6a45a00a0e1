"""How a command ends: an error in one line, and the status that it exits with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from vcsg.training.interrupt import Interrupt


@contextmanager
def errors(interrupt: Interrupt | None = None) -> Iterator[None]:
    """Print an error in one line and exit: status 2 for a wrong call, 1 for others, 130 for Ctrl-C, 143 for SIGTERM."""
    from vcsg.training.interrupt import Interrupt
    from vcsg.workloads import DataError

    try:
        yield
    except DataError as error:
        fail(str(error), 1)
    except ValueError as error:
        fail(str(error), 2)
    except OSError as error:
        known = error.filename is not None and error.strerror is not None
        fail(f"{error.filename}: {error.strerror}" if known else str(error), 1)
    except ModuleNotFoundError as error:
        fail(str(error), 1)
    except MemoryError as error:
        fail(f"the memory does not suffice ({error}): give fewer samples or features, or fewer jobs at a time", 1)
    except KeyboardInterrupt:
        raise typer.Exit((interrupt or Interrupt()).status) from None


def check_folder(out: Path) -> None:
    """Refuse, before anything is read, an --out that is a file, lies below one, or cannot be written to."""
    there = next(place for place in (out, *out.resolve().parents) if place.exists())
    if not there.is_dir():
        below = "is a file" if there == out else f"would lie in {there}, which is a file"
        raise ValueError(f"--out {out} {below}: give a folder, which is made where it is missing")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"--out {out}: nothing can be written to {there}; give a folder of your own")


def check_file(out: Path) -> None:
    """The same for an --out that names the file of a page."""
    if out.is_dir() or out.suffix.lower() not in (".html", ".htm", ".md"):
        what = "is a folder" if out.is_dir() else "does not end in .html or .md"
        raise ValueError(f"--out {out} {what}: give the name of a file, such as {out / 'report.html'}")
    check_folder(out.parent)


def fail(message: str, status: int) -> None:
    """Print what is wrong, and exit."""
    print(f"vcsg: {message}", file=sys.stderr)
    raise typer.Exit(status)


def finish(interrupted: bool, failures: dict[str, str], interrupt: Interrupt) -> None:
    """Name the runs that failed, and exit with the status of an interrupted or failed command if it was one."""
    for name, why in failures.items():
        print(f"vcsg: {name}: {why}", file=sys.stderr)
    if interrupted:
        raise typer.Exit(interrupt.status)
    if failures:
        raise typer.Exit(1)
