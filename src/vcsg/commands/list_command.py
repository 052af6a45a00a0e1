"""`vcsg list`: the workloads and the methods."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from vcsg.commands import options
from vcsg.commands.ending import errors


class Listed(StrEnum):
    """What can be listed."""

    WORKLOADS = "workloads"
    METHODS = "methods"


def list_all(
    what: Annotated[Listed, typer.Argument(help="What to list.")],
    data_dir: options.DataDir = None,
    import_: options.Import = None,
) -> None:
    """List the workloads or the methods, with their options."""
    from vcsg.study import imports

    with errors():
        imports.load(import_ or [])
    if what is Listed.METHODS:
        _list_methods()
    else:
        _list_workloads(data_dir)


def _list_methods() -> None:
    from vcsg.study import methods

    for name in methods.names():
        options = ", ".join(methods.parameters(name))
        print(f"{name:<20} {methods.LABELS.get(name, name):<20} {options}")


def _list_workloads(data_dir: str | None) -> None:
    from vcsg import workloads

    for listing in workloads.names(data_dir):
        download = "" if listing.files is not None else f"  download: {listing.download / 1e6:.0f} MB"
        print(f"{listing.name:<38} n = {listing.n:>7,}  {listing.d:>11,} parameters{download}")
