"""How a command ends: an error in one line, and the status that it exits with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    except (OSError, ModuleNotFoundError) as error:
        fail(str(error), 1)
    except KeyboardInterrupt:
        raise typer.Exit((interrupt or Interrupt()).status) from None


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
